// Models whose requests are sequences of executions (`iterative_sequence`), served.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "base/status.h"
#include "tests/support/core_harness.h"
#include "tests/support/iterative_backend.h"

namespace tidemark {
namespace {

using testing::ElementsAre;

constexpr std::int32_t kForever = std::numeric_limits<std::int32_t>::max();
constexpr std::string_view kState =
    "state { input_name: \"STATE_IN\" output_name: \"STATE_OUT\" data_type: TYPE_INT32 dims: 1 } ";

std::string Config(int max_batch, std::string_view strategy, bool decoupled = false,
                   std::string_view iterative = "iterative_sequence: true") {
  return fmt::format(
      R"(backend: "iterate" max_batch_size: {} input {{ name: "N" data_type: TYPE_INT32 dims: 1 }}
      output {{ name: "OUT" data_type: TYPE_INT32 dims: 1 }} model_transaction_policy {{ decoupled: {} }}
      sequence_batching {{ {} {} {}
        control_input {{ name: "START" control {{ kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] }} }} }})",
      max_batch, decoupled, iterative, kState, strategy);
}

std::int32_t Value(const InferenceResponse& response) {
  std::int32_t value = 0;
  std::memcpy(&value, response.outputs.at(0).data.data(), sizeof value);
  return value;
}

class IterativeSequenceTest : public testing::Test {
 protected:
  // A request on its way.
  struct Sent {
    std::shared_ptr<CancelFlag> cancel = std::make_shared<CancelFlag>();
    absl::Status status;
    std::vector<std::int32_t> answers;  // all responses of a decoupled model, or the answer
    std::atomic<int> responses{0};
    absl::Notification running;  // the first response of a decoupled model
    absl::Notification ended;
    const absl::Status& Await() {
      ended.WaitForNotification();
      return status;
    }
  };

  void Load(const std::string& config) {
    core_.folder.AddModel("m", config);
    ASSERT_TRUE(core_.Start().ok());
    const absl::Status status = core_.Load("m");
    ASSERT_TRUE(status.ok()) << status;
    batches_ = config.find("max_batch_size: 0") == std::string::npos;
  }

  enum class Place { kWhole, kFirst, kNext };
  // `id` other than 0: of a sequence of the client's.
  std::unique_ptr<Sent> Send(std::int32_t n, std::int64_t deadline_nanos = 0, std::uint64_t id = 0,
                             Place place = Place::kWhole) {
    auto sent = std::make_unique<Sent>();
    auto request = std::make_unique<InferenceRequest>();
    request->cancel = sent->cancel;
    request->deadline_nanos = deadline_nanos;
    request->sequence_id = id;
    request->sequence_start = id != 0 && place != Place::kNext;
    request->sequence_end = id != 0 && place == Place::kWhole;
    RequestInput& input = request->inputs.emplace_back();
    input.name = "N";
    input.data_type = DataType::kInt32;
    input.shape = batches_ ? Shape{1, 1} : Shape{1};
    input.owned = *core_.buffers.Allocate(sizeof n);
    std::memcpy(input.owned.data(), &n, sizeof n);
    input.data = input.owned.bytes();
    request->on_response = [to = sent.get(), keep = n != kForever](const InferenceResponse& response) {
      if (keep) to->answers.push_back(Value(response));
      if (++to->responses == 1) to->running.Notify();
    };
    request->on_complete = [to = sent.get()](std::unique_ptr<InferenceRequest> back) {
      to->status = back->response.status;
      if (!back->response.outputs.empty()) to->answers.push_back(Value(back->response));
      back.reset();
      to->ended.Notify();
    };
    ModelHandle handle = *core_.registry.Find("m", -1);
    Model& model = *handle;
    request->set_model(std::move(handle));
    model.Submit(std::move(request), true);
    return sent;
  }

  ModelStatisticsSnapshot Statistics() { return (*core_.registry.Find("m", -1))->statistics().Snapshot(); }
  std::int64_t Pending() { return (*core_.registry.Find("m", -1))->statistics().pending(); }
  void ExpectNothingStays() {
    EXPECT_EQ(Pending(), 0);
    EXPECT_TRUE(core_.Unload("m").ok());
    EXPECT_EQ(core_.rows(), 0u);
    EXPECT_EQ(core_.buffers.used_bytes(), 0u);
  }
  static CoreHarness::Options WithBackend() {
    CoreHarness::Options options;
    options.backends = {{"iterate", &CreateIterativeBackend}};
    return options;
  }

  CoreHarness core_{WithBackend()};
  bool batches_ = true;
};

TEST_F(IterativeSequenceTest, RequestIsAnsweredOnceByItsLastExecution) {
  Load(Config(0, ""));
  for (const std::int32_t n : {1, 2, 5}) {
    const auto sent = Send(n);
    EXPECT_TRUE(sent->Await().ok()) << sent->status;
    EXPECT_THAT(sent->answers, ElementsAre(n)) << "the state of an earlier request is not its own";
  }
  const ModelStatisticsSnapshot statistics = Statistics();
  EXPECT_EQ(statistics.success.count, 3u);
  EXPECT_EQ(statistics.inference_count, 3u);
  EXPECT_EQ(statistics.queue.count, 3u);
  EXPECT_EQ(statistics.execution_count, 8u);
  EXPECT_LE(
      statistics.queue.ns + statistics.compute_input.ns + statistics.compute_infer.ns + statistics.compute_output.ns,
      statistics.success.ns)
      << "the phases of all executions, none counted twice";
  ExpectNothingStays();
}

TEST_F(IterativeSequenceTest, DecoupledModelSendsAResponseOfEachExecution) {
  Load(Config(0, "", true));
  const auto sent = Send(3);
  EXPECT_TRUE(sent->Await().ok()) << sent->status;
  EXPECT_THAT(sent->answers, ElementsAre(1, 2, 3));
  const ModelStatisticsSnapshot statistics = Statistics();
  EXPECT_EQ(statistics.success.count, 1u);
  EXPECT_EQ(statistics.execution_count, 3u);
  ASSERT_EQ(statistics.response_stats.size(), 3u) << "each has an index of its own";
  for (const auto& [index, response] : statistics.response_stats) EXPECT_EQ(response.success.count, 1u) << index;
  ExpectNothingStays();
}

// As in Triton, whoever gave the id.
TEST_F(IterativeSequenceTest, SequenceWithAnIdEndsWithTheRequestThatIsNotExecutedAgain) {
  Load(Config(1, ""));
  for (const std::int32_t n : {3, 1}) {  // also after a single execution
    const auto first = Send(n, 0, 7, Place::kFirst);
    EXPECT_TRUE(first->Await().ok()) << first->status;
    EXPECT_THAT(first->answers, ElementsAre(n)) << "begun anew";
    EXPECT_EQ(MessageOf(Send(2, 0, 7, Place::kNext)->Await()),
              "inference request for sequence 7 to model 'm' must specify the START flag on the first request of the "
              "sequence");
  }
  const auto other = Send(2, 0, 8, Place::kFirst);
  EXPECT_TRUE(other->Await().ok()) << "the only slot is free: " << other->status;
  ExpectNothingStays();
}

// Continuous batching: an endless request and short ones that come later.
class ContinuousBatchingTest : public IterativeSequenceTest, public testing::WithParamInterface<const char*> {};

TEST_P(ContinuousBatchingTest, LaterShortRequestsEndBeforeAnEarlyLongOne) {
  Load(Config(2, GetParam(), true));
  const auto endless = Send(kForever);
  endless->running.WaitForNotification();
  for (int i = 0; i < 3; ++i) {
    const auto sent = Send(4);
    EXPECT_TRUE(sent->Await().ok()) << sent->status;
    EXPECT_THAT(sent->answers, ElementsAre(1, 2, 3, 4));
  }
  EXPECT_FALSE(endless->ended.HasBeenNotified());
  EXPECT_EQ(Statistics().batch_stats.at(2).compute_infer.count, 12u) << "they ran together with the long one";
  endless->cancel->Cancel();
  EXPECT_EQ(endless->Await().code(), absl::StatusCode::kCancelled);
  ExpectNothingStays();
}

TEST_P(ContinuousBatchingTest, CancelledRequestGivesItsSlotToTheNext) {
  Load(Config(1, GetParam(), true));
  std::vector<std::unique_ptr<Sent>> endless;
  for (int i = 0; i < 2; ++i) endless.push_back(Send(kForever));
  endless.front()->running.WaitForNotification();
  const auto waits = Send(2);
  for (const auto& sent : endless) sent->cancel->Cancel();
  EXPECT_TRUE(waits->Await().ok()) << waits->status;
  EXPECT_THAT(waits->answers, ElementsAre(1, 2));
  for (const auto& sent : endless) EXPECT_EQ(sent->Await().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(Statistics().fail.count, 2u);
  ExpectNothingStays();
}

TEST_P(ContinuousBatchingTest, DeadlineEndsItBetweenExecutions) {
  Load(Config(2, GetParam()));
  const auto late = Send(kForever, NowNanos() + 5'000'000);
  EXPECT_EQ(late->Await().code(), absl::StatusCode::kDeadlineExceeded);
  const auto next = Send(2);
  EXPECT_TRUE(next->Await().ok()) << next->status;
  ExpectNothingStays();
}

TEST_P(ContinuousBatchingTest, FailedExecutionEndsItAndFreesTheSlot) {
  Load(Config(1, GetParam()));
  const auto failed = Send(-1);
  EXPECT_EQ(MessageOf(failed->Await()), "N is negative");
  EXPECT_TRUE(failed->answers.empty()) << "what the first execution made is no answer";
  const auto next = Send(2);
  EXPECT_TRUE(next->Await().ok()) << next->status;
  EXPECT_EQ(Statistics().fail.count, 1u);
  ExpectNothingStays();
}

TEST_P(ContinuousBatchingTest, UnloadWaitsForItsEndAndLeavesNothing) {
  Load(Config(2, GetParam(), true));
  const auto endless = Send(kForever);
  endless->running.WaitForNotification();
  absl::Notification unloaded;
  core_.lifecycle->Unload("m", false, [&](const absl::Status& status) {
    EXPECT_TRUE(status.ok()) << status;
    unloaded.Notify();
  });
  // It goes on while the version is on its way out.
  const int before = endless->responses;
  while (endless->responses < before + 3) std::this_thread::yield();
  EXPECT_FALSE(unloaded.HasBeenNotified());
  endless->cancel->Cancel();
  EXPECT_EQ(endless->Await().code(), absl::StatusCode::kCancelled);
  unloaded.WaitForNotification();
  EXPECT_EQ(core_.rows(), 0u);
  EXPECT_EQ(core_.buffers.used_bytes(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Strategies, ContinuousBatchingTest,
                         testing::Values("direct { }", "oldest { max_candidate_sequences: 2 }"),
                         [](const auto& strategy) { return strategy.index == 0 ? "Direct" : "Oldest"; });

TEST_F(IterativeSequenceTest, ModelThatIsNotIterativeMayNotReschedule) {
  Load(Config(1, "", false, ""));
  const auto once = Send(1, 0, 7);
  EXPECT_TRUE(once->Await().ok()) << once->status;
  EXPECT_THAT(once->answers, ElementsAre(1));
  const auto sent = Send(2, 0, 7);
  EXPECT_EQ(sent->Await().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(MessageOf(sent->status),
            "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, but the model 'm' does not set "
            "'iterative_sequence' in its 'sequence_batching'");
  EXPECT_EQ(MessageOf(Send(1)->Await()),
            "inference request to model 'm' must specify a non-zero or non-empty correlation ID");
  ExpectNothingStays();
}

}  // namespace
}  // namespace tidemark
