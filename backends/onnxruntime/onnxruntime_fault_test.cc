#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "backends/onnxruntime/onnxruntime_backend.h"
#include "base/status.h"
#include "tests/support/fault_platform.h"
#include "tests/support/onnx_builder.h"
#include "tests/support/process_state.h"
#include "tests/support/real_platform.h"

namespace tidemark {
namespace {

namespace fs = std::filesystem;

// Every acquisition that a load makes fails once; the engine itself is opened on the real platform.
class OnnxRuntimeSweep : public ::testing::TestWithParam<Fault> {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "tidemark_ort_sweep_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    fs::create_directories(directory_ / "1");
    const std::string bytes = testing::OnnxMatMulChain(256, 2);
    std::ofstream(directory_ / "1/model.onnx", std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    auto backend = CreateOnnxRuntimeBackend(BackendContext{resident_, {}, TIDEMARK_ENGINE_DIR});
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
  }
  void TearDown() override { fs::remove_all(directory_); }

  absl::Status Load(const char* threads, CancelFlag* cancel) {
    Scope scope(ledger_, faulty_, "model/m/1", {.cancel = cancel, .reservations = nullptr, .resident = false});
    ModelArtifact artifact;
    artifact.model_name = "m";
    artifact.version = 1;
    artifact.model_directory = directory_;
    artifact.version_directory = directory_ / "1";
    artifact.cancel = cancel;
    inference::ModelConfig config;
    config.set_name("m");
    (*config.mutable_parameters())["intra_op_thread_count"].set_string_value(threads);
    ASSIGN_OR_RETURN(const auto model, backend_->CreateModel(artifact, config, scope));
    Scope instance_scope(scope, "instance/0");
    try {
      return model->CreateInstance(instance_scope, {}, "m_0", kHost).status();
    } catch (const std::exception& error) {
      return absl::InternalError(fmt::format("exception: {}", error.what()));
    }
  }

  std::unique_ptr<Platform> real_ = CreateLinuxPlatform();
  FaultPlatform faulty_{*real_};
  Ledger ledger_;
  Scope resident_{ledger_, *real_, "backend/onnxruntime", {.resident = true}};
  std::unique_ptr<Backend> backend_;
  fs::path directory_;
};

TEST_P(OnnxRuntimeSweep, EveryFailedAcquisitionLeavesNothingAndIsTheReason) {
  for (const char* threads : {"1", "3"}) {
    ASSERT_TRUE(Load(threads, nullptr).ok()) << Load(threads, nullptr);
    const ProcessState mark = ReadProcessState();
    std::int64_t n = 0;
    for (;; ++n) {
      CancelFlag cancel;
      faulty_.Arm(GetParam(), n, [&cancel] { cancel.Cancel(); });
      const absl::Status status = Load(threads, &cancel);
      const bool fired = faulty_.fired();
      faulty_.Disarm();
      EXPECT_EQ(ledger_.Totals().rows, 0U) << n;
      EXPECT_EQ(Difference(mark, ReadProcessStateWithThreads(mark.threads)), "") << n;
      if (!fired) {
        EXPECT_TRUE(status.ok()) << status;
        break;
      }
      if (GetParam() == Fault::kCancel) {
        // A cancellation after the last acquisition may come too late.
        EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kCancelled) << n << ": " << status;
        continue;
      }
      ASSERT_FALSE(status.ok()) << n;
      EXPECT_NE(MessageOf(status).find(FaultPlatform::kText), std::string_view::npos) << n << ": " << status;
    }
    // Model file, heap, mapped weights, session, two packed matrices or more, run options; two threads more.
    EXPECT_GE(n, std::string_view(threads) == "1" ? 7 : 9) << threads;
    EXPECT_TRUE(Load(threads, nullptr).ok());
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, OnnxRuntimeSweep,
                         ::testing::Values(Fault::kOnce, Fault::kFromThenOn, Fault::kThrow, Fault::kCancel));

}  // namespace
}  // namespace tidemark
