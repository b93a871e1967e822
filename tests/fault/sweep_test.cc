// THE SWEEP: for n = 0, 1, 2, … the n-th acquisition of a load fails, in every way there is. After each: the
// injected error came back, everything is as before, the old version answers, and the next load works. Ends
// at the first n that no longer fires, and that n must be at least what the engine is known to take.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "absl/synchronization/notification.h"
#include "base/status.h"
#include "tests/support/engines.h"
#include "tests/support/gpu_fakes/fake_gpu.h"
#include "tests/support/process_state.h"

namespace tidemark {
namespace {

using testing::HasSubstr;

constexpr int kTooMany = 400;

struct Way {
  Fault fault;
  const char* text;  // part of the error that must come back
};
const std::vector<Way> kWays = {{Fault::kOnce, "injected failure"},
                                {Fault::kFromThenOn, "injected failure"},
                                {Fault::kThrow, "injected failure"},
                                {Fault::kCancel, "Server not ready"}};

// What must not change, from inside and outside the ledger.
struct Baseline {
  ProcessState process;
  std::uint64_t rows = 0;
  std::uint64_t resident_rows = 0;
  std::uint64_t bytes = 0;
  std::uint64_t buffers = 0;
  int temporary = 0;
  int objects = 0;
  std::uint64_t answers = 0;  // in the response cache
  std::string gpu;            // what lives in the fake GPU libraries
  std::string violations;

  static Baseline Of(const CoreHarness& core, int threads = 0) {
    Baseline b;
    b.process = threads == 0 ? ReadProcessState() : ReadProcessStateWithThreads(threads);
    const LedgerTotals totals = core.ledger.Totals();
    b.rows = totals.rows;
    b.resident_rows = totals.resident_rows;
    b.bytes = totals.BytesOf(kHost);
    b.buffers = core.buffers.used_bytes();
    b.temporary = EntriesOf(core.folder.tmp());
    b.objects = core.script.live_models + core.script.live_instances + core.script.live_objects;
    if (core.cache != nullptr) b.answers = core.cache->figures().entries;
    b.gpu = FakeGpuLiveText();
    b.violations = FakeGpuViolationText();
    return b;
  }
};

void ExpectAsBefore(const Baseline& before, const CoreHarness& core) {
  const Baseline after = Baseline::Of(core, before.process.threads);
  EXPECT_EQ(Difference(before.process, after.process), "");
  EXPECT_EQ(after.rows, before.rows);
  EXPECT_EQ(after.resident_rows, before.resident_rows);
  EXPECT_EQ(after.bytes, before.bytes);
  EXPECT_EQ(after.buffers, before.buffers);
  EXPECT_EQ(after.temporary, before.temporary);
  EXPECT_EQ(after.objects, before.objects);
  EXPECT_EQ(after.answers, before.answers);
  EXPECT_EQ(after.gpu, before.gpu);
  EXPECT_EQ(after.violations, before.violations);
  EXPECT_EQ(core.ledger.stranded_rows(), 0u);
}

// The version that a load replaced goes on the load pool, after the load's answer: waits for that.
void Settle(const CoreHarness& core, std::string_view model) {
  for (std::size_t versions = 2; versions > 1; std::this_thread::yield()) {
    std::map<std::string, std::set<std::string>> owners;  // "load-N" and "files-N", one for each version that lives
    for (const LedgerRow& row : core.ledger.RowsOf(fmt::format("model/{}", model))) {
      for (const char* kind : {"/load-", "/files-"}) {
        const std::size_t at = row.owner.find(kind);
        if (at != std::string::npos) owners[kind].insert(row.owner.substr(0, row.owner.find('/', at + 1)));
      }
    }
    versions = std::max(owners["/load-"].size(), owners["/files-"].size());
  }
}

// Edits the model's folder, so that the next load of it does something.
void Touch(const CoreHarness& core, std::string_view model) {
  static std::atomic<int> edits{0};
  TestFolder::Write(core.folder.repository() / std::string(model) / "touched", fmt::format("{}", ++edits));
}

enum class Scene {
  kPlain,
  kThreeInstances,
  kFileOverrides,
  kSecondLoadBeside,
  kCached,
  kRateLimited,
  kSequences,
  kBatchedAndWarmedUp,
};

// What the scene adds to the model's configuration.
std::string MoreConfig(Scene scene) {
  switch (scene) {
    case Scene::kCached:
      return "response_cache { enable: true }";
    case Scene::kSequences:
      return R"(sequence_batching { max_sequence_idle_microseconds: 1000000 state {
                  input_name: "STATE_IN" output_name: "STATE_OUT" data_type: TYPE_FP32 dims: [ 4 ]
                  initial_state { name: "s" data_type: TYPE_FP32 dims: [ 4 ] data_file: "zeros" } } })";
    case Scene::kBatchedAndWarmedUp:
      return R"(max_batch_size: 4 dynamic_batching { max_queue_delay_microseconds: 100 preserve_ordering: true }
                model_warmup { name: "w" batch_size: 3 count: 2 inputs { key: "INPUT0" value {
                  data_type: TYPE_FP32 dims: [ 4 ] input_data_file: "zeros" } } })";
    default:
      return "";
  }
}

// Acquisitions of a load that the scene adds: a temporary directory, the cache's row, a scheduler's timer.
int MoreAcquisitions(Scene scene) {
  return scene == Scene::kFileOverrides || scene == Scene::kCached || scene == Scene::kSequences ||
                 scene == Scene::kBatchedAndWarmedUp
             ? 1
             : 0;
}

class Sweep : public testing::TestWithParam<std::tuple<TestEngine, Scene>> {
 protected:
  const TestEngine& engine() const { return std::get<0>(GetParam()); }
  Scene scene() const { return std::get<1>(GetParam()); }
  int instances() const { return scene() == Scene::kThreeInstances ? 3 : 1; }

  int acquisitions() const { return engine().at_least(instances()) + MoreAcquisitions(scene()); }
  CoreHarness::Options Options() const {
    CoreHarness::Options options = engine().Options();
    if (scene() == Scene::kCached) options.response_cache_bytes = 1 << 20;
    options.rate_limit = scene() == Scene::kRateLimited;
    return options;
  }

  // Changes the model on disk, so that the next load does something, and loads it.
  absl::Status LoadAgain(CoreHarness& core) {
    if (scene() == Scene::kFileOverrides) return core.Load("m", engine().Overrides());
    Touch(core, "m");
    return core.Load("m");
  }
  void AddModel(CoreHarness& core) {
    engine().AddModel(core.folder, "m", instances());
    std::string config = engine().Config(instances()) + MoreConfig(scene());
    if (scene() == Scene::kRateLimited) {
      const std::string count = fmt::format("count: {} ", instances());
      config.insert(config.find(count) + count.size(), R"(rate_limiter { resources { name: "R" count: 2 } } )");
    }
    TestFolder::Write(core.folder.repository() / "m/config.pbtxt", config);
    TestFolder::Write(core.folder.repository() / "m/initial_state/zeros", std::string(16, '\0'));
    TestFolder::Write(core.folder.repository() / "m/warmup/zeros", std::string(16, '\0'));
    if (scene() == Scene::kSequences) core.sequence_id = 7;
  }
  // A version that serves, its engine opened and every lazily made thing of the process made.
  void Prepare(CoreHarness& core) {
    AddModel(core);
    core.folder.AddModel("beside", CopyConfig("fake"));
    ASSERT_TRUE(core.Start().ok());
    for (int i = 0; i < 2; ++i) {
      const absl::Status status = LoadAgain(core);
      ASSERT_TRUE(status.ok()) << status << " (is the engine there? tools/setup.sh fetches it)";
      ASSERT_TRUE(core.Load("beside").ok());
      ASSERT_TRUE(core.Unload("beside").ok());
    }
    Settle(core, "m");
    ASSERT_EQ(*core.Infer("m"), (std::vector<float>{1, 2, 3, 4}));
  }
  // What is not in the ledger, when no version is there.
  void ExpectNothingIsRemembered(CoreHarness& core) {
    if (core.cache != nullptr) {
      EXPECT_EQ(core.cache->figures().entries, 0u);
      EXPECT_EQ(core.cache->figures().used, 0u);
    }
    if (core.rate_limiter != nullptr) {  // an instance that it still knew would contradict this one
      inference::ModelRateLimiter config;
      inference::ModelRateLimiter::Resource& resource = *config.add_resources();
      resource.set_name("R");
      resource.set_count(1);
      resource.set_global(true);
      EXPECT_TRUE(core.rate_limiter->Add(config, kHost).ok());
    }
  }
};

TEST_P(Sweep, EveryAcquisitionThatFailsLeavesEverythingAsItWas) {
  for (const Way& way : kWays) {
    if (way.fault == Fault::kCancel) continue;  // ends the lifecycle: below
    SCOPED_TRACE(way.text + std::string(" ") + std::to_string(static_cast<int>(way.fault)));
    CoreHarness core(Options());
    absl::Notification parked, go, beside_done;
    std::atomic<bool> park{false};
    core.script.at_step = [&](std::string_view step, std::string_view model) {
      if (step == "model.end" && model == "beside" && park) {
        parked.Notify();
        go.WaitForNotification();
      }
      return absl::OkStatus();
    };
    ASSERT_NO_FATAL_FAILURE(Prepare(core));
    absl::Status beside;
    if (scene() == Scene::kSecondLoadBeside) {
      park = true;
      core.lifecycle->Load("beside", {}, [&](const absl::Status& status) {
        beside = status;
        beside_done.Notify();
      });
      parked.WaitForNotification();
    }
    int n = 0;
    for (; n < kTooMany; ++n) {
      SCOPED_TRACE(fmt::format("n = {}", n));
      const Baseline before = Baseline::Of(core);
      core.platform.Arm(way.fault, n);
      const absl::Status status = LoadAgain(core);
      const bool fired = core.platform.fired();
      core.platform.Disarm();
      if (!fired) {
        EXPECT_TRUE(status.ok()) << status;
        break;
      }
      ASSERT_FALSE(status.ok()) << "a load that was refused something succeeded";
      EXPECT_THAT(std::string(MessageOf(status)), HasSubstr(way.text));
      ExpectAsBefore(before, core);
      EXPECT_EQ(*core.Infer("m"), (std::vector<float>{1, 2, 3, 4})) << "the old version answers";
      if (HasFailure()) break;
      if (n % 8 == 0) {
        ASSERT_TRUE(LoadAgain(core).ok()) << "the next load works";
        Settle(core, "m");
      }
    }
    EXPECT_LT(n, kTooMany);
    EXPECT_GE(n, acquisitions());
    if (engine().name == "fake") {
      EXPECT_EQ(n, acquisitions()) << "only real engines are vague about it";
    }
    RecordProperty("acquisitions", n);
    if (scene() == Scene::kSecondLoadBeside) {
      go.Notify();
      beside_done.WaitForNotification();
      EXPECT_TRUE(beside.ok()) << beside << ": the load beside was disturbed";
      ASSERT_TRUE(core.Unload("beside").ok());
    }
    ASSERT_TRUE(core.Unload("m").ok());
    EXPECT_EQ(core.rows(), 0u);
    EXPECT_EQ(EntriesOf(core.folder.tmp()), 0);
    ExpectNothingIsRemembered(core);
  }
}

TEST_P(Sweep, EveryPointOfCancellationLeavesNothing) {
  int n = 0;
  for (; n < kTooMany; ++n) {
    SCOPED_TRACE(fmt::format("n = {}", n));
    CoreHarness core(Options());
    ASSERT_NO_FATAL_FAILURE(Prepare(core));
    core.platform.Arm(Fault::kCancel, n, [&] { core.lifecycle->BeginExit(); });
    const absl::Status status = LoadAgain(core);
    const bool fired = core.platform.fired();
    core.platform.Disarm();
    if (fired) {
      EXPECT_TRUE(absl::IsUnavailable(status)) << status;
      EXPECT_EQ(*core.Infer("m"), (std::vector<float>{1, 2, 3, 4})) << "requests still run while the server exits";
    }
    EXPECT_TRUE(core.lifecycle->Stop(absl::InfiniteFuture()).ok());
    EXPECT_EQ(core.rows(), 0u);
    EXPECT_EQ(core.ledger.stranded_rows(), 0u);
    EXPECT_EQ(core.buffers.used_bytes(), 0u);
    EXPECT_EQ(EntriesOf(core.folder.tmp()), 0);
    EXPECT_EQ(core.script.live_models + core.script.live_instances + core.script.live_objects, 0);
    ExpectNothingIsRemembered(core);
    if (!fired || HasFailure()) break;
  }
  EXPECT_LT(n, kTooMany);
  EXPECT_GE(n, acquisitions());
}

std::string SceneName(Scene scene) {
  switch (scene) {
    case Scene::kPlain:
      return "Plain";
    case Scene::kThreeInstances:
      return "ThreeInstances";
    case Scene::kFileOverrides:
      return "FileOverrides";
    case Scene::kSecondLoadBeside:
      return "SecondLoadBeside";
    case Scene::kCached:
      return "Cached";
    case Scene::kRateLimited:
      return "RateLimited";
    case Scene::kSequences:
      return "Sequences";
    case Scene::kBatchedAndWarmedUp:
      return "BatchedAndWarmedUp";
  }
  return "?";
}

std::string SweepName(const testing::TestParamInfo<std::tuple<TestEngine, Scene>>& test) {
  return std::get<0>(test.param).name + SceneName(std::get<1>(test.param));
}

std::vector<TestEngine> EnginesNamed(const std::set<std::string>& names) {
  std::vector<TestEngine> engines;
  for (TestEngine& engine : AllEngines()) {
    if (names.contains(engine.name)) engines.push_back(std::move(engine));
  }
  return engines;
}

INSTANTIATE_TEST_SUITE_P(All, Sweep,
                         testing::Combine(testing::ValuesIn(AllEngines()),
                                          testing::Values(Scene::kPlain, Scene::kThreeInstances, Scene::kFileOverrides,
                                                          Scene::kSecondLoadBeside)),
                         SweepName);
INSTANTIATE_TEST_SUITE_P(AroundInstances, Sweep,
                         testing::Combine(testing::ValuesIn(EnginesNamed({"fake", "onnxruntime"})),
                                          testing::Values(Scene::kCached, Scene::kRateLimited)),
                         SweepName);
INSTANTIATE_TEST_SUITE_P(Scheduled, Sweep,
                         testing::Combine(testing::ValuesIn(EnginesNamed({"fake"})),
                                          testing::Values(Scene::kSequences, Scene::kBatchedAndWarmedUp)),
                         SweepName);

// An ensemble's load takes the loads of its members along. A member that could be loaded stays, as in Triton; the ensemble
// is all or nothing, and the one that serves goes on.
class EnsembleSweep : public testing::TestWithParam<Way> {
 protected:
  static constexpr int kAcquisitions = 2 * FakeAcquisitions(1) + 1;  // two members; its own part of the cache

  static CoreHarness::Options Options() {
    CoreHarness::Options options;
    options.response_cache_bytes = 1 << 20;
    return options;
  }
  static void Prepare(CoreHarness& core) {
    for (const char* member : {"a", "b"}) core.folder.AddModel(member, CopyConfig("fake"));
    core.folder.AddModel("e", R"(platform: "ensemble" response_cache { enable: true }
        input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 4 ] }
        output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 4 ] }
        ensemble_scheduling {
          step { model_name: "a" model_version: -1 input_map { key: "INPUT0" value: "INPUT0" }
                 output_map { key: "OUTPUT0" value: "between" } }
          step { model_name: "b" model_version: -1 input_map { key: "INPUT0" value: "between" }
                 output_map { key: "OUTPUT0" value: "OUTPUT0" } } })");
    ASSERT_TRUE(core.Start().ok());
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(core.Load("e").ok());
      if (i == 0) Unload(core);
    }
    ASSERT_EQ(*core.Infer("e"), (std::vector<float>{1, 2, 3, 4}));
  }
  static void Unload(CoreHarness& core) {
    absl::Notification answered;
    core.lifecycle->Unload("e", true, [&](const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      answered.Notify();
    });
    answered.WaitForNotification();
  }
  static void SettleAll(const CoreHarness& core) {
    for (const char* model : {"a", "b", "e"}) Settle(core, model);
  }
  static void TouchAll(const CoreHarness& core) {
    for (const char* model : {"a", "b", "e"}) Touch(core, model);
  }
};

TEST_P(EnsembleSweep, FailedFirstLoadLeavesNoEnsembleAndNothingOfTheMemberThatFailed) {
  CoreHarness core(Options());
  ASSERT_NO_FATAL_FAILURE(Prepare(core));
  Unload(core);
  const Baseline empty = Baseline::Of(core);
  ASSERT_EQ(empty.rows, 0u);
  int n = 0;
  for (; n < kTooMany; ++n) {
    SCOPED_TRACE(fmt::format("n = {}", n));
    core.platform.Arm(GetParam().fault, n);
    const absl::Status status = core.Load("e");
    const bool fired = core.platform.fired();
    core.platform.Disarm();
    if (!fired) {
      EXPECT_TRUE(status.ok()) << status;
      break;
    }
    EXPECT_THAT(std::string(MessageOf(status)), HasSubstr(GetParam().text));
    EXPECT_FALSE(core.registry.Find("e", -1).ok());
    EXPECT_TRUE(core.ledger.RowsOf("model/e").empty());
    for (const char* member : {"a", "b"}) {
      if (!core.registry.Find(member, -1).ok()) {
        EXPECT_TRUE(core.ledger.RowsOf(fmt::format("model/{}", member)).empty());
      }
    }
    Unload(core);
    ExpectAsBefore(empty, core);
    if (HasFailure()) break;
  }
  EXPECT_EQ(n, kAcquisitions);
  EXPECT_EQ(*core.Infer("e"), (std::vector<float>{1, 2, 3, 4}));
  Unload(core);
  ExpectAsBefore(empty, core);
}

TEST_P(EnsembleSweep, FailedReloadLeavesTheEnsembleThatServes) {
  CoreHarness core(Options());
  ASSERT_NO_FATAL_FAILURE(Prepare(core));
  int n = 0;
  for (; n < kTooMany; ++n) {
    SCOPED_TRACE(fmt::format("n = {}", n));
    TouchAll(core);
    const Baseline before = Baseline::Of(core);
    core.platform.Arm(GetParam().fault, n);
    const absl::Status status = core.Load("e");
    const bool fired = core.platform.fired();
    core.platform.Disarm();
    if (!fired) {
      EXPECT_TRUE(status.ok()) << status;
      break;
    }
    SettleAll(core);
    EXPECT_EQ(*core.Infer("e"), (std::vector<float>{1, 2, 3, 4}));
    ExpectAsBefore(before, core);
    if (HasFailure()) break;
  }
  EXPECT_EQ(n, kAcquisitions);
  SettleAll(core);
  Unload(core);
  EXPECT_EQ(core.rows(), 0u);
  EXPECT_EQ(core.cache->figures().used, 0u);
}

std::string FaultName(const testing::TestParamInfo<Way>& test) {
  return test.param.fault == Fault::kOnce ? "Once" : test.param.fault == Fault::kThrow ? "Throw" : "FromThenOn";
}

INSTANTIATE_TEST_SUITE_P(All, EnsembleSweep, testing::Values(kWays[0], kWays[1], kWays[2]), FaultName);

// A check (load?dry_run=true) of a model that came with the request, beside a version that serves.
TEST(CheckSweep, EveryAcquisitionThatFailsIsAFindingAndLeavesNothing) {
  constexpr int kAcquisitions = FakeAcquisitions(0) + 1;  // the model, and the directory of its files
  const TestEngine engine = AllEngines().front();
  CoreHarness core(engine.Options());
  engine.AddModel(core.folder, "m", 1);
  ASSERT_TRUE(core.Start().ok());
  ASSERT_TRUE(core.Load("m").ok());
  ASSERT_EQ(*core.Infer("m"), (std::vector<float>{1, 2, 3, 4}));
  const auto check = [&] {
    absl::Notification answered;
    absl::Status status;
    core.lifecycle->Check("m", engine.Overrides(), [&](const absl::Status& result, const std::string& /*findings*/) {
      status = result;
      answered.Notify();
    });
    answered.WaitForNotification();
    return status;
  };
  ASSERT_TRUE(check().ok());
  for (const Fault fault : {Fault::kOnce, Fault::kFromThenOn, Fault::kThrow}) {
    int n = 0;
    for (; n < kTooMany; ++n) {
      SCOPED_TRACE(fmt::format("n = {}", n));
      const Baseline before = Baseline::Of(core);
      core.platform.Arm(fault, n);
      const absl::Status status = check();
      const bool fired = core.platform.fired();
      core.platform.Disarm();
      ExpectAsBefore(before, core);
      EXPECT_EQ(core.StateOf("m"), "1:READY;");
      if (!fired) {
        EXPECT_TRUE(status.ok()) << status;
        break;
      }
      EXPECT_THAT(std::string(MessageOf(status)), HasSubstr("injected failure"));
      if (HasFailure()) break;
    }
    EXPECT_EQ(n, kAcquisitions);
  }
}

// The opening of an engine: what it takes as resident is all or nothing, too.
class Opening : public testing::TestWithParam<TestEngine> {};

TEST_P(Opening, EveryAcquisitionThatFailsLeavesNoResidentRowAndTheNextTryWorks) {
  for (const Fault fault : {Fault::kOnce, Fault::kFromThenOn, Fault::kThrow}) {
    CoreHarness core(GetParam().Options());
    GetParam().AddModel(core.folder, "m", 1);
    ASSERT_TRUE(core.Start().ok());
    const std::uint64_t resident = core.ledger.Totals().resident_rows;
    for (int n = 0; n < kTooMany; ++n) {
      SCOPED_TRACE(fmt::format("n = {}", n));
      core.platform.Arm(fault, n);
      const absl::Status status = core.Load("m");
      const bool fired = core.platform.fired();
      core.platform.Disarm();
      if (!fired) {
        EXPECT_TRUE(status.ok()) << status;
        break;
      }
      EXPECT_FALSE(status.ok());
      EXPECT_THAT(std::string(MessageOf(status)), HasSubstr("injected failure"));
      EXPECT_EQ(core.rows(), 0u);
      EXPECT_EQ(core.ledger.stranded_rows(), 0u);
      if (core.ledger.RowsOf("backend").empty()) {
        EXPECT_EQ(core.ledger.Totals().resident_rows, resident);
      }
      if (HasFailure()) break;
    }
    EXPECT_EQ(*core.Infer("m"), (std::vector<float>{1, 2, 3, 4}));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Opening, testing::ValuesIn(AllEngines()),
                         [](const auto& test) { return test.param.name; });

// The third ending: the undo failed and was declared.
TEST(Stranding, FailedReleasesOfARollbackAreCountedAndTurnReadinessOff) {
  CoreHarness core;
  core.folder.AddModel("m", CopyConfig("fake"));
  ASSERT_TRUE(core.Start().ok());
  core.script.at_step = [](std::string_view step, std::string_view) {
    return step == "instance.end" ? absl::InternalError("scripted failure") : absl::OkStatus();
  };
  core.platform.FailReleases(true, true);
  EXPECT_FALSE(core.Load("m").ok());
  core.platform.FailReleases(false, false);
  // Weights, model file, library, thread and heap block; instance memory and thread.
  EXPECT_EQ(core.ledger.stranded_rows(), 7u);
  EXPECT_EQ(core.ledger.Totals().rows, 7u) << "the others are gone";
  EXPECT_FALSE(core.lifecycle->Ready());
  for (const LedgerRow& row : core.ledger.Rows()) {
    if (!row.resident) {
      EXPECT_EQ(row.reason, "injected failure of a release");
    }
  }
}

}  // namespace
}  // namespace tidemark
