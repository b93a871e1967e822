#include "lifecycle/lifecycle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "absl/synchronization/barrier.h"
#include "absl/synchronization/notification.h"
#include "base/status.h"
#include "lifecycle/load_cause.h"
#include "tests/support/core_harness.h"
#include "tests/support/process_state.h"

namespace tidemark {
namespace {

using testing::HasSubstr;

std::vector<float> Values(float base) { return {base, base + 1, base + 2, base + 3}; }
std::string Text(const absl::Status& status) { return std::string(MessageOf(status)); }

CoreHarness::Options With(const std::function<void(Lifecycle::Options&)>& change) {
  CoreHarness::Options options;
  change(options.lifecycle);
  return options;
}

// Makes `at_step` fail for one model at one step.
void FailAt(CoreHarness& core, std::string step, std::string model) {
  core.script.at_step = [step = std::move(step), model = std::move(model)](std::string_view at, std::string_view of) {
    return at == step && of == model ? absl::InternalError("scripted failure") : absl::OkStatus();
  };
}

// Waits until the model is in the state, however many polls that takes.
void AwaitState(const CoreHarness& core, std::string_view name, std::string_view state) {
  const absl::Time deadline = absl::Now() + absl::Minutes(2);
  while (core.StateOf(name) != state && absl::Now() < deadline) std::this_thread::yield();
  EXPECT_EQ(core.StateOf(name), state);
}

TEST(Lifecycle, LoadsServesAndUnloadsBackToNothing) {
  CoreHarness core;
  core.folder.AddModel("m", CopyConfig("fake", 2));
  ASSERT_TRUE(core.Start().ok());
  EXPECT_EQ(core.StateOf("m"), "");
  EXPECT_EQ(Text(core.Infer("m").status()), "Request for unknown model: 'm' is not found");
  ASSERT_TRUE(core.Load("m").ok());
  EXPECT_EQ(core.StateOf("m"), "1:READY;");
  EXPECT_EQ(*core.Infer("m", 1, Values(7)), Values(7));
  EXPECT_EQ(Text(core.Infer("m", 2).status()), "Request for unknown model: 'm' version 2 is not found");
  EXPECT_GT(core.rows(), 0u);
  ASSERT_TRUE(core.Unload("m").ok());
  EXPECT_EQ(core.rows(), 0u) << "the answer comes after the fact";
  EXPECT_EQ(core.script.live_objects, 0);
  EXPECT_EQ(core.script.live_instances, 0);
  EXPECT_EQ(core.script.live_models, 0);
  EXPECT_EQ(core.buffers.cached_bytes(), 0u);
  EXPECT_EQ(core.StateOf("m"), "1:UNAVAILABLE(unloaded);");
  EXPECT_EQ(Text(core.Infer("m").status()), "Request for unknown model: 'm' has no available versions");
  EXPECT_EQ(Text(core.Infer("m", 1).status()), "Request for unknown model: 'm' version 1 is not at ready state");
  EXPECT_TRUE(core.lifecycle->Ready()) << "unloaded on purpose";
  EXPECT_TRUE(core.Unload("m").ok());
  EXPECT_TRUE(core.Unload("never heard of").ok());
  EXPECT_EQ(core.StateOf("never heard of"), "-");
}

TEST(Lifecycle, UnchangedModelIsNotLoadedAgain) {
  CoreHarness core;
  core.folder.AddModel("m", CopyConfig("fake"));
  ASSERT_TRUE(core.Start().ok());
  ASSERT_TRUE(core.Load("m").ok());
  ASSERT_TRUE(core.Load("m").ok());
  EXPECT_EQ(core.script.models_made, 1);
  TestFolder::Write(core.folder.repository() / "m/1/model.fake", "other weights");
  ASSERT_TRUE(core.Load("m").ok());
  EXPECT_EQ(core.script.models_made, 2);
}

TEST(Lifecycle, FailedLoadOfANewVersionChangesNothingForTheOld) {
  CoreHarness core;
  core.folder.AddModel("m", CopyConfig("fake"));
  ASSERT_TRUE(core.Start().ok());
  ASSERT_TRUE(core.Load("m").ok());
  const std::uint64_t rows = core.rows();
  FailAt(core, "instance.end", "m");
  core.folder.AddModel("m", CopyConfig("fake", 2), {2});
  const absl::Status status = core.Load("m");
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(Text(status),
            "load failed for model 'm': version 2 is at UNAVAILABLE state: Internal: scripted failure;\n\n");
  EXPECT_EQ(core.StateOf("m"), "1:READY;2:UNAVAILABLE(Internal: scripted failure);");
  EXPECT_EQ(core.rows(), rows);
  EXPECT_EQ(*core.Infer("m"), Values(1)) << "the highest READY version answers";
  EXPECT_FALSE(core.lifecycle->Ready()) << "a version that failed keeps the server not ready";
  core.script.at_step = nullptr;
  ASSERT_TRUE(core.Load("m").ok()) << "a failed load is always tried again";
  AwaitState(core, "m", "1:UNAVAILABLE(unloaded);2:READY;");  // the latest one is the policy
  EXPECT_TRUE(core.lifecycle->Ready());
  ASSERT_TRUE(core.Unload("m").ok());
  EXPECT_EQ(core.rows(), 0u);
}

TEST(Lifecycle, OldServesUntilTheCommit) {
  CoreHarness core;
  core.folder.AddModel("m", CopyConfig("fake"));
  ASSERT_TRUE(core.Start().ok());
  ASSERT_TRUE(core.Load("m").ok());
  absl::Notification inside, go;
  core.script.at_step = [&](std::string_view step, std::string_view) {
    if (step == "instance.end" && !inside.HasBeenNotified()) {
      inside.Notify();
      go.WaitForNotification();
    }
    return absl::OkStatus();
  };
  TestFolder::Write(core.folder.repository() / "m/1/model.fake", "new weights");
  absl::Notification loaded;
  core.lifecycle->Load("m", {}, [&](const absl::Status& status) {
    EXPECT_TRUE(status.ok()) << status;
    loaded.Notify();
  });
  inside.WaitForNotification();
  EXPECT_EQ(core.StateOf("m"), "1:READY;") << "the loading one is invisible";
  EXPECT_TRUE(core.lifecycle->Ready());
  EXPECT_EQ(*core.Infer("m", 1), Values(1));
  go.Notify();
  loaded.WaitForNotification();
  EXPECT_EQ(core.StateOf("m"), "1:READY;");
  EXPECT_EQ(*core.Infer("m", 1), Values(1));
  ASSERT_TRUE(core.Unload("m").ok());
  EXPECT_EQ(core.rows(), 0u) << "the replaced one is gone, too";
}

// Holds the next execution until `go`.
struct HeldRequest {
  explicit HeldRequest(CoreHarness& core) {
    core.script.warms_up_unasked = false;
    core.script.on_execute = [this](const Execution&, std::string_view) {
      inside.Notify();
      go.WaitForNotification();
      return absl::OkStatus();
    };
  }
  void Send(CoreHarness& core, std::string_view model) {
    ASSERT_TRUE(core.Submit(model, -1, Values(1), false,
                            [this](const auto& answer) {
                              EXPECT_TRUE(answer.ok()) << answer.status();
                              answered.Notify();
                            })
                    .ok());
    inside.WaitForNotification();
  }
  absl::Notification inside, go, answered;
};

TEST(Lifecycle, UnloadIsAnsweredWhenTheLastRequestHasLeftAndTheMemoryIsBack) {
  CoreHarness core;
  HeldRequest held(core);
  core.folder.AddModel("m", CopyConfig("fake"));
  ASSERT_TRUE(core.Start().ok());
  ASSERT_TRUE(core.Load("m").ok());
  held.Send(core, "m");
  absl::Notification unloaded;
  std::uint64_t rows_at_answer = 99;
  core.lifecycle->Unload("m", false, [&](const absl::Status& status) {
    EXPECT_TRUE(status.ok()) << status;
    rows_at_answer = core.rows();
    unloaded.Notify();
  });
  while (core.StateOf("m") != "1:UNLOADING;") std::this_thread::yield();
  EXPECT_FALSE(unloaded.HasBeenNotified());
  EXPECT_GT(core.rows(), 0u);
  EXPECT_EQ(core.Infer("m").status().code(), absl::StatusCode::kNotFound) << "nobody enters any more";
  held.go.Notify();
  unloaded.WaitForNotification();
  held.answered.WaitForNotification();
  EXPECT_EQ(rows_at_answer, 0u);
  EXPECT_EQ(core.StateOf("m"), "1:UNAVAILABLE(unloaded);");
}

TEST(Lifecycle, UnloadAnswersLateAtItsDeadlineAndGoesOn) {
  CoreHarness core(With([](Lifecycle::Options& o) { o.unload_deadline = absl::Milliseconds(20); }));
  HeldRequest held(core);
  core.folder.AddModel("m", CopyConfig("fake"));
  ASSERT_TRUE(core.Start().ok());
  ASSERT_TRUE(core.Load("m").ok());
  held.Send(core, "m");
  const absl::Status status = core.Unload("m");
  EXPECT_TRUE(absl::IsDeadlineExceeded(status));
  EXPECT_THAT(Text(status), HasSubstr("requests are still running in 1 of its versions"));
  EXPECT_EQ(core.StateOf("m"), "1:UNLOADING;");
  // A new load does not wait for the old one's requests.
  ASSERT_TRUE(core.Load("m").ok());
  EXPECT_EQ(core.StateOf("m"), "1:READY;");
  held.go.Notify();
  held.answered.WaitForNotification();
  core.script.on_execute = nullptr;
  absl::Status unloaded;
  do {  // a busy machine may need longer than the deadline of this test
    unloaded = core.Unload("m");
  } while (absl::IsDeadlineExceeded(unloaded));
  ASSERT_TRUE(unloaded.ok()) << unloaded;
  EXPECT_EQ(core.rows(), 0u);
}

TEST(Lifecycle, CallersRacingOnOneModelEndInOneOfTheirStates) {
  CoreHarness core;
  core.folder.AddModel("m", CopyConfig("fake"));
  core.folder.AddModel("n", CopyConfig("fake"));
  ASSERT_TRUE(core.Start().ok());
  std::atomic<int> answers{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        const char* name = i % 3 == 0 ? "n" : "m";
        const absl::Status status = (i + t) % 2 == 0 ? core.Load(name) : core.Unload(name);
        EXPECT_TRUE(status.ok()) << status;
        ++answers;
        const auto answer = core.Infer("m");
        if (answer.ok()) {
          EXPECT_EQ(*answer, Values(1));
        }
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(answers, 100);
  EXPECT_THAT(core.StateOf("m"), testing::AnyOf("1:READY;", "1:UNAVAILABLE(unloaded);"));
  ASSERT_TRUE(core.Unload("m").ok());
  ASSERT_TRUE(core.Unload("n").ok());
  EXPECT_EQ(core.rows(), 0u);
  EXPECT_EQ(core.script.live_objects, 0);
}

TEST(Lifecycle, LoadsOfDifferentModelsOverlap) {
  CoreHarness core;
  core.folder.AddModel("a", CopyConfig("fake"));
  core.folder.AddModel("b", CopyConfig("fake"));
  ASSERT_TRUE(core.Start().ok());
  absl::Barrier both(2);  // passed only when both loads are inside the engine at once
  core.script.at_step = [&](std::string_view step, std::string_view) {
    if (step == "model") both.Block();
    return absl::OkStatus();
  };
  absl::Notification a, b;
  core.lifecycle->Load("a", {}, [&](const absl::Status&) { a.Notify(); });
  core.lifecycle->Load("b", {}, [&](const absl::Status&) { b.Notify(); });
  a.WaitForNotification();
  b.WaitForNotification();
  EXPECT_EQ(core.StateOf("a"), "1:READY;");
  EXPECT_EQ(core.StateOf("b"), "1:READY;");
}

TEST(Lifecycle, VersionsOfOneLoadOverlapAndOneThatFailsTakesTheOthersWithIt) {
  CoreHarness core;
  core.folder.AddModel("m", CopyConfig("fake", 1, "version_policy { all { } }"), {1, 2, 3});
  ASSERT_TRUE(core.Start().ok());
  std::atomic<int> instances{0};
  core.script.at_step = [&](std::string_view step, std::string_view) {
    if (step == "instance.end" && ++instances == 2) return absl::InternalError("scripted failure");
    return absl::OkStatus();
  };
  EXPECT_THAT(Text(core.Load("m")), HasSubstr("is at UNAVAILABLE state: Internal: scripted failure;"));
  EXPECT_EQ(core.rows(), 0u);
  EXPECT_EQ(core.script.live_models, 0);
  EXPECT_FALSE(core.lifecycle->Ready());
  core.script.at_step = nullptr;
  ASSERT_TRUE(core.Load("m").ok());
  EXPECT_EQ(core.StateOf("m"), "1:READY;2:READY;3:READY;");
  core.folder.AddModel("m", CopyConfig("fake", 1, "version_policy { specific { versions: [ 2 ] } }"), {});
  ASSERT_TRUE(core.Load("m").ok());
  AwaitState(core, "m", "1:UNAVAILABLE(unloaded);2:READY;3:UNAVAILABLE(unloaded);");
  ASSERT_TRUE(core.Unload("m").ok());
  EXPECT_EQ(core.rows(), 0u);
}

TEST(Lifecycle, RetriesAsOftenAsToldAndThenSaysWhy) {
  CoreHarness core(With([](Lifecycle::Options& o) { o.retry_count = 2; }));
  core.folder.AddModel("m", CopyConfig("fake"));
  ASSERT_TRUE(core.Start().ok());
  std::atomic<int> attempts{0};
  core.script.at_step = [&](std::string_view step, std::string_view) {
    if (step == "model" && ++attempts <= 2) return absl::UnavailableError("not yet");
    return absl::OkStatus();
  };
  EXPECT_TRUE(core.Load("m").ok());
  EXPECT_EQ(attempts, 3);
  ASSERT_TRUE(core.Unload("m").ok());
  attempts = -10;
  EXPECT_THAT(Text(core.Load("m")), HasSubstr("Unavailable: not yet"));
  EXPECT_EQ(attempts, -7);
  EXPECT_EQ(core.rows(), 0u);
}

TEST(Lifecycle, ThrowingEngineFailsItsLoadOnly) {
  CoreHarness core;
  core.folder.AddModel("m", CopyConfig("fake"));
  core.folder.AddModel("n", CopyConfig("fake"));
  ASSERT_TRUE(core.Start().ok());
  core.script.at_step = [&](std::string_view step, std::string_view model) -> absl::Status {
    if (step == "instance.end" && model == "m") throw std::runtime_error("engine blew up");
    return absl::OkStatus();
  };
  EXPECT_THAT(Text(core.Load("m")), HasSubstr("Internal: exception: engine blew up"));
  EXPECT_TRUE(core.Load("n").ok());
  ASSERT_TRUE(core.Unload("n").ok());
  EXPECT_EQ(core.rows(), 0u);
}

TEST(Lifecycle, NamesAndMissingModelsAreRefusedWithTritonsTexts) {
  CoreHarness core;
  ASSERT_TRUE(core.Start().ok());
  EXPECT_EQ(Text(core.Load("")), "Model name cannot be empty. Please enter a valid name to deploy.");
  EXPECT_THAT(Text(core.Load("a/b")), HasSubstr("model name must not contain path traversal characters"));
  EXPECT_THAT(Text(core.Load("absent")), HasSubstr("failed to load 'absent', failed to poll from model repository"));
  EXPECT_EQ(core.StateOf("absent"), "-");
  core.folder.AddModel("bad", "backend: \"no such engine\"\n");
  EXPECT_FALSE(core.Load("bad").ok());
  core.folder.AddModel("empty", CopyConfig("fake"), {});
  EXPECT_THAT(Text(core.Load("empty")), HasSubstr("at least one version must be available"));
  EXPECT_FALSE(core.lifecycle->Ready()) << "a known model without a version";
  ASSERT_TRUE(core.Unload("empty").ok());
  ASSERT_TRUE(core.Unload("bad").ok());
  EXPECT_TRUE(core.lifecycle->Ready());
}

TEST(Lifecycle, ConfigOverrideStaysForALaterPlainLoad) {
  CoreHarness core;
  core.folder.AddModel("m", CopyConfig("fake"));
  ASSERT_TRUE(core.Start().ok());
  ASSERT_TRUE(core.Load("m").ok());
  LoadOverrides overrides;
  overrides.config_json = R"({"backend":"fake","input":[{"name":"INPUT0","data_type":"TYPE_FP32","dims":[4]}],)"
                          R"("output":[{"name":"OUTPUT0","data_type":"TYPE_FP32","dims":[4]}],)"
                          R"("instance_group":[{"kind":"KIND_CPU","count":3}]})";
  ASSERT_TRUE(core.Load("m", overrides).ok());
  EXPECT_EQ(core.script.models_made, 2);
  ASSERT_TRUE(core.Load("m").ok());
  EXPECT_EQ(core.script.models_made, 2) << "files are unchanged: the override stays";
  EXPECT_EQ(core.registry.Find("m", 1)->operator->()->info().config().instance_group(0).count(), 3);
  TestFolder::Write(core.folder.repository() / "m/config.pbtxt", CopyConfig("fake", 2, "# touched"));
  ASSERT_TRUE(core.Load("m").ok());
  EXPECT_EQ(core.script.models_made, 3) << "a file touched later brings the one on disk back";
  ASSERT_TRUE(core.Load("m", overrides).ok());
  ASSERT_TRUE(core.Unload("m").ok());
  ASSERT_TRUE(core.Load("m").ok());
  EXPECT_EQ(core.registry.Find("m", 1)->operator->()->info().config().instance_group(0).count(), 2);
}

LoadOverrides FileOverride() {
  LoadOverrides overrides;
  overrides.config_json = R"({"backend":"fake","input":[{"name":"INPUT0","data_type":"TYPE_FP32","dims":[4]}],)"
                          R"("output":[{"name":"OUTPUT0","data_type":"TYPE_FP32","dims":[4]}]})";
  overrides.files["7/model.fake"] = "weights from the request";
  return overrides;
}

TEST(Lifecycle, FileOverridesLiveInATemporaryFolderUntilTheUnload) {
  CoreHarness core;
  ASSERT_TRUE(core.Start().ok());
  ASSERT_TRUE(core.Load("m", FileOverride()).ok());
  EXPECT_EQ(core.StateOf("m"), "7:READY;") << "a model that is in no repository is in the index all the same";
  EXPECT_EQ(*core.Infer("m", 7), Values(1));
  EXPECT_EQ(EntriesOf(core.folder.tmp()), 1);
  FailAt(core, "model.end", "m");
  EXPECT_FALSE(core.Load("m", FileOverride()).ok());
  EXPECT_EQ(EntriesOf(core.folder.tmp()), 1) << "the failed one's folder is gone, the served one's is not";
  EXPECT_EQ(*core.Infer("m", 7), Values(1));
  core.script.at_step = nullptr;
  core.folder.AddModel("m", CopyConfig("fake"));
  ASSERT_TRUE(core.Load("m").ok()) << "the next plain load restores the repository's content";
  AwaitState(core, "m", "1:READY;7:UNAVAILABLE(unloaded);");
  ASSERT_TRUE(core.Unload("m").ok());
  EXPECT_EQ(EntriesOf(core.folder.tmp()), 0);
  EXPECT_EQ(core.rows(), 0u);
}

TEST(Lifecycle, BadFileOverridesAreRefusedAndLeaveNothing) {
  CoreHarness core;
  ASSERT_TRUE(core.Start().ok());
  LoadOverrides overrides = FileOverride();
  overrides.files["../escape"] = "x";
  EXPECT_TRUE(absl::IsInvalidArgument(core.Load("m", overrides)));
  overrides = FileOverride();
  overrides.config_json.reset();
  EXPECT_THAT(Text(core.Load("m", overrides)), HasSubstr("failed to poll from model repository"));
  EXPECT_EQ(EntriesOf(core.folder.tmp()), 0);
  EXPECT_EQ(core.rows(), 0u);
}

TEST(Lifecycle, ControlIsRefusedOutsideExplicitMode) {
  CoreHarness core(With([](Lifecycle::Options& o) { o.mode = ControlMode::kNone; }));
  core.folder.AddModel("m", CopyConfig("fake"));
  ASSERT_TRUE(core.Start().ok());
  EXPECT_EQ(core.StateOf("m"), "1:READY;");
  for (const absl::Status& status : {core.Load("m"), core.Unload("m")}) {
    EXPECT_TRUE(absl::IsUnavailable(status));
    EXPECT_EQ(Text(status), "explicit model load / unload is not allowed if polling is enabled");
  }
}

TEST(Lifecycle, StartUpLoadsWhatIsNamedAndReportsWhatFailed) {
  CoreHarness core(With([](Lifecycle::Options& o) { o.startup_models = {"a", "absent"}; }));
  core.folder.AddModel("a", CopyConfig("fake"));
  core.folder.AddModel("b", CopyConfig("fake"));
  const absl::Status status = core.Start();
  EXPECT_THAT(Text(status), HasSubstr("failed to load all models"));
  EXPECT_EQ(core.StateOf("a"), "1:READY;");
  EXPECT_EQ(core.StateOf("b"), "");
  EXPECT_EQ(core.lifecycle->state(), ServerState::kReady);
}

TEST(Lifecycle, StartUpByAStarLoadsEverything) {
  CoreHarness core(With([](Lifecycle::Options& o) { o.startup_models = {"*"}; }));
  core.folder.AddModel("a", CopyConfig("fake"));
  core.folder.AddModel("b", CopyConfig("fake"));
  ASSERT_TRUE(core.Start().ok());
  EXPECT_EQ(core.StateOf("a") + core.StateOf("b"), "1:READY;1:READY;");
}

TEST(Lifecycle, DuplicatesAreShownAndOnlyMatterToThoseWhoAskForThem) {
  CoreHarness::Options options = With([](Lifecycle::Options& o) { o.startup_models = {"good"}; });
  options.more_repositories = {"second"};
  CoreHarness core(options);
  core.folder.AddModel("good", CopyConfig("fake"));
  core.folder.AddModel("twice", CopyConfig("fake"));
  TestFolder::Write(core.folder.path() / "second/twice/config.pbtxt", CopyConfig("fake"));
  ASSERT_TRUE(core.Start().ok()) << "nobody asked for the duplicate";
  EXPECT_EQ(core.StateOf("twice"), ":UNAVAILABLE(model appears in two or more repositories);");
  EXPECT_THAT(Text(core.Load("twice")), HasSubstr("failed to load 'twice', failed to poll from model repository"));
  EXPECT_TRUE(core.lifecycle->Ready());
}

TEST(Lifecycle, NamespacesKeepEqualNamesApart) {
  CoreHarness::Options options = With([](Lifecycle::Options& o) { o.mode = ControlMode::kNone; });
  options.more_repositories = {"second"};
  options.namespacing = true;
  CoreHarness core(options);
  core.folder.AddModel("twice", CopyConfig("fake"));
  core.folder.AddModel("once", CopyConfig("fake"));
  TestFolder::Write(core.folder.path() / "second/twice/config.pbtxt", CopyConfig("fake"));
  TestFolder::Write(core.folder.path() / "second/twice/1/model.fake", "weights");
  ASSERT_TRUE(core.Start().ok());
  EXPECT_EQ(core.StateOf("twice"), "1:READY;1:READY;");
  EXPECT_TRUE(core.Infer("once").ok());
  const absl::Status ambiguous = core.Infer("twice").status();
  EXPECT_TRUE(absl::IsInvalidArgument(ambiguous));
  EXPECT_THAT(Text(ambiguous), HasSubstr("There are 2 identifiers of model 'twice' in global map"));
  EXPECT_TRUE(absl::IsInvalidArgument(core.Infer("nobody").status()));
  EXPECT_TRUE(core.lifecycle->Ready());
  core.Destroy();
  EXPECT_EQ(core.rows(), 0u);
}

TEST(Lifecycle, ANameThatOneNamespaceHasIsLoadedAndUnloadedByIt) {
  CoreHarness::Options options = With([](Lifecycle::Options& /*explicit*/) {});
  options.more_repositories = {"second"};
  options.namespacing = true;
  CoreHarness core(options);
  core.folder.AddModel("one", CopyConfig("fake"));
  ASSERT_TRUE(core.Start().ok());
  EXPECT_TRUE(core.Load("one").ok());
  EXPECT_TRUE(core.Infer("one").ok());
  EXPECT_TRUE(core.Unload("one").ok());
  EXPECT_EQ(core.StateOf("one"), "1:UNAVAILABLE(unloaded);");
  EXPECT_EQ(core.rows(), 0u);
}

TEST(Lifecycle, PollAppliesAddsEditsAndRemovals) {
  CoreHarness::Options options = With([](Lifecycle::Options& o) {
    o.mode = ControlMode::kPoll;
    o.poll_interval = absl::Milliseconds(5);
  });
  options.more_repositories = {"second"};
  CoreHarness core(options);
  core.folder.AddModel("a", CopyConfig("fake"));
  ASSERT_TRUE(core.Start().ok());
  EXPECT_EQ(core.StateOf("a"), "1:READY;");
  core.folder.AddModel("b", CopyConfig("fake"));
  AwaitState(core, "b", "1:READY;");
  core.folder.AddModel("a", CopyConfig("fake"), {2});
  AwaitState(core, "a", "1:UNAVAILABLE(unloaded);2:READY;");
  TestFolder::Write(core.folder.path() / "second/b/config.pbtxt", CopyConfig("fake"));
  AwaitState(core, "b", ":UNAVAILABLE(model appears in two or more repositories);");
  while (core.Infer("b").ok()) std::this_thread::yield();  // the next poll unloads it
  std::filesystem::remove_all(core.folder.path() / "second/b");
  AwaitState(core, "b", "1:READY;");
  core.folder.RemoveModel("a");
  AwaitState(core, "a", "-");
  core.folder.RemoveModel("b");
  AwaitState(core, "b", "-");
  core.Destroy();
  EXPECT_EQ(core.rows(), 0u);
}

TEST(Lifecycle, DestructionBesideAPollIsClean) {
  for (int round = 0; round < 30; ++round) {
    CoreHarness core(With([](Lifecycle::Options& o) {
      o.mode = ControlMode::kPoll;
      o.poll_interval = absl::Nanoseconds(1);
    }));
    core.folder.AddModel("a", CopyConfig("fake"));
    ASSERT_TRUE(core.Start().ok());
    core.folder.AddModel("b", CopyConfig("fake"));
    core.Destroy();
    ASSERT_EQ(core.rows(), 0u);
  }
}

TEST(Lifecycle, ReadinessTruthTable) {
  for (const bool strict : {false, true}) {
    CoreHarness core(With([strict](Lifecycle::Options& o) { o.strict_readiness = strict; }));
    core.folder.AddModel("m", CopyConfig("fake"));
    core.folder.AddModel("n", CopyConfig("fake"));
    ASSERT_TRUE(core.Start().ok());
    EXPECT_TRUE(core.lifecycle->Ready()) << "no models";
    ASSERT_TRUE(core.Load("m").ok());
    EXPECT_TRUE(core.lifecycle->Ready());
    core.script.healthy = false;
    EXPECT_EQ(core.lifecycle->Ready(), !strict) << "an instance is ill";
    core.script.healthy = true;
    FailAt(core, "model", "n");
    EXPECT_FALSE(core.Load("n").ok());
    EXPECT_EQ(core.lifecycle->Ready(), !strict) << "a version failed to load";
    core.script.at_step = nullptr;
    ASSERT_TRUE(core.Unload("n").ok());
    EXPECT_TRUE(core.lifecycle->Ready()) << "and was given up";
    core.platform.FailReleases(true);
    ASSERT_TRUE(core.Unload("m").ok());
    core.platform.FailReleases(false);
    EXPECT_GT(core.ledger.stranded_rows(), 0u);
    EXPECT_FALSE(core.lifecycle->Ready()) << "a stranded row counts with or without strict readiness";
    core.lifecycle->BeginExit();
    EXPECT_FALSE(core.lifecycle->Ready());
  }
}

TEST(Lifecycle, StopWaitsForRequestsAndRefusesNewWork) {
  CoreHarness core;
  HeldRequest held(core);
  core.folder.AddModel("m", CopyConfig("fake"));
  ASSERT_TRUE(core.Start().ok());
  ASSERT_TRUE(core.Load("m").ok());
  held.Send(core, "m");
  core.lifecycle->BeginExit();
  EXPECT_FALSE(core.lifecycle->accepting());
  EXPECT_EQ(Text(core.Load("m")), "Server not ready");
  EXPECT_EQ(Text(core.Unload("m")), "Server not ready");
  EXPECT_EQ(Text(core.lifecycle->Stop(absl::Now() + absl::Milliseconds(20))),
            "Exit timeout expired. Exiting immediately.");
  held.go.Notify();
  EXPECT_TRUE(core.lifecycle->Stop(absl::InfiniteFuture()).ok());
  held.answered.WaitForNotification();
  EXPECT_EQ(core.rows(), 0u);
}

TEST(Lifecycle, ExitCancelsRunningLoads) {
  CoreHarness core;
  core.folder.AddModel("m", CopyConfig("fake", 1,
                                       "model_warmup { name: \"w\" batch_size: 1 count: 4000000000 inputs { key: "
                                       "\"INPUT0\" value { data_type: TYPE_FP32 dims: [ 4 ] zero_data: true } } }"));
  ASSERT_TRUE(core.Start().ok());
  absl::Notification warming, answered;
  std::atomic<bool> told{false};
  core.script.on_execute = [&](const Execution& execution, std::string_view) {
    EXPECT_NE(execution.cancel, nullptr) << "an engine can see that its load was cancelled";
    if (!told.exchange(true)) warming.Notify();
    return absl::OkStatus();
  };
  core.lifecycle->Load("m", {}, [&](const absl::Status& status) {
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    answered.Notify();
  });
  warming.WaitForNotification();
  EXPECT_TRUE(core.lifecycle->Stop(absl::Now() + absl::Seconds(30)).ok());
  answered.WaitForNotification();
  EXPECT_EQ(core.rows(), 0u);
}

TEST(Lifecycle, DeclaredWarmupMustSucceedButZerosNeedNot) {
  CoreHarness core;
  core.folder.AddModel("zeros", CopyConfig("fake"));
  core.folder.AddModel("declared",
                       CopyConfig("fake", 2,
                                  "model_warmup { name: \"w\" batch_size: 2 count: 3 inputs { key: \"INPUT0\" value { "
                                  "data_type: TYPE_FP32 dims: [ 4 ] random_data: true } } }"));
  ASSERT_TRUE(core.Start().ok());
  std::atomic<int> executions{0};
  core.script.on_execute = [&](const Execution&, std::string_view) {
    ++executions;
    return absl::InvalidArgumentError("I do not like these");
  };
  EXPECT_TRUE(core.Load("zeros").ok());
  EXPECT_EQ(executions, 1);
  EXPECT_THAT(Text(core.Load("declared")), HasSubstr("failed to run warmup sample 'w': I do not like these; "));
  core.script.on_execute = [&](const Execution&, std::string_view) {
    ++executions;
    return absl::OkStatus();
  };
  executions = 0;
  EXPECT_TRUE(core.Load("declared").ok());
  EXPECT_EQ(executions, 12) << "two instances, three times two";
}

std::uint64_t HostBytes(const CoreHarness& core) { return core.ledger.Totals().BytesOf(kHost); }

TEST(Lifecycle, ALoadWithoutRoomWaitsForAVersionOnItsWayOut) {
  CoreHarness core(With([](Lifecycle::Options& options) { options.load_threads = 1; }));
  HeldRequest held(core);
  core.folder.AddModel("old", CopyConfig("fake"));
  core.folder.AddModel("new", CopyConfig("fake"));
  ASSERT_TRUE(core.Start().ok());
  ASSERT_TRUE(core.Load("old").ok());
  core.ledger.SetBudget(kHost, core.ledger.Totals().memory.at(kHost).now + HostBytes(core) / 2);
  const absl::Status refused = core.Load("new");
  EXPECT_THAT(Text(refused), HasSubstr("of its limit of")) << "nobody is on the way out";
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << "as Triton answers";
  EXPECT_EQ(CauseOf(refused), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(core.StateOf("old"), "1:READY;");

  held.Send(core, "old");
  absl::Notification unloaded, loaded;
  core.lifecycle->Unload("old", false, [&](const absl::Status& status) {
    EXPECT_TRUE(status.ok()) << status;
    unloaded.Notify();
  });
  AwaitState(core, "old", "1:UNLOADING;");
  core.lifecycle->Load("new", {}, [&](const absl::Status& status) {
    EXPECT_TRUE(status.ok()) << status;
    loaded.Notify();
  });
  AwaitState(core, "new", "1:LOADING;");
  held.go.Notify();
  unloaded.WaitForNotification();
  loaded.WaitForNotification();
  EXPECT_EQ(core.StateOf("new"), "1:READY;");
}

TEST(Lifecycle, LoadsThatFitOnlyOneAfterTheOtherAllSucceed) {
  CoreHarness core;
  for (const char* name : {"a", "b", "c", "d"}) core.folder.AddModel(name, CopyConfig("fake"));
  ASSERT_TRUE(core.Start().ok());
  ASSERT_TRUE(core.Load("a").ok());
  const std::uint64_t one = HostBytes(core);
  ASSERT_TRUE(core.Unload("a").ok());
  core.ledger.SetBudget(kHost, core.ledger.Totals().memory.at(kHost).now + 4 * one);
  std::vector<std::thread> callers;
  for (const char* name : {"a", "b", "c", "d"}) {
    callers.emplace_back([&core, name] {
      const absl::Status status = core.Load(name);
      EXPECT_TRUE(status.ok()) << status;
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(HostBytes(core), 4 * one) << "nobody claims any more than is taken";
}

TEST(Lifecycle, WhatALoadTookIsClaimedByTheNextLoadOfTheSameFiles) {
  CoreHarness core;
  core.folder.AddModel("m", CopyConfig("fake"));
  core.folder.AddModel("other", CopyConfig("fake"));
  ASSERT_TRUE(core.Start().ok());
  ASSERT_TRUE(core.Load("m").ok());
  const std::uint64_t one = HostBytes(core);
  ASSERT_TRUE(core.Unload("m").ok());
  const std::uint64_t base = core.ledger.Totals().memory.at(kHost).now;
  core.ledger.SetBudget(kHost, base + 2 * one);
  std::uint64_t free = 0;
  core.script.at_step = [&](std::string_view at, std::string_view) {
    if (at == "model") free = core.ledger.RoomOn(kHost)->free;
    return absl::OkStatus();
  };
  ASSERT_TRUE(core.Load("m").ok());
  EXPECT_GE(free, one) << "it claims what it took last time, not all that is left";
  EXPECT_LT(free, 2 * one);
  ASSERT_TRUE(core.Unload("m").ok());
  ASSERT_TRUE(core.Load("other").ok());
  EXPECT_EQ(free, 0u) << "nothing is known of it";
}

}  // namespace
}  // namespace tidemark
