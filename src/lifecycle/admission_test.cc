#include "lifecycle/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "base/status.h"

namespace tidemark {
namespace {

using testing::HasSubstr;

Admission::Demand Known(std::uint64_t bytes) {
  return {.what = "m version 1", .devices = {kHost}, .estimate = MemoryEstimate{{kHost, bytes}}};
}
Admission::Demand Unknown() { return {.what = "u version 1", .devices = {kHost}, .estimate = std::nullopt}; }

class AdmissionTest : public testing::Test {
 protected:
  void AwaitWaiting(std::size_t count) {
    while (admission_.waiting() != count) std::this_thread::yield();
  }

  Ledger ledger_;
  Admission admission_{ledger_, absl::InfiniteDuration()};
  std::optional<Admission::Operation> operation_{admission_};
  Reservations claims_;
};

TEST_F(AdmissionTest, NobodyWaitsWithoutABudget) {
  const auto first = admission_.Enter(*operation_, Unknown(), nullptr, claims_);
  Reservations others;
  const auto second = admission_.Enter(*operation_, Unknown(), nullptr, others);
  EXPECT_TRUE(first.ok() && second.ok());
  EXPECT_FALSE(first->contended());
}

TEST_F(AdmissionTest, ClaimsTheEstimateAndRefusesWhatNeverFits) {
  ledger_.SetBudget(kHost, 100);
  {
    const auto permit = admission_.Enter(*operation_, Known(60), nullptr, claims_);
    ASSERT_TRUE(permit.ok());
    EXPECT_EQ(ledger_.RoomOn(kHost)->free, 40u);
  }
  claims_.Reset();
  const auto refused = admission_.Enter(*operation_, Known(101), nullptr, claims_);
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status()));
  EXPECT_EQ(MessageOf(refused.status()),
            "'m version 1' needs 101 bytes on host, but of its limit of 100 bytes only 100 are free");
  EXPECT_EQ(ledger_.RoomOn(kHost)->free, 100u);
}

TEST_F(AdmissionTest, WhatDoesNotFitBesideAnotherLoadWaitsForIt) {
  ledger_.SetBudget(kHost, 100);
  auto first = admission_.Enter(*operation_, Known(60), nullptr, claims_);
  ASSERT_TRUE(first.ok());
  absl::Status second_status = absl::UnknownError("not run");
  std::thread second([&] {
    Admission::Operation operation(admission_);
    Reservations claims;
    second_status = admission_.Enter(operation, Known(60), nullptr, claims).status();
  });
  AwaitWaiting(1);
  claims_.Reset();
  first->End();
  second.join();
  EXPECT_TRUE(second_status.ok()) << second_status;
}

TEST_F(AdmissionTest, WaitsForAVersionOnItsWayOut) {
  ledger_.SetBudget(kHost, 100);
  const RowId row = *ledger_.Open(ResourceKind::kHostMemory, kHost, 80, "old", "weights", false, {});
  admission_.DrainStarted();
  absl::Status status = absl::UnknownError("not run");
  std::thread load([&] { status = admission_.Enter(*operation_, Known(50), nullptr, claims_).status(); });
  AwaitWaiting(1);
  ledger_.Close(row);
  admission_.DrainEnded();
  load.join();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(AdmissionTest, AnUnknownLoadTakesWhatIsLeftAlone) {
  ledger_.SetBudget(kHost, 100);
  auto known = admission_.Enter(*operation_, Known(10), nullptr, claims_);
  std::uint64_t claimed = 0;
  bool contended = true;
  std::thread unknown([&] {
    Admission::Operation operation(admission_);
    Reservations claims;
    const auto permit = admission_.Enter(operation, Unknown(), nullptr, claims);
    ASSERT_TRUE(permit.ok());
    claimed = claims.On(kHost)->bytes();
    contended = permit->contended();
  });
  AwaitWaiting(1);
  known->End();  // what it claimed stays taken, as by a model that serves
  operation_.reset();
  unknown.join();
  EXPECT_EQ(claimed, 90u);
  EXPECT_FALSE(contended);
}

TEST_F(AdmissionTest, LoadsThatWaitForEachOtherAreNotAllRefused) {
  ledger_.SetBudget(kHost, 100);
  // Two models that each hold 45 with their first version and need 45 more for the second.
  const RowId mine = *ledger_.Open(ResourceKind::kHostMemory, kHost, 45, "a", "weights", false, {});
  const RowId theirs = *ledger_.Open(ResourceKind::kHostMemory, kHost, 45, "b", "weights", false, {});
  std::vector<absl::Status> results(2);
  const auto run = [&](std::size_t i, RowId row) {
    Admission::Operation operation(admission_);
    Reservations claims;
    results[i] = admission_.Enter(operation, Known(45), nullptr, claims).status();
    if (!results[i].ok()) ledger_.Close(row);  // it fails, and gives back what it held
  };
  std::thread a([&] { run(0, mine); });
  std::thread b([&] { run(1, theirs); });
  AwaitWaiting(2);
  operation_.reset();  // until here there was one that did not wait
  a.join();
  b.join();
  EXPECT_NE(results[0].ok(), results[1].ok());
}

TEST_F(AdmissionTest, TheLastToWaitWakesTheFirst) {
  ledger_.SetBudget(kHost, 100);
  const RowId row = *ledger_.Open(ResourceKind::kHostMemory, kHost, 60, "other", "weights", false, {});
  absl::Status first = absl::UnknownError("not run");
  std::thread load([&] {
    Admission::Operation operation(admission_);
    Reservations claims;
    first = admission_.Enter(operation, Known(50), nullptr, claims).status();
    ledger_.Close(row);
  });
  AwaitWaiting(1);  // for the operation of the fixture, which could still give something back
  const auto second = admission_.Enter(*operation_, Known(50), nullptr, claims_);
  load.join();
  EXPECT_TRUE(absl::IsResourceExhausted(first)) << first;
  EXPECT_TRUE(second.ok()) << second.status();
}

TEST_F(AdmissionTest, ACancelledLoadStopsWaiting) {
  ledger_.SetBudget(kHost, 100);
  const auto first = admission_.Enter(*operation_, Known(60), nullptr, claims_);
  CancelFlag cancel;
  absl::Status status;
  std::thread second([&] {
    Admission::Operation operation(admission_);
    Reservations claims;
    status = admission_.Enter(operation, Known(60), &cancel, claims).status();
  });
  AwaitWaiting(1);
  cancel.Cancel();
  admission_.Wake();
  second.join();
  EXPECT_TRUE(absl::IsCancelled(status));
  EXPECT_EQ(admission_.waiting(), 0u);
}

TEST_F(AdmissionTest, PatienceEndsWithWhoIsStillRunning) {
  ledger_.SetBudget(kHost, 100);
  Admission admission(ledger_, absl::ZeroDuration());
  Admission::Operation operation(admission);
  const auto first = admission.Enter(operation, Known(60), nullptr, claims_);
  admission.DrainStarted();
  Reservations claims;
  const auto second = admission.Enter(operation, Known(60), nullptr, claims);
  EXPECT_TRUE(absl::IsResourceExhausted(second.status()));
  EXPECT_THAT(std::string(MessageOf(second.status())),
              HasSubstr("only 40 are free; waited 0 for 1 loads and 1 unloads that are still running"));
}

TEST_F(AdmissionTest, AMeasuredNeedThatDoesNotFitTakesWhatIsLeft) {
  ledger_.SetBudget(kHost, 100);
  Admission::Demand demand = Known(120);
  demand.measured = true;
  const auto permit = admission_.Enter(*operation_, demand, nullptr, claims_);
  ASSERT_TRUE(permit.ok()) << "the limit in the allocator decides";
  EXPECT_EQ(claims_.On(kHost)->bytes(), 100u);
}

}  // namespace
}  // namespace tidemark
