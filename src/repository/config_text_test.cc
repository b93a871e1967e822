#include "repository/config_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "repository/config_normalize.h"

namespace tidemark {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string TextError(std::string_view text) {
  const auto config = ParseConfigText(text, "m/config.pbtxt");
  EXPECT_FALSE(config.ok()) << text;
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(MessageOf(config.status()));
}

TEST(ConfigTextTest, ReadsAnOrdinaryConfiguration) {
  const auto config = ParseConfigText(R"(
    name: "m"  # a comment
    backend: "onnxruntime"
    max_batch_size: 8
    input [ { name: "X" data_type: TYPE_FP32 dims: [ -1, 3 ] } ]
    output { name: "Y" data_type: TYPE_STRING dims: 1 }
    parameters: { key: "k" value: { string_value: "v" } }
    dynamic_batching { }
  )",
                                      "config.pbtxt");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->input(0).dims(0), -1);
  EXPECT_EQ(config->output(0).data_type(), inference::TYPE_STRING);
  EXPECT_EQ(config->parameters().at("k").string_value(), "v");
  EXPECT_TRUE(config->has_dynamic_batching());
}

TEST(ConfigTextTest, EmptyTextIsAnEmptyConfiguration) {
  const auto config = ParseConfigText("", "config.pbtxt");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->ByteSizeLong(), 0U);
}

TEST(ConfigTextTest, ErrorsNameFileLineAndColumnFromOne) {
  const std::string error = TextError("name: \"m\"\nmax_batch_size: many\n");
  EXPECT_THAT(error, StartsWith("failed to read text proto from m/config.pbtxt\n"));
  EXPECT_THAT(error, HasSubstr("m/config.pbtxt:2:17: "));
}

TEST(ConfigTextTest, EveryUnknownFieldIsReportedWithTheNearestName) {
  const std::string error = TextError("nmae: \"m\"\ninput { data_typ: TYPE_FP32 }\nzzzzzzzz: 1\n");
  EXPECT_THAT(error, HasSubstr("config.pbtxt:1:1: "));
  EXPECT_THAT(error, HasSubstr("Did you mean \"name\"?"));
  EXPECT_THAT(error, HasSubstr("config.pbtxt:2:9: "));
  EXPECT_THAT(error, HasSubstr("Did you mean \"data_type\"?"));
  EXPECT_THAT(error, HasSubstr("has no field named \"zzzzzzzz\"."));
  EXPECT_EQ(error.find("\"zzzzzzzz\". Did"), std::string::npos);
}

TEST(ConfigTextTest, UnknownEnumValueIsReportedWithTheNearestName) {
  EXPECT_THAT(TextError("input { name: \"X\" data_type: TYPE_FP23 }"), HasSubstr("config.pbtxt:1:30: "));
  EXPECT_THAT(TextError("input { name: \"X\" data_type: TYPE_FP23 }"), HasSubstr("Did you mean \"TYPE_FP32\"?"));
}

TEST(ConfigTextTest, APositionIsThatOfTheNameInBytesAndNotOfWhatFollows) {
  EXPECT_THAT(TextError("input {\n\tdata_type:\tTYPE_FP23\n\n}"), HasSubstr("config.pbtxt:2:13: "));
  EXPECT_THAT(TextError("\t\tnope\n{ }"), HasSubstr("config.pbtxt:1:3: "));
}

TEST(ConfigTextTest, TwoSchedulersAreRefused) { TextError("dynamic_batching { } sequence_batching { }"); }

TEST(ConfigTextTest, InvalidUtf8IsRefusedRawAndEscaped) {
  EXPECT_THAT(TextError("name: \"a\xff\""), HasSubstr("config.pbtxt:1:9: byte 0xff is not valid UTF-8"));
  EXPECT_THAT(TextError("input { name: \"\\377\" }"), HasSubstr("'input.name' is not valid UTF-8"));
}

TEST(ConfigTextTest, EndlessNestingIsRefusedWithoutRecursion) {
  std::string text;
  for (int i = 0; i < 1'000'000; ++i) text += "a{";
  EXPECT_THAT(TextError(text), HasSubstr("nested deeper than 64 levels"));
}

TEST(ConfigTextTest, ALongErrorListIsCut) {
  std::string text;
  for (int i = 0; i < 80; ++i) text += "wrong_field: 1\n";
  EXPECT_THAT(TextError(text), HasSubstr("and 30 more"));
}

TEST(ConfigJsonTest, ReadsSnakeAndCamelCaseEnumNamesAndWideIntegersAsText) {
  const auto config = ParseConfigJson(R"({"name":"m","maxBatchSize":2,"default_model_filename":"a",
    "input":[{"name":"X","data_type":"type_fp32","dims":["4",5]}]})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->max_batch_size(), 2);
  EXPECT_EQ(config->default_model_filename(), "a");
  EXPECT_EQ(config->input(0).data_type(), inference::TYPE_FP32);
  EXPECT_EQ(config->input(0).dims(0), 4);
}

TEST(ConfigJsonTest, RefusesUnknownFieldsAndBrokenJson) {
  EXPECT_EQ(ParseConfigJson(R"({"nmae":"m"})").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ParseConfigJson("{").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ParseConfigJson("").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ParseConfigJson("[1]").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(ParseConfigJson(std::string(1'000'000, '[')).ok());
}

TEST(ConfigJsonTest, PrintsDefaultsAndLeavesOutAbsentMessages) {
  inference::ModelConfig config;
  config.set_name("m");
  auto* input = config.add_input();
  input->set_name("X");
  input->set_data_type(inference::TYPE_FP32);
  input->add_dims(9007199254740993);
  const std::string json = ConfigJson(config);
  EXPECT_EQ(json, R"({"name":"m","platform":"","backend":"","runtime":"","max_batch_size":0,"input":[{"name":"X",)"
                  R"("data_type":"TYPE_FP32","format":"FORMAT_NONE","dims":[9007199254740993],"is_shape_tensor":false,)"
                  R"("allow_ragged_batch":false,"optional":false,"is_non_linear_format_io":false}],"output":[],)"
                  R"("batch_input":[],"batch_output":[],"instance_group":[],"default_model_filename":"",)"
                  R"("cc_model_filenames":{},"metric_tags":{},"parameters":{},"model_warmup":[]})");
}

TEST(ConfigJsonTest, AnEmptyConfigurationIsTheEmptyText) { EXPECT_EQ(ConfigJson({}), ""); }

TEST(ConfigJsonTest, WideIntegersAreNumbersExceptThreeThatTritonForgets) {
  const auto config = ParseConfigText(R"(
    name: "m"
    version_policy { specific { versions: [ 2, 10 ] } }
    optimization { cuda { graph_spec { input { key: "X" value { dim: [ 7 ] } }
      graph_lower_bound { input { key: "X" value { dim: [ 6 ] } } } } } }
    instance_group { secondary_devices { device_id: 3 } }
    dynamic_batching { max_queue_delay_microseconds: 100
      priority_queue_policy { key: 10 value { default_timeout_microseconds: 5 } }
      priority_queue_policy { key: 2 value { } } }
    model_warmup { inputs { key: "X" value { dims: 4 zero_data: true } } }
  )",
                                      "config.pbtxt");
  ASSERT_TRUE(config.ok()) << config.status();
  const nlohmann::json json = nlohmann::json::parse(ConfigJson(*config));
  EXPECT_EQ(json["version_policy"]["specific"]["versions"], (nlohmann::json{2, 10}));
  EXPECT_EQ(json["dynamic_batching"]["max_queue_delay_microseconds"], 100);
  EXPECT_EQ(json["dynamic_batching"]["priority_queue_policy"]["10"]["default_timeout_microseconds"], 5);
  EXPECT_EQ(json["model_warmup"][0]["inputs"]["X"]["dims"], (nlohmann::json{4}));
  EXPECT_EQ(json["model_warmup"][0]["inputs"]["X"]["zero_data"], true);
  EXPECT_FALSE(json["model_warmup"][0]["inputs"]["X"].contains("random_data"));
  EXPECT_EQ(json["optimization"]["cuda"]["graph_spec"][0]["input"]["X"]["dim"], (nlohmann::json{"7"}));
  EXPECT_EQ(json["optimization"]["cuda"]["graph_spec"][0]["graph_lower_bound"]["input"]["X"]["dim"],
            (nlohmann::json{"6"}));
  EXPECT_EQ(json["instance_group"][0]["secondary_devices"][0]["device_id"], "3");
  EXPECT_LT(ConfigJson(*config).find("\"2\":"), ConfigJson(*config).find("\"10\":"));
}

TEST(ConfigJsonTest, WhatIsPrintedReadsBackAsTheSame) {
  auto config = ParseConfigText(R"(
    name: "m\"\n" backend: "b" max_batch_size: 3 dynamic_batching { priority_levels: 18446744073709551615 }
    sequence_batching: { direct { minimum_slot_utilization: 0.1 } }
  )",
                                "config.pbtxt");
  ASSERT_FALSE(config.ok());  // two schedulers
  config = ParseConfigText(R"(
    name: "m\"\n" backend: "b" max_batch_size: 3
    sequence_batching: { direct { minimum_slot_utilization: 0.1 max_queue_delay_microseconds: 18446744073709551615 } }
    model_metrics { metric_control { metric_identifier { family: "f" } histogram_options { buckets: [ 0.1, 1e300 ] } } }
  )",
                           "config.pbtxt");
  ASSERT_TRUE(config.ok()) << config.status();
  NormalizeConfig(&*config);
  const auto again = ParseConfigJson(ConfigJson(*config));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->ShortDebugString(), config->ShortDebugString());
}

TEST(ConfigJsonTest, OutputIsAlwaysValidUtf8) {
  inference::ModelConfig config;
  config.set_name("a\xff");
  EXPECT_EQ(nlohmann::json::parse(ConfigJson(config))["name"], "a\xEF\xBF\xBD");
}

}  // namespace
}  // namespace tidemark
