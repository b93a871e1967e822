#include "inference/instance_scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "absl/synchronization/barrier.h"
#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "base/status.h"
#include "google/protobuf/text_format.h"
#include "inference/output_sink.h"
#include "tests/support/core_harness.h"

namespace tidemark {
namespace {

using testing::HasSubstr;

class SchedulerTest : public testing::Test {
 protected:
  void Load(int instances) {
    core_.folder.AddModel("m", CopyConfig("fake", instances));
    core_.script.warms_up_unasked = false;
    ASSERT_TRUE(core_.Start().ok());
    ASSERT_TRUE(core_.Load("m").ok());
  }
  // Sends and counts the answer.
  void Send(float value = 0, bool may_run_inline = false) {
    ASSERT_TRUE(core_
                    .Submit("m", -1, {value, 0, 0, 0}, may_run_inline,
                            [this](const auto& answer) {
                              ASSERT_TRUE(answer.ok()) << answer.status();
                              absl::MutexLock lock(&mutex_);
                              answers_.push_back((*answer)[0]);
                            })
                    .ok());
  }
  void AwaitAnswers(std::size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto there = [this, count] { return answers_.size() >= count; };
    mutex_.Await(absl::Condition(&there));
  }

  absl::Mutex mutex_;
  std::vector<float> answers_;
  CoreHarness core_;  // last: its end waits for the answers that are still to come
};

TEST_F(SchedulerTest, InstancesRunInParallel) {
  Load(3);
  absl::Barrier* all = new absl::Barrier(3);  // passed only when three executions are inside at once
  core_.script.on_execute = [all](const Execution&, std::string_view) {
    if (all->Block()) delete all;
    return absl::OkStatus();
  };
  for (int i = 0; i < 3; ++i) Send();
  AwaitAnswers(3);
}

TEST_F(SchedulerTest, ShortExecutionsRunOnTheSubmittingThreadOnceKnownToBeShort) {
  Load(1);
  std::vector<std::thread::id> ran_on;
  core_.script.on_execute = [&](const Execution&, std::string_view) {
    ran_on.push_back(std::this_thread::get_id());
    return absl::OkStatus();
  };
  ASSERT_TRUE(core_.Infer("m", -1, {1, 2, 3, 4}, true).ok());
  EXPECT_NE(ran_on.front(), std::this_thread::get_id()) << "nothing is known yet";
  // The first one was slow, and so is each that the machine interrupts: until enough in a row were short.
  for (int i = 0; i < 100'000 && ran_on.back() != std::this_thread::get_id(); ++i) {
    ASSERT_TRUE(core_.Infer("m", -1, {1, 2, 3, 4}, true).ok());
  }
  EXPECT_EQ(ran_on.back(), std::this_thread::get_id());
  ASSERT_TRUE(core_.Infer("m", -1, {1, 2, 3, 4}, false).ok());
  EXPECT_NE(ran_on.back(), std::this_thread::get_id()) << "only where the caller allows it";
}

TEST_F(SchedulerTest, ThreadBoundInstancesNeverRunOnTheSubmittingThread) {
  core_.script.thread_bound = true;
  Load(1);
  std::atomic<bool> here{false};
  core_.script.on_execute = [&, self = std::this_thread::get_id()](const Execution&, std::string_view) {
    if (std::this_thread::get_id() == self) here = true;
    return absl::OkStatus();
  };
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(core_.Infer("m", -1, {1, 2, 3, 4}, true).ok());
  EXPECT_FALSE(here);
}

TEST_F(SchedulerTest, RequestFindsTheIdleInstanceWhileAnotherRunsInline) {
  Load(2);
  std::atomic<bool> hold{false};
  absl::Notification inside, go;
  core_.script.on_execute = [&](const Execution& execution, std::string_view) {
    float value = 0;
    std::memcpy(&value, execution.inputs[0].data.data(), sizeof value);
    if (hold && value == 1) {
      inside.Notify();
      go.WaitForNotification();
    }
    return absl::OkStatus();
  };
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(core_.Infer("m", -1, {0, 0, 0, 0}, true).ok());
  hold = true;
  std::thread loop([&] { Send(1, true); });  // runs inline there, and stays
  inside.WaitForNotification();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(core_.Infer("m", -1, {2, 0, 0, 0}).ok()) << "the other instance serves";
  go.Notify();
  loop.join();
  AwaitAnswers(1);
}

TEST_F(SchedulerTest, QueueIsFirstInFirstOut) {
  Load(1);
  absl::Notification inside, go;
  core_.script.on_execute = [&](const Execution&, std::string_view) {
    if (!inside.HasBeenNotified()) {
      inside.Notify();
      go.WaitForNotification();
    }
    return absl::OkStatus();
  };
  Send(0);
  inside.WaitForNotification();
  for (int i = 1; i <= 20; ++i) Send(static_cast<float>(i), i % 2 == 0);
  go.Notify();
  AwaitAnswers(21);
  for (std::size_t i = 0; i < answers_.size(); ++i) EXPECT_EQ(answers_[i], static_cast<float>(i));
}

TEST_F(SchedulerTest, UnloadWithQueuedWorkAnswersAllOfIt) {
  Load(2);
  absl::Notification go;
  core_.script.on_execute = [&](const Execution&, std::string_view) {
    go.WaitForNotification();
    return absl::OkStatus();
  };
  for (int i = 0; i < 40; ++i) Send(static_cast<float>(i));
  absl::Notification unloaded;
  core_.lifecycle->Unload("m", false, [&](const absl::Status&) { unloaded.Notify(); });
  go.Notify();
  unloaded.WaitForNotification();
  AwaitAnswers(40);
  EXPECT_EQ(core_.rows(), 0u);
}

// Memory of a GPU, as the core sees it; here it is the host's, so that a copy can be made.
class DeviceRegion final : public SharedMemoryRegion {
 public:
  absl::Status Check() const override { return absl::OkStatus(); }
  absl::Status Read(std::span<const std::byte> region, std::span<std::byte> host) const override {
    ++reads;
    if (broken) return absl::UnavailableError("the GPU is lost");
    std::memcpy(host.data(), region.data(), host.size());
    return absl::OkStatus();
  }
  absl::Status Write(std::span<const std::byte> /*host*/, std::span<std::byte> /*region*/) const override {
    return absl::OkStatus();
  }
  mutable std::atomic<int> reads{0};
  bool broken = false;
};

TEST_F(SchedulerTest, InputsOnAGpuThatIsNotTheInstancesComeToTheHostFirst) {
  Load(1);
  std::vector<float> values = {5, 6, 7, 8};
  std::atomic<bool> same{false};
  core_.script.on_execute = [&](const Execution& execution, std::string_view) {
    const InputTensor& tensor = execution.inputs[0];
    same = tensor.data.data() == std::as_bytes(std::span(values)).data() || tensor.device != kHost;
    return absl::OkStatus();
  };
  for (const bool broken : {false, true}) {
    auto region = std::make_shared<DeviceRegion>();
    region->broken = broken;
    auto request = std::make_unique<InferenceRequest>();
    RequestInput& input = request->inputs.emplace_back();
    input.name = "INPUT0";
    input.data_type = DataType::kFp32;
    input.shape = {4};
    input.region = {std::as_writable_bytes(std::span(values)), 3, region};
    input.data = input.region.bytes;
    absl::Notification answered;
    request->on_complete = [&](std::unique_ptr<InferenceRequest> done) {
      EXPECT_EQ(done->response.status.ok(), !broken) << done->response.status;
      if (!broken && done->response.status.ok()) {
        float value = 0;
        std::memcpy(&value, done->response.outputs.at(0).data.data(), sizeof value);
        EXPECT_EQ(value, 5);
      }
      done.reset();
      answered.Notify();
    };
    ModelHandle handle = *core_.registry.Find("m", -1);
    handle->Submit(std::move(request), false);
    answered.WaitForNotification();
    EXPECT_EQ(region->reads, 1);
  }
  EXPECT_FALSE(same);
  EXPECT_TRUE(core_.Infer("m").ok()) << "the next one is served";
}

TEST_F(SchedulerTest, InlineAnswerMayLetTheModelGoAtOnce) {
  // The drop of the last request's handle and the destruction of its model race with the inline run's end.
  for (int round = 0; round < 60; ++round) {
    CoreHarness core;
    core.folder.AddModel("m", CopyConfig("fake"));
    core.script.warms_up_unasked = false;
    ASSERT_TRUE(core.Start().ok());
    ASSERT_TRUE(core.Load("m").ok());
    for (int i = 0; i < 12; ++i) ASSERT_TRUE(core.Infer("m", -1, {1, 2, 3, 4}, true).ok());
    std::thread unloader([&] { EXPECT_TRUE(core.Unload("m").ok()); });
    while (core.Infer("m", -1, {1, 2, 3, 4}, true).ok()) {
    }
    unloader.join();
    ASSERT_EQ(core.rows(), 0u);
  }
}

TEST_F(SchedulerTest, CancelledRequestIsNotExecuted) {
  Load(1);
  std::atomic<int> executions{0};
  absl::Notification inside, go, answered;
  core_.script.on_execute = [&](const Execution&, std::string_view) {
    if (++executions == 1) {
      inside.Notify();
      go.WaitForNotification();
    }
    return absl::OkStatus();
  };
  Send();
  inside.WaitForNotification();
  ModelHandle handle = *core_.registry.Find("m", -1);
  auto request = std::make_unique<InferenceRequest>();
  const std::vector<float> values(4);
  request->inputs.emplace_back();
  request->inputs[0].name = "INPUT0";
  request->inputs[0].data_type = DataType::kFp32;
  request->inputs[0].shape = {4};
  request->inputs[0].data = std::as_bytes(std::span(values));
  request->cancel = std::make_shared<CancelFlag>();
  const std::shared_ptr<CancelFlag> cancel = request->cancel;
  request->on_complete = [&](std::unique_ptr<InferenceRequest> back) {
    EXPECT_TRUE(absl::IsCancelled(back->response.status));
    EXPECT_TRUE(back->response.outputs.empty());
    back.reset();
    answered.Notify();
  };
  handle->Submit(std::move(request), true);
  cancel->Cancel();
  go.Notify();
  answered.WaitForNotification();
  AwaitAnswers(1);  // the first request's, which may come after
  EXPECT_EQ(executions, 1);
  const ModelStatisticsSnapshot statistics = handle->statistics().Snapshot();
  EXPECT_EQ(statistics.fail.count, 1u);
}

TEST_F(SchedulerTest, RequestWhoseDeadlineHasPassedIsNotExecuted) {
  Load(1);
  std::atomic<int> executions{0};
  core_.script.on_execute = [&](const Execution&, std::string_view) {
    ++executions;
    return absl::OkStatus();
  };
  ModelHandle handle = *core_.registry.Find("m", -1);
  const std::vector<float> values(4);
  absl::Notification answered;
  auto request = std::make_unique<InferenceRequest>();
  request->inputs.emplace_back();
  request->inputs[0].name = "INPUT0";
  request->inputs[0].data_type = DataType::kFp32;
  request->inputs[0].shape = {4};
  request->inputs[0].data = std::as_bytes(std::span(values));
  request->deadline_nanos = NowNanos();
  request->on_complete = [&](std::unique_ptr<InferenceRequest> back) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(back->response.status)) << back->response.status;
    back.reset();
    answered.Notify();
  };
  handle->Submit(std::move(request), true);
  answered.WaitForNotification();
  EXPECT_EQ(executions, 0);
  EXPECT_EQ(handle->statistics().Snapshot().fail.count, 1u);
}

TEST_F(SchedulerTest, OutputThatIsNamedTwiceIsAnsweredOnce) {
  Load(1);
  ModelHandle handle = *core_.registry.Find("m", -1);
  const std::vector<float> values = {5, 6, 7, 8};
  auto request = std::make_unique<InferenceRequest>();
  request->inputs.emplace_back();
  request->inputs[0].name = "INPUT0";
  request->inputs[0].data_type = DataType::kFp32;
  request->inputs[0].shape = {4};
  request->inputs[0].data = std::as_bytes(std::span(values));
  request->outputs = {{"OUTPUT0", true, 0, {}}, {"OUTPUT0", false, 2, {}}, {"OUTPUT0", false, 0, {}}};
  absl::Notification answered;
  request->on_complete = [&](std::unique_ptr<InferenceRequest> back) {
    EXPECT_TRUE(back->response.status.ok()) << back->response.status;
    EXPECT_EQ(back->response.outputs.size(), 1u);
    EXPECT_EQ(back->outputs.size(), 1u);
    EXPECT_TRUE(back->outputs[0].binary) << "as it was named first";
    back.reset();
    answered.Notify();
  };
  handle->Submit(std::move(request), false);
  answered.WaitForNotification();
}

TEST_F(SchedulerTest, FailedExecutionFailsAloneAndIsCounted) {
  Load(1);
  core_.script.on_execute = [](const Execution& execution, std::string_view) {
    float value = 0;
    std::memcpy(&value, execution.inputs[0].data.data(), sizeof value);
    return value < 0 ? absl::InvalidArgumentError("negative") : absl::OkStatus();
  };
  EXPECT_EQ(MessageOf(core_.Infer("m", -1, {-1, 0, 0, 0}).status()), "negative");
  EXPECT_TRUE(core_.Infer("m").ok());
  const ModelHandle handle = *core_.registry.Find("m", -1);
  const ModelStatisticsSnapshot statistics = handle->statistics().Snapshot();
  EXPECT_EQ(statistics.fail.count, 1u);
  EXPECT_EQ(statistics.success.count, 1u);
  EXPECT_EQ(statistics.execution_count, 1u);
  EXPECT_EQ(statistics.inference_count, 1u);
}

TEST(PassiveInstances, ModelOfNothingElseRefusesInsteadOfWaitingForEver) {
  CoreHarness core;
  core.folder.AddModel(
      "m",
      "backend: \"fake\" input { name: \"INPUT0\" data_type: TYPE_FP32 dims: [ 4 ] } output { name: "
      "\"OUTPUT0\" data_type: TYPE_FP32 dims: [ 4 ] } instance_group { kind: KIND_CPU passive: true }");
  ASSERT_TRUE(core.Start().ok());
  ASSERT_TRUE(core.Load("m").ok());
  EXPECT_EQ(MessageOf(core.Infer("m").status()), "model 'm' version 1 has passive instances only");
  EXPECT_TRUE(core.Unload("m").ok());
}

TEST(ExecutionTimesTest, OneLongRunCountsAtOnceAndSizesApart) {
  ExecutionTimes times;
  EXPECT_GT(times.Expect(100), 1'000'000'000);
  for (int i = 0; i < 3; ++i) times.Record(100, 1000);
  EXPECT_LE(times.Expect(100), 1000);
  EXPECT_GT(times.Expect(1 << 20), 1'000'000'000) << "nothing known of that size";
  times.Record(100, 5'000'000);
  EXPECT_EQ(times.Expect(100), 5'000'000);
  for (int i = 0; i < 100; ++i) times.Record(100, 1000);
  EXPECT_LT(times.Expect(100), 10'000);
  times.Record(SIZE_MAX, 1);
}

class SinkTest : public testing::Test {
 protected:
  void Make(const std::string& output) {
    inference::ModelConfig config;
    config.set_name("m");
    config.set_max_batch_size(8);
    ASSERT_TRUE(google::protobuf::TextFormat::MergeFromString(output, &config));
    info_ = std::make_unique<ModelInfo>(config, 3, std::map<std::string, std::vector<std::string>>());
    sink_ = std::make_unique<ResponseSink>(*info_, request_, buffers_);
  }
  Shape Seen(Shape made) {
    EXPECT_TRUE(sink_->Allocate(0, DataType::kFp32, AsSpan(made), 4).ok());
    return request_.response.outputs.back().shape;
  }

  std::unique_ptr<Platform> platform_ = CreateLinuxPlatform();
  BufferPool buffers_{*platform_};
  std::unique_ptr<ModelInfo> info_;
  InferenceRequest request_;
  std::unique_ptr<ResponseSink> sink_;
};

TEST_F(SinkTest, ReshapeIsUndone) {
  Make("output { name: \"A\" data_type: TYPE_FP32 dims: [ 1 ] reshape { shape: [ ] } }");
  EXPECT_EQ(Seen({5}), (Shape{5, 1}));
  Make("output { name: \"A\" data_type: TYPE_FP32 dims: [ 2, -1, 3, -1 ] reshape { shape: [ -1, 6, -1 ] } }");
  EXPECT_EQ(Seen({4, 7, 6, 9}), (Shape{4, 2, 7, 3, 9}));
  Make("output { name: \"A\" data_type: TYPE_FP32 dims: [ -1 ] }");
  EXPECT_EQ(Seen({4, 7}), (Shape{4, 7}));
}

TEST_F(SinkTest, AnUndeclaredStateMayBeGiven) {
  Make(R"(output { name: "A" data_type: TYPE_FP32 dims: [ 1 ] } sequence_batching { state {
            input_name: "IN" output_name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] } })");
  request_.outputs = {{"A", false, 0, {}}};
  const auto tensors = SequenceTensors::Create(*info_, "/nowhere", buffers_);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  const auto state = (*tensors)->NewState();
  ASSERT_TRUE(state.ok());
  sink_->KeepStates(tensors->get(), state->get());
  const Shape shape{1, 4};
  Buffer made = *buffers_.Allocate(16);
  std::memset(made.data(), 7, 16);
  ASSERT_TRUE(sink_->Give(1, DataType::kFp32, AsSpan(shape), std::move(made)).ok());
  EXPECT_TRUE(request_.response.outputs.empty()) << "it is no client's";
}

TEST_F(SinkTest, OutputsComeInTheOrderOfTheRequest) {
  Make(
      "output { name: \"A\" data_type: TYPE_FP32 dims: [ 1 ] } output { name: \"B\" data_type: TYPE_FP32 "
      "dims: [ 1 ] }"
      "output { name: \"C\" data_type: TYPE_FP32 dims: [ 1 ] }");
  request_.outputs = {{"C", false, 0, {}}, {"A", false, 0, {}}};
  EXPECT_TRUE(sink_->Wants(0));
  EXPECT_FALSE(sink_->Wants(1));
  const Shape shape{1, 1};
  for (const std::size_t index : {0U, 1U, 2U})
    ASSERT_TRUE(sink_->Allocate(index, DataType::kFp32, AsSpan(shape), 4).ok());
  ASSERT_TRUE(sink_->Finish(absl::OkStatus()).ok());
  ASSERT_EQ(request_.response.outputs.size(), 2u);
  EXPECT_EQ(request_.response.outputs[0].name, "C");
  EXPECT_EQ(request_.response.outputs[1].name, "A");
}

TEST_F(SinkTest, MissingOutputIsAnErrorByName) {
  Make(
      "output { name: \"A\" data_type: TYPE_FP32 dims: [ 1 ] } output { name: \"B\" data_type: TYPE_FP32 "
      "dims: [ 1 ] }");
  const Shape shape{1, 1};
  ASSERT_TRUE(sink_->Allocate(0, DataType::kFp32, AsSpan(shape), 4).ok());
  EXPECT_EQ(MessageOf(sink_->Finish(absl::OkStatus())), "model 'm' version 3 made no output 'B'");
}

class RegistryTest : public testing::Test {
 protected:
  void SetUp() override {
    core_.folder.AddModel("m", CopyConfig("fake", 1, "version_policy { all { } }"), {1, 2, 10});
    ASSERT_TRUE(core_.Start().ok());
    ASSERT_TRUE(core_.Load("m").ok());
  }
  CoreHarness core_;
};

TEST_F(RegistryTest, MinusOneIsTheHighestReadyVersion) {
  EXPECT_EQ((*core_.registry.Find("m", -1))->info().version(), 10);
  EXPECT_EQ((*core_.registry.Find("m", 2))->info().version(), 2);
  EXPECT_EQ(MessageOf(core_.registry.Find("m", 3).status()), "Request for unknown model: 'm' version 3 is not found");
  EXPECT_EQ(MessageOf(core_.registry.Find("x", 1).status()), "Request for unknown model: 'x' is not found");
  core_.folder.AddModel("m", CopyConfig("fake", 1, "version_policy { specific { versions: [ 1, 2 ] } }"), {});
  ASSERT_TRUE(core_.Load("m").ok());
  EXPECT_EQ((*core_.registry.Find("m", -1))->info().version(), 2);
  EXPECT_EQ(MessageOf(core_.registry.Find("m", 10).status()),
            "Request for unknown model: 'm' version 10 is not at ready state");
}

TEST_F(RegistryTest, StaleSnapshotLeadsToTheNewVersionAndKeepsNothingAlive) {
  const std::shared_ptr<const RegistrySnapshot> old = core_.registry.Snapshot();
  const std::shared_ptr<PublishedVersion> version = old->at("m")->versions.at(10).published;
  ASSERT_NE(version, nullptr);
  TestFolder::Write(core_.folder.repository() / "m/touched", "x");
  ASSERT_TRUE(core_.Load("m").ok());
  EXPECT_FALSE(ModelHandle::Enter(version)) << "the gate of the replaced one is closed";
  EXPECT_TRUE(core_.registry.Find("m", 10).ok());
  ASSERT_TRUE(core_.Unload("m").ok());
  EXPECT_EQ(core_.rows(), 0u) << "the old picture holds no resources";
  EXPECT_EQ(VersionStateName(old->at("m")->versions.at(10).state), "READY");
}

TEST_F(RegistryTest, ReaderAlwaysFindsAVersionWhileItIsReplaced) {
  std::atomic<bool> stop{false};
  std::atomic<int> failures{0};
  std::thread reader([&] {
    while (!stop) {
      if (!core_.registry.Find("m", -1).ok()) ++failures;
      if (!core_.registry.Find("m", 1).ok()) ++failures;
    }
  });
  for (int i = 0; i < 20; ++i) {
    TestFolder::Write(core_.folder.repository() / "m/touched", std::to_string(i));
    ASSERT_TRUE(core_.Load("m").ok());
  }
  stop = true;
  reader.join();
  EXPECT_EQ(failures, 0);
}

}  // namespace
}  // namespace tidemark
