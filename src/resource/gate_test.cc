#include "resource/gate.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"

namespace tidemark {
namespace {

TEST(Gate, ClosingAnEmptyGateTellsAtOnce) {
  Gate gate;
  int told = 0;
  gate.Close([&] { ++told; });
  EXPECT_EQ(told, 1);
  EXPECT_FALSE(gate.Enter());
  EXPECT_FALSE(gate.Enter());
  EXPECT_EQ(told, 1) << "a refused Enter must not tell again";
  EXPECT_EQ(gate.inside(), 0);
}

TEST(Gate, LastLeaveTells) {
  Gate gate;
  ASSERT_TRUE(gate.Enter());
  ASSERT_TRUE(gate.Enter());
  int told = 0;
  gate.Close([&] { ++told; });
  EXPECT_EQ(gate.inside(), 2);
  gate.Leave();
  EXPECT_FALSE(gate.Enter());
  EXPECT_EQ(told, 0);
  gate.Leave();
  EXPECT_EQ(told, 1);
}

TEST(Gate, EveryRoundOfManyThreadsTellsExactlyOnceAndOnlyWhenEmpty) {
  for (int round = 0; round < 300; ++round) {
    Gate gate;
    std::atomic<int> inside{0};
    std::atomic<int> told{0};
    std::atomic<int> inside_when_told{-1};
    absl::Notification start, emptied;
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        start.WaitForNotification();
        for (int i = 0; i < 50; ++i) {
          if (!gate.Enter()) continue;
          inside.fetch_add(1);
          inside.fetch_sub(1);
          gate.Leave();
        }
      });
    }
    threads.emplace_back([&] {
      start.WaitForNotification();
      gate.Close([&] {
        inside_when_told = inside.load();
        told.fetch_add(1);
        emptied.Notify();
      });
    });
    start.Notify();
    emptied.WaitForNotification();
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(told.load(), 1);
    ASSERT_EQ(inside_when_told.load(), 0);
    ASSERT_EQ(gate.inside(), 0);
  }
}

TEST(Gate, CallbackMayHoldTheLastReferenceToTheGate) {
  auto gate = std::make_shared<Gate>();
  ASSERT_TRUE(gate->Enter());
  bool told = false;
  gate->Close([gate, &told] { told = true; });
  Gate* raw = gate.get();
  std::weak_ptr<Gate> watch = gate;
  {
    const std::shared_ptr<Gate> held = std::move(gate);  // whoever leaves keeps it alive
    raw->Leave();
    EXPECT_TRUE(told);
  }
  EXPECT_TRUE(watch.expired()) << "the callback is dropped once it has run";
}

}  // namespace
}  // namespace tidemark
