#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/synchronization/notification.h"
#include "base/status.h"
#include "lifecycle/lifecycle.h"
#include "tests/support/core_harness.h"

namespace tidemark {
namespace {

using testing::HasSubstr;

std::pair<absl::Status, std::string> Check(CoreHarness& core, std::string name, LoadOverrides overrides = {}) {
  std::pair<absl::Status, std::string> answer;
  absl::Notification answered;
  core.lifecycle->Check(std::move(name), std::move(overrides), [&](absl::Status status, std::string findings) {
    answer = {std::move(status), std::move(findings)};
    answered.Notify();
  });
  answered.WaitForNotification();
  return answer;
}

TEST(LifecycleCheck, OpensTheModelAndLeavesNothing) {
  CoreHarness core;
  core.folder.AddModel("m", CopyConfig("fake", 2));
  ASSERT_TRUE(core.Start().ok());
  const auto [status, findings] = Check(core, "m");
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(findings, "[]");
  EXPECT_EQ(core.script.models_made, 1) << "the engine was asked";
  EXPECT_EQ(core.script.live_models, 0);
  EXPECT_EQ(core.script.live_objects, 0);
  EXPECT_EQ(core.rows(), 0u);
  EXPECT_EQ(core.StateOf("m"), "") << "nobody sees it";
}

TEST(LifecycleCheck, SaysAllAndTouchesNoVersionThatServes) {
  CoreHarness core;
  core.folder.AddModel("m", CopyConfig("fake"));
  ASSERT_TRUE(core.Start().ok());
  ASSERT_TRUE(core.Load("m").ok());
  const std::uint64_t rows = core.rows();
  core.script.at_step = [](std::string_view step, std::string_view) {
    return step == "model.end" ? absl::InvalidArgumentError("scripted failure") : absl::OkStatus();
  };
  LoadOverrides overrides;
  overrides.config_json =
      R"({"name":"m","backend":"fake","max_batch_size":-1,"dynamic_batching":{"priority_levels":2}})";
  const auto [status, findings] = Check(core, "m", std::move(overrides));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::string text(MessageOf(status));
  EXPECT_THAT(text,
              testing::StartsWith("model 'm' would not load: 'max_batch_size' must be non-negative value for m\n"));
  EXPECT_THAT(text, HasSubstr("default priority level must be in range [1, 2] for m"));
  EXPECT_THAT(text, HasSubstr("errors, nothing was loaded"));
  EXPECT_THAT(findings, HasSubstr(R"("field":"max_batch_size")"));
  EXPECT_EQ(core.rows(), rows);
  EXPECT_EQ(core.StateOf("m"), "1:READY;");
}

TEST(LifecycleCheck, MissingModelsAreNotFound) {
  CoreHarness core;
  ASSERT_TRUE(core.Start().ok());
  EXPECT_TRUE(absl::IsNotFound(Check(core, "nobody").first));
  EXPECT_EQ(core.StateOf("nobody"), "-");
}

TEST(LifecycleCheck, FileOverridesAreCheckedInADirectoryThatGoes) {
  CoreHarness core;
  ASSERT_TRUE(core.Start().ok());
  LoadOverrides overrides;
  overrides.config_json = R"({"backend":"fake","input":[{"name":"X"}]})";
  overrides.files["1/model.fake"] = "weights";
  const auto [status, findings] = Check(core, "new", std::move(overrides));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(findings, HasSubstr("must specify 'data_type'"));
  EXPECT_EQ(core.rows(), 0u);
  EXPECT_TRUE(std::filesystem::is_empty(core.folder.tmp()));
}

}  // namespace
}  // namespace tidemark
