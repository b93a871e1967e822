// Plans by the fake builder: what was asked for is in them, and the runtime of the same fake runs them.

#include "backends/tensorrt/engine_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>

#include "base/status.h"
#include "resource/ledger.h"
#include "tests/support/gpu_fakes/fake_gpu.h"
#include "tests/support/model_directory.h"
#include "tests/support/real_platform.h"

namespace tidemark {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class EngineBuilder : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    OpenFakeGpu();
    FakeGpuHeal();
    FakeGpuForgetViolations();
    before_ = FakeGpuLiveText();
    libraries_.builder = FakeGpuFolder() + (GetParam() == 11 ? "/libnvinfer.so.11" : "/libnvinfer.so.10");
  }
  void TearDown() override {
    EXPECT_EQ(FakeGpuLiveText(), before_) << "builder, network, configuration, parser and memory are deleted";
    EXPECT_EQ(FakeGpuViolationText(), "");
    FakeGpuHeal();
  }
  std::string Build() {
    const absl::StatusOr<std::string> plan = BuildEngine(scope_, spec_, libraries_);
    return plan.ok() ? *plan : "error: " + std::string(MessageOf(plan.status()));
  }

  std::unique_ptr<Platform> platform_ = CreateLinuxPlatform();
  Ledger ledger_;
  Scope scope_{ledger_, *platform_, "test"};
  std::string before_;
  EngineSpec spec_;
  EngineLibraries libraries_;
};

TEST_P(EngineBuilder, IdentityHasItsElementsAndType) {
  spec_.elements = 16777216;
  spec_.dtype = DataType::kFp16;
  const std::string plan = Build();
  EXPECT_EQ(plan.substr(0, 4), "ftrt");
  EXPECT_THAT(plan, HasSubstr("tensor INPUT0 in 1 16777216\n"));
  EXPECT_THAT(plan, HasSubstr("tensor OUTPUT0 out 1 16777216\n"));
  EXPECT_THAT(EngineConfig(spec_, "m"), HasSubstr("TYPE_FP16 dims: 16777216"));
}

TEST_P(EngineBuilder, AddSubWithABatchHasAProfileForBothInputs) {
  spec_.network = EngineSpec::Network::kAddSub;
  spec_.batch = true;
  const std::string plan = Build();
  EXPECT_THAT(plan, HasSubstr("op addsub"));
  EXPECT_THAT(plan, HasSubstr("profile 0 INPUT0 1,16 8,16 64,16\n"));
  EXPECT_THAT(plan, HasSubstr("profile 0 INPUT1 1,16 8,16 64,16\n"));
  EXPECT_THAT(EngineConfig(spec_, "m"), HasSubstr("max_batch_size: 64"));
}

TEST_P(EngineBuilder, ProfilesFlagsAndCompatibilityReachTheConfiguration) {
  spec_.batch = true;
  spec_.shapes = {*ParseProfileShape("INPUT0:1x16/4x16/8x16"), *ParseProfileShape("INPUT0:9x16/16x16/64x16")};
  spec_.version_compatible = true;
  spec_.hardware = EngineSpec::Hardware::kAmperePlus;
  spec_.precision = EngineSpec::Precision::kFp32;
  const std::string plan = Build();
  EXPECT_THAT(plan, HasSubstr("profile 0 INPUT0 1,16 4,16 8,16\n"));
  EXPECT_THAT(plan, HasSubstr("profile 1 INPUT0 9,16 16,16 64,16\n"));
  const unsigned flags = GetParam() == 11 ? (1U << 12) | (1U << 13) : (1U << 13) | (1U << 14);  // TF32 is off
  EXPECT_THAT(plan, HasSubstr(fmt::format("flags {}\n", flags)));
  EXPECT_THAT(plan, HasSubstr("hardware 1\n"));
}

TEST_P(EngineBuilder, FreeDimensionsWithoutShapesAreRefusedByName) {
  TestFolder folder;
  TestFolder::Write(folder.path() / "m.onnx", "identity pixels -1,3");
  spec_.network = EngineSpec::Network::kOnnx;
  spec_.onnx = folder.path() / "m.onnx";
  EXPECT_THAT(Build(), HasSubstr("give its shapes with --shapes pixels:MIN/OPT/MAX"));
  spec_.shapes = {*ParseProfileShape("pixels:1x3/2x3/4x3")};
  EXPECT_THAT(Build(), HasSubstr("profile 0 pixels 1,3 2,3 4,3\n"));
}

TEST_P(EngineBuilder, ModelThatTheParserRefusesComesBackWithItsText) {
  TestFolder folder;
  TestFolder::Write(folder.path() / "m.onnx", "convolution x 4");
  spec_.network = EngineSpec::Network::kOnnx;
  spec_.onnx = folder.path() / "m.onnx";
  EXPECT_THAT(Build(), HasSubstr("the fake parser takes identity networks only"));
}

TEST_P(EngineBuilder, MissingResourceLibraryIsNamedWithWhereToGetIt) {
  FakeGpuFail("createInferBuilder", 0, 1, 0);
  const std::string text = Build();
  EXPECT_THAT(text, HasSubstr("needs 'libnvinfer_builder_resource_sm90.so.11.2.1' for this GPU"));
  EXPECT_THAT(text, HasSubstr("--builder-resources"));
}

TEST_P(EngineBuilder, FailedBuildSaysWhatTensorRtSaid) {
  FakeGpuFail("buildSerializedNetwork", 0, 1, 0);
  EXPECT_THAT(Build(), HasSubstr("Could not find any implementation"));
}

TEST_P(EngineBuilder, HalfPrecisionIsAFlagOfTensorRt10Only) {
  spec_.precision = EngineSpec::Precision::kFp16;
  if (GetParam() == 11) {
    EXPECT_THAT(Build(), HasSubstr("TensorRT 11 takes each layer's type from the network"));
  } else {
    EXPECT_THAT(Build(), HasSubstr(fmt::format("flags {}\n", (1U << 6) | 1U)));
  }
}

TEST_P(EngineBuilder, TypesThatTensorRtHasNotAreRefusedByName) {
  spec_.dtype = DataType::kFp64;
  EXPECT_THAT(Build(), HasSubstr("TensorRT has no FP64"));
}

INSTANTIATE_TEST_SUITE_P(Majors, EngineBuilder, ::testing::Values(11, 10),
                         [](const auto& test) { return fmt::format("TensorRT{}", test.param); });

TEST(ProfileShape, TextsAreReadAndBadOnesNamed) {
  const auto shape = ParseProfileShape("a:b:1x2/3x4/5x6");
  ASSERT_TRUE(shape.ok());
  EXPECT_EQ(shape->input, "a:b");
  EXPECT_EQ(shape->opt, (Shape{3, 4}));
  EXPECT_EQ(ParseProfileShape("x:7")->max, (Shape{7}));
  for (const char* bad : {"x", ":1", "x:", "x:1/2", "x:1x2/3/4", "x:2/1/3", "x:1xq", "x:-1", "x:1/2/3/4"}) {
    EXPECT_FALSE(ParseProfileShape(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace tidemark
