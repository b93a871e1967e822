// A model with 64 MiB of weights, and a tiny one, loaded rightly and with each mistake that an operator makes in a
// configuration or a copy: anonymous memory within 1 MiB of the mark (OpenVINO: 4 MiB), all else at it.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "base/status.h"
#include "tests/support/engines.h"
#include "tests/support/onnx_builder.h"
#include "tests/support/process_state.h"

namespace tidemark {
namespace {

#ifdef TIDEMARK_SANITIZED
constexpr int kCycles = 5;
constexpr int kBeforeTheMark = 3;
constexpr bool kMeasureMemory = false;  // a sanitizer's own memory grows
#else
constexpr int kCycles = 1000;  // OpenVINO, whose loads take longest: see Cycles()
constexpr int kBeforeTheMark = 40;
constexpr bool kMeasureMemory = true;
#endif

// As the server runs: the free ends of other arenas, which the C library keeps, would count as growth.
[[maybe_unused]] const bool kOneArena = (UseOneHeapArena(), true);

// OUTPUT0 = INPUT0 + (INPUT0 x W) x V with weights of zeros: 32 bytes of them for each unit of `wide`.
std::string CopyThroughWeights(std::int64_t wide) {
  const std::string zeros(static_cast<std::size_t>(4 * wide) * sizeof(float), '\0');
  return testing::OnnxBuilder()
      .Input("INPUT0", testing::kOnnxFloat, {4})
      .Weights("W", testing::kOnnxFloat, {4, wide}, zeros)
      .Weights("V", testing::kOnnxFloat, {wide, 4}, zeros)
      .Node("MatMul", {"INPUT0", "W"}, {"wide"})
      .Node("MatMul", {"wide", "V"}, {"narrow"})
      .Node("Add", {"INPUT0", "narrow"}, {"OUTPUT0"})
      .Output("OUTPUT0", testing::kOnnxFloat, {4})
      .Build();
}

std::string Replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.rfind(from);  // the last is the output's
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

struct Mistake {
  std::string_view name;
  std::function<std::string(std::string)> config;  // what becomes of a right one
  bool truncated = false;
  std::string_view message;  // part of the refusal; "": the load is good
};

const Mistake kMistakes[] = {
    {"none", nullptr, false, ""},
    {"output datatype", [](std::string c) { return Replaced(c, "TYPE_FP32", "TYPE_INT32"); }, false, "TYPE_INT32"},
    {"output shape", [](std::string c) { return Replaced(c, "[ 4 ]", "[ 5 ]"); }, false, "[5]"},
    {"missing input", [](std::string c) { return Replaced(c, "INPUT0", "ABSENT"); }, false, "ABSENT"},
    {"truncated model", nullptr, true, "model.onnx"},
};

class WeightsSoak : public ::testing::TestWithParam<std::tuple<TestEngine, std::int64_t>> {
 protected:
  // TIDEMARK_SOAK_CYCLES=1000 by hand runs all of OpenVINO's as well, which takes half an hour beside other work.
  static int Cycles() {
    if (const char* asked = getenv("TIDEMARK_SOAK_CYCLES"); asked != nullptr) return std::atoi(asked);
    return std::get<0>(GetParam()).name == "openvino" ? std::max(5, kCycles / 10) : kCycles;
  }
};

TEST_P(WeightsSoak, EveryLoadComesBackToTheMark) {
  const auto& [engine, wide] = GetParam();
  CoreHarness::Options options = engine.Options();
  options.auto_complete = false;
  CoreHarness core(options);
  const std::string model = CopyThroughWeights(wide);
  const std::filesystem::path folder = core.folder.repository() / "m";
  const std::string config = engine.Config(1);
  core.folder.AddModel("m", config, {1}, engine.file, model);
  ASSERT_TRUE(core.Start().ok());
  for (const Mistake& mistake : kMistakes) {
    SCOPED_TRACE(mistake.name);
    TestFolder::Write(folder / "config.pbtxt", mistake.config ? mistake.config(config) : config);
    if (mistake.truncated) TestFolder::Write(folder / "1" / engine.file, model.substr(0, model.size() / 2));
    ProcessState mark;
    for (int i = 0; i < kBeforeTheMark + Cycles(); ++i) {
      if (i == kBeforeTheMark) mark = ReadProcessState();
      const absl::Status status = core.Load("m");
      ASSERT_EQ(status.ok(), mistake.message.empty()) << status;
      if (status.ok()) {
        ASSERT_TRUE(core.Infer("m").ok());
      } else {
        ASSERT_THAT(std::string(MessageOf(status)), ::testing::HasSubstr(std::string(mistake.message)));
      }
      ASSERT_TRUE(core.Unload("m").ok());
      ASSERT_EQ(core.rows(), 0u);
    }
    const ProcessState now = ReadProcessStateLike(mark);
    EXPECT_EQ(core.ledger.stranded_rows(), 0u);
    EXPECT_EQ(core.buffers.used_bytes(), 0u);
    EXPECT_EQ(Difference(mark, now), "");
    if (kMeasureMemory) {
      EXPECT_LE(now.anonymous_bytes - mark.anonymous_bytes, (engine.name == "openvino" ? 4 : 1) << 20);
    }
  }
}

std::vector<TestEngine> EnginesThatReadOnnx() {
  std::vector<TestEngine> engines = AllEngines();
  std::erase_if(engines, [](const TestEngine& engine) { return engine.file != "model.onnx"; });
  return engines;
}

INSTANTIATE_TEST_SUITE_P(All, WeightsSoak,
                         ::testing::Combine(::testing::ValuesIn(EnginesThatReadOnnx()),
                                            ::testing::Values(std::int64_t{16384}, std::int64_t{2} << 20)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name +
                                  (std::get<1>(test.param) > 100'000 ? "_64MiB" : "_tiny");
                         });

}  // namespace
}  // namespace tidemark
