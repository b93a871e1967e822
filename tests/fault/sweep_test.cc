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
  std::string gpu;  // what lives in the fake GPU libraries
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
  EXPECT_EQ(after.gpu, before.gpu);
  EXPECT_EQ(after.violations, before.violations);
  EXPECT_EQ(core.ledger.stranded_rows(), 0u);
}

enum class Scene { kPlain, kThreeInstances, kFileOverrides, kSecondLoadBeside };

class Sweep : public testing::TestWithParam<std::tuple<TestEngine, Scene>> {
 protected:
  const TestEngine& engine() const { return std::get<0>(GetParam()); }
  Scene scene() const { return std::get<1>(GetParam()); }
  int instances() const { return scene() == Scene::kThreeInstances ? 3 : 1; }

  // Changes the model on disk, so that the next load does something, and loads it.
  absl::Status LoadAgain(CoreHarness& core) {
    if (scene() == Scene::kFileOverrides) return core.Load("m", engine().Overrides());
    TestFolder::Write(core.folder.repository() / "m/touched", fmt::format("{}", ++edits_));
    return core.Load("m");
  }
  // A version that serves, its engine opened and every lazily made thing of the process made.
  void Prepare(CoreHarness& core) {
    engine().AddModel(core.folder, "m", instances());
    core.folder.AddModel("beside", CopyConfig("fake"));
    ASSERT_TRUE(core.Start().ok());
    for (int i = 0; i < 2; ++i) {
      const absl::Status status = LoadAgain(core);
      ASSERT_TRUE(status.ok()) << status << " (is the engine there? tools/setup.sh fetches it)";
      ASSERT_TRUE(core.Load("beside").ok());
      ASSERT_TRUE(core.Unload("beside").ok());
    }
    Settle(core);
    ASSERT_EQ(*core.Infer("m"), (std::vector<float>{1, 2, 3, 4}));
  }
  // The version that a load replaced goes on the load pool, after the load's answer.
  void Settle(const CoreHarness& core) {
    for (std::size_t versions = 2; versions > 1; std::this_thread::yield()) {
      std::map<std::string, std::set<std::string>> owners;  // "load-N" and "files-N", one for each version that lives
      for (const LedgerRow& row : core.ledger.RowsOf("model/m")) {
        for (const char* kind : {"/load-", "/files-"}) {
          const std::size_t at = row.owner.find(kind);
          if (at != std::string::npos) owners[kind].insert(row.owner.substr(0, row.owner.find('/', at + 1)));
        }
      }
      versions = std::max(owners["/load-"].size(), owners["/files-"].size());
    }
  }

  int edits_ = 0;
};

TEST_P(Sweep, EveryAcquisitionThatFailsLeavesEverythingAsItWas) {
  for (const Way& way : kWays) {
    if (way.fault == Fault::kCancel) continue;  // ends the lifecycle: below
    SCOPED_TRACE(way.text + std::string(" ") + std::to_string(static_cast<int>(way.fault)));
    CoreHarness core(engine().Options());
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
        Settle(core);
      }
    }
    EXPECT_LT(n, kTooMany);
    EXPECT_GE(n, engine().at_least(instances()) + (scene() == Scene::kFileOverrides ? 1 : 0));
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
  }
}

TEST_P(Sweep, EveryPointOfCancellationLeavesNothing) {
  int n = 0;
  for (; n < kTooMany; ++n) {
    SCOPED_TRACE(fmt::format("n = {}", n));
    CoreHarness core(engine().Options());
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
    if (!fired || HasFailure()) break;
  }
  EXPECT_LT(n, kTooMany);
  EXPECT_GE(n, engine().at_least(instances()));
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
  }
  return "?";
}

INSTANTIATE_TEST_SUITE_P(All, Sweep,
                         testing::Combine(testing::ValuesIn(AllEngines()),
                                          testing::Values(Scene::kPlain, Scene::kThreeInstances, Scene::kFileOverrides,
                                                          Scene::kSecondLoadBeside)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + SceneName(std::get<1>(test.param));
                         });

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
