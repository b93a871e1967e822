#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "backends/openvino/engine_test/engine_fixture.h"

namespace tidemark::testing {
namespace {

std::size_t Entries(const std::string& path) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    static_cast<void>(entry);
    ++count;
  }
  return count;
}

double AnonymousMiB() {
  std::ifstream file("/proc/self/smaps_rollup");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("Anonymous:", 0) == 0) return std::stod(line.substr(10)) / 1024;
  }
  ADD_FAILURE() << "no Anonymous line";
  return 0;
}

// What the process holds, seen from outside the ledger.
struct Mark {
  std::size_t rows;
  std::size_t threads = Entries("/proc/self/task");
  std::size_t descriptors = Entries("/proc/self/fd");
  double anonymous = 0;
  explicit Mark(const Ledger& ledger) : rows(ledger.Rows().size()) {
    malloc_trim(0);
    anonymous = AnonymousMiB();
  }
};

void ExpectAtMark(const Mark& mark, const Ledger& ledger) {
  const Mark now(ledger);
  EXPECT_EQ(now.rows, mark.rows);
  EXPECT_EQ(now.threads, mark.threads);
  EXPECT_EQ(now.descriptors, mark.descriptors);
#ifndef TIDEMARK_SANITIZED  // a sanitizer keeps freed memory back
  EXPECT_LT(now.anonymous - mark.anonymous, 4.0) << "MiB over the mark of " << mark.anonymous;
#endif
  ::testing::Test::RecordProperty("anonymous_growth_kib", static_cast<int>((now.anonymous - mark.anonymous) * 1024));
}

constexpr int kCycles = 200;

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
    if (row.site == "compiled model") EXPECT_GE(row.bytes, 256u * 1024);
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
      case 0: std::filesystem::remove(version() / "model.xml"); break;
      case 1: std::ofstream(version() / "model.xml") << "no model"; break;
      case 2: std::filesystem::resize_file(version() / "model.xml", 700); break;
      case 3: std::filesystem::remove(version() / "model.bin"); break;
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

TEST_F(Memory, LoadThatFailsAtAnyStepOfTheScopeLeavesNothing) {
  WriteModel();
  const Mark mark(ledger());
  // Cancelled at the n-th acquisition: the budget's refusal takes the same road.
  ledger().SetBudget(kHost, 100 * 1024);
  const absl::Status status = LoadError(Config(""));
  ledger().SetBudget(kHost, std::nullopt);
  static_cast<void>(status);
  ExpectAtMark(mark, ledger());
}

}  // namespace
}  // namespace tidemark::testing
