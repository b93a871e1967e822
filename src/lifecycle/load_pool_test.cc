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
  absl::Notification inside, go;
  auto pool = Make(1);
  pool->Post([&] {  // one thread stays for what is due: two would race for the order
    inside.Notify();
    go.WaitForNotification();
  });
  inside.WaitForNotification();
  std::shared_ptr<std::string> order;      // of the other thread until 'c' has come
  for (bool in_time = false; !in_time;) {  // again where something was due before all of it was there
    order = std::make_shared<std::string>();
    absl::Notification last;
    const absl::Time due = absl::Now() + absl::Milliseconds(50);
    pool->PostAt(due + absl::Milliseconds(2), [order, &last] {
      *order += 'c';
      last.Notify();
    });
    const LoadPool::Ticket revoked = pool->PostAt(due, [order] { *order += 'x'; });
    pool->PostAt(due + absl::Milliseconds(1), [order] { *order += 'b'; });
    pool->PostAt(due - absl::Seconds(1), [order] { *order += 'a'; });
    pool->Revoke(revoked);
    pool->Revoke(revoked);
    in_time = absl::Now() < due;
    last.WaitForNotification();
  }
  EXPECT_EQ(*order, "abc");
  pool->PostAt(absl::InfiniteFuture(), [order] { *order += 'y'; });
  go.Notify();
  pool.reset();
  EXPECT_EQ(*order, "abc") << "what is due later does not run";
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
