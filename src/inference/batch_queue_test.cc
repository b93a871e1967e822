#include "inference/batch_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "google/protobuf/text_format.h"

namespace tidemark {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::int64_t kSecond = 1'000'000'000;

// A queue, and requests whose ids tell what left it. Time is what the test says.
class BatchQueueTest : public testing::Test {
 protected:
  void Make(const std::string& batching, int max_batch = 8, const std::string& dims = "4") {
    inference::ModelConfig config;
    ASSERT_TRUE(google::protobuf::TextFormat::MergeFromString(
        fmt::format(R"(name: "m" max_batch_size: {} input {{ name: "A" data_type: TYPE_FP32 dims: [ {} ] }} {})",
                    max_batch, dims, batching),
        &config));
    info_ = std::make_unique<ModelInfo>(config, 1, std::map<std::string, std::vector<std::string>>());
    queue_ = std::make_unique<BatchQueue>(*info_);
  }
  ScheduledRequest MakeRequest(const std::string& id, std::int64_t batch, Shape tail = {4}) {
    ScheduledRequest scheduled;
    scheduled.request = std::make_unique<InferenceRequest>();
    scheduled.request->id = id;
    scheduled.request->times.queued = now_;
    scheduled.batch = batch;
    InputTensor& tensor = scheduled.tensors.emplace_back();
    tensor.shape = tail;
    tensor.shape.insert(tensor.shape.begin(), batch);
    return scheduled;
  }
  absl::Status Push(ScheduledRequest scheduled) { return queue_->Push(scheduled, now_); }
  void Push(const std::string& id, std::int64_t batch, Shape tail = {4}) {
    ASSERT_TRUE(Push(MakeRequest(id, batch, std::move(tail))).ok());
  }
  void PushWith(const std::string& id, std::uint64_t priority, std::uint64_t timeout_us = 0) {
    ScheduledRequest scheduled = MakeRequest(id, 1);
    scheduled.request->priority = priority;
    scheduled.request->timeout_us = timeout_us;
    ASSERT_TRUE(Push(std::move(scheduled)).ok());
  }
  std::vector<std::string> Take() {
    std::vector<std::string> ids;
    DroppedRequests dropped;
    for (const ScheduledRequest& scheduled : queue_->Take(0, now_, dropped)) ids.push_back(scheduled.request->id);
    for (const DroppedRequest& request : dropped) dropped_.push_back(Text(request));
    return ids;
  }
  std::vector<std::string> Sweep() {
    DroppedRequests dropped;
    queue_->Sweep(now_, dropped);
    std::vector<std::string> texts;
    for (const DroppedRequest& request : dropped) texts.push_back(Text(request));
    return texts;
  }
  static std::string Text(const DroppedRequest& request) {
    return fmt::format("{}: {} ({})", request.scheduled.request->id,
                       MessageOf(request.scheduled.request->response.status), FailureReasonName(request.reason));
  }

  std::int64_t now_ = 100 * kSecond;
  std::unique_ptr<ModelInfo> info_;
  std::unique_ptr<BatchQueue> queue_;
  std::vector<std::string> dropped_;
};

TEST_F(BatchQueueTest, WithoutDynamicBatchingRequestsComeOneByOne) {
  Make("");
  Push("a", 1);
  Push("b", 3);
  EXPECT_THAT(Take(), ElementsAre("a"));
  EXPECT_THAT(Take(), ElementsAre("b"));
  EXPECT_THAT(Take(), IsEmpty());
  EXPECT_FALSE(queue_->timed());
}

TEST_F(BatchQueueTest, EagerBatchTakesAllThatFits) {
  Make("dynamic_batching { }");
  for (const char* id : {"a", "b", "c"}) Push(id, 3);
  EXPECT_THAT(Take(), ElementsAre("a", "b"));
  EXPECT_THAT(Take(), ElementsAre("c")) << "what does not fill a batch does not wait";
  EXPECT_TRUE(queue_->immediate());
}

// Triton's L0_batcher: preferred [2, 6], a delay of ten seconds, at most 8.
constexpr const char* kPreferred26 =
    "dynamic_batching { preferred_batch_size: [ 2, 6 ] max_queue_delay_microseconds: 10000000 }";

TEST_F(BatchQueueTest, PreferredSizeGoesAtOnceOneInBetweenWaits) {
  Make(kPreferred26);
  Push("two", 2);
  EXPECT_THAT(Take(), ElementsAre("two"));
  Push("four", 4);
  EXPECT_THAT(Take(), IsEmpty());
  EXPECT_EQ(queue_->NextEvent(true), now_ + 10 * kSecond);
  EXPECT_EQ(queue_->NextEvent(false), kNever) << "no instance could take it";
  now_ += 10 * kSecond;
  EXPECT_THAT(Take(), ElementsAre("four"));
  Push("seven", 7);
  EXPECT_THAT(Take(), ElementsAre("seven")) << "above the largest preferred";
}

TEST_F(BatchQueueTest, SumBetweenPreferredSizesWaitsUntilAnotherShapeFlushesIt) {
  Make(kPreferred26, 8, "-1");
  Push("one", 1);
  Push("three", 3);
  EXPECT_THAT(Take(), IsEmpty());
  Push("other", 1, {5});
  EXPECT_THAT(Take(), ElementsAre("one", "three"));
  EXPECT_THAT(Take(), IsEmpty());
}

TEST_F(BatchQueueTest, BatchThatTheNextOneWouldOverfillGoesAlone) {
  Make(kPreferred26);
  Push("three", 3);
  Push("four", 4);
  EXPECT_THAT(Take(), ElementsAre("three"));
  EXPECT_THAT(Take(), IsEmpty());
}

TEST_F(BatchQueueTest, AfterTheDelayTheLargestBatchBeatsThePreferred) {
  Make(kPreferred26);
  Push("three", 3);
  Push("four", 4);
  Push("one", 1);
  now_ += 10 * kSecond;
  EXPECT_THAT(Take(), ElementsAre("three", "four", "one"));
}

TEST_F(BatchQueueTest, TheLargestReachablePreferredSizeIsUsed) {
  Make(kPreferred26);
  for (const char* id : {"a", "b", "c", "d", "e"}) Push(id, 1);
  EXPECT_THAT(Take(), ElementsAre("a", "b")) << "six are not there";
  for (const char* id : {"f", "g", "h", "i"}) Push(id, 1);
  EXPECT_THAT(Take(), ElementsAre("c", "d", "e", "f", "g", "h"));
  EXPECT_THAT(Take(), IsEmpty());
}

TEST_F(BatchQueueTest, PreferredSizesWithoutDelay) {
  Make("dynamic_batching { preferred_batch_size: [ 4, 6 ] }");
  for (const auto& [count, first] : std::map<int, std::size_t>{{4, 4}, {5, 4}, {7, 6}, {3, 3}}) {
    for (int i = 0; i < count; ++i) Push("x", 1);
    EXPECT_EQ(Take().size(), first) << count;
    while (!Take().empty()) {
    }
  }
}

TEST_F(BatchQueueTest, FixedShapesAreNotComparedOptionalInputsAreCounted) {
  Make("dynamic_batching { } input { name: \"B\" data_type: TYPE_FP32 dims: [ 1 ] optional: true }");
  Push("a", 1);
  ScheduledRequest both = MakeRequest("b", 1);
  both.tensors.emplace_back().index = 1;
  ASSERT_TRUE(Push(std::move(both)).ok());
  EXPECT_THAT(Take(), ElementsAre("a"));
  EXPECT_THAT(Take(), ElementsAre("b"));
}

TEST_F(BatchQueueTest, ShapeTensorsMustBeEqualToTheLastByte) {
  Make("dynamic_batching { } input { name: \"S\" data_type: TYPE_INT32 dims: [ 2 ] is_shape_tensor: true }");
  const auto push = [this](const std::string& id, std::string_view values) {
    ScheduledRequest scheduled = MakeRequest(id, 1);
    InputTensor& tensor = scheduled.tensors.emplace_back();
    tensor.index = 1;
    tensor.shape = {2};
    tensor.data = std::as_bytes(std::span(values));
    ASSERT_TRUE(Push(std::move(scheduled)).ok());
  };
  push("a", std::string_view("\2\0\0\0\3\0\0\0", 8));
  push("b", std::string_view("\2\0\0\0\3\0\0\0", 8));
  push("c", std::string_view("\2\0\0\0\5\0\0\0", 8));
  EXPECT_THAT(Take(), ElementsAre("a", "b"));
  EXPECT_THAT(Take(), ElementsAre("c"));
}

TEST_F(BatchQueueTest, LowerLevelsGoFirstAndUnknownOnesAreTheDefault) {
  Make("dynamic_batching { priority_levels: 4294967296 default_priority_level: 2 }", 1);
  PushWith("default", 0);
  PushWith("beyond", 4294967297);
  PushWith("last", 4294967296);
  PushWith("first", 1);
  EXPECT_THAT(Take(), ElementsAre("first"));
  EXPECT_THAT(Take(), ElementsAre("default"));
  EXPECT_THAT(Take(), ElementsAre("beyond"));
  EXPECT_THAT(Take(), ElementsAre("last"));
  EXPECT_TRUE(queue_->empty());
}

TEST_F(BatchQueueTest, FullQueueRefusesByLevel) {
  Make(R"(dynamic_batching { priority_levels: 2 default_priority_level: 2 default_queue_policy { max_queue_size: 2 }
            priority_queue_policy { key: 1 value { } } })");
  PushWith("a", 2);
  PushWith("b", 2);
  EXPECT_EQ(MessageOf(Push(MakeRequest("c", 1))), "[request id: c] Exceeds maximum queue size");
  for (const char* id : {"d", "e", "f"}) PushWith(id, 1);  // a level with a policy of its own, without a limit
  EXPECT_THAT(Take(), ElementsAre("d", "e", "f", "a", "b"));
  PushWith("g", 2);
}

TEST_F(BatchQueueTest, LevelsHaveTimeoutsOfTheirOwn) {
  Make(R"(dynamic_batching { priority_levels: 2 default_priority_level: 2
            default_queue_policy { default_timeout_microseconds: 1000000 }
            priority_queue_policy { key: 1 value { default_timeout_microseconds: 3000000 timeout_action: DELAY } } })");
  PushWith("a", 1);
  PushWith("b", 2);
  now_ += kSecond;
  EXPECT_THAT(Sweep(), ElementsAre("b: Request timeout expired (REJECTED)"));
  now_ += 2 * kSecond;
  EXPECT_THAT(Sweep(), IsEmpty());
  PushWith("c", 1);
  EXPECT_THAT(Take(), ElementsAre("c", "a"));
}

TEST_F(BatchQueueTest, ExpiredRequestIsRejectedEvenWhileNothingIsTaken) {
  Make("dynamic_batching { default_queue_policy { default_timeout_microseconds: 1000000 } }");
  Push("a", 1);
  now_ += kSecond / 2;
  Push("b", 1);
  EXPECT_EQ(queue_->NextEvent(false), now_ + kSecond / 2);
  EXPECT_THAT(Sweep(), IsEmpty());
  now_ += kSecond / 2;
  EXPECT_THAT(Sweep(), ElementsAre("a: Request timeout expired (REJECTED)"));
  EXPECT_THAT(Take(), ElementsAre("b"));
}

TEST_F(BatchQueueTest, RequestMayShortenTheTimeoutWhereThePolicyAllowsIt) {
  Make(
      "dynamic_batching { default_queue_policy { default_timeout_microseconds: 1000000 allow_timeout_override: true } }");
  PushWith("short", 0, 1000);
  PushWith("long", 0, 5000000);
  now_ += kSecond / 2;
  EXPECT_THAT(Sweep(), ElementsAre("short: Request timeout expired (REJECTED)"));
  now_ += kSecond / 2;
  EXPECT_THAT(Sweep(), ElementsAre("long: Request timeout expired (REJECTED)"));
  Make("dynamic_batching { default_queue_policy { allow_timeout_override: true } }");
  PushWith("short", 0, 1000);
  now_ += kSecond;
  EXPECT_THAT(Sweep(), IsEmpty()) << "without a default there is nothing to shorten";
}

TEST_F(BatchQueueTest, DelayedRequestsGoBehindTheirLevel) {
  Make(R"(dynamic_batching { priority_levels: 2 default_priority_level: 1 default_queue_policy {
            default_timeout_microseconds: 1000000 timeout_action: DELAY } })",
       1);
  PushWith("late", 1);
  now_ += kSecond;
  PushWith("fresh", 1);
  PushWith("second", 2);
  EXPECT_THAT(Take(), ElementsAre("fresh"));
  EXPECT_THAT(Take(), ElementsAre("late"));
  EXPECT_THAT(Take(), ElementsAre("second"));
}

TEST_F(BatchQueueTest, CancelledRequestsLeaveOnTheNextLook) {
  Make("dynamic_batching { }");
  const auto cancel = std::make_shared<CancelFlag>();
  Push("a", 1);
  ScheduledRequest second = MakeRequest("b", 1);
  second.request->cancel = cancel;
  ASSERT_TRUE(Push(std::move(second)).ok());
  Push("c", 1);
  cancel->Cancel();
  EXPECT_THAT(Take(), ElementsAre("a", "c"));
  EXPECT_THAT(dropped_, ElementsAre("b:  (CANCELED)"));
  EXPECT_TRUE(queue_->empty());
}

TEST_F(BatchQueueTest, RequestWhoseOwnDeadlineHasPassedIsNotRun) {
  Make("dynamic_batching { }");
  ScheduledRequest late = MakeRequest("a", 1);
  late.request->deadline_nanos = now_ + kSecond;
  ASSERT_TRUE(Push(std::move(late)).ok());
  now_ += kSecond;
  EXPECT_THAT(Take(), IsEmpty());
  EXPECT_THAT(dropped_, ElementsAre("a: the request's deadline passed before it was executed (CANCELED)"));
}

}  // namespace
}  // namespace tidemark
