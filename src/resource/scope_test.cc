#include "resource/scope.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <thread>

#include "absl/synchronization/notification.h"
#include "base/status.h"
#include "tests/support/fault_platform.h"
#include "tests/support/process_state.h"

namespace tidemark {
namespace {

class ScopeTest : public testing::Test {
 protected:
  // An engine object that notes its making and its release.
  absl::Status Make(Scope& scope, const std::string& name) {
    return scope
        .Acquire(
            ResourceKind::kEngineObject, kHost, 1, name, [] { return absl::OkStatus(); },
            [this, name] {
              order_ += name;
              return absl::OkStatus();
            })
        .status();
  }

  std::unique_ptr<Platform> real_ = CreateLinuxPlatform();
  FaultPlatform platform_{*real_};
  Ledger ledger_;
  std::string order_;
};

TEST_F(ScopeTest, GivesBackNewestFirst) {
  {
    Scope scope(ledger_, platform_, "s");
    for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(Make(scope, name).ok());
    EXPECT_EQ(ledger_.Totals().rows, 3u);
  }
  EXPECT_EQ(order_, "cba");
  EXPECT_EQ(ledger_.Totals().rows, 0u);
}

TEST_F(ScopeTest, EarlyReleaseTakesOneOutOfTheMiddle) {
  Scope scope(ledger_, platform_, "s");
  ASSERT_TRUE(Make(scope, "a").ok());
  const auto handle = scope.Acquire(
      ResourceKind::kEngineObject, kHost, 1, "b", [] { return absl::OkStatus(); },
      [this] {
        order_ += "b";
        return absl::OkStatus();
      });
  ASSERT_TRUE(Make(scope, "c").ok());
  scope.Release(*handle);
  EXPECT_EQ(order_, "b");
  EXPECT_EQ(ledger_.Totals().rows, 2u);
  scope.ReleaseAll();
  EXPECT_EQ(order_, "bca");
  scope.Release(nullptr);
}

TEST_F(ScopeTest, RowIsOpenBeforeTheTakingAndUntilAfterTheGivingBack) {
  Scope scope(ledger_, platform_, "s");
  const auto handle = scope.Acquire(
      ResourceKind::kEngineObject, kHost, 9, "x",
      [this] {
        EXPECT_EQ(ledger_.Rows().size(), 1u);
        EXPECT_EQ(ledger_.Rows()[0].state, RowState::kPending);
        return absl::OkStatus();
      },
      [this] {
        EXPECT_EQ(ledger_.Rows().size(), 1u);
        return absl::OkStatus();
      });
  ASSERT_TRUE(handle.ok());
  EXPECT_EQ(ledger_.Rows()[0].state, RowState::kHeld);
  scope.ReleaseAll();
  EXPECT_TRUE(ledger_.Rows().empty());
}

TEST_F(ScopeTest, EveryKindOfAcquisitionThatFailsOrThrowsLeavesNoRow) {
  const std::vector<std::function<absl::Status(Scope&)>> takes = {
      [](Scope& s) { return s.AllocateHost(1000, "m").status(); },
      [](Scope& s) { return s.MapFile("/proc/self/exe", "f").status(); },
      [](Scope& s) { return s.MakeTempDirectory("tidemark-test-", "t").status(); },
      [](Scope& s) { return s.OpenLibrary("libm.so.6", "l").status(); },
      [](Scope& s) {
        return s
            .StartThread(
                "t", [] {}, [] {}, "thread")
            .status();
      },
      [this](Scope& s) { return Make(s, "o"); },
  };
  Scope scope(ledger_, platform_, "s");
  for (const auto& take : takes) {
    platform_.Arm(Fault::kOnce, 0);
    const absl::Status status = take(scope);
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_TRUE(ledger_.Rows().empty());
    EXPECT_EQ(scope.TakeRefusal(), status);
    EXPECT_TRUE(scope.TakeRefusal().ok());
    platform_.Arm(Fault::kThrow, 0);
    EXPECT_THROW(static_cast<void>(take(scope)), InjectedException);
    EXPECT_TRUE(ledger_.Rows().empty());
    EXPECT_TRUE(absl::IsInternal(scope.TakeRefusal()));
    platform_.Disarm();
    EXPECT_TRUE(take(scope).ok());
    EXPECT_EQ(ledger_.Rows().size(), 1u);
    scope.ReleaseAll();
    EXPECT_TRUE(ledger_.Rows().empty());
  }
  EXPECT_EQ(order_, "o") << "a failed creation is not released";
}

TEST_F(ScopeTest, FailingOrThrowingCreateIsNotReleased) {
  Scope scope(ledger_, platform_, "s");
  const auto release = [this] {
    order_ += "!";
    return absl::OkStatus();
  };
  EXPECT_EQ(MessageOf(scope
                          .Acquire(
                              ResourceKind::kEngineObject, kHost, 1, "x",
                              [] { return absl::InternalError("engine says no"); }, release)
                          .status()),
            "engine says no");
  EXPECT_THROW(static_cast<void>(scope.Acquire(
                   ResourceKind::kEngineObject, kHost, 1, "x",
                   []() -> absl::Status { throw std::runtime_error("boom"); }, release)),
               std::runtime_error);
  scope.ReleaseAll();
  EXPECT_EQ(order_, "");
  EXPECT_TRUE(ledger_.Rows().empty());
}

TEST_F(ScopeTest, FailedReleaseStrandsItsRowAndTheOthersStillGo) {
  {
    Scope scope(ledger_, platform_, "s");
    ASSERT_TRUE(Make(scope, "a").ok());
    ASSERT_TRUE(scope
                    .Acquire(
                        ResourceKind::kEngineObject, kHost, 5, "bad", [] { return absl::OkStatus(); },
                        [] { return absl::InternalError("stuck"); })
                    .ok());
    ASSERT_TRUE(scope
                    .Acquire(
                        ResourceKind::kEngineObject, kHost, 5, "worse", [] { return absl::OkStatus(); },
                        []() -> absl::Status { throw std::runtime_error("boom"); })
                    .ok());
    ASSERT_TRUE(Make(scope, "c").ok());
  }
  EXPECT_EQ(order_, "ca");
  EXPECT_EQ(ledger_.stranded_rows(), 2u);
  const std::vector<LedgerRow> rows = ledger_.Rows();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].reason, "stuck");
  EXPECT_EQ(rows[1].reason, "exception: boom");
}

TEST_F(ScopeTest, MemoryIsZeroedWholePagesAndBack) {
  Scope scope(ledger_, platform_, "s");
  const auto memory = scope.AllocateHost(5000, "m");
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory->bytes, 8192u);
  for (std::size_t i = 0; i < memory->bytes; ++i) ASSERT_EQ(memory->data[i], std::byte{0});
  std::memset(memory->data, 1, memory->bytes);
  EXPECT_EQ(ledger_.Totals().BytesOf(kHost), 8192u);
  EXPECT_EQ(scope.AllocateHost(0, "m")->bytes, 4096u);
  EXPECT_TRUE(absl::IsResourceExhausted(scope.AllocateHost(SIZE_MAX, "m").status()));
  EXPECT_TRUE(absl::IsResourceExhausted(scope.AllocateHost(SIZE_MAX - 8000, "m").status()));
}

TEST_F(ScopeTest, FileMappingShowsItsBytes) {
  Scope scope(ledger_, platform_, "s");
  const auto directory = scope.MakeTempDirectory("tidemark-test-", "t");
  ASSERT_TRUE(directory.ok());
  std::ofstream(*directory / "f") << "hello";
  std::ofstream(*directory / "empty").flush();
  const auto file = scope.MapFile(*directory / "f", "f");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(file->data.data()), file->data.size()), "hello");
  EXPECT_EQ(ledger_.Rows().back().bytes, 5u);
  const auto empty = scope.MapFile(*directory / "empty", "f");
  ASSERT_TRUE(empty.ok());
  EXPECT_TRUE(empty->data.empty());
  EXPECT_TRUE(absl::IsNotFound(scope.MapFile(*directory / "absent", "f").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(scope.MapFile(*directory, "f").status()));
  const std::filesystem::path path = *directory;
  scope.ReleaseAll();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(ScopeTest, ThreadIsStoppedThenJoined) {
  const int threads = ReadProcessState().threads;
  absl::Notification stop;
  {
    Scope scope(ledger_, platform_, "s");
    ASSERT_TRUE(scope
                    .StartThread(
                        "worker", [&] { stop.WaitForNotification(); }, [&] { stop.Notify(); }, "thread")
                    .ok());
    EXPECT_EQ(ReadProcessState().threads, threads + 1);
  }
  EXPECT_EQ(ReadProcessStateWithThreads(threads).threads, threads);
}

TEST_F(ScopeTest, ChildIsNamedBelowItsParentAndSharesItsOptions) {
  CancelFlag cancel;
  Reservations claims;
  claims.Add(*ledger_.Reserve(kHost, 4096, "s"));
  Scope parent(ledger_, platform_, "model/m/1", Scope::Options{&cancel, &claims, false});
  Scope child(parent, "instance/0");
  Scope grandchild(child, "thread");
  EXPECT_EQ(grandchild.owner(), "model/m/1/instance/0/thread");
  ASSERT_TRUE(grandchild.AllocateHost(4096, "m").ok());
  EXPECT_EQ(claims.On(kHost)->bytes(), 0u) << "drawn through the outermost scope";
  EXPECT_EQ(parent.MemoryUse()[kHost].now, 4096u);
  EXPECT_EQ(grandchild.MemoryUse()[kHost].high_water, 4096u) << "counted for the outermost scope";
  cancel.Cancel();
  EXPECT_TRUE(grandchild.cancelled());
  EXPECT_TRUE(absl::IsCancelled(grandchild.AllocateHost(1, "m").status()));
  EXPECT_EQ(ledger_.RowsOf("model/m/1").size(), 1u);
}

TEST_F(ScopeTest, AfterEndLoadCancellingNoLongerStopsAcquisitions) {
  auto cancel = std::make_unique<CancelFlag>();
  Scope scope(ledger_, platform_, "s", Scope::Options{cancel.get(), nullptr, false});
  Scope child(scope, "c");
  scope.EndLoad();
  cancel->Cancel();
  cancel.reset();
  EXPECT_FALSE(child.cancelled());
  EXPECT_TRUE(child.AllocateHost(1, "m").ok());
}

TEST_F(ScopeTest, EndLoadWaitsForAcquisitionsThatLookAtFlagAndReservation) {
  for (int round = 0; round < 200; ++round) {
    auto cancel = std::make_unique<CancelFlag>();
    auto claims = std::make_unique<Reservations>();
    claims->Add(*ledger_.Reserve(kHost, 1 << 20, "s"));
    Scope scope(ledger_, platform_, "s", Scope::Options{cancel.get(), claims.get(), false});
    std::atomic<bool> ended{false};
    std::thread engine([&] {
      while (!ended) {
        const auto memory = scope.AllocateHost(1, "m");
        ASSERT_TRUE(memory.ok());
        scope.Release(memory->handle);
      }
    });
    scope.EndLoad();
    claims.reset();
    cancel.reset();  // a use of either from here on is what the sanitizers would see
    ended = true;
    engine.join();
  }
  EXPECT_TRUE(ledger_.Rows().empty());
}

TEST_F(ScopeTest, CancelledScopeTakesNothingButStillReleases) {
  CancelFlag cancel;
  Scope scope(ledger_, platform_, "s", Scope::Options{&cancel, nullptr, false});
  ASSERT_TRUE(Make(scope, "a").ok());
  cancel.Cancel();
  platform_.Arm(Fault::kNone, 0);
  EXPECT_TRUE(absl::IsCancelled(Make(scope, "b")));
  EXPECT_EQ(platform_.acquisitions(), 0);
  scope.ReleaseAll();
  EXPECT_EQ(order_, "a");
}

TEST_F(ScopeTest, ResizeChangesTheRow) {
  Scope scope(ledger_, platform_, "s");
  const auto memory = scope.AllocateHost(1, "m");
  scope.Resize(memory->handle, 77);
  EXPECT_EQ(ledger_.Rows()[0].bytes, 77u);
}

TEST_F(ScopeTest, ManyThreadsOnOneScopeEndWithNoRows) {
  {
    Scope scope(ledger_, platform_, "s");
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&scope] {
        for (int i = 0; i < 300; ++i) {
          const auto kept = scope.AllocateHost(64 << 10, "kept");
          const auto gone = scope.AllocateHost(64 << 10, "gone");
          ASSERT_TRUE(kept.ok() && gone.ok());
          scope.Release(gone->handle);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(ledger_.Totals().rows, 1200u);
  }
  EXPECT_EQ(ledger_.Totals().rows, 0u);
}

TEST_F(ScopeTest, DisownedMemoryStaysMappedWithoutARow) {
  std::byte* data = nullptr;
  std::byte* other = nullptr;
  {
    Scope scope(ledger_, platform_, "s");
    Scope::Memory memory = *scope.AllocateHost(8192, "first");
    data = memory.data;
    scope.Disown(memory);
    EXPECT_TRUE(ledger_.Rows().empty());

    Scope::Memory exchanged = *scope.AllocateHost(8192, "second");
    other = exchanged.data;
    const RowId row = ledger_.Rows().at(0).id;
    scope.Exchange(exchanged, data);  // the scope unmaps `data` at its end
    EXPECT_EQ(exchanged.data, data);
    EXPECT_EQ(ledger_.Rows().at(0).id, row);
  }
  EXPECT_TRUE(ledger_.Rows().empty());
  other[0] = std::byte{1};
  EXPECT_TRUE(platform_.UnmapMemory(other, 8192).ok());
}

}  // namespace
}  // namespace tidemark
