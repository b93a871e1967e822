#include "frontend/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "absl/synchronization/notification.h"
#include "resource/ledger.h"
#include "tests/support/real_platform.h"

namespace tidemark {
namespace {

TEST(WorkerPool, TasksRunBesideOneAnotherOnThreadsOfItsOwn) {
  const std::unique_ptr<Platform> platform = CreateLinuxPlatform();
  Ledger ledger;
  auto pool = WorkerPool::Create(ledger, *platform, 2);
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ(ledger.Totals().resident_rows, 2U) << "a row for each thread";
  absl::Notification first;
  absl::Notification second;
  std::atomic<bool> elsewhere{false};
  (*pool)->Post([&, here = std::this_thread::get_id()] {
    elsewhere = std::this_thread::get_id() != here;
    second.WaitForNotification();  // would hang on one thread
    first.Notify();
  });
  (*pool)->Post([&] { second.Notify(); });
  first.WaitForNotification();
  EXPECT_TRUE(elsewhere);
}

TEST(WorkerPool, WhatIsQueuedRunsBeforeItsEnd) {
  const std::unique_ptr<Platform> platform = CreateLinuxPlatform();
  Ledger ledger;
  std::atomic<int> ran{0};
  {
    auto pool = WorkerPool::Create(ledger, *platform, 1);
    ASSERT_TRUE(pool.ok()) << pool.status();
    for (int i = 0; i < 100; ++i) (*pool)->Post([&] { ++ran; });
  }
  EXPECT_EQ(ran, 100);
  EXPECT_EQ(ledger.Totals().resident_rows, 0U);
}

}  // namespace
}  // namespace tidemark
