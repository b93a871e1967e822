#include "backends/tensorrt/tensorrt_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "repository/config_finding.h"
#include "tests/support/trt_fixture.h"

namespace tidemark {
namespace {

using ::testing::ElementsAre;
using testing::FakePlan;
using ::testing::HasSubstr;

constexpr char kIdentity[] = R"(
  input { name: "INPUT" data_type: TYPE_FP32 dims: 64 } output { name: "OUTPUT" data_type: TYPE_FP32 dims: 64 })";

class TensorRtBackendTest : public ::testing::Test {
 protected:
  void SetUp() override {
    before_ = Live();
    ASSERT_TRUE(fixture_.Open().ok());
  }
  void TearDown() override {
    if (device_lost_) return;
    EXPECT_EQ(fixture_.ledger.Totals().rows, 0u);
    EXPECT_EQ(fixture_.ledger.stranded_rows(), 0u);
    EXPECT_EQ(FakeGpuViolationText(), "");
    EXPECT_EQ(Live(), before_);
  }
  std::unique_ptr<LoadedPlan> Make(const FakePlan& plan, const std::string& config) {
    auto made = LoadedPlan::Make(fixture_, plan.Build(), config);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : nullptr;
  }
  absl::Status Refusal(const FakePlan& plan, const std::string& config) {
    return LoadedPlan::Make(fixture_, plan.Build(), config).status();
  }
  TrtFixture fixture_;
  bool device_lost_ = false;

 private:
  std::map<std::string, std::int64_t> before_;
};

TestRequest& AddSub(TestRequest& request, std::int64_t batch, float from) {
  const auto count = static_cast<std::size_t>(batch) * 16;
  request.Input("INPUT0", DataType::kFp32, {batch, 16}, Ramp(count, from));
  request.Input("INPUT1", DataType::kFp32, {batch, 16}, std::vector<float>(count, 0.5F));
  return request;
}

void ExpectAddSub(TestRequest& request, std::int64_t batch, float from) {
  ASSERT_TRUE(request.execution.status.ok()) << request.execution.status;
  EXPECT_EQ(request.sink.shapes[0], (Shape{batch, 16}));
  std::vector<float> sum = Ramp(static_cast<std::size_t>(batch) * 16, from);
  std::vector<float> difference = sum;
  for (float& v : sum) v += 0.5F;
  for (float& v : difference) v -= 0.5F;
  EXPECT_EQ(request.sink.Values<float>(0), sum);
  EXPECT_EQ(request.sink.Values<float>(1), difference);
}

TEST_F(TensorRtBackendTest, RequestsOfOneShapeRunTogetherAndGetTheirOwnOutputs) {
  const auto plan = Make(FakePlan::AddSub(), kAddSub);
  ASSERT_NE(plan, nullptr);
  const auto executions = FakeGpuCalls("enqueueV3");
  TestRequest a, b, c;
  plan->Run({&AddSub(a, 1, 0), &AddSub(b, 3, 100), &AddSub(c, 2, 1000)});
  ExpectAddSub(a, 1, 0);
  ExpectAddSub(b, 3, 100);
  ExpectAddSub(c, 2, 1000);
  EXPECT_EQ(FakeGpuCalls("enqueueV3") - executions, 1);
}

// Small chunks by one thread; large ones by two.
TEST_F(TensorRtBackendTest, LargeTensorsGoThroughTheRingOfChunks) {
  for (const auto& [staging, count] : {std::pair{"65536", 300'001}, std::pair{"4194304", 2'500'001}}) {
    SCOPED_TRACE(staging);
    fixture_.backend.reset();
    ASSERT_TRUE(fixture_.Open({{"library", "libnvinfer.so.11"}, {"staging-bytes", staging}}).ok());
    const auto plan = Make(FakePlan::Identity(count), fmt::format(R"(
      input {{ name: "INPUT" data_type: TYPE_FP32 dims: {0} }} output {{ name: "OUTPUT" data_type: TYPE_FP32 dims: {0} }})",
                                                                  count));
    ASSERT_NE(plan, nullptr);
    FakeGpuDeferred(1);
    for (int round = 0; round < 3; ++round) {
      TestRequest request;
      const std::vector<float> values = Ramp(static_cast<std::size_t>(count), static_cast<float>(round));
      request.Input("INPUT", DataType::kFp32, {count}, values);
      plan->Run({&request});
      ASSERT_TRUE(request.execution.status.ok()) << request.execution.status;
      EXPECT_EQ(request.sink.Values<float>(0), values);
    }
    FakeGpuDeferred(0);
  }
}

TEST_F(TensorRtBackendTest, NothingIsTakenWhileRequestsAreServed) {
  for (const char* graphs : {"", "optimization { cuda { graphs: true } }"}) {
    const auto plan = Make(FakePlan::AddSub(), std::string(kAddSub) + graphs);
    ASSERT_NE(plan, nullptr);
    const std::uint64_t before = fixture_.gpus->acquisitions();
    for (std::int64_t batch = 1; batch <= 64; ++batch) {
      TestRequest request;
      plan->Run({&AddSub(request, batch, 1)});
      ExpectAddSub(request, batch, 1);
    }
    EXPECT_EQ(fixture_.gpus->acquisitions(), before);
  }
}

TEST_F(TensorRtBackendTest, GraphsAreLaunchedForTheirShapes) {
  const auto execs = FakeGpuLive("graph_execs");
  const auto plan = Make(FakePlan::AddSub(), std::string(kAddSub) + "optimization { cuda { graphs: true } }");
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(FakeGpuLive("graph_execs") - execs, 2) << "batches 1 and 64: the dynamic batcher's";
  const auto launches = FakeGpuCalls("cuGraphLaunch");
  TestRequest one, five;
  plan->Run({&AddSub(one, 1, 7)});
  ExpectAddSub(one, 1, 7);
  EXPECT_EQ(FakeGpuCalls("cuGraphLaunch") - launches, 1);
  plan->Run({&AddSub(five, 5, 7)});
  ExpectAddSub(five, 5, 7);
  EXPECT_EQ(FakeGpuCalls("cuGraphLaunch") - launches, 1);
}

TEST_F(TensorRtBackendTest, ALargerGraphServesSmallerBatchesWhereTheLowerBoundAllows) {
  const auto plan = Make(FakePlan::AddSub(), std::string(kAddSub) + R"(optimization { cuda { graphs: true graph_spec {
      batch_size: 8
      input { key: "INPUT0" value { dim: 16 } } input { key: "INPUT1" value { dim: 16 } }
      graph_lower_bound { batch_size: 5
        input { key: "INPUT0" value { dim: 16 } } input { key: "INPUT1" value { dim: 16 } } } } } })");
  ASSERT_NE(plan, nullptr);
  const auto launches = FakeGpuCalls("cuGraphLaunch");
  for (const std::int64_t batch : {5, 7, 8}) {
    TestRequest request;
    plan->Run({&AddSub(request, batch, 3)});
    ExpectAddSub(request, batch, 3);
  }
  EXPECT_EQ(FakeGpuCalls("cuGraphLaunch") - launches, 3);
}

// triton-inference-server/server#8969.
TEST_F(TensorRtBackendTest, WrongOutputTypeIsRefusedInTritonsWordsAndLeavesNothing) {
  std::string config = kIdentity;
  config.replace(config.rfind("TYPE_FP32"), 9, "TYPE_INT32");
  for (int i = 0; i < 3; ++i) {
    const absl::Status status = Refusal(FakePlan::Identity(64), config);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(HeadOf(status),
              "unexpected datatype TYPE_FP32 for inference output 'OUTPUT', expecting TYPE_INT32 for m_0");
    EXPECT_EQ(
        DetailsOf(status),
        "\noutput[0].data_type: found TYPE_INT32, expected TYPE_FP32, as the plan has; write: data_type: TYPE_FP32");
    EXPECT_EQ(fixture_.ledger.Totals().rows, 0u);
  }
}

TEST_F(TensorRtBackendTest, WithoutAConfigurationEverythingComesFromThePlan) {
  const auto plan = Make(FakePlan::AddSub(), "");
  ASSERT_NE(plan, nullptr);
  const inference::ModelConfig& config = plan->model->config();
  EXPECT_EQ(config.max_batch_size(), 64);
  EXPECT_TRUE(config.has_dynamic_batching());
  ASSERT_EQ(config.input_size(), 2);
  EXPECT_EQ(config.input(1).name(), "INPUT1");
  EXPECT_EQ(config.input(1).data_type(), inference::TYPE_FP32);
  EXPECT_THAT(config.output(0).dims(), ElementsAre(16));
  TestRequest request;
  plan->Run({&AddSub(request, 2, 5)});
  ExpectAddSub(request, 2, 5);
}

TEST_F(TensorRtBackendTest, OutputsOfDataDependentSizeComeWithTheirTrueShape) {
  const auto plan = Make(FakePlan::NonZero(), R"(input { name: "INPUT" data_type: TYPE_FP32 dims: -1 }
                                                 output { name: "OUTPUT" data_type: TYPE_INT64 dims: [ 1, -1 ] })");
  ASSERT_NE(plan, nullptr);
  for (const std::size_t n : {3u, 900u, 10u}) {
    TestRequest request;
    std::vector<float> values(n, 0);
    values[1] = values[n - 1] = 2;
    request.Input("INPUT", DataType::kFp32, {static_cast<std::int64_t>(n)}, values);
    plan->Run({&request});
    ASSERT_TRUE(request.execution.status.ok()) << request.execution.status;
    EXPECT_EQ(request.sink.shapes[0], (Shape{1, 2}));
    EXPECT_THAT(request.sink.Values<std::int64_t>(0), ElementsAre(1, static_cast<std::int64_t>(n) - 1));
  }
}

TEST_F(TensorRtBackendTest, ShapeTensorsAreReadOnTheHost) {
  const auto plan = Make(FakePlan::Reshape(), R"(
    input { name: "INPUT" data_type: TYPE_FP32 dims: [ -1, 4 ] }
    input { name: "SHAPE" data_type: TYPE_INT64 dims: 2 is_shape_tensor: true }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ -1, -1 ] })");
  ASSERT_NE(plan, nullptr);
  for (const std::int64_t rows : {2, 1, 4, 2}) {
    TestRequest request;
    request.Input("INPUT", DataType::kFp32, {2, 4}, Ramp(8, 0));
    request.Input<std::int64_t>("SHAPE", DataType::kInt64, {2}, {rows, 8 / rows});
    plan->Run({&request});
    ASSERT_TRUE(request.execution.status.ok()) << request.execution.status;
    EXPECT_EQ(request.sink.shapes[0], (Shape{rows, 8 / rows}));
    EXPECT_EQ(request.sink.Values<float>(0), Ramp(8, 0));
  }
  TestRequest bad;
  bad.Input("INPUT", DataType::kFp32, {2, 4}, Ramp(8, 0));
  bad.Input<std::int64_t>("SHAPE", DataType::kInt64, {2}, {1000, 1});
  plan->Run({&bad});
  EXPECT_THAT(bad.execution.status.ToString(),
              HasSubstr("The shape value at index 0 is expected to be in range from 1 to 256, Got: 1000"));
}

TEST_F(TensorRtBackendTest, TheProfileIsChosenByTheShape) {
  const auto plan = Make(FakePlan::TwoProfiles(), R"(max_batch_size: 64
    input { name: "INPUT" data_type: TYPE_FP32 dims: 16 } output { name: "OUTPUT" data_type: TYPE_FP32 dims: 16 }
    instance_group { kind: KIND_GPU profile: [ "0", "1" ] })");
  ASSERT_NE(plan, nullptr);
  for (const std::int64_t batch : {1, 8, 9, 64, 4}) {
    TestRequest request;
    const std::vector<float> values = Ramp(static_cast<std::size_t>(batch) * 16, 0);
    request.Input("INPUT", DataType::kFp32, {batch, 16}, values);
    plan->Run({&request});
    ASSERT_TRUE(request.execution.status.ok()) << batch << request.execution.status;
    EXPECT_EQ(request.sink.Values<float>(0), values);
  }
}

TEST_F(TensorRtBackendTest, AShapeOutsideTheProfileFailsAlone) {
  const auto plan = Make(FakePlan::TwoProfiles(), R"(
    input { name: "INPUT" data_type: TYPE_FP32 dims: [ -1, 16 ] }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ -1, 16 ] })");
  ASSERT_NE(plan, nullptr);
  TestRequest good, bad, also;
  good.Input("INPUT", DataType::kFp32, {2, 16}, Ramp(32, 0));
  bad.Input("INPUT", DataType::kFp32, {9, 16}, Ramp(144, 0));
  also.Input("INPUT", DataType::kFp32, {1, 16}, Ramp(16, 4));
  plan->Run({&good, &bad, &also});
  EXPECT_TRUE(good.execution.status.ok());
  EXPECT_EQ(good.sink.Values<float>(0), Ramp(32, 0));
  EXPECT_EQ(bad.execution.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MessageOf(bad.execution.status),
            "request specifies invalid shape for input 'INPUT' for m_0. Error details: model expected the shape of "
            "dimension 0 to be between 1 and 8 but received 9");
  EXPECT_EQ(also.sink.Values<float>(0), Ramp(16, 4));
}

TEST_F(TensorRtBackendTest, ARefusedOutputFailsItsRequestOnly) {
  const auto plan = Make(FakePlan::AddSub(), kAddSub);
  ASSERT_NE(plan, nullptr);
  TestRequest a, b, c;
  b.sink.refusal = absl::ResourceExhaustedError("no memory");
  plan->Run({&AddSub(a, 1, 0), &AddSub(b, 1, 20), &AddSub(c, 1, 40)});
  ExpectAddSub(a, 1, 0);
  ExpectAddSub(c, 1, 40);
  EXPECT_TRUE(absl::IsResourceExhausted(b.execution.status));
}

TEST_F(TensorRtBackendTest, PlansOfTensorRt10RunOnItsOwnLibrary) {
  const auto plan = Make(FakePlan::AddSub().Version(10, 6, 0, 26), kAddSub);
  ASSERT_NE(plan, nullptr);
  TestRequest request;
  plan->Run({&AddSub(request, 2, 5)});
  ExpectAddSub(request, 2, 5);
}

TEST_F(TensorRtBackendTest, EveryDataTypeIsServed) {
  for (const int type : {FakePlan::kHalf, FakePlan::kBf16, FakePlan::kInt32, FakePlan::kInt64, FakePlan::kInt8,
                         FakePlan::kBool, FakePlan::kUint8, FakePlan::kFp8}) {
    const auto plan = Make(FakePlan::Typed(type), "");
    ASSERT_NE(plan, nullptr) << type;
    const auto data_type = static_cast<DataType>(plan->model->config().input(0).data_type());
    std::vector<std::uint8_t> bytes(2 * 16 * ElementByteSize(data_type));
    std::iota(bytes.begin(), bytes.end(), std::uint8_t{1});
    TestRequest request;
    request.Input("INPUT", data_type, {2, 16}, bytes);
    plan->Run({&request});
    ASSERT_TRUE(request.execution.status.ok()) << type << request.execution.status;
    EXPECT_EQ(request.sink.Values<std::uint8_t>(0), bytes);
    EXPECT_EQ(request.sink.types[0], data_type);
  }
}

TEST_F(TensorRtBackendTest, OnlyGpusAreServed) {
  EXPECT_THAT(MessageOf(Refusal(FakePlan::Identity(64), std::string(kIdentity) + "instance_group { kind: KIND_CPU }")),
              ::testing::StartsWith("unable to load model 'm', TensorRT backend supports only GPU device"));
}

TEST_F(TensorRtBackendTest, ABudgetThatIsTooSmallRefusesWithTheFigures) {
  fixture_.ledger.SetBudget(0, 100'000);
  FakePlan plan = FakePlan::Identity(64);
  const absl::Status status = Refusal(plan.Weights(1 << 20), kIdentity);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(MessageOf(status), HasSubstr("1048576"));
  EXPECT_THAT(MessageOf(status), HasSubstr("100000"));
}

TEST_F(TensorRtBackendTest, ALostDeviceFailsRequestsAndHealth) {
  device_lost_ = true;
  {
    const auto plan = Make(FakePlan::AddSub(), kAddSub);
    ASSERT_NE(plan, nullptr);
    FakeGpuSetSticky(700);
    TestRequest request;
    plan->Run({&AddSub(request, 1, 0)});
    EXPECT_EQ(request.execution.status.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(plan->instances[0]->Health().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(MessageOf(plan->instances[0]->Health()), HasSubstr("GPU 0 is lost until this process is restarted"));
  }
  EXPECT_GT(fixture_.ledger.stranded_rows(), 0u) << "what a lost device holds is not said to be free";
}

class TensorRtFaults : public ::testing::TestWithParam<Fault> {};

TEST_P(TensorRtFaults, EveryAcquisitionOfALoadMayFail) {
  TrtFixture fixture;
  ASSERT_TRUE(fixture.Open().ok());
  const std::string config = std::string(kAddSub) + "optimization { cuda { graphs: true } }";
  FakePlan description = FakePlan::AddSub();
  const std::string plan = description.Weights(4096).Bytes("persistent", 2048).Bytes("scratch", 4096).Build();
  ASSERT_TRUE(LoadedPlan::Make(fixture, plan, config).ok());
  const auto before = Live();
  bool fired = true;
  std::int64_t n = 0;
  for (; fired; ++n) {
    fixture.platform.Arm(GetParam(), n);
    absl::Status status;
    try {
      status = LoadedPlan::Make(fixture, plan, config).status();
    } catch (const InjectedException&) {
      status = absl::ResourceExhaustedError("exception");
    }
    fired = fixture.platform.fired();
    fixture.platform.Disarm();
    EXPECT_EQ(status.ok(), !fired) << n << ": " << status;
    EXPECT_EQ(fixture.ledger.Totals().rows, 0u) << n;
    EXPECT_EQ(Live(), before) << n;
  }
  EXPECT_GE(n, 13);
  EXPECT_EQ(FakeGpuViolationText(), "");
}
INSTANTIATE_TEST_SUITE_P(All, TensorRtFaults, ::testing::Values(Fault::kOnce, Fault::kFromThenOn, Fault::kThrow));

}  // namespace
}  // namespace tidemark
