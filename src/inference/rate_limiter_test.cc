#include "inference/rate_limiter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/status.h"
#include "google/protobuf/text_format.h"
#include "tests/support/core_harness.h"

namespace tidemark {
namespace {

using testing::HasSubstr;
using testing::IsNull;
using testing::NotNull;

using Limits = std::vector<RateLimiter::Limit>;

inference::ModelRateLimiter Config(const std::string& text) {
  inference::ModelRateLimiter config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  return config;
}

std::string Error(RateLimiter& limiter, const std::string& text, DeviceId device = kHost) {
  return std::string(MessageOf(limiter.Add(Config(text), device).status()));
}

TEST(RateLimiterTest, NeverMoreExecutionsThanTheResourceIsEnoughFor) {
  RateLimiter limiter({{"R", 5, std::nullopt}});
  std::atomic<int> used{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const int count = i % 2 == 0 ? 2 : 3;
      const auto member =
          *limiter.Add(Config(fmt::format("resources {{ name: 'R' global: true count: {} }}", count)), 0);
      for (int n = 0; n < 200; ++n) {
        ASSERT_TRUE(member->Begin(nullptr).ok());
        EXPECT_LE(used += count, 5);
        used -= count;
        member->End(n % 2 == 0 && n + 1 < 200);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void AwaitWaiting(const RateLimiter& limiter, std::size_t count) {
  while (limiter.waiting() < count) std::this_thread::yield();
}

TEST(RateLimiterTest, APriorityOfTwoGetsHalfTheExecutions) {
  RateLimiter limiter({});
  const auto starter = *limiter.Add(Config("resources { name: 'R' count: 1 }"), kHost);
  ASSERT_TRUE(starter->Begin(nullptr).ok());
  std::array<int, 2> executions{};  // guarded by the resource
  const auto run = [&](std::size_t which) {
    const auto member =
        *limiter.Add(Config(fmt::format("resources {{ name: 'R' count: 1 }} priority: {}", which + 1)), kHost);
    for (bool more = true; more;) {
      ASSERT_TRUE(member->Begin(nullptr).ok());
      ++executions.at(which);
      more = executions[0] + executions[1] < 300;
      member->End(more);
    }
  };
  std::thread first([&] { run(0); });
  std::thread second([&] { run(1); });
  AwaitWaiting(limiter, 2);
  starter->End(false);
  first.join();
  second.join();
  EXPECT_GE(executions[0] + executions[1], 300);
  EXPECT_LE(std::abs(executions[0] - 2 * executions[1]), 3);
}

TEST(RateLimiterTest, WhoWaitsForSomethingElseIsNotHeldUp) {
  RateLimiter limiter({});
  const auto holder = *limiter.Add(Config("resources { name: 'A' count: 1 }"), kHost);
  const auto waiter = *limiter.Add(Config("resources { name: 'A' count: 1 }"), kHost);
  const auto other = *limiter.Add(Config("resources { name: 'B' count: 1 } priority: 9"), kHost);
  const auto elsewhere = *limiter.Add(Config("resources { name: 'A' count: 1 } priority: 9"), 0);
  ASSERT_TRUE(holder->Begin(nullptr).ok());
  std::thread waits([&] {
    ASSERT_TRUE(waiter->Begin(nullptr).ok());
    waiter->End(false);
  });
  AwaitWaiting(limiter, 1);
  ASSERT_TRUE(other->Begin(nullptr).ok());
  ASSERT_TRUE(elsewhere->Begin(nullptr).ok()) << "each device has its own";
  other->End(false);
  elsewhere->End(false);
  holder->End(false);
  waits.join();
}

TEST(RateLimiterTest, AMemberThatDiesInItsTurnGivesItsResourcesBack) {
  RateLimiter limiter({});
  auto dying = *limiter.Add(Config("resources { name: 'A' count: 1 }"), kHost);
  const auto next = *limiter.Add(Config("resources { name: 'A' count: 1 }"), kHost);
  ASSERT_TRUE(dying->Begin(nullptr).ok());
  dying.reset();
  ASSERT_TRUE(next->Begin(nullptr).ok());
  next->End(false);
}

TEST(RateLimiterTest, AWaitEndsWhenItIsCancelled) {
  RateLimiter limiter({});
  const auto holder = *limiter.Add(Config("resources { name: 'A' count: 1 }"), kHost);
  const auto waiter = *limiter.Add(Config("resources { name: 'A' count: 1 }"), kHost);
  ASSERT_TRUE(holder->Begin(nullptr).ok());
  CancelFlag cancel;
  std::thread canceller([&] {
    AwaitWaiting(limiter, 1);
    cancel.Cancel();
  });
  EXPECT_TRUE(absl::IsCancelled(waiter->Begin(&cancel)));
  canceller.join();
  holder->End(false);
  ASSERT_TRUE(waiter->Begin(nullptr).ok());
  waiter->End(false);
}

TEST(RateLimiterTest, InstancesThatAskForNothingNeverWait) {
  RateLimiter limiter({{"R", 1, std::nullopt}});
  EXPECT_THAT(*limiter.Add(Config("priority: 3"), kHost), IsNull());
  EXPECT_THAT(*limiter.Add(Config("resources { name: 'R' count: 0 }"), kHost), IsNull());
}

TEST(RateLimiterTest, AResourceIsGlobalOrOfADeviceForEverybody) {
  RateLimiter limiter({});
  auto member = *limiter.Add(Config("resources { name: 'R' global: true count: 1 }"), kHost);
  EXPECT_EQ(Error(limiter, "resources { name: 'R' count: 1 }"),
            "Resource \"R\" is present as both global and device-specific resource in the model configuration.");
  member.reset();
  EXPECT_THAT(*limiter.Add(Config("resources { name: 'R' count: 1 }"), kHost), NotNull()) << "nobody minds any more";
}

TEST(RateLimiterTest, AnInstanceThatCouldNeverExecuteIsRefused) {
  RateLimiter limiter({{"R", 2, std::nullopt}, {"D", 1, 0}, {"D", 4, 1}});
  EXPECT_EQ(
      Error(limiter, "resources { name: 'R' count: 3 }"),
      "Resource count for \"R\" is limited to 2 which will prevent scheduling of one or more model instances, the "
      "minimum required count is 3");
  EXPECT_THAT(Error(limiter, "resources { name: 'X' count: 1 }"), HasSubstr("is limited to 0"));
  EXPECT_THAT(Error(limiter, "resources { name: 'D' count: 2 }", 0), HasSubstr("is limited to 1"));
  EXPECT_EQ(Error(limiter, "resources { name: 'D' count: 2 }", 1), "");
  RateLimiter global({{"D", 1, 0}, {"D", 4, 1}});
  EXPECT_EQ(Error(global, "resources { name: 'D' count: 4 global: true }", 0), "") << "the largest count listed";
  EXPECT_THAT(Error(global, "resources { name: 'D' count: 1 }", kHost), HasSubstr("is limited to 0"));
}

TEST(RateLimiterTest, WithoutLimitsThereIsAsMuchAsTheGreediestInstanceWants) {
  RateLimiter limiter({});
  auto greedy = *limiter.Add(Config("resources { name: 'R' count: 4 }"), kHost);
  const auto modest = *limiter.Add(Config("resources { name: 'R' count: 2 }"), kHost);
  const auto other = *limiter.Add(Config("resources { name: 'R' count: 2 }"), kHost);
  ASSERT_TRUE(modest->Begin(nullptr).ok());
  ASSERT_TRUE(other->Begin(nullptr).ok());
  modest->End(false);
  other->End(false);
  greedy.reset();  // two it is now
  ASSERT_TRUE(modest->Begin(nullptr).ok());
  modest->End(false);
}

CoreHarness::Options Limited(Limits limits) {
  CoreHarness::Options options;
  options.rate_limit = true;
  options.rate_limits = std::move(limits);
  return options;
}

std::string Wants(int count) {
  return fmt::format(
      "backend: \"fake\"\ninput {{ name: \"INPUT0\" data_type: TYPE_FP32 dims: [ 4 ] }}\n"
      "output {{ name: \"OUTPUT0\" data_type: TYPE_FP32 dims: [ 4 ] }}\n"
      "instance_group {{ kind: KIND_CPU count: 2 rate_limiter {{ resources {{ name: \"R\" count: {} }} }} }}\n",
      count);
}

TEST(RateLimitedSchedulerTest, InstancesOfAllModelsShareTheResource) {
  CoreHarness core(Limited({{"R", 1, std::nullopt}}));
  std::atomic<int> inside{0}, executions{0};
  core.script.warms_up_unasked = false;
  core.script.on_execute = [&](const Execution&, std::string_view) {
    EXPECT_EQ(++inside, 1);
    std::this_thread::yield();
    --inside;
    ++executions;
    return absl::OkStatus();
  };
  core.folder.AddModel("a", Wants(1));
  core.folder.AddModel("b", Wants(1));
  ASSERT_TRUE(core.Start().ok());
  ASSERT_TRUE(core.Load("a").ok());
  ASSERT_TRUE(core.Load("b").ok());
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&, name = i % 2 == 0 ? "a" : "b"] {
      for (int n = 0; n < 50; ++n) EXPECT_TRUE(core.Infer(name, -1, {1, 2, 3, 4}, true).ok());
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(executions, 200);
}

TEST(RateLimitedSchedulerTest, AModelThatWantsMoreThanThereIsIsRefusedAndLeavesNothing) {
  CoreHarness core(Limited({{"R", 1, std::nullopt}}));
  core.folder.AddModel("m", Wants(2));
  ASSERT_TRUE(core.Start().ok());
  const std::uint64_t rows = core.rows();
  const absl::Status status = core.Load("m");
  EXPECT_THAT(std::string(MessageOf(status)), HasSubstr("Resource count for \"R\" is limited to 1"));
  EXPECT_EQ(core.rows(), rows);
  core.folder.AddModel("m", Wants(1));
  EXPECT_TRUE(core.Load("m").ok());
  EXPECT_TRUE(core.Infer("m").ok());
}

TEST(RateLimitedSchedulerTest, WithoutTheOptionTheConfigurationIsIgnored) {
  CoreHarness core;
  core.folder.AddModel("m", Wants(1000));
  ASSERT_TRUE(core.Start().ok());
  ASSERT_TRUE(core.Load("m").ok());
  EXPECT_TRUE(core.Infer("m").ok());
}

}  // namespace
}  // namespace tidemark
