// What every backend owes the core, whatever its engine. (That every single acquisition may fail is
// tests/fault.)

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/synchronization/barrier.h"
#include "base/status.h"
#include "tests/support/engines.h"
#include "tests/support/process_state.h"

namespace tidemark {
namespace {

class BackendContract : public testing::TestWithParam<TestEngine> {
 protected:
  const TestEngine& engine() const { return GetParam(); }
};

TEST_P(BackendContract, LoadsServesAndGivesEverythingBack) {
  CoreHarness core(engine().Options());
  engine().AddModel(core.folder, "m", 2);
  ASSERT_TRUE(core.Start().ok());
  ASSERT_TRUE(core.Load("m").ok());  // opens the engine
  ASSERT_TRUE(core.Unload("m").ok());
  const ProcessState before = ReadProcessState();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(core.Load("m").ok());
    for (const bool may_run_inline : {false, true, true, true, true}) {
      EXPECT_EQ(*core.Infer("m", 1, {-1, 0.5, 3e38F, 7}, may_run_inline), (std::vector<float>{-1, 0.5, 3e38F, 7}));
    }
    EXPECT_GE(core.rows(), 2u) << "two instance threads at least";
    ASSERT_TRUE(core.Unload("m").ok());
    EXPECT_EQ(core.rows(), 0u);
    EXPECT_EQ(Difference(before, ReadProcessStateWithThreads(before.threads)), "");
  }
}

TEST_P(BackendContract, DestroyingTheCoreTakesResidentRowsWithIt) {
  const ProcessState before = ReadProcessState();
  CoreHarness core(engine().Options());
  engine().AddModel(core.folder, "m", 1);
  ASSERT_TRUE(core.Start().ok());
  ASSERT_TRUE(core.Load("m").ok());
  core.Destroy();
  EXPECT_EQ(core.rows(), 0u) << "a lifecycle unloads what it loaded";
  core.DestroyBackends();
  EXPECT_TRUE(core.ledger.Rows().empty());
  EXPECT_EQ(core.ledger.stranded_rows(), 0u);
  EXPECT_LE(ReadProcessStateWithThreads(before.threads).threads,
            before.threads);  // one of an engine's may have gone since
}

TEST_P(BackendContract, BrokenArtifactIsRefusedAndLeavesNothing) {
  if (!engine().reads_a_model()) GTEST_SKIP() << engine().name << " reads no model file";
  CoreHarness core(engine().Options());
  engine().AddModel(core.folder, "m", 1);
  ASSERT_TRUE(core.Start().ok());
  ASSERT_TRUE(core.Load("m").ok());
  ASSERT_TRUE(core.Unload("m").ok());
  const ProcessState before = ReadProcessState();
  const std::vector<std::string> broken = {
      "", "this is no model", engine().contents.substr(0, engine().contents.size() / 2), std::string(4096, '\xff')};
  for (const std::string& bytes : broken) {
    TestFolder::Write(core.folder.repository() / "m/1" / engine().file, bytes);
    EXPECT_FALSE(core.Load("m").ok());
    EXPECT_EQ(core.rows(), 0u);
    EXPECT_EQ(Difference(before, ReadProcessStateWithThreads(before.threads)), "");
  }
  TestFolder::Write(core.folder.repository() / "m/1" / engine().file, engine().contents);
  EXPECT_TRUE(core.Load("m").ok());
}

TEST_P(BackendContract, ConfigThatContradictsTheModelIsRefusedWhileTheOldOneServes) {
  if (!engine().reads_a_model()) GTEST_SKIP() << engine().name << " has no model to contradict";
  CoreHarness core(engine().Options());
  engine().AddModel(core.folder, "m", 1);
  ASSERT_TRUE(core.Start().ok());
  ASSERT_TRUE(core.Load("m").ok());
  const std::uint64_t rows = core.rows();
  std::string config = engine().Config(1);
  const std::size_t output = config.find("output");
  config.replace(config.find("TYPE_FP32", output), 9, "TYPE_FP16");
  TestFolder::Write(core.folder.repository() / "m/config.pbtxt", config);
  for (int i = 0; i < 6; ++i) {
    EXPECT_FALSE(core.Load("m").ok());
    EXPECT_EQ(core.rows(), rows);
    EXPECT_EQ(*core.Infer("m"), (std::vector<float>{1, 2, 3, 4}));
  }
  ASSERT_TRUE(core.Unload("m").ok());
  EXPECT_EQ(core.rows(), 0u);
}

TEST_P(BackendContract, LoadsInferencesAndUnloadsOfSeveralModelsMayRace) {
  CoreHarness core(engine().Options());
  const std::vector<std::string> names = {"a", "b", "c"};
  for (const std::string& name : names) engine().AddModel(core.folder, name, 2);
  ASSERT_TRUE(core.Start().ok());
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < 12; ++i) {
        const std::string& name = names[(i + t) % names.size()];
        EXPECT_TRUE(core.Load(name).ok());
        for (int k = 0; k < 5; ++k) {
          const auto answer = core.Infer(name, -1, {1, 2, 3, 4}, k % 2 == 0);
          if (answer.ok()) {
            EXPECT_EQ(*answer, (std::vector<float>{1, 2, 3, 4}));
          }
        }
        if (i % 3 == t % 3) {
          EXPECT_TRUE(core.Unload(name).ok());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& name : names) EXPECT_TRUE(core.Unload(name).ok());
  EXPECT_EQ(core.rows(), 0u);
  EXPECT_EQ(core.buffers.used_bytes(), 0u);
}

INSTANTIATE_TEST_SUITE_P(All, BackendContract, testing::ValuesIn(AllEngines()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tidemark
