// The sequence batcher: slots, backlog, controls and states, first as a queue whose clock is the test's, then served.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/status.h"
#include "google/protobuf/text_format.h"
#include "inference/sequence_queue.h"
#include "tests/support/accumulate_backend.h"
#include "tests/support/core_harness.h"

namespace tidemark {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::int64_t kMilli = 1'000'000;
constexpr std::int64_t kSecond = 1000 * kMilli;

std::string Config(int max_batch, const std::string& sequence, const std::string& dims = "1") {
  return fmt::format(
      R"(backend: "accumulate" max_batch_size: {} input {{ name: "INPUT" data_type: TYPE_INT32 dims: {} }}
      output {{ name: "OUTPUT" data_type: TYPE_INT32 dims: {} }} sequence_batching {{ {} }})",
      max_batch, dims, dims, sequence);
}

constexpr const char* kControls = R"(
    control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }
    control_input { name: "END" control { kind: CONTROL_SEQUENCE_END bool_false_true: [ false, true ] } }
    control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY fp32_false_true: [ 0, 1 ] } }
    control_input { name: "ID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT32 } })";

class SequenceQueueTest : public testing::Test {
 protected:
  void Make(int max_batch, const std::string& sequence, std::size_t instances = 1, const std::string& dims = "1") {
    inference::ModelConfig config;
    ASSERT_TRUE(
        google::protobuf::TextFormat::MergeFromString("name: \"m\" " + Config(max_batch, sequence, dims), &config));
    info_ = std::make_unique<ModelInfo>(config, 1, std::map<std::string, std::vector<std::string>>());
    auto tensors = SequenceTensors::Create(*info_, ".", buffers_);
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    tensors_ = *std::move(tensors);
    queue_ = std::make_unique<SequenceQueue>(*info_, *tensors_, instances);
  }
  // "s" and "e" in `flags`: START and END.
  absl::Status Push(CorrelationId id, const std::string& name, const std::string& flags = "",
                    std::uint64_t timeout_us = 0, std::int64_t length = 1) {
    ScheduledRequest scheduled;
    scheduled.request = std::make_unique<InferenceRequest>();
    InferenceRequest& request = *scheduled.request;
    request.id = name;
    request.sequence_id = std::move(id);
    request.sequence_start = flags.find('s') != std::string::npos;
    request.sequence_end = flags.find('e') != std::string::npos;
    request.timeout_us = timeout_us;
    request.times.queued = now_;
    request.cancel = std::make_shared<CancelFlag>();
    cancels_[name] = request.cancel;
    InputTensor& tensor = scheduled.tensors.emplace_back();
    tensor.data_type = DataType::kInt32;
    tensor.shape = {1, length};
    return queue_->Push(scheduled, now_);
  }
  void PushOk(CorrelationId id, const std::string& name, const std::string& flags = "") {
    const absl::Status status = Push(std::move(id), name, flags);
    ASSERT_TRUE(status.ok()) << status;
  }
  // The names of what the instance runs, "-" for a null request; the execution ends at once.
  std::vector<std::string> Run(std::size_t instance = 0) {
    std::vector<std::string> names = Take(instance);
    if (!names.empty()) queue_->Done(instance, now_);
    return names;
  }
  std::vector<std::string> Take(std::size_t instance = 0) {
    DroppedRequests dropped;
    batch_ = queue_->Take(instance, now_, dropped);
    Keep(dropped);
    std::vector<std::string> names;
    for (const ScheduledRequest& scheduled : batch_) {
      names.push_back(scheduled.is_null ? "-" : scheduled.request->id);
    }
    return names;
  }
  // The execution of what was taken ends; these of its requests run again.
  void End(const std::set<std::string>& again, std::size_t instance = 0) {
    now_ += 1;
    for (ScheduledRequest& scheduled : batch_) {
      if (scheduled.is_null || !again.contains(scheduled.request->id)) continue;
      scheduled.request->times.queued = now_;
      queue_->Requeue(instance, scheduled);
    }
    queue_->Done(instance, now_);
  }
  void Sweep() {
    DroppedRequests dropped;
    queue_->Sweep(now_, dropped);
    Keep(dropped);
  }
  void Keep(const DroppedRequests& dropped) {
    for (const DroppedRequest& request : dropped) {
      dropped_.push_back(
          fmt::format("{}: {}", request.scheduled.request->id, MessageOf(request.scheduled.request->response.status)));
    }
  }
  template <typename Value>
  Value Control(std::size_t row, std::size_t index) {
    Value value{};
    const InputTensor& tensor = batch_.at(row).tensors.at(1 + index);
    EXPECT_EQ(tensor.data.size(), sizeof value);
    EXPECT_EQ(tensor.shape, (Shape{1, 1}));
    std::memcpy(&value, tensor.data.data(), sizeof value);
    return value;
  }

  std::int64_t now_ = 100 * kSecond;
  std::unique_ptr<Platform> platform_ = CreateLinuxPlatform();
  BufferPool buffers_{*platform_};
  std::unique_ptr<ModelInfo> info_;
  std::unique_ptr<SequenceTensors> tensors_;
  std::unique_ptr<SequenceQueue> queue_;
  Batch batch_;
  std::map<std::string, std::shared_ptr<CancelFlag>> cancels_;
  std::vector<std::string> dropped_;
};

TEST_F(SequenceQueueTest, RefusalsHaveTritonsTexts) {
  Make(4, kControls);
  EXPECT_EQ(MessageOf(Push(std::uint64_t{0}, "a", "s")),
            "inference request to model 'm' must specify a non-zero or non-empty correlation ID");
  EXPECT_EQ(MessageOf(Push(std::uint64_t{7}, "a")),
            "inference request for sequence 7 to model 'm' must specify the START flag on the first request of the "
            "sequence");
  EXPECT_EQ(MessageOf(Push(std::string("x"), "a", "s")),
            "[request id: a] sequence batching control 'ID' data-type is 'BYTES', but model 'm' expects 'UINT32'");
  ScheduledRequest two;
  two.request = std::make_unique<InferenceRequest>();
  two.request->sequence_id = std::uint64_t{7};
  two.request->sequence_start = true;
  two.batch = 2;
  EXPECT_EQ(MessageOf(queue_->Push(two, now_)),
            "inference request to model 'm' must specify batch-size 1 due to requirements of sequence batcher");
  EXPECT_TRUE(queue_->empty());
}

TEST_F(SequenceQueueTest, SequenceKeepsItsRowAndEmptyRowsAreNull) {
  Make(4, kControls);
  PushOk(std::uint64_t{1}, "a1", "s");
  PushOk(std::uint64_t{2}, "b1", "s");
  PushOk(std::uint64_t{3}, "c1", "s");
  EXPECT_THAT(Run(), ElementsAre("a1", "b1", "c1"));
  PushOk(std::uint64_t{3}, "c2", "e");
  PushOk(std::uint64_t{1}, "a2");
  EXPECT_THAT(Run(), ElementsAre("a2", "-", "c2"));
  EXPECT_EQ(Control<float>(0, 2), 1.0F);
  EXPECT_EQ(Control<std::int32_t>(1, 0), 0);
  EXPECT_EQ(Control<float>(1, 2), 0.0F) << "nothing is ready there";
  EXPECT_EQ(Control<std::uint32_t>(1, 3), 0u);
  EXPECT_EQ(Control<std::uint8_t>(2, 1), 1) << "END";
  EXPECT_EQ(Control<std::uint32_t>(2, 3), 3u);
  PushOk(std::uint64_t{2}, "b2");
  EXPECT_THAT(Run(), ElementsAre("-", "b2")) << "the rows behind the last one are cut";
}

TEST_F(SequenceQueueTest, LowestRowsFillFirstOverAllInstances) {
  Make(2, "direct { }", 2);
  for (std::uint64_t id = 1; id <= 4; ++id) PushOk(id, fmt::format("{}", id), "s");
  EXPECT_THAT(Run(0), ElementsAre("1", "3"));
  EXPECT_THAT(Run(1), ElementsAre("2", "4"));
}

TEST_F(SequenceQueueTest, BacklogTakesTheRowThatEndsWithAllItHas) {
  Make(1, "");
  PushOk(std::uint64_t{1}, "a", "s");
  PushOk(std::uint64_t{2}, "b1", "s");
  PushOk(std::uint64_t{2}, "b2", "e");
  PushOk(std::uint64_t{3}, "c", "se");
  EXPECT_THAT(Run(), ElementsAre("a"));
  EXPECT_THAT(Run(), IsEmpty());
  PushOk(std::uint64_t{1}, "a2", "e");
  EXPECT_THAT(Run(), ElementsAre("a2"));
  EXPECT_THAT(Run(), ElementsAre("b1"));
  EXPECT_THAT(Run(), ElementsAre("b2"));
  EXPECT_THAT(Run(), ElementsAre("c"));
  EXPECT_EQ(Push(std::uint64_t{3}, "c2").code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(SequenceQueueTest, OtherShapesRunApart) {
  Make(4, "direct { }", 1, "-1");
  ASSERT_TRUE(Push(std::uint64_t{1}, "a", "s", 0, 3).ok());
  ASSERT_TRUE(Push(std::uint64_t{2}, "b", "s", 0, 5).ok());
  ASSERT_TRUE(Push(std::uint64_t{3}, "c", "s", 0, 3).ok());
  EXPECT_THAT(Run(), ElementsAre("a", "-", "c"));
  EXPECT_THAT(Run(), ElementsAre("-", "b"));
}

TEST_F(SequenceQueueTest, IdleSequenceEndsAndMustStartAnew) {
  Make(1, "max_sequence_idle_microseconds: 1000");
  PushOk(std::uint64_t{1}, "a", "s");
  PushOk(std::uint64_t{2}, "b", "s");
  EXPECT_THAT(Take(), ElementsAre("a"));
  now_ += kSecond;
  Sweep();
  queue_->Done(0, now_);
  EXPECT_THAT(Run(), IsEmpty()) << "it was running: that is not idle";
  EXPECT_EQ(queue_->NextEvent(true), now_ + kMilli);
  now_ += kMilli;
  Sweep();
  EXPECT_THAT(Run(), ElementsAre("b"));
  EXPECT_THAT(std::string(MessageOf(Push(std::uint64_t{1}, "a2"))), HasSubstr("must specify the START flag"));
}

TEST_F(SequenceQueueTest, TimeoutMattersInTheBacklogOnly) {
  Make(1, "");
  ASSERT_TRUE(Push(std::uint64_t{1}, "a", "s", 1000).ok());
  ASSERT_TRUE(Push(std::uint64_t{2}, "b1", "s", 1000).ok());
  ASSERT_TRUE(Push(std::uint64_t{2}, "b2").ok());
  EXPECT_EQ(queue_->NextEvent(false), now_ + kMilli);
  now_ += kMilli;
  Sweep();
  EXPECT_THAT(dropped_, ElementsAre("b1: timeout of the corresponding sequence has been expired",
                                    "b2: timeout of the corresponding sequence has been expired"));
  EXPECT_FALSE(Push(std::uint64_t{2}, "b3").ok());
  EXPECT_THAT(Run(), ElementsAre("a"));
}

TEST_F(SequenceQueueTest, CancelledRequestEndsItsSequence) {
  Make(1, "");
  PushOk(std::uint64_t{1}, "a1", "s");
  PushOk(std::uint64_t{1}, "a2");
  PushOk(std::uint64_t{2}, "b1", "s");
  PushOk(std::uint64_t{3}, "c1", "s");
  cancels_["a1"]->Cancel();
  cancels_["b1"]->Cancel();
  Sweep();
  EXPECT_THAT(dropped_, ElementsAre("b1: ", "a1: ", "a2: "));
  EXPECT_THAT(Run(), ElementsAre("c1"));
  EXPECT_FALSE(Push(std::uint64_t{1}, "a3").ok());
}

TEST_F(SequenceQueueTest, MinimumUtilizationWaitsNoLongerThanTheDelay) {
  Make(4, "direct { max_queue_delay_microseconds: 1000 minimum_slot_utilization: 0.5 }");
  PushOk(std::uint64_t{1}, "a", "s");
  EXPECT_THAT(Run(), IsEmpty());
  EXPECT_EQ(queue_->NextEvent(true), now_ + kMilli);
  PushOk(std::uint64_t{2}, "b", "s");
  EXPECT_THAT(Run(), ElementsAre("a", "b"));
  PushOk(std::uint64_t{1}, "a2");
  now_ += kMilli;
  EXPECT_THAT(Run(), ElementsAre("a2"));
}

TEST_F(SequenceQueueTest, OldestTakesOneRequestOfEachSequenceInOrderOfArrival) {
  Make(2, "oldest { max_candidate_sequences: 3 }");
  PushOk(std::uint64_t{1}, "a1", "s");
  now_ += 1;
  PushOk(std::uint64_t{2}, "b1", "s");
  now_ += 1;
  PushOk(std::uint64_t{1}, "a2", "e");
  PushOk(std::uint64_t{3}, "c1", "s");
  PushOk(std::uint64_t{4}, "d1", "s");
  EXPECT_THAT(Run(), ElementsAre("a1", "b1"));
  EXPECT_THAT(Run(), ElementsAre("a2", "c1"));
  EXPECT_THAT(Run(), ElementsAre("d1")) << "a candidate since the first one ended";
}

TEST_F(SequenceQueueTest, IterativeRequestKeepsItsRowBesideLaterOnes) {
  Make(2, std::string("iterative_sequence: true ") + kControls);
  PushOk(std::uint64_t{0}, "long");
  PushOk(std::uint64_t{0}, "short");
  PushOk(std::uint64_t{0}, "late");
  EXPECT_THAT(Take(), ElementsAre("long", "short"));
  EXPECT_EQ(Control<std::int32_t>(0, 0), 1) << "START";
  EXPECT_EQ(Control<std::uint32_t>(0, 3), 1u);
  EXPECT_EQ(Control<std::uint32_t>(1, 3), 2u) << "a sequence of its own";
  const SequenceState* state = batch_[0].state.get();
  End({"long"});
  EXPECT_THAT(Take(), ElementsAre("long", "late"));
  EXPECT_EQ(Control<std::int32_t>(0, 0), 0);
  EXPECT_EQ(Control<std::uint8_t>(0, 1), 0) << "END";
  EXPECT_EQ(Control<std::uint32_t>(0, 3), 1u);
  EXPECT_EQ(Control<std::int32_t>(1, 0), 1);
  EXPECT_EQ(batch_[0].tensors.size(), 5u) << "one input, four controls, none twice";
  EXPECT_EQ(batch_[0].state.get(), state);
  End({"long", "late"});
  EXPECT_FALSE(queue_->empty());
  EXPECT_THAT(Take(), ElementsAre("long", "late"));
  End({});
  EXPECT_TRUE(queue_->empty());
  PushOk(std::uint64_t{0}, "next");
  EXPECT_THAT(Run(), ElementsAre("next")) << "in the first row: it is free";
}

TEST_F(SequenceQueueTest, IterativeRequestsTakeTurnsWithTheOldestStrategy) {
  Make(1, "iterative_sequence: true oldest { max_candidate_sequences: 2 }");
  PushOk(std::uint64_t{0}, "long");
  EXPECT_THAT(Take(), ElementsAre("long"));
  PushOk(std::uint64_t{0}, "short");
  End({"long"});
  EXPECT_THAT(Take(), ElementsAre("short"));
  End({"short"});
  EXPECT_THAT(Take(), ElementsAre("long"));
  End({"long"});
  EXPECT_THAT(Take(), ElementsAre("short"));
  End({});
  EXPECT_THAT(Take(), ElementsAre("long"));
  End({});
  EXPECT_TRUE(queue_->empty());
}

TEST_F(SequenceQueueTest, CancelledIterativeRequestFreesItsRow) {
  Make(1, "iterative_sequence: true");
  PushOk(std::uint64_t{0}, "long");
  PushOk(std::uint64_t{0}, "waits");
  EXPECT_THAT(Take(), ElementsAre("long"));
  End({"long"});
  cancels_["long"]->Cancel();
  Sweep();
  EXPECT_THAT(dropped_, ElementsAre("long: "));
  EXPECT_THAT(Run(), ElementsAre("waits"));
  EXPECT_TRUE(queue_->empty());
}

TEST_F(SequenceQueueTest, RequestWithAnIdIsAnOrdinaryOneAlsoInAnIterativeModel) {
  Make(1, std::string("iterative_sequence: true ") + kControls);
  EXPECT_THAT(std::string(MessageOf(Push(std::uint64_t{7}, "a"))), HasSubstr("must specify the START flag"));
  PushOk(std::uint64_t{7}, "a", "s");
  PushOk(std::uint64_t{7}, "b", "e");
  EXPECT_THAT(Take(), ElementsAre("a"));
  End({"a"});
  EXPECT_THAT(Take(), ElementsAre("a")) << "before what came behind it";
  End({});
  EXPECT_THAT(Take(), ElementsAre("b"));
  EXPECT_EQ(Control<std::uint8_t>(0, 1), 1) << "END";
  End({});
  PushOk(std::uint64_t{8}, "whole", "se");
  EXPECT_THAT(Take(), ElementsAre("whole"));
  End({"whole"});
  EXPECT_THAT(Take(), ElementsAre("whole")) << "its END frees no row that it comes back to";
  EXPECT_EQ(Control<std::uint8_t>(0, 1), 0) << "as Triton reschedules: without flags";
  End({});
  EXPECT_TRUE(queue_->empty());
  EXPECT_FALSE(Push(std::uint64_t{7}, "c").ok());
  EXPECT_FALSE(Push(std::uint64_t{1}, "c").ok()) << "an id that the server gives reaches nothing";
}

TEST_F(SequenceQueueTest, GeneratedIdIsOfTheKindThatTheModelIsTold) {
  Make(1, R"(iterative_sequence: true control_input {
      name: "ID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } })");
  PushOk(std::uint64_t{0}, "a");
  EXPECT_THAT(Take(), ElementsAre("a"));
  EXPECT_EQ(batch_[0].request->sequence_id, (CorrelationId(std::string("1"))));
}

// A sequence model that is served.
class SequenceServingTest : public testing::Test {
 protected:
  void Load(const std::string& config) {
    core_.folder.AddModel("m", config);
    ASSERT_TRUE(core_.Start().ok());
    const absl::Status status = core_.Load("m");
    ASSERT_TRUE(status.ok()) << status;
  }
  absl::StatusOr<std::int32_t> Infer(CorrelationId id, std::int32_t value, const std::string& flags = "") {
    auto request = std::make_unique<InferenceRequest>();
    request->sequence_id = std::move(id);
    request->sequence_start = flags.find('s') != std::string::npos;
    request->sequence_end = flags.find('e') != std::string::npos;
    RequestInput& input = request->inputs.emplace_back();
    input.name = "INPUT";
    input.data_type = DataType::kInt32;
    input.shape = {1, 1};
    input.owned = *core_.buffers.Allocate(sizeof value);
    std::memcpy(input.owned.data(), &value, sizeof value);
    input.data = input.owned.bytes();
    absl::Notification answered;
    absl::StatusOr<std::int32_t> result;
    request->on_complete = [&](std::unique_ptr<InferenceRequest> back) {
      if (!back->response.status.ok()) {
        result = back->response.status;
      } else {
        EXPECT_EQ(back->response.outputs.size(), 1u) << "states are not the client's";
        std::memcpy(&result.emplace(), back->response.outputs.at(0).data.data(), sizeof(std::int32_t));
      }
      back.reset();
      answered.Notify();
    };
    ModelHandle handle = *core_.registry.Find("m", -1);
    Model& model = *handle;
    request->set_model(std::move(handle));
    model.Submit(std::move(request), true);
    answered.WaitForNotification();
    return result;
  }
  static CoreHarness::Options WithBackend() {
    CoreHarness::Options options;
    options.backends = {{"accumulate", &CreateAccumulateBackend}};
    return options;
  }
  static constexpr const char* kState =
      "state { input_name: \"STATE_IN\" output_name: \"STATE_OUT\" data_type: TYPE_INT32 dims: 1 ";

  CoreHarness core_{WithBackend()};
};

TEST_F(SequenceServingTest, StateGoesFromRequestToRequestOfItsSequenceOnly) {
  Load(Config(4, std::string(kState) + "} max_sequence_idle_microseconds: 3600000000"));
  EXPECT_EQ(*Infer(std::uint64_t{1}, 5, "s"), 5);
  EXPECT_EQ(*Infer(std::uint64_t{2}, 100, "s"), 100);
  EXPECT_EQ(*Infer(std::uint64_t{1}, 6), 11);
  EXPECT_EQ(*Infer(std::uint64_t{2}, 1, "e"), 101);
  EXPECT_EQ(*Infer(std::uint64_t{1}, 7), 18);
  EXPECT_EQ(*Infer(std::uint64_t{1}, 7, "s"), 7) << "a new start";
  EXPECT_FALSE(Infer(std::uint64_t{2}, 1).ok());
  EXPECT_EQ(*Infer(std::string("text"), 3, "s"), 3);
  EXPECT_TRUE(core_.Unload("m").ok());
  EXPECT_EQ(core_.rows(), 0u);
  EXPECT_EQ(core_.buffers.used_bytes(), 0u) << "no state stays";
}

TEST_F(SequenceServingTest, InitialStateComesFromItsFile) {
  core_.folder.Write(core_.folder.repository() / "m/initial_state/hundred", std::string("\x64\0\0\0", 4));
  Load(Config(
      4, std::string(kState) + "initial_state { data_type: TYPE_INT32 dims: 1 data_file: \"hundred\" name: \"h\" } }"));
  EXPECT_EQ(*Infer(std::uint64_t{1}, 5, "s"), 105);
}

TEST_F(SequenceServingTest, CorrelationIdReachesTheModel) {
  Load(Config(0, "control_input { name: \"CORRID\" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }",
              "[ 1, 1 ]"));
  EXPECT_EQ(*Infer(std::uint64_t{40}, 2, "s"), 42);
  EXPECT_THAT(std::string(MessageOf(Infer(std::string("x"), 2, "s").status())), HasSubstr("expects 'UINT64'"));
}

TEST_F(SequenceServingTest, IdleSequenceIsEndedByItself) {
  Load(Config(1, std::string(kState) + "} max_sequence_idle_microseconds: 1000"));
  EXPECT_EQ(*Infer(std::uint64_t{1}, 5, "s"), 5);
  // The only row: the next sequence gets it when the first one has been idle for long enough.
  EXPECT_EQ(*Infer(std::uint64_t{2}, 6, "s"), 6);
}

}  // namespace
}  // namespace tidemark
