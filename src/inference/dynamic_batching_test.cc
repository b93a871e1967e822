// The dynamic batcher with instances: what runs together, who is told what, and what is counted.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/status.h"
#include "tests/support/core_harness.h"

namespace tidemark {
namespace {

using testing::ElementsAre;

class DynamicBatchingTest : public testing::Test {
 protected:
  void Load(const std::string& batching, int instances = 1) {
    core_.folder.AddModel("m", fmt::format(R"(backend: "fake" max_batch_size: 8
        input {{ name: "INPUT0" data_type: TYPE_FP32 dims: -1 }} output {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }}
        instance_group {{ kind: KIND_CPU count: {} }} {})",
                                           instances, batching));
    core_.script.warms_up_unasked = false;
    core_.script.on_batch = [this](std::span<Execution* const> requests, std::string_view instance) {
      bool hold = false;
      {
        absl::MutexLock lock(&mutex_);
        batches_.push_back(requests.size());
        hold = held_.erase(std::string(requests[0]->request_id)) != 0;
        if (hold) ++inside_;
      }
      static_cast<void>(instance);
      if (hold) go_.at(std::string(requests[0]->request_id)).WaitForNotification();
    };
    ASSERT_TRUE(core_.Start().ok());
    ASSERT_TRUE(core_.Load("m").ok());
  }
  // The execution that begins with this request stays until Go(id).
  void Hold(const std::string& id) {
    absl::MutexLock lock(&mutex_);
    held_.insert(id);
    go_.try_emplace(id);
  }
  void Go(const std::string& id) { go_.at(id).Notify(); }
  void AwaitInside(int count) {
    absl::MutexLock lock(&mutex_);
    const auto there = [this, count] { return inside_ >= count; };
    mutex_.Await(absl::Condition(&there));
  }
  std::shared_ptr<CancelFlag> Send(const std::string& id, std::int64_t batch = 1, std::uint64_t timeout_us = 0) {
    auto request = std::make_unique<InferenceRequest>();
    request->id = id;
    request->timeout_us = timeout_us;
    request->cancel = std::make_shared<CancelFlag>();
    std::shared_ptr<CancelFlag> cancel = request->cancel;
    RequestInput& input = request->inputs.emplace_back();
    input.name = "INPUT0";
    input.data_type = DataType::kFp32;
    input.shape = {batch, 2};
    input.owned = *core_.buffers.Allocate(static_cast<std::size_t>(batch) * 8);
    input.data = input.owned.bytes();
    request->on_complete = [this](std::unique_ptr<InferenceRequest> back) {
      const std::string text =
          back->response.status.ok() ? back->id : fmt::format("{}: {}", back->id, MessageOf(back->response.status));
      back.reset();
      absl::MutexLock lock(&mutex_);
      answers_.push_back(text);
    };
    ModelHandle handle = *core_.registry.Find("m", -1);
    Model& model = *handle;
    request->set_model(std::move(handle));
    model.Submit(std::move(request), true);
    return cancel;
  }
  std::vector<std::string> AwaitAnswers(std::size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto there = [this, count] { return answers_.size() >= count; };
    mutex_.Await(absl::Condition(&there));
    return answers_;
  }
  std::vector<std::size_t> batches() {
    absl::MutexLock lock(&mutex_);
    return batches_;
  }

  absl::Mutex mutex_;
  std::set<std::string> held_;
  std::map<std::string, absl::Notification> go_;
  int inside_ = 0;
  std::vector<std::size_t> batches_;
  std::vector<std::string> answers_;
  CoreHarness core_;
};

TEST_F(DynamicBatchingTest, BatchFormsWhileTheInstanceIsBusyAndIsCountedAsOneExecution) {
  Load("dynamic_batching { }");
  Hold("first");
  Send("first");
  AwaitInside(1);
  for (const char* id : {"a", "b", "c"}) Send(id);
  Send("two", 2);
  Go("first");
  AwaitAnswers(5);
  EXPECT_THAT(batches(), ElementsAre(1, 4));
  const ModelStatisticsSnapshot statistics = (*core_.registry.Find("m", -1))->statistics().Snapshot();
  EXPECT_EQ(statistics.execution_count, 2u);
  EXPECT_EQ(statistics.inference_count, 6u);
  EXPECT_EQ(statistics.success.count, 5u);
  EXPECT_EQ(statistics.queue.count, 5u);
  ASSERT_EQ(statistics.batch_stats.size(), 2u);
  EXPECT_EQ(statistics.batch_stats.at(1).compute_infer.count, 1u);
  EXPECT_EQ(statistics.batch_stats.at(5).compute_infer.count, 1u);
}

TEST_F(DynamicBatchingTest, WithoutDynamicBatchingNothingRunsTogether) {
  Load("");
  Hold("first");
  Send("first");
  AwaitInside(1);
  for (const char* id : {"a", "b", "c"}) Send(id);
  Go("first");
  AwaitAnswers(4);
  EXPECT_THAT(batches(), ElementsAre(1, 1, 1, 1));
}

TEST_F(DynamicBatchingTest, DelayedBatchRunsWhenItsTimeHasCome) {
  Load("dynamic_batching { max_queue_delay_microseconds: 2000 }");
  Send("a");
  Send("b");
  AwaitAnswers(2);
}

TEST_F(DynamicBatchingTest, PreferredSizeEndsTheDelay) {
  Load("dynamic_batching { preferred_batch_size: 3 max_queue_delay_microseconds: 3600000000 }");
  for (const char* id : {"a", "b", "c"}) Send(id);
  EXPECT_THAT(AwaitAnswers(3), ElementsAre("a", "b", "c"));
  EXPECT_THAT(batches(), ElementsAre(3));
}

TEST_F(DynamicBatchingTest, TimeoutIsAnsweredWhileEveryInstanceIsBusy) {
  Load(
      "dynamic_batching { default_queue_policy { default_timeout_microseconds: 3600000000 allow_timeout_override: true } }");
  Hold("first");
  Send("first");
  AwaitInside(1);
  Send("late", 1, 1000);
  EXPECT_THAT(AwaitAnswers(1), ElementsAre("late: Request timeout expired"));
  const ModelStatisticsSnapshot statistics = (*core_.registry.Find("m", -1))->statistics().Snapshot();
  EXPECT_EQ(statistics.fail.count, 1u);
  EXPECT_EQ(statistics.failures[static_cast<std::size_t>(FailureReason::kRejected)], 1u);
  Go("first");
  AwaitAnswers(2);
}

TEST_F(DynamicBatchingTest, FullQueueRefusesAtOnceAndCountsNothing) {
  Load("dynamic_batching { default_queue_policy { max_queue_size: 1 } }");
  Hold("first");
  Send("first");
  AwaitInside(1);
  Send("a");
  Send("b");
  EXPECT_THAT(AwaitAnswers(1), ElementsAre("b: [request id: b] Exceeds maximum queue size"));
  EXPECT_EQ((*core_.registry.Find("m", -1))->statistics().Snapshot().fail.count, 0u);
  Go("first");
  AwaitAnswers(3);
}

TEST_F(DynamicBatchingTest, CancelledRequestMakesRoomWhileEveryInstanceIsBusy) {
  Load("dynamic_batching { default_queue_policy { max_queue_size: 1 } }");
  Hold("first");
  Send("first");
  AwaitInside(1);
  const auto cancel = Send("a");
  cancel->Cancel();
  EXPECT_THAT(AwaitAnswers(1), ElementsAre("a: "));
  Send("b");
  Go("first");
  EXPECT_THAT(AwaitAnswers(3), ElementsAre("a: ", "first", "b"));
}

TEST_F(DynamicBatchingTest, OrderIsPreservedOverInstances) {
  Load("dynamic_batching { preserve_ordering: true }", 2);
  Hold("first");
  Send("first");
  AwaitInside(1);
  Send("a");  // the other instance runs these
  Send("b");
  {
    absl::MutexLock lock(&mutex_);
    const auto all_begun = [this] { return std::accumulate(batches_.begin(), batches_.end(), std::size_t{0}) == 3; };
    mutex_.Await(absl::Condition(&all_begun));
    EXPECT_TRUE(answers_.empty());
  }
  Go("first");
  EXPECT_THAT(AwaitAnswers(3), ElementsAre("first", "a", "b"));
}

TEST_F(DynamicBatchingTest, UnloadAnswersWhatWaits) {
  Load("dynamic_batching { max_queue_delay_microseconds: 1000 }", 2);
  for (int round = 0; round < 20; ++round) Send("x");
  EXPECT_TRUE(core_.Unload("m").ok());
  AwaitAnswers(20);
  EXPECT_EQ(core_.rows(), 0u);
}

}  // namespace
}  // namespace tidemark
