// Thousands of loads, good and failed: rows at zero, descriptors and threads at the mark, anonymous memory
// within 1 MiB (OpenVINO: 4 MiB).

#include <gtest/gtest.h>

#include "base/status.h"
#include "tests/support/engines.h"
#include "tests/support/process_state.h"

namespace tidemark {
namespace {

#ifdef TIDEMARK_SANITIZED
constexpr int kCycles = 60;
constexpr bool kMeasureMemory = false;  // a sanitizer's own memory grows
#else
constexpr int kCycles = 1000;
constexpr bool kMeasureMemory = true;
#endif
constexpr int kBeforeTheMark = 40;

// As the server runs: the free ends of other arenas, which the C library keeps, would count as growth.
[[maybe_unused]] const bool kOneArena = (UseOneHeapArena(), true);

class Soak : public testing::TestWithParam<TestEngine> {
 protected:
  // An OpenVINO load takes a hundred times as long as any other.
  static int Cycles() { return kBeforeTheMark + (GetParam().name == "openvino" ? kCycles / 2 : kCycles); }

  static void ExpectAtTheMark(const CoreHarness& core, const ProcessState& mark) {
    const ProcessState now = ReadProcessStateLike(mark);
    EXPECT_EQ(core.rows(), 0u);
    EXPECT_EQ(core.ledger.stranded_rows(), 0u);
    EXPECT_EQ(core.buffers.used_bytes(), 0u);
    EXPECT_EQ(Difference(mark, now), "");
    if (kMeasureMemory) {
      const std::int64_t may_grow = (GetParam().name == "openvino" ? 4 : 1) << 20;
      EXPECT_LE(now.anonymous_bytes - mark.anonymous_bytes, may_grow);
      testing::Test::RecordProperty("grown_bytes", std::to_string(now.anonymous_bytes - mark.anonymous_bytes));
    }
  }
};

TEST_P(Soak, LoadInferUnload) {
  CoreHarness core(GetParam().Options());
  GetParam().AddModel(core.folder, "m", 2);
  ASSERT_TRUE(core.Start().ok());
  ProcessState mark;
  for (int i = 0; i < Cycles(); ++i) {
    if (i == kBeforeTheMark) mark = ReadProcessState();
    ASSERT_TRUE(core.Load("m").ok());
    ASSERT_TRUE(core.Infer("m").ok());
    ASSERT_TRUE(core.Unload("m").ok());
  }
  ExpectAtTheMark(core, mark);
}

TEST_P(Soak, FailedLoads) {
  CoreHarness core(GetParam().Options());
  GetParam().AddModel(core.folder, "m", 2);
  ASSERT_TRUE(core.Start().ok());
  ASSERT_TRUE(core.Load("m").ok());
  ASSERT_TRUE(core.Unload("m").ok());
  core.platform.Disarm();
  ASSERT_TRUE(core.Load("m").ok());
  const std::int64_t acquisitions = core.platform.acquisitions();
  ASSERT_TRUE(core.Unload("m").ok());
  ASSERT_GT(acquisitions, 0);
  ProcessState mark;
  for (int i = 0; i < Cycles(); ++i) {
    if (i == kBeforeTheMark) mark = ReadProcessState();
    core.platform.Arm(i % 2 == 0 ? Fault::kOnce : Fault::kThrow, i % acquisitions);
    ASSERT_FALSE(core.Load("m").ok()) << "acquisition " << i % acquisitions;
  }
  core.platform.Disarm();
  ExpectAtTheMark(core, mark);
  EXPECT_TRUE(core.Load("m").ok());
}

INSTANTIATE_TEST_SUITE_P(All, Soak, testing::ValuesIn(AllEngines()), [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tidemark
