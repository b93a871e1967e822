#include "repository/config_normalize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/status.h"
#include "repository/config_text.h"

namespace tidemark {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

inference::ModelConfig Config(std::string_view text) {
  auto config = ParseConfigText(text, "config.pbtxt");
  EXPECT_TRUE(config.ok()) << config.status();
  return *config;
}

inference::ModelConfig Completed(std::string_view text, const VersionListing& listing) {
  inference::ModelConfig config = Config(text);
  const absl::Status status = CompleteBackendFields("m", listing, &config);
  EXPECT_TRUE(status.ok()) << status;
  return config;
}

std::string Choice(const inference::ModelConfig& config) {
  return config.backend() + "|" + config.platform() + "|" + config.default_model_filename();
}

TEST(CompleteBackendFieldsTest, ABareArtifactTellsTheBackend) {
  EXPECT_EQ(Choice(Completed("", {.files = {"model.onnx"}, .directories = {}})),
            "onnxruntime|onnxruntime_onnx|model.onnx");
  EXPECT_EQ(Choice(Completed("", {.files = {}, .directories = {"model.onnx"}})),
            "onnxruntime|onnxruntime_onnx|model.onnx");
  EXPECT_EQ(Choice(Completed("", {.files = {"model.xml", "model.bin"}, .directories = {}})), "openvino||model.xml");
  EXPECT_EQ(Choice(Completed("", {.files = {"model.plan"}, .directories = {}})), "tensorrt|tensorrt_plan|model.plan");
  EXPECT_EQ(Choice(Completed("", {.files = {"model.py"}, .directories = {}})), "python||model.py");
  EXPECT_EQ(Choice(Completed("", {.files = {"model.pt"}, .directories = {}})), "pytorch|pytorch_libtorch|model.pt");
  EXPECT_EQ(Choice(Completed("", {.files = {}, .directories = {"model.savedmodel"}})),
            "tensorflow|tensorflow_savedmodel|model.savedmodel");
}

TEST(CompleteBackendFieldsTest, BackendPlatformAndFileNameCompleteEachOther) {
  EXPECT_EQ(Choice(Completed("backend: \"onnxruntime\"", {})), "onnxruntime|onnxruntime_onnx|model.onnx");
  EXPECT_EQ(Choice(Completed("platform: \"onnxruntime_onnx\"", {})), "onnxruntime|onnxruntime_onnx|model.onnx");
  EXPECT_EQ(Choice(Completed("platform: \"tensorrt_plan\" default_model_filename: \"a.plan\"", {})),
            "tensorrt|tensorrt_plan|a.plan");
  EXPECT_EQ(Choice(Completed("backend: \"openvino\"", {.files = {"model.onnx"}, .directories = {}})),
            "openvino||model.onnx");
  EXPECT_EQ(Choice(Completed("platform: \"pytorch_libtorch\"", {})), "pytorch|pytorch_libtorch|");
}

TEST(CompleteBackendFieldsTest, OtherBackendsAndEnsemblesStayAsWritten) {
  EXPECT_EQ(Choice(Completed("backend: \"identity\"", {.files = {"model.onnx"}, .directories = {}})), "identity||");
  EXPECT_EQ(Choice(Completed("platform: \"ensemble\"", {.files = {"model.onnx"}, .directories = {}})), "|ensemble|");
}

TEST(CompleteBackendFieldsTest, TheNameAfterTheDotIsTheLastResort) {
  inference::ModelConfig config;
  ASSERT_TRUE(CompleteBackendFields("a.identity", {}, &config).ok());
  EXPECT_EQ(config.name(), "a.identity");
  EXPECT_EQ(Choice(config), "identity||model.identity");
  config.Clear();
  EXPECT_EQ(MessageOf(CompleteBackendFields("plain", {}, &config)),
            "Invalid model name: Could not determine backend for model 'plain' with no backend in model "
            "configuration. "
            "Expected model name of the form 'model.<backend_name>'.");
}

TEST(NormalizeConfigTest, FillsInDefaultsOnceAndForAll) {
  inference::ModelConfig config = Config("max_batch_size: 8 dynamic_batching { }");
  NormalizeConfig(&config);
  EXPECT_EQ(config.version_policy().latest().num_versions(), 1U);
  EXPECT_THAT(config.dynamic_batching().preferred_batch_size(), ElementsAre(8));
  EXPECT_TRUE(config.optimization().input_pinned_memory().enable());
  EXPECT_TRUE(config.optimization().output_pinned_memory().enable());
  const std::string once = config.SerializeAsString();
  NormalizeConfig(&config);
  EXPECT_EQ(config.SerializeAsString(), once);
}

TEST(NormalizeConfigTest, KeepsWhatWasWrittenAndEnsemblesWithoutOptimization) {
  inference::ModelConfig config = Config("optimization { input_pinned_memory { enable: false } }");
  NormalizeConfig(&config);
  EXPECT_FALSE(config.optimization().input_pinned_memory().enable());
  config = Config("platform: \"ensemble\" ensemble_scheduling { }");
  NormalizeConfig(&config);
  EXPECT_FALSE(config.has_optimization());
}

TEST(NormalizeInstanceGroupsTest, AnUndeclaredGroupIsNamedAfterTheModel) {
  inference::ModelConfig config = Config("name: \"m\" backend: \"identity\"");
  NormalizeInstanceGroups({}, &config);
  ASSERT_EQ(config.instance_group_size(), 1);
  EXPECT_EQ(config.instance_group(0).name(), "m");
  EXPECT_EQ(config.instance_group(0).kind(), inference::ModelInstanceGroup::KIND_CPU);
  EXPECT_EQ(config.instance_group(0).count(), 1);
  EXPECT_THAT(InstanceNames(config.instance_group(0)), ElementsAre("m_0"));
}

TEST(NormalizeInstanceGroupsTest, CountComesFromTheGroupThenTheBackendThenTheRule) {
  inference::ModelConfig config =
      Config("name: \"m\" backend: \"onnxruntime\" instance_group { count: 3 } instance_group { kind: KIND_CPU }");
  NormalizeInstanceGroups({}, &config);
  EXPECT_EQ(config.instance_group(0).count(), 3);
  EXPECT_EQ(config.instance_group(1).count(), 2);
  EXPECT_EQ(config.instance_group(1).name(), "m_1");
  inference::ModelInstanceGroup preferred;
  preferred.set_kind(inference::ModelInstanceGroup::KIND_CPU);
  preferred.set_count(5);
  config = Config("name: \"m\" backend: \"onnxruntime\"");
  NormalizeInstanceGroups({.gpus = {}, .preferred = {preferred}}, &config);
  EXPECT_EQ(config.instance_group(0).count(), 5);
}

TEST(NormalizeInstanceGroupsTest, AutoIsAGpuOnlyWhenEveryListedGpuIsThere) {
  inference::ModelConfig config = Config("name: \"m\" instance_group { } instance_group { gpus: [ 7 ] }");
  NormalizeInstanceGroups({.gpus = {0, 1}, .preferred = {}}, &config);
  EXPECT_EQ(config.instance_group(0).kind(), inference::ModelInstanceGroup::KIND_GPU);
  EXPECT_THAT(config.instance_group(0).gpus(), ElementsAre(0, 1));
  EXPECT_EQ(config.instance_group(1).kind(), inference::ModelInstanceGroup::KIND_CPU);
}

}  // namespace
}  // namespace tidemark
