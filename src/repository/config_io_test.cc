#include "repository/config_io.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tidemark {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ConfigIoTest, EveryDataTypeHasTheSameNumberAndName) {
  for (int number = inference::DataType_MIN; number <= inference::DataType_MAX; ++number) {
    const auto type = static_cast<inference::DataType>(number);
    EXPECT_EQ(ConfigName(FromProto(type)), inference::DataType_Name(type));
    EXPECT_EQ(ToProto(FromProto(type)), type);
  }
  EXPECT_EQ(FromProto(static_cast<inference::DataType>(77)), DataType::kInvalid);
}

TEST(ConfigIoTest, TheBackendSeesTheReshapeEvenWhenItIsAScalar) {
  inference::ModelInput input;
  input.add_dims(1);
  EXPECT_THAT(BackendDimsOf(input), ElementsAre(1));
  input.mutable_reshape();
  EXPECT_THAT(BackendDimsOf(input), IsEmpty());
  EXPECT_THAT(DimsOf(input), ElementsAre(1));
}

TEST(ConfigIoTest, ABatchDimensionStandsInFrontOnlyWhenTheModelBatches) {
  inference::ModelConfig config;
  EXPECT_THAT(WithBatch(config, {3}), ElementsAre(3));
  config.set_max_batch_size(1);
  EXPECT_THAT(WithBatch(config, {3}), ElementsAre(-1, 3));
}

TEST(ConfigIoTest, TensorsAndParametersAreFoundByName) {
  inference::ModelConfig config;
  config.add_input()->set_name("X");
  config.add_output()->set_name("Y");
  (*config.mutable_parameters())["k"].set_string_value("v");
  EXPECT_EQ(FindInput(config, "X"), &config.input(0));
  EXPECT_EQ(FindInput(config, "Y"), nullptr);
  EXPECT_EQ(FindOutput(config, "Y"), &config.output(0));
  EXPECT_EQ(ParameterOf(config, "k"), "v");
  EXPECT_EQ(ParameterOf(config, "K"), std::nullopt);
}

TEST(ConfigIoTest, OnlyInstancesAndPolicyMayDifferForAnUpdateInPlace) {
  inference::ModelConfig before;
  before.set_name("m");
  inference::ModelConfig after = before;
  after.add_instance_group()->set_count(3);
  after.mutable_version_policy()->mutable_all();
  EXPECT_TRUE(OnlyInstancesOrPolicyDiffer(before, after));
  after.set_max_batch_size(1);
  EXPECT_FALSE(OnlyInstancesOrPolicyDiffer(before, after));
}

}  // namespace
}  // namespace tidemark
