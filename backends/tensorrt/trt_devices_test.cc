// Several GPUs, and tensors that clients keep on one: over the fake libraries.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/trt_fixture.h"

namespace tidemark {
namespace {

using testing::FakePlan;
using ::testing::HasSubstr;

class TrtDevices : public ::testing::Test {
 protected:
  void SetUp() override {
    before_ = Live();
    ASSERT_NE(fixture_.gpus, nullptr);
    ASSERT_EQ(fixture_.gpus->devices().size(), 2u);
    ASSERT_TRUE(fixture_.Open().ok());
  }
  void TearDown() override {
    if (device_lost_) return;
    EXPECT_EQ(fixture_.ledger.Totals().rows, 0u);
    EXPECT_EQ(FakeGpuViolationText(), "");
    EXPECT_EQ(Live(), before_);
  }
  std::unique_ptr<LoadedPlan> Make(const FakePlan& plan, const std::string& config) {
    auto made = LoadedPlan::Make(fixture_, plan.Build(), config);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : nullptr;
  }
  std::vector<std::string> OwnersOn(DeviceId device) {
    std::vector<std::string> owners;
    for (const LedgerRow& row : fixture_.ledger.RowsOf("model")) {
      if (row.device == device) owners.push_back(row.owner + ": " + row.site);
    }
    return owners;
  }
  TrtFixture fixture_{2};
  bool device_lost_ = false;

 private:
  std::map<std::string, std::int64_t> before_;
};

void ExpectSum(LoadedPlan& plan, std::size_t instance, float from) {
  TestRequest request;
  request.Input("INPUT0", DataType::kFp32, {1, 16}, Ramp(16, from));
  request.Input("INPUT1", DataType::kFp32, {1, 16}, std::vector<float>(16, 1));
  plan.Run({&request}, instance);
  ASSERT_TRUE(request.execution.status.ok()) << instance << request.execution.status;
  EXPECT_EQ(request.sink.Values<float>(0), Ramp(16, from + 1)) << instance;
}

TEST_F(TrtDevices, EachGpuHasOneEngineThatItsInstancesShare) {
  const auto engines = FakeGpuLive("engines");
  const auto plan = Make(FakePlan::AddSub().Weights(1 << 20),
                         std::string(kAddSub) + "instance_group { kind: KIND_GPU count: 2 gpus: [ 0, 1 ] }");
  ASSERT_NE(plan, nullptr);
  ASSERT_EQ(plan->instances.size(), 4u);
  EXPECT_EQ(FakeGpuLive("engines") - engines, 2);
  for (const DeviceId device : {0, 1}) {
    const std::vector<std::string> owners = OwnersOn(device);
    EXPECT_EQ(std::count_if(owners.begin(), owners.end(), [](const auto& o) { return o.ends_with(": weights"); }), 1);
    EXPECT_GE(fixture_.ledger.Totals().BytesOf(device), std::uint64_t{1} << 20) << "weights on each";
  }
  for (std::size_t i = 0; i < 4; ++i) ExpectSum(*plan, i, static_cast<float>(i));
}

TEST_F(TrtDevices, GroupsMayNameDifferentGpusAndProfiles) {
  const auto plan = Make(FakePlan::TwoProfiles(), R"(max_batch_size: 64
    input { name: "INPUT" data_type: TYPE_FP32 dims: 16 } output { name: "OUTPUT" data_type: TYPE_FP32 dims: 16 }
    instance_group { name: "small" kind: KIND_GPU gpus: 0 profile: "0" }
    instance_group { name: "large" kind: KIND_GPU gpus: 1 profile: "1" })");
  ASSERT_NE(plan, nullptr);
  for (const auto& [instance, batch] : {std::pair{0, 8}, std::pair{1, 64}}) {
    TestRequest request;
    const std::vector<float> values = Ramp(static_cast<std::size_t>(batch) * 16, 1);
    request.Input("INPUT", DataType::kFp32, {batch, 16}, values);
    plan->Run({&request}, static_cast<std::size_t>(instance));
    ASSERT_TRUE(request.execution.status.ok()) << request.execution.status;
    EXPECT_EQ(request.sink.Values<float>(0), values);
  }
}

TEST_F(TrtDevices, AGpuThatIsNotThereIsRefusedByName) {
  const absl::Status status =
      LoadedPlan::Make(fixture_, FakePlan::AddSub().Build(),
                       std::string(kAddSub) + "instance_group { kind: KIND_GPU gpus: [ 0, 2 ] }")
          .status();
  EXPECT_THAT(std::string(MessageOf(status)), HasSubstr("there is no GPU 2"));
}

TEST_F(TrtDevices, ALostGpuTakesOnlyItsOwnInstancesWithIt) {
  device_lost_ = true;
  {
    const auto plan =
        Make(FakePlan::AddSub(), std::string(kAddSub) + "instance_group { kind: KIND_GPU gpus: [ 0, 1 ] }");
    ASSERT_NE(plan, nullptr);
    ExpectSum(*plan, 1, 0);
    fixture_.gpus->MarkFailed(1, "the bus was lost");
    TestRequest request;
    request.Input("INPUT0", DataType::kFp32, {1, 16}, Ramp(16, 0));
    request.Input("INPUT1", DataType::kFp32, {1, 16}, Ramp(16, 0));
    plan->Run({&request}, 1);
    EXPECT_EQ(request.execution.status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(MessageOf(request.execution.status)), HasSubstr("GPU 1 is lost"));
    EXPECT_FALSE(plan->instances[1]->Health().ok());
    EXPECT_TRUE(plan->instances[0]->Health().ok());
    ExpectSum(*plan, 0, 3);
  }
  EXPECT_EQ(fixture_.ledger.Totals().BytesOf(0), 0u) << "the other GPU's memory is back";
  EXPECT_GT(fixture_.ledger.stranded_rows(), 0u) << "what the lost one holds is not said to be free";
}

TEST_F(TrtDevices, ABudgetOfOneGpuRefusesTheLoadOnBothAndLeavesNothing) {
  fixture_.ledger.SetBudget(1, 100'000);
  FakePlan plan = FakePlan::AddSub();
  const absl::Status status =
      LoadedPlan::Make(fixture_, plan.Weights(1 << 20).Build(),
                       std::string(kAddSub) + "instance_group { kind: KIND_GPU gpus: [ 0, 1 ] }")
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(fixture_.ledger.Totals().rows, 0u);
}

TEST_F(TrtDevices, EveryAcquisitionOnEitherGpuMayFail) {
  const std::string config = std::string(kAddSub) + "instance_group { kind: KIND_GPU gpus: [ 0, 1 ] }";
  const std::string plan = FakePlan::AddSub().Weights(4096).Build();
  ASSERT_TRUE(LoadedPlan::Make(fixture_, plan, config).ok());
  const auto before = Live();
  bool fired = true;
  std::int64_t n = 0;
  for (; fired; ++n) {
    fixture_.platform.Arm(Fault::kOnce, n);
    const absl::Status status = LoadedPlan::Make(fixture_, plan, config).status();
    fired = fixture_.platform.fired();
    fixture_.platform.Disarm();
    EXPECT_EQ(status.ok(), !fired) << n << ": " << status;
    EXPECT_EQ(fixture_.ledger.Totals().rows, 0u) << n;
    EXPECT_EQ(Live(), before) << n;
  }
  EXPECT_GE(n, 20) << "as many on the second GPU as on the first";
}

// Memory that a client has on a GPU.
class ClientMemory {
 public:
  ClientMemory(TrtFixture& fixture, DeviceId device, std::size_t bytes)
      : fixture_(fixture), device_(device), scope_(fixture.ledger, fixture.platform, "client") {
    memory_ = *fixture.gpus->Allocate(scope_, device, bytes, "client");
  }
  std::span<std::byte> bytes() const { return {reinterpret_cast<std::byte*>(memory_.address), memory_.bytes}; }
  void Put(const std::vector<float>& values) {
    ASSERT_TRUE(fixture_.gpus->Use(device_).ok());
    const cuda::Api& api = fixture_.gpus->api();
    ASSERT_EQ(api.copy_to_device(memory_.address, values.data(), values.size() * sizeof(float), nullptr),
              cuda::kSuccess);
    ASSERT_EQ(api.synchronize_stream(nullptr), cuda::kSuccess);
  }
  std::vector<float> Get() {
    std::vector<float> values(memory_.bytes / sizeof(float));
    const cuda::Api& api = fixture_.gpus->api();
    EXPECT_TRUE(fixture_.gpus->Use(device_).ok());
    EXPECT_EQ(api.copy_to_host(values.data(), memory_.address, memory_.bytes, nullptr), cuda::kSuccess);
    EXPECT_EQ(api.synchronize_stream(nullptr), cuda::kSuccess);
    return values;
  }

 private:
  TrtFixture& fixture_;
  const DeviceId device_;
  Scope scope_;
  GpuMemory memory_;
};

TEST_F(TrtDevices, TensorsOnTheInstancesGpuNeverPassTheHost) {
  constexpr std::size_t kCount = 100'000;  // too large to lie in host memory
  const auto plan = Make(FakePlan::Identity(kCount), fmt::format(R"(
    input {{ name: "INPUT" data_type: TYPE_FP32 dims: {0} }} output {{ name: "OUTPUT" data_type: TYPE_FP32 dims: {0} }})",
                                                                 kCount));
  ASSERT_NE(plan, nullptr);
  EXPECT_TRUE(plan->model->takes_device_memory());
  FakeGpuDeferred(1);
  {
    ClientMemory in(fixture_, 0, kCount * sizeof(float));
    ClientMemory out(fixture_, 0, kCount * sizeof(float));
    in.Put(Ramp(kCount, 7));
    const auto to_device = FakeGpuCalls("cuMemcpyHtoDAsync_v2");
    const auto to_host = FakeGpuCalls("cuMemcpyDtoHAsync_v2");
    const auto between = FakeGpuCalls("cuMemcpyDtoDAsync_v2");
    TestRequest request;
    request.DeviceInput("INPUT", DataType::kFp32, {kCount}, in.bytes(), 0);
    request.sink.on_device[0] = {out.bytes(), 0};
    plan->Run({&request});
    ASSERT_TRUE(request.execution.status.ok()) << request.execution.status;
    EXPECT_EQ(FakeGpuCalls("cuMemcpyHtoDAsync_v2"), to_device);
    EXPECT_EQ(FakeGpuCalls("cuMemcpyDtoHAsync_v2"), to_host);
    EXPECT_EQ(FakeGpuCalls("cuMemcpyDtoDAsync_v2") - between, 2);
    EXPECT_EQ(out.Get(), Ramp(kCount, 7));
  }
  FakeGpuDeferred(0);
}

// In one batch, in every combination: staged and zero-copy tensors, from and to either side.
TEST_F(TrtDevices, RequestsOfOneBatchMayKeepTheirTensorsOnEitherSide) {
  for (const char* zero_copy : {"65536", "0"}) {
    SCOPED_TRACE(zero_copy);
    fixture_.backend.reset();
    ASSERT_TRUE(fixture_.Open({{"library", "libnvinfer.so.11"}, {"zero-copy-bytes", zero_copy}}).ok());
    const auto plan = Make(FakePlan::AddSub(), kAddSub);
    ASSERT_NE(plan, nullptr);
    const auto executions = FakeGpuCalls("enqueueV3");
    FakeGpuDeferred(1);
    {
      std::vector<std::unique_ptr<TestRequest>> requests;
      std::vector<std::unique_ptr<ClientMemory>> memory;
      std::vector<ClientMemory*> wanted(8, nullptr);
      std::vector<TestRequest*> batch;
      const auto on_gpu = [&](const std::vector<float>& values) -> ClientMemory& {
        memory.push_back(std::make_unique<ClientMemory>(fixture_, 0, values.size() * sizeof(float)));
        memory.back()->Put(values);
        return *memory.back();
      };
      for (std::size_t i = 0; i < 8; ++i) {
        TestRequest& request = *requests.emplace_back(std::make_unique<TestRequest>());
        batch.push_back(&request);
        const std::vector<float> a = Ramp(32, static_cast<float>(100 * i));
        const std::vector<float> b(32, 1);
        if ((i & 1) != 0) {
          request.DeviceInput("INPUT0", DataType::kFp32, {2, 16}, on_gpu(a).bytes(), 0);
        } else {
          request.Input("INPUT0", DataType::kFp32, {2, 16}, a);
        }
        if ((i & 2) != 0) {
          request.DeviceInput("INPUT1", DataType::kFp32, {2, 16}, on_gpu(b).bytes(), 0);
        } else {
          request.Input("INPUT1", DataType::kFp32, {2, 16}, b);
        }
        if ((i & 4) != 0) {
          wanted[i] = &on_gpu(std::vector<float>(32, -1));
          request.sink.on_device[0] = {wanted[i]->bytes(), 0};
        }
      }
      plan->Run(batch);
      for (std::size_t i = 0; i < 8; ++i) {
        ASSERT_TRUE(batch[i]->execution.status.ok()) << i << batch[i]->execution.status;
        const std::vector<float> sum = wanted[i] != nullptr ? wanted[i]->Get() : batch[i]->sink.Values<float>(0);
        EXPECT_EQ(sum, Ramp(32, static_cast<float>(100 * i) + 1)) << i;
        EXPECT_EQ(batch[i]->sink.Values<float>(1), Ramp(32, static_cast<float>(100 * i) - 1)) << i;
      }
    }
    FakeGpuDeferred(0);
    EXPECT_EQ(FakeGpuCalls("enqueueV3") - executions, 1);
  }
}

TEST_F(TrtDevices, OutputsWhoseSizeOnlyAnExecutionKnowsGoToTheGpuToo) {
  const auto plan = Make(FakePlan::NonZero(), R"(input { name: "INPUT" data_type: TYPE_FP32 dims: -1 }
                                                 output { name: "OUTPUT" data_type: TYPE_INT64 dims: [ 1, -1 ] })");
  ASSERT_NE(plan, nullptr);
  ClientMemory in(fixture_, 0, 6 * sizeof(float));
  ClientMemory out(fixture_, 0, 2 * sizeof(std::int64_t));
  in.Put({0, 5, 0, 0, 0, 7});
  TestRequest request;
  request.DeviceInput("INPUT", DataType::kFp32, {6}, in.bytes(), 0);
  request.sink.on_device[0] = {out.bytes(), 0};
  plan->Run({&request});
  ASSERT_TRUE(request.execution.status.ok()) << request.execution.status;
  std::vector<std::int64_t> indices(2);
  const std::vector<float> raw = out.Get();
  std::memcpy(indices.data(), raw.data(), sizeof(std::int64_t) * 2);
  EXPECT_THAT(indices, ::testing::ElementsAre(1, 5));
}

}  // namespace
}  // namespace tidemark
