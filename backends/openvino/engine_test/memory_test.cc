#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <fstream>
#include <string>
#include <vector>

#include "backends/openvino/engine_test/engine_fixture.h"
#include "tests/support/process_state.h"

namespace tidemark::testing {
namespace {

// What the process holds, seen from outside the ledger, after the allocator gave back what it had kept.
struct Mark {
  explicit Mark(const Ledger& ledger) : rows(ledger.Rows().size()) {
    malloc_trim(0);
    state = ReadProcessState();
  }
  std::size_t rows;
  ProcessState state;
};

void ExpectAtMark(const Mark& mark, const Ledger& ledger) {
  ReadProcessStateWithThreads(mark.state.threads);
  const Mark now(ledger);
  EXPECT_EQ(now.rows, mark.rows);
  EXPECT_LE(now.state.threads, mark.state.threads);  // the engine ends some of its own when it likes
  EXPECT_EQ(now.state.descriptors, mark.state.descriptors);
  const std::int64_t growth = now.state.anonymous_bytes - mark.state.anonymous_bytes;
  ::testing::Test::RecordProperty("anonymous_growth_kib", static_cast<int>(growth / 1024));
#ifndef TIDEMARK_SANITIZED                      // a sanitizer keeps freed memory back
  constexpr std::int64_t kTolerance = 4 << 20;  // bytes: what the engine adds to its tables on the way
  EXPECT_LT(growth, kTolerance) << "bytes over the mark of " << mark.state.anonymous_bytes;
#endif
}

constexpr int kCycles = 200;
constexpr std::int64_t kAcquisitions = 4;  // core, read model, compiled model, infer request

class Memory : public EngineTest {
 protected:
  // Y[?,256] = X[?,256] x W, W of 256 KiB.
  void WriteModel() {
    constexpr std::int64_t kWidth = 256;
    IrModel ir;
    const int x = ir.Parameter("X", "f32", {-1, kWidth});
    const int w = ir.Constant("f32", {kWidth, kWidth}, std::vector<float>(kWidth * kWidth, 0.5f));
    ir.Result(ir.Node("MatMul", R"(transpose_a="false" transpose_b="false")", {x, w}, "Y", "f32", {-1, kWidth}));
    ir.Write(version());
  }
};

TEST_F(Memory, LoadRunUnloadComesBackToTheMarkEachTime) {
  WriteModel();
  const Mark mark(ledger());
  const auto config = Config("");
  const Value input = Value::Of(DataType::kFp32, {2, 256}, std::vector<float>(512, 1.0f));
  for (int i = 0; i < kCycles; ++i) {
    auto loaded = MustLoad(config);
    ASSERT_NE(loaded, nullptr);
    const Answer answer = Run(*loaded, {input});
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    ASSERT_EQ(answer.outputs.at(0).As<float>()[511], 128.0f);
  }
  ExpectAtMark(mark, ledger());
}

TEST_F(Memory, TheCompiledModelsRowCarriesTheBytesOfItsWeights) {
  WriteModel();
  auto loaded = MustLoad(Config(""));
  ASSERT_NE(loaded, nullptr);
  std::vector<std::string> sites;
  for (const LedgerRow& row : ledger().RowsOf("model/m/1")) {
    sites.push_back(row.site);
    if (row.site == "compiled model") {
      EXPECT_GE(row.bytes, 256u * 1024);
    }
  }
  EXPECT_THAT(sites, ::testing::ElementsAre("core", "compiled model", "infer request"));
}

TEST_F(Memory, FailedLoadsComeBackToTheMarkEachTime) {
  const Mark mark(ledger());
  // One of each kind in turn: nothing there, no model, cut off, weights missing, wrong shape in the configuration.
  for (int i = 0; i < kCycles; ++i) {
    WriteModel();
    auto config = Config("");
    switch (i % 5) {
      case 0:
        std::filesystem::remove(version() / "model.xml");
        break;
      case 1:
        std::ofstream(version() / "model.xml") << "no model";
        break;
      case 2:
        std::filesystem::resize_file(version() / "model.xml", 700);
        break;
      case 3:
        std::filesystem::remove(version() / "model.bin");
        break;
      default:
        config = Config(R"(max_batch_size: 2 input { name: "X" data_type: TYPE_FP32 dims: 255 }
                           output { name: "Y" data_type: TYPE_FP32 dims: 256 })");
    }
    ASSERT_FALSE(LoadError(config).ok()) << i;
  }
  ExpectAtMark(mark, ledger());
}

TEST_F(Memory, BrokenOnnxFilesComeBackToTheMarkEachTime) {
  const Mark mark(ledger());
  auto config = Config("");
  config.set_default_model_filename("model.onnx");
  for (int i = 0; i < kCycles; ++i) {
    std::ofstream(version() / "model.onnx") << std::string(static_cast<std::size_t>(i), 'x');
    ASSERT_FALSE(LoadError(config).ok()) << i;
  }
  ExpectAtMark(mark, ledger());
}

// The n-th acquisition fails, for every n that a load has, in every way.
TEST_F(Memory, LoadThatFailsAtAnyAcquisitionLeavesNothing) {
  WriteModel();
  const Mark mark(ledger());
  for (const Fault fault : {Fault::kOnce, Fault::kFromThenOn, Fault::kThrow, Fault::kCancel}) {
    std::int64_t n = 0;
    for (;; ++n) {
      CancelFlag cancel;
      platform().Arm(fault, n, [&] { cancel.Cancel(); });
      auto loaded = Load(Config(""), &cancel);
      const bool fired = platform().fired();
      platform().Disarm();
      if (!fired) {
        EXPECT_TRUE(loaded.ok()) << loaded.status();
        break;
      }
      // A cancel at the very last acquisition comes too late for the engine; the load's owner looks at the flag again.
      if (fault != Fault::kCancel || n < kAcquisitions - 1) {
        EXPECT_FALSE(loaded.ok()) << "fault at acquisition " << n;
      }
      loaded = absl::UnknownError("dropped");
      EXPECT_EQ(ledger().Totals().rows, 0u);
    }
    EXPECT_EQ(n, kAcquisitions);
  }
  ExpectAtMark(mark, ledger());
}

TEST_F(Memory, BudgetBelowTheWeightsRefusesBeforeCompiling) {
  WriteModel();
  ledger().SetBudget(kHost, 100 * 1024);
  const absl::Status status = LoadError(Config(""));
  ledger().SetBudget(kHost, std::nullopt);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

}  // namespace
}  // namespace tidemark::testing
