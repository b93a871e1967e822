// The sweep below the door: for n = 0, 1, 2, … the n-th call of any function of the driver or of TensorRT that can fail
// does, once and from then on, while a model is loaded. Whatever the backend makes of it, a load that fails leaves
// nothing, one that succeeds serves, and the next load works. And the same for a request: it fails alone.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"
#include "tests/support/engines.h"
#include "tests/support/gpu_fakes/fake_gpu.h"

namespace tidemark {
namespace {

constexpr int kTooMany = 600;

std::vector<TestEngine> GpuEngines() {
  std::vector<TestEngine> engines;
  for (TestEngine& engine : AllEngines()) {
    if (engine.on_gpu) engines.push_back(std::move(engine));
  }
  return engines;
}

class GpuCalls : public ::testing::TestWithParam<TestEngine> {
 protected:
  void SetUp() override {
    OpenFakeGpu();
    FakeGpuHeal();
    FakeGpuForgetViolations();
    before_ = FakeGpuLiveText();
    core_ = std::make_unique<CoreHarness>(GetParam().Options());
    GetParam().AddModel(core_->folder, "m", 2);
    ASSERT_TRUE(core_->Start().ok());
    ASSERT_TRUE(core_->Load("m").ok());
    ASSERT_TRUE(core_->Unload("m").ok());
    empty_ = FakeGpuLiveText();
  }
  void TearDown() override {
    FakeGpuHeal();
    EXPECT_EQ(FakeGpuViolationText(), "");
    core_.reset();
    EXPECT_EQ(FakeGpuLiveText(), before_);
  }
  void ExpectNothing() {
    EXPECT_EQ(core_->rows(), 0u);
    EXPECT_EQ(core_->ledger.stranded_rows(), 0u);
    EXPECT_EQ(core_->buffers.used_bytes(), 0u);
    EXPECT_EQ(FakeGpuLiveText(), empty_);
  }

  std::unique_ptr<CoreHarness> core_;
  std::string before_, empty_;
};

TEST_P(GpuCalls, EveryCallOfALoadMayFail) {
  int points = 0;
  for (const bool once : {true, false}) {
    int n = 0;
    for (; n < kTooMany; ++n) {
      SCOPED_TRACE(fmt::format("once = {}, n = {}", once, n));
      FakeGpuFail("*", n, once ? 1 : 0, 0);
      const absl::Status status = core_->Load("m");
      const bool fired = FakeGpuFired() != 0;
      FakeGpuHeal();
      if (status.ok()) {
        EXPECT_EQ(*core_->Infer("m"), (std::vector<float>{1, 2, 3, 4}));
        ASSERT_TRUE(core_->Unload("m").ok());
      }
      ExpectNothing();
      EXPECT_TRUE(core_->gpus->Health(0).ok()) << "no error of these loses the device";
      EXPECT_TRUE(fired || status.ok()) << status;
      if (!fired || HasFailure()) break;
    }
    points = std::max(points, n);
  }
  EXPECT_GE(points, 20);
  EXPECT_LT(points, kTooMany);
  RecordProperty("calls", points);
}

TEST_P(GpuCalls, EveryCallOfARequestMayFailAndTheNextOneWorks) {
  ASSERT_TRUE(core_->Load("m").ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(core_->Infer("m").ok());
  const std::string loaded = FakeGpuLiveText();
  int n = 0;
  for (; n < kTooMany; ++n) {
    SCOPED_TRACE(fmt::format("n = {}", n));
    FakeGpuFail("*", n, 1, 0);
    const absl::StatusOr<std::vector<float>> answer = core_->Infer("m");
    const bool fired = FakeGpuFired() != 0;
    FakeGpuHeal();
    if (answer.ok()) {
      EXPECT_EQ(*answer, (std::vector<float>{1, 2, 3, 4}));
    }
    EXPECT_EQ(*core_->Infer("m"), (std::vector<float>{1, 2, 3, 4}));
    EXPECT_EQ(FakeGpuLiveText(), loaded);
    if (!fired || HasFailure()) break;
  }
  EXPECT_GE(n, 3) << "enqueue, record, wait: the device reads and writes a small model's host memory itself";
  ASSERT_TRUE(core_->Unload("m").ok());
  ExpectNothing();
}

TEST_P(GpuCalls, DeferredExecutionIsWaitedForBeforeAnythingIsReusedOrFreed) {
  FakeGpuDeferred(1);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(core_->Load("m").ok());
    for (int k = 0; k < 20; ++k) {
      const auto x = static_cast<float>(k);
      EXPECT_EQ(*core_->Infer("m", -1, {x, 2, 3, 4}), (std::vector<float>{x, 2, 3, 4}));
    }
    ASSERT_TRUE(core_->Unload("m").ok());
    ExpectNothing();
  }
  FakeGpuDeferred(0);
}

TEST_P(GpuCalls, OutOfMemoryOfTheDeviceRefusesALoadAndSparesTheNeighbour) {
  ASSERT_TRUE(core_->Load("m").ok());
  GetParam().AddModel(core_->folder, "other", 1);
  for (int i = 0; i < 3; ++i) {
    FakeGpuMachine(1, (615ULL << 20) + FakeGpuProcessBytes(0) + (64 << 10));
    const absl::Status status = core_->Load("other");
    EXPECT_THAT(std::string(MessageOf(status)), ::testing::HasSubstr("bytes of its memory are free"));
    EXPECT_EQ(*core_->Infer("m"), (std::vector<float>{1, 2, 3, 4}));
    FakeGpuMachine(1, 8ULL << 30);
  }
  EXPECT_TRUE(core_->Load("other").ok());
  EXPECT_EQ(*core_->Infer("other"), (std::vector<float>{1, 2, 3, 4}));
  ASSERT_TRUE(core_->Unload("other").ok());
  ASSERT_TRUE(core_->Unload("m").ok());
  ExpectNothing();
}

TEST_P(GpuCalls, ALoadBeyondTheGpusLimitLeavesNothing) {
  core_->gpus->SetPolicy({.min_compute_capability = 0, .load_limits = {{0, 0.0}}});
  const absl::Status status = core_->Load("m");
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(MessageOf(status)), ::testing::HasSubstr("memory limit set for GPU 0 has exceeded"));
  ExpectNothing();
  core_->gpus->SetPolicy({.min_compute_capability = 0, .load_limits = {{0, 1.0}}});
  EXPECT_TRUE(core_->Load("m").ok());
  EXPECT_TRUE(core_->Unload("m").ok());
}

TEST_P(GpuCalls, AGpuOfTooLowACapabilityIsNotThere) {
  core_->gpus->SetPolicy({.min_compute_capability = 900, .load_limits = {}});
  const absl::Status status = core_->Load("m");
  EXPECT_THAT(std::string(MessageOf(status)), ::testing::HasSubstr("no GPUs are available"));
  ExpectNothing();
}

INSTANTIATE_TEST_SUITE_P(All, GpuCalls, ::testing::ValuesIn(GpuEngines()),
                         [](const auto& test) { return test.param.name; });

// A sticky error loses the device: said, and the server is not ready; nothing else is promised.
TEST(StickyError, FailsTheDeviceForGood) {
  OpenFakeGpu();
  FakeGpuHeal();
  const TestEngine engine = GpuEngines().front();
  {
    CoreHarness core(engine.Options());
    engine.AddModel(core.folder, "m", 1);
    ASSERT_TRUE(core.Start().ok());
    ASSERT_TRUE(core.Load("m").ok());
    ASSERT_TRUE(core.Infer("m").ok());
    FakeGpuSetSticky(700);
    const absl::StatusOr<std::vector<float>> answer = core.Infer("m");
    EXPECT_FALSE(answer.ok());
    EXPECT_FALSE(core.gpus->Health(0).ok());
    EXPECT_FALSE(core.lifecycle->Ready());
    EXPECT_THAT(std::string(MessageOf(core.gpus->Health(0))), ::testing::HasSubstr("until this process is restarted"));
    EXPECT_FALSE(core.Infer("m").ok());
    FakeGpuHeal();
  }
  FakeGpuForgetViolations();
}

}  // namespace
}  // namespace tidemark
