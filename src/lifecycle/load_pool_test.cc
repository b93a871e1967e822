#include "lifecycle/load_pool.h"

#include <gtest/gtest.h>

#include <atomic>

#include "absl/synchronization/barrier.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "tests/support/fault_platform.h"
#include "tests/support/process_state.h"

namespace tidemark {
namespace {

class LoadPoolTest : public testing::Test {
 protected:
  std::unique_ptr<LoadPool> Make(int threads) { return *LoadPool::Create(ledger_, platform_, threads); }

  std::unique_ptr<Platform> real_ = CreateLinuxPlatform();
  FaultPlatform platform_{*real_};
  Ledger ledger_;
};

TEST_F(LoadPoolTest, ThreadsAreResidentRowsAndEndWithThePool) {
  const int threads = ReadProcessState().threads;
  auto pool = Make(3);
  EXPECT_EQ(ledger_.Totals().resident_rows, 5u) << "three, the one for unloads, and the timer";
  EXPECT_EQ(ledger_.Totals().rows, 0u);
  pool.reset();
  EXPECT_EQ(ledger_.Totals().resident_rows, 0u);
  EXPECT_EQ(ReadProcessStateWithThreads(threads).threads, threads);
}

TEST_F(LoadPoolTest, PoolThatCannotGetAllItsThreadsLeavesNone) {
  for (int n = 0; n < 5; ++n) {
    platform_.Arm(Fault::kOnce, n);
    EXPECT_FALSE(LoadPool::Create(ledger_, platform_, 3).ok());
    EXPECT_TRUE(ledger_.Rows().empty());
  }
}

TEST_F(LoadPoolTest, QueuedTasksRunBeforeTheEnd) {
  std::atomic<int> ran{0};
  {
    auto pool = Make(1);
    absl::Notification go;
    pool->Post([&] { go.WaitForNotification(); });
    for (int i = 0; i < 100; ++i) pool->Post([&] { ++ran; });
    go.Notify();
  }
  EXPECT_EQ(ran, 100);
}

TEST_F(LoadPoolTest, DueTasksRunInTheOrderOfTheirTimesAndRevokedOnesDoNot) {
  auto pool = Make(1);
  absl::Mutex mutex;
  std::string order;
  absl::Notification last;
  const absl::Time now = absl::Now();
  const auto note = [&](char c) {
    absl::MutexLock lock(&mutex);
    order += c;
  };
  pool->PostAt(now + absl::Milliseconds(40), [&] {
    note('c');
    last.Notify();
  });
  const LoadPool::Ticket revoked = pool->PostAt(now + absl::Milliseconds(10), [&] { note('x'); });
  pool->PostAt(now + absl::Milliseconds(20), [&] { note('b'); });
  pool->PostAt(now - absl::Seconds(1), [&] { note('a'); });
  pool->Revoke(revoked);
  pool->Revoke(revoked);
  last.WaitForNotification();
  EXPECT_EQ(order, "abc");
  pool->PostAt(absl::InfiniteFuture(), [&] { note('y'); });
  pool.reset();
  EXPECT_EQ(order, "abc") << "what is due later does not run";
}

TEST_F(LoadPoolTest, RunAllUsesTheThreadsThatAreFreeAndNeedsNone) {
  auto pool = Make(2);
  absl::Barrier* together = new absl::Barrier(2);
  std::vector<std::function<void()>> two(2, [together] {
    if (together->Block()) delete together;  // passes only when both run at once
  });
  pool->RunAll(two);
  // From inside a pool whose only thread is this one.
  auto lonely = Make(1);
  absl::Notification done;
  std::atomic<int> ran{0};
  lonely->Post([&] {
    lonely->RunAll(std::vector<std::function<void()>>(5, [&] { ++ran; }));
    done.Notify();
  });
  done.WaitForNotification();
  EXPECT_EQ(ran, 5);
}

TEST_F(LoadPoolTest, TasksOfARunningTaskStillRunAtTheEnd) {
  std::atomic<bool> ran{false};
  {
    auto pool = Make(1);
    LoadPool* raw = pool.get();
    absl::Notification inside;
    pool->Post([&, raw] {
      inside.Notify();
      raw->Post([&] { ran = true; });
    });
    inside.WaitForNotification();
  }
  EXPECT_TRUE(ran);
}

TEST_F(LoadPoolTest, UnloadsRunWhileEveryLoadThreadIsBlocked) {
  auto pool = Make(1);
  absl::Notification unloaded, loaded;
  pool->Post([&] {
    unloaded.WaitForNotification();
    loaded.Notify();
  });
  pool->Post([&] { unloaded.Notify(); }, LoadPool::Lane::kUnloads);
  loaded.WaitForNotification();
}

}  // namespace
}  // namespace tidemark
