#include "resource/gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "base/status.h"
#include "tests/support/fault_platform.h"
#include "tests/support/gpu_fakes/fake_gpu.h"

namespace tidemark {
namespace {

using ::testing::HasSubstr;

class GpusTest : public ::testing::Test {
 protected:
  void SetUp() override {
    OpenFakeGpu();
    FakeGpuHeal();
    auto gpus = Gpus::Open(resident_, "libcuda.so.1");
    ASSERT_TRUE(gpus.ok()) << gpus.status();
    gpus_ = *std::move(gpus);
  }
  void TearDown() override {
    FakeGpuHeal();
    resident_.ReleaseAll();  // needs gpus_
  }

  std::unique_ptr<Platform> real_ = CreateLinuxPlatform();
  FaultPlatform platform_{*real_};
  Ledger ledger_;
  Scope resident_{ledger_, platform_, "server/gpus",
                  Scope::Options{.cancel = nullptr, .reservations = nullptr, .resident = true}};
  std::unique_ptr<Gpus> gpus_;
};

TEST_F(GpusTest, AMachineWithoutADriverIsNotFound) {
  EXPECT_TRUE(absl::IsNotFound(Gpus::Open(resident_, "/nowhere/libcuda.so.1").status()));
}

TEST_F(GpusTest, TheContextIsAResidentRowFromTheFirstUseOn) {
  EXPECT_EQ(ledger_.Totals().resident_rows, 1u) << "the library";
  ASSERT_TRUE(gpus_->Use(0).ok());
  ASSERT_TRUE(gpus_->Use(0).ok());
  EXPECT_EQ(ledger_.Totals().resident_rows, 3u) << "and the page-locked block that stays";
  EXPECT_TRUE(absl::IsInvalidArgument(gpus_->Use(99)));
}

TEST_F(GpusTest, MemoryIsARowOfItsDeviceUntilItsScopeDies) {
  const auto before = FakeGpuLive("device_blocks");
  {
    Scope scope(ledger_, platform_, "model/m/1");
    ASSERT_TRUE(gpus_->Allocate(scope, 0, 1000, "weights").ok());
    ASSERT_TRUE(gpus_->AllocatePinned(scope, 0, 1000, "staging").ok());
    const LedgerTotals totals = ledger_.Totals();
    EXPECT_EQ(totals.BytesOf(0), 1000u);
    EXPECT_EQ(totals.BytesOf(kHost), 4096u);
    EXPECT_EQ(FakeGpuLive("device_blocks"), before + 1);
  }
  EXPECT_EQ(ledger_.Totals().rows, 0u);
  EXPECT_EQ(FakeGpuLive("device_blocks"), before);
}

TEST_F(GpusTest, ABudgetIsAHardLimit) {
  ledger_.SetBudget(0, 1500);
  Scope scope(ledger_, platform_, "model/m/1");
  ASSERT_TRUE(gpus_->Allocate(scope, 0, 1000, "weights").ok());
  const auto calls = FakeGpuCalls("cuMemAlloc_v2");
  EXPECT_TRUE(absl::IsResourceExhausted(gpus_->Allocate(scope, 0, 1000, "more").status()));
  EXPECT_EQ(FakeGpuCalls("cuMemAlloc_v2"), calls) << "the driver is not asked";
  EXPECT_TRUE(gpus_->Allocate(scope, 0, 500, "less").ok());
}

TEST_F(GpusTest, ALoadLimitCountsWhatIsInUseByWhomever) {
  const auto memory = gpus_->MemoryInfo(0);
  ASSERT_TRUE(memory.ok());
  const auto fraction = [&](std::uint64_t more) {
    return static_cast<double>(memory->total - memory->free + more) / static_cast<double>(memory->total);
  };
  EXPECT_TRUE(gpus_->CheckLoadLimit(0, "m_0").ok()) << "there is none";
  gpus_->SetPolicy({.min_compute_capability = 0, .load_limits = {{0, fraction(64 << 20)}}});
  EXPECT_TRUE(gpus_->CheckLoadLimit(0, "m_0").ok());
  {
    Scope somebody(ledger_, platform_, "somebody");
    ASSERT_TRUE(gpus_->Allocate(somebody, 0, 128 << 20, "weights").ok());
    const absl::Status status = gpus_->CheckLoadLimit(0, "m_0");
    EXPECT_TRUE(absl::IsUnavailable(status));
    EXPECT_THAT(std::string(MessageOf(status)),
                HasSubstr("can not create model 'm_0': memory limit set for GPU 0 has exceeded, model loading is "
                          "rejected."));
  }
  EXPECT_TRUE(gpus_->CheckLoadLimit(0, "m_0").ok());
}

TEST_F(GpusTest, GpusBelowTheWantedCapabilityAreNotUsable) {
  const GpuFacts& gpu = gpus_->devices()[0];
  const double capability = gpu.major + gpu.minor / 10.0;
  EXPECT_EQ(gpus_->Usable().size(), gpus_->devices().size());
  gpus_->SetPolicy({.min_compute_capability = capability, .load_limits = {}});
  EXPECT_EQ(gpus_->Usable().size(), gpus_->devices().size());
  gpus_->SetPolicy({.min_compute_capability = capability + 0.1, .load_limits = {}});
  EXPECT_TRUE(gpus_->Usable().empty());
}

TEST_F(GpusTest, AFullDeviceIsToldWithItsFigures) {
  Scope scope(ledger_, platform_, "model/m/1");
  FakeGpuFail("cuMemAlloc_v2", 0, 1, 2);
  const absl::Status status = gpus_->Allocate(scope, 0, 12345, "weights").status();
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(MessageOf(status), HasSubstr("GPU 0 has no 12345 bytes of device memory for weights"));
  EXPECT_EQ(ledger_.Totals().rows, 0u);
}

TEST_F(GpusTest, ACaptureThatIsRefusedLeavesNoGraph) {
  Scope scope(ledger_, platform_, "model/m/1");
  const auto stream = gpus_->CreateStream(scope, 0, StreamPriority::kMax, "stream");
  ASSERT_TRUE(stream.ok());
  const auto graphs = FakeGpuLive("graphs");
  const auto graph = gpus_->Capture(
      scope, 0, stream->stream, [] { return absl::InternalError("not with me"); }, "graph");
  EXPECT_EQ(MessageOf(graph.status()), "not with me");
  EXPECT_EQ(FakeGpuLive("graphs"), graphs);
  EXPECT_EQ(ledger_.Totals().rows, 1u) << "the stream";
}

TEST_F(GpusTest, AStickyErrorFailsTheDeviceForGood) {
  {
    Scope scope(ledger_, platform_, "model/m/1");
    ASSERT_TRUE(gpus_->Allocate(scope, 0, 1000, "weights").ok());
    EXPECT_TRUE(gpus_->Health(0).ok());
    EXPECT_TRUE(absl::IsUnavailable(gpus_->Check(0, 700, "an execution failed")));
    EXPECT_THAT(MessageOf(gpus_->Health(0)), HasSubstr("GPU 0 is lost until this process is restarted"));
    EXPECT_TRUE(absl::IsUnavailable(gpus_->Use(0)));
  }
  EXPECT_EQ(ledger_.stranded_rows(), 1u) << "what is there is not said to be given back";
}

}  // namespace
}  // namespace tidemark
