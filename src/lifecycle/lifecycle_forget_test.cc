// How a name is forgotten whose repository is gone, with everything that is kept by it.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/status.h"
#include "tests/support/core_harness.h"

namespace tidemark {
namespace {

using Names = std::vector<std::string>;

// Repositories beside that of the server, as SageMaker's loads name them.
class ForgetTest : public testing::Test {
 protected:
  ForgetTest() { core_.script.warms_up_unasked = false; }
  std::filesystem::path Outside(std::string_view repository) const {
    return core_.folder.path() / "outside" / repository;
  }
  void AddOutside(std::string_view repository, std::string_view model, const std::string& config = CopyConfig("fake")) {
    TestFolder::Write(Outside(repository) / model / "config.pbtxt", config);
    TestFolder::Write(Outside(repository) / model / "1/model.fake", "weights");
  }
  void MountAndLoad(std::string_view name, std::string_view repository) {
    const absl::Status mounted = core_.repository->Mount(name, Outside(repository));
    ASSERT_TRUE(mounted.ok()) << mounted;
    const absl::Status loaded = core_.Load(name);
    ASSERT_TRUE(loaded.ok()) << loaded;
  }
  Names Forget(std::string_view name) {
    Names gone;
    absl::Notification done;
    core_.lifecycle->Forget(std::string(name), [&](Names names) {
      gone = std::move(names);
      done.Notify();
    });
    done.WaitForNotification();
    return gone;
  }
  Names UnloadAndForget(std::string_view name) {
    const absl::Status unloaded = core_.Unload(name);
    EXPECT_TRUE(unloaded.ok()) << unloaded;
    core_.repository->Unmount(name);
    return Forget(name);
  }
  bool HasHistory(std::string_view key) { return !core_.lifecycle->history().Of(key).versions.empty(); }
  void ExpectNothingOf(std::string_view name) {
    EXPECT_EQ(core_.StateOf(name), "-");
    EXPECT_FALSE(core_.registry.Snapshot()->contains(name));
    EXPECT_FALSE(HasHistory(name));
    EXPECT_TRUE(core_.lifecycle->Learned(name, 1).empty());
    EXPECT_EQ(MessageOf(core_.Infer(name).status()),
              std::string("Request for unknown model: '") + std::string(name) + "' is not found");
  }

  CoreHarness core_;
};

TEST_F(ForgetTest, ANameWithoutARepositoryLeavesEverythingThatIsKeptByIt) {
  AddOutside("r", "m");
  ASSERT_TRUE(core_.Start().ok());
  for (int round = 0; round < 2; ++round) {  // and works when it is loaded again
    MountAndLoad("m", "r");
    EXPECT_TRUE(core_.Infer("m").ok());
    EXPECT_TRUE(HasHistory("m"));
    EXPECT_FALSE(core_.lifecycle->Learned("m", 1).empty());
    EXPECT_EQ(UnloadAndForget("m"), Names{"m"});
    ExpectNothingOf("m");
    EXPECT_EQ(core_.rows(), 0u);
  }
}

TEST_F(ForgetTest, ANameThatTheRepositoryHasStays) {
  core_.folder.AddModel("m", CopyConfig("fake"));
  ASSERT_TRUE(core_.Start().ok());
  ASSERT_TRUE(core_.Load("m").ok());
  EXPECT_EQ(UnloadAndForget("m"), Names{});
  EXPECT_EQ(core_.StateOf("m"), "1:UNAVAILABLE(unloaded);");
  EXPECT_TRUE(HasHistory("m"));
  EXPECT_FALSE(core_.lifecycle->Learned("m", 1).empty()) << "the next load knows what it takes";
}

TEST_F(ForgetTest, ALoadedNameStaysUntilItsUnload) {
  AddOutside("r", "m");
  ASSERT_TRUE(core_.Start().ok());
  MountAndLoad("m", "r");
  core_.repository->Unmount("m");
  EXPECT_EQ(Forget("m"), Names{});
  EXPECT_EQ(core_.StateOf("m"), "1:READY;");
  EXPECT_TRUE(core_.Infer("m").ok());
  ASSERT_TRUE(core_.Unload("m").ok());
  ExpectNothingOf("m");
}

TEST_F(ForgetTest, ALoadThatFindsItAgainMakesItAnOrdinaryName) {
  AddOutside("r", "m");
  ASSERT_TRUE(core_.Start().ok());
  MountAndLoad("m", "r");
  core_.repository->Unmount("m");
  EXPECT_EQ(Forget("m"), Names{});
  core_.folder.AddModel("m", CopyConfig("fake"));
  ASSERT_TRUE(core_.Load("m").ok());
  ASSERT_TRUE(core_.Unload("m").ok());
  EXPECT_EQ(core_.StateOf("m"), "1:UNAVAILABLE(unloaded);");
}

TEST_F(ForgetTest, ANameWhoseRequestsAreInsideLeavesWithThem) {
  CoreHarness::Options options;
  options.lifecycle.unload_deadline = absl::Milliseconds(20);
  CoreHarness core(options);
  core.script.warms_up_unasked = false;
  core.folder.AddModel("m", CopyConfig("fake"));
  ASSERT_TRUE(core.Start().ok());
  ASSERT_TRUE(core.Load("m").ok());
  absl::Notification inside, go, answered, forgotten;
  core.script.on_execute = [&](const Execution&, std::string_view) {
    inside.Notify();
    go.WaitForNotification();
    return absl::OkStatus();
  };
  const absl::Status sent = core.Submit("m", -1, {1, 2, 3, 4}, false, [&](const auto& answer) {
    EXPECT_TRUE(answer.ok()) << answer.status();
    answered.Notify();
  });
  ASSERT_TRUE(sent.ok()) << sent;
  inside.WaitForNotification();
  core.folder.RemoveModel("m");
  EXPECT_TRUE(absl::IsDeadlineExceeded(core.Unload("m")));
  core.lifecycle->Forget("m", [&](const Names& names) {
    EXPECT_EQ(names, Names{"m"});
    forgotten.Notify();
  });
  forgotten.WaitForNotification();
  EXPECT_EQ(core.StateOf("m"), "1:UNLOADING;") << "a version of it is there still";
  go.Notify();
  answered.WaitForNotification();
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (core.StateOf("m") != "-" && absl::Now() < deadline) std::this_thread::yield();  // nobody is told
  EXPECT_EQ(core.StateOf("m"), "-");
  EXPECT_EQ(core.rows(), 0u);
}

TEST_F(ForgetTest, MembersOfAnEnsembleAreForgottenWithItUnlessTheyServeOn) {
  AddOutside("r", "first");
  AddOutside("r", "second");
  AddOutside("r", "whole",
             "platform: \"ensemble\" max_batch_size: 0 input { name: \"IN\" data_type: TYPE_FP32 dims: [ 4 ] } "
             "output { name: \"OUT\" data_type: TYPE_FP32 dims: [ 4 ] } ensemble_scheduling { "
             "step { model_name: \"first\" model_version: -1 input_map { key: \"INPUT0\" value: \"IN\" } "
             "output_map { key: \"OUTPUT0\" value: \"middle\" } } "
             "step { model_name: \"second\" model_version: -1 input_map { key: \"INPUT0\" value: \"middle\" } "
             "output_map { key: \"OUTPUT0\" value: \"OUT\" } } }");
  ASSERT_TRUE(core_.Start().ok());
  MountAndLoad("e", "r");
  ASSERT_TRUE(core_.Load("second").ok()) << "asked for by itself";
  absl::Notification unloaded;
  core_.lifecycle->Unload("e", true, [&](const absl::Status& status) {
    EXPECT_TRUE(status.ok()) << status;
    unloaded.Notify();
  });
  unloaded.WaitForNotification();
  core_.repository->Unmount("e");
  Names gone = Forget("e");
  std::sort(gone.begin(), gone.end());
  EXPECT_EQ(gone, (Names{"e", "first"}));
  ExpectNothingOf("e");
  ExpectNothingOf("first");
  EXPECT_EQ(core_.StateOf("second"), "1:READY;");
  ASSERT_TRUE(core_.Unload("second").ok());
  ExpectNothingOf("second");
}

TEST_F(ForgetTest, AFailedLoadIsForgottenToo) {
  AddOutside("r", "m");
  core_.script.at_step = [](std::string_view step, std::string_view /*model*/) {
    return step == "instance.end" ? absl::InternalError("scripted failure") : absl::OkStatus();
  };
  ASSERT_TRUE(core_.Start().ok());
  ASSERT_TRUE(core_.repository->Mount("m", Outside("r")).ok());
  EXPECT_FALSE(core_.Load("m").ok());
  EXPECT_EQ(UnloadAndForget("m"), Names{"m"});
  ExpectNothingOf("m");
}

TEST_F(ForgetTest, AForgottenNameOfANamespaceLeavesItsKey) {
  CoreHarness::Options options;
  options.namespacing = true;
  CoreHarness core(options);
  core.folder.AddModel("m", CopyConfig("fake"));
  ASSERT_TRUE(core.Start().ok());
  ASSERT_TRUE(core.Load("m").ok());
  ASSERT_TRUE(core.Unload("m").ok());
  EXPECT_EQ(core.registry.Snapshot()->size(), 1u);
  core.folder.RemoveModel("m");
  absl::Notification done;
  core.lifecycle->Forget("m", [&](const Names& names) {
    EXPECT_FALSE(names.empty());
    done.Notify();
  });
  done.WaitForNotification();
  EXPECT_TRUE(core.registry.Snapshot()->empty());
}

TEST_F(ForgetTest, ANameThatAnotherNamespaceServesIsNotTold) {
  CoreHarness::Options options;
  options.namespacing = true;
  CoreHarness core(options);
  core.folder.AddModel("m", CopyConfig("fake"));
  AddOutside("r", "other");
  ASSERT_TRUE(core.Start().ok());
  ASSERT_TRUE(core.Load("m").ok());
  for (const auto& [name, gone] : {std::pair{"m", Names{}}, std::pair{"other", Names{"other"}}}) {
    absl::Notification done;
    core.lifecycle->Forget(name, [&, expected = &gone](const Names& names) {
      EXPECT_EQ(names, *expected);
      done.Notify();
    });
    done.WaitForNotification();
  }
  EXPECT_EQ(core.registry.Snapshot()->size(), 1u);
}

TEST_F(ForgetTest, AMadeUpNameLeavesNoPollError) {
  ASSERT_TRUE(core_.Start().ok());
  EXPECT_FALSE(core_.Load("nobody").ok());
  core_.folder.AddModel("nobody", CopyConfig("fake"));
  EXPECT_EQ(core_.StateOf("nobody"), "") << "never tried since it is there";
}

}  // namespace
}  // namespace tidemark
