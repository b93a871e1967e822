#include "repository/config_validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/status.h"
#include "repository/config_normalize.h"
#include "repository/config_text.h"

namespace tidemark {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

inference::ModelConfig Config(std::string_view text) {
  auto config = ParseConfigText(text, "config.pbtxt");
  EXPECT_TRUE(config.ok()) << config.status();
  NormalizeConfig(&*config);
  return *config;
}

std::vector<std::string> Messages(const std::vector<Finding>& findings) {
  std::vector<std::string> texts;
  for (const Finding& finding : findings) {
    texts.push_back(finding.message);
    EXPECT_FALSE(finding.field.empty()) << finding.message;
  }
  return texts;
}

std::vector<std::string> CoreErrors(std::string_view text) {
  return Messages(ValidateConfig(Config("name: \"N\" backend: \"b\" " + std::string(text))));
}

std::vector<std::string> IoErrors(std::string_view text) {
  return Messages(ValidateModelIo(Config("name: \"N\" backend: \"b\" " + std::string(text))));
}

TEST(ValidateConfigTest, AValidConfigurationHasNoFindings) {
  EXPECT_THAT(CoreErrors("max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 4, 8 ] }"), IsEmpty());
  EXPECT_TRUE(StatusOf({}).ok());
}

TEST(ValidateConfigTest, IdentityRulesHaveTritonsTexts) {
  EXPECT_THAT(Messages(ValidateConfig(Config("backend: \"b\""))),
              ElementsAre("model configuration must specify 'name'"));
  EXPECT_THAT(Messages(ValidateConfig(Config("name: \"N\" platform: \"p\""))),
              ElementsAre("unexpected platform type 'p' for N"));
  EXPECT_THAT(CoreErrors("max_batch_size: -1"), ElementsAre("'max_batch_size' must be non-negative value for N"));
  EXPECT_THAT(Messages(ValidateConfig(Config("name: \"N\" backend: \"onnxruntime\" platform: \"tensorrt_plan\""))),
              ElementsAre("unexpected 'platform' and 'backend' pair, got:tensorrt_plan, onnxruntime"));
}

TEST(ValidateConfigTest, AllFindingsAreReportedInOrderAndTheFirstIsTheStatus) {
  const auto findings =
      ValidateConfig(Config("backend: \"b\" max_batch_size: 4 dynamic_batching { preferred_batch_size: [ 0, 9 ] }"));
  EXPECT_THAT(Messages(findings), ElementsAre("model configuration must specify 'name'",
                                              "dynamic batching preferred size must be positive for ",
                                              "dynamic batching preferred size must be <= max batch size for "));
  const absl::Status status = StatusOf(findings);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(MessageOf(status)),
            "model configuration must specify 'name'\n"
            "name: found nothing, expected the name of the model's directory\n"
            "dynamic_batching.preferred_batch_size[0]: found 0, expected from 1 to max_batch_size, 4; dynamic batching "
            "preferred size must be positive for ; write: 4\n"
            "dynamic_batching.preferred_batch_size[1]: found 9, expected from 1 to max_batch_size, 4; dynamic batching "
            "preferred size must be <= max batch size for ; write: 4");
  EXPECT_EQ(FindingsOf(status).size(), 3U) << "they travel with the status";
  EXPECT_EQ(FindingsOf(WithContext(status, "loading")).size(), 3U);
  EXPECT_EQ(HeadOf(status), "model configuration must specify 'name'");
  EXPECT_EQ(HeadOf(status) + DetailsOf(status), MessageOf(status));
}

TEST(ValidateConfigTest, PrioritiesAndOrderingAreChecked) {
  EXPECT_THAT(CoreErrors("dynamic_batching { priority_levels: 2 }"),
              ElementsAre("default priority level must be in range [1, 2] for N"));
  EXPECT_THAT(CoreErrors("dynamic_batching { priority_levels: 2 default_priority_level: 1 "
                         "priority_queue_policy { key: 3 value { } } }"),
              ElementsAre("priority queue policy must have priority level in range [1, 2] for N"));
  EXPECT_THAT(CoreErrors("dynamic_batching { priority_queue_policy { key: 3 value { } } }"), IsEmpty());
  EXPECT_THAT(CoreErrors("dynamic_batching { preserve_ordering: true priority_levels: 2 default_priority_level: 1 "
                         "default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 1 } }"),
              ElementsAre("Only one priority level is allowed when 'preserve_ordering' is true for N",
                          "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for N"));
}

TEST(ValidateConfigTest, SequenceControlsAreChecked) {
  EXPECT_THAT(
      CoreErrors("sequence_batching { control_input { name: \"S\" control { kind: CONTROL_SEQUENCE_START } } }"),
      ElementsAre("sequence batching must specify either 'int32_false_true', 'fp32_false_true' or "
                  "'bool_false_true' for CONTROL_SEQUENCE_START for N"));
  EXPECT_THAT(CoreErrors("sequence_batching { control_input { name: \"S\" control { kind: CONTROL_SEQUENCE_READY "
                         "int32_false_true: [ 0 ] } } }"),
              ElementsAre("sequence batching control 'int32_false_true' must have exactly 2 entries for "
                          "CONTROL_SEQUENCE_READY for N"));
  EXPECT_THAT(CoreErrors("sequence_batching { control_input { name: \"C\" control { kind: CONTROL_SEQUENCE_CORRID "
                         "data_type: TYPE_FP32 } } }"),
              ElementsAre("unexpected data type for control CONTROL_SEQUENCE_CORRID for N. Allowed data types are "
                          "TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING"));
  EXPECT_THAT(CoreErrors("sequence_batching { direct { minimum_slot_utilization: 1.5 } }"),
              ElementsAre("sequence batching minimum slot utilization must be in range (0.0, 1.0] for N"));
}

std::vector<std::string> EnsembleErrors(std::string_view text) {
  return Messages(ValidateConfig(Config("name: \"E\" platform: \"ensemble\" " + std::string(text))));
}

TEST(ValidateConfigTest, EnsembleGraphsAreChecked) {
  const std::string io = "input { name: \"A\" } output { name: \"Z\" } ";
  EXPECT_THAT(
      EnsembleErrors(io + "ensemble_scheduling { step { model_name: \"m\" input_map { key: \"x\" value: \"A\" } "
                          "output_map { key: \"y\" value: \"Z\" } } }"),
      IsEmpty());
  EXPECT_THAT(EnsembleErrors(""),
              ElementsAre("ensemble scheduling must be set for ensemble E whose platform is ensemble"));
  EXPECT_THAT(EnsembleErrors(io + "ensemble_scheduling { }"), ElementsAre("must specify 'step' for ensemble 'E'"));
  EXPECT_THAT(EnsembleErrors("ensemble_scheduling { step { model_name: \"m\" } }"),
              ElementsAre("must specify 'input_map' in step 0 of ensemble 'E'",
                          "must specify 'output_map' in step 0 of ensemble 'E'"));
  EXPECT_THAT(
      EnsembleErrors(io + "ensemble_scheduling { step { model_name: \"m\" input_map { key: \"x\" value: \"B\" } "
                          "output_map { key: \"y\" value: \"Z\" } } }"),
      ElementsAre("ensemble input 'A' for ensemble E' is not used",
                  "output 'Z' for ensemble 'E' is not written: at least one of its depending tensors, 'B', is "
                  "not connected",
                  "ensemble tensor 'B' is unused in ensemble 'E'"));
  EXPECT_THAT(
      EnsembleErrors(io + "ensemble_scheduling { step { model_name: \"m\" input_map { key: \"x\" value: \"A\" } "
                          "output_map { key: \"y\" value: \"Z\" } output_map { key: \"w\" value: \"Q\" } } }"),
      ElementsAre("ensemble tensor 'Q' is unused in ensemble 'E'"));
}

TEST(ValidateConfigTest, MetricControlsAreChecked) {
  EXPECT_THAT(CoreErrors("model_metrics { metric_control { } }"),
              ElementsAre("metric control must specify 'metric_identifier'",
                          "metric control must specify 'histogram_options'"));
}

TEST(ValidateModelIoTest, TensorsNeedNameTypeAndDims) {
  EXPECT_THAT(IoErrors("input { data_type: TYPE_FP32 dims: 1 }"), ElementsAre("model input must specify 'name' for N"));
  EXPECT_THAT(IoErrors("input { name: \"X\" }"), ElementsAre("model input 'X' must specify 'data_type' for N",
                                                             "model input 'X' must specify 'dims' for N"));
  EXPECT_THAT(IoErrors("output { name: \"Y\" data_type: TYPE_FP32 dims: 0 }"),
              ElementsAre("model output 'Y' dimension must be integer >= 1, or -1 to indicate a variable-size "
                          "dimension for N"));
  EXPECT_THAT(IoErrors("input { name: \"X\" data_type: TYPE_FP32 dims: [ 4294967296, 4294967296 ] }"),
              ElementsAre("element count for tensor 'X dims' exceeds maximum size of 9223372036854775807 for N"));
}

TEST(ValidateModelIoTest, ReshapeMustKeepTheElements) {
  const auto errors = [](const std::string& dims, const std::string& shape, const std::string& rest = "") {
    return IoErrors(rest + "input { name: \"X\" data_type: TYPE_FP32 dims: [ " + dims + " ] reshape { shape: [ " +
                    shape + " ] } }");
  };
  EXPECT_THAT(errors("2, 4, -1, 6", "8, -1, 1, 6"), IsEmpty());
  EXPECT_THAT(errors("2, 3", "6"), IsEmpty());
  EXPECT_THAT(errors("1", "", "max_batch_size: 1 "), IsEmpty());
  EXPECT_THAT(errors("1", ""), ElementsAre("model input 'X' cannot have empty reshape for non-batching model as scalar "
                                           "tensors are not supported for N"));
  EXPECT_THAT(errors("2, 3", "5"), ElementsAre("model input 'X' has different size for dims and reshape for N"));
  EXPECT_THAT(errors("-1, 2", "2, -1"), ElementsAre("model input 'X' has different size for dims and reshape for N"));
  EXPECT_THAT(errors("-1, -1", "-1"),
              ElementsAre("model input 'X' has different number of variable-size dimensions for "
                          "dims and reshape for N"));
}

TEST(ValidateModelIoTest, LayoutsAndTensorRtOnlyFlagsAreChecked) {
  EXPECT_THAT(IoErrors("input { name: \"X\" data_type: TYPE_FP32 dims: 1 format: FORMAT_NHWC }"),
              ElementsAre("model input NHWC/NCHW require 3 dims for N"));
  EXPECT_THAT(IoErrors("output { name: \"Y\" data_type: TYPE_FP32 dims: 1 is_shape_tensor: true }"),
              ElementsAre("shape tensors are only supported for TensorRT platform for N"));
}

TEST(ValidateModelIoTest, BatchTensorsMustReferToTheModels) {
  EXPECT_THAT(IoErrors("batch_input { kind: BATCH_ITEM_SHAPE data_type: TYPE_INT64 source_input: \"Q\" }"),
              ElementsAre("batch input data type must be TYPE_INT32 or TYPE_FP32 for N",
                          "unknown source input name 'Q' for N"));
  EXPECT_THAT(IoErrors("batch_output { target_name: \"Q\" }"),
              ElementsAre("batch output kind 'BATCH_SCATTER_WITH_INPUT_SHAPE' expects 1 source input, got 0 for N",
                          "unknown target output name 'Q' for N"));
}

TEST(ValidateModelIoTest, RepeatedNamesAreRefused) {
  EXPECT_THAT(IoErrors("input { name: \"X\" data_type: TYPE_FP32 dims: 1 } input { name: \"X\" data_type: TYPE_FP32 "
                       "dims: 1 }"),
              ElementsAre("model input 'X' is declared more than once for N"));
}

std::vector<std::string> GroupErrors(std::string_view text, const DeviceFacts& devices = {}) {
  return Messages(ValidateInstanceGroups(Config("name: \"N\" backend: \"b\" " + std::string(text)), devices));
}

TEST(ValidateInstanceGroupsTest, KindsAndDevicesMustFit) {
  EXPECT_THAT(GroupErrors("instance_group { name: \"G\" kind: KIND_CPU count: 2 }"), IsEmpty());
  EXPECT_THAT(GroupErrors(""), ElementsAre("must specify one or more 'instance group's for N"));
  EXPECT_THAT(GroupErrors("instance_group { name: \"G\" kind: KIND_CPU gpus: 0 }"),
              ElementsAre("instance group G of model N has kind KIND_CPU but specifies one or more GPUs"));
  EXPECT_THAT(GroupErrors("instance_group { name: \"G\" kind: KIND_GPU }"),
              ElementsAre("instance group G of model N has kind KIND_GPU but server does not support GPUs"));
  EXPECT_THAT(
      GroupErrors("instance_group { name: \"G\" kind: KIND_GPU gpus: 5 }", {.gpus = {0, 1}, .gpu_build = true}),
      ElementsAre("instance group G of model N specifies invalid or unsupported gpu id 5. GPUs with at least the "
                  "minimum required CUDA compute compatibility of 6.000000 are: 0, 1"));
  EXPECT_THAT(GroupErrors("instance_group { name: \"G\" kind: KIND_CPU profile: \"1\" } platform: \"p\""),
              ElementsAre("instance group G of model N and platform pspecifies profile field which is only supported "
                          "for TensorRT models"));
  EXPECT_THAT(GroupErrors("instance_group { name: \"G\" kind: KIND_CPU profile: [ \"\", \"a\", \"-1\", \"3abc\" ] } "
                          "platform: \"tensorrt_plan\""),
              ElementsAre("profile name must not be empty", "unable to parse 'a': stoi",
                          "instance group G of model N and platform tensorrt_plan specifies invalid profile -1. The "
                          "field should contain the string representation of a non-negative integer."));
}

TEST(ValidateInstanceGroupsTest, AnUnresolvedKindIsOurFault) {
  const auto findings = ValidateInstanceGroups(Config("name: \"N\" instance_group { name: \"G\" }"), {});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].code, absl::StatusCode::kInternal);
}

TEST(ValidateWarmupTest, DataMustBeChosenAndDimsFixed) {
  EXPECT_THAT(Messages(ValidateWarmup(Config("model_warmup { inputs { key: \"X\" value { dims: -1 } } }"))),
              ElementsAre("warmup setting expects all variable-size dimensions are specified for input 'X'",
                          "[request id: <id_unknown>] warmup setting expects input 'X' to have input_data_type set"));
}

std::vector<std::string> StateErrors(std::string_view state, Severity severity = Severity::kError) {
  std::vector<Finding> findings = ValidateSequenceStates(Config(
      fmt::format("name: \"N\" backend: \"b\" sequence_batching {{ state {{ input_name: \"I\" output_name: \"O\" "
                  "data_type: TYPE_FP32 dims: [ 2, -1 ] {} }} }}",
                  state)));
  std::erase_if(findings, [&](const Finding& finding) { return finding.severity != severity; });
  return Messages(findings);
}

TEST(ValidateSequenceStatesTest, InitialStatesMustFitTheirState) {
  EXPECT_THAT(StateErrors("initial_state { name: \"i\" data_type: TYPE_FP32 dims: [ 2, 5 ] zero_data: true }"),
              IsEmpty());
  EXPECT_THAT(
      StateErrors("initial_state { data_type: TYPE_INT32 dims: [ 3, -1 ] }"),
      ElementsAre("The data type used for 'initial_state' field of state 'I' does not match the state data type.",
                  "Field 'name' must be set when using initial_state for state input 'I'.",
                  "'initial_state' dim for input name 'I' doesn't match 'state' dim description. 3 != 2",
                  "'initial_state' field for state input name 'I' contains variable dimensions.",
                  "initial_state setting expects state'I' to have state_data set"));
  EXPECT_THAT(
      StateErrors("initial_state { name: \"i\" data_type: TYPE_FP32 dims: 2 zero_data: true } initial_state { }"),
      ElementsAre("initial_state field for state input 'I' must contain exactly one or zero element. Found '2' "
                  "elements.",
                  "Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for state "
                  "input 'I'. 1 != 2"));
}

TEST(ValidateSequenceStatesTest, WhatTritonOnlyLogsIsAWarning) {
  EXPECT_THAT(StateErrors("use_growable_memory: true"), IsEmpty());
  EXPECT_THAT(StateErrors("use_growable_memory: true", Severity::kWarning),
              ElementsAre("In order to 'use_growable_memory', you must also enable 'use_single_buffer' for state input "
                          "name 'I'."));
  EXPECT_TRUE(StatusOf(ValidateSequenceStates(
                           Config("sequence_batching { state { input_name: \"I\" use_growable_memory: true } }")))
                  .ok());
}

TEST(FindDoubtsTest, VersionZeroOfAComposingModelIsDoubted) {
  const auto findings = FindDoubts(Config("name: \"E\" platform: \"ensemble\" ensemble_scheduling { step { } }"));
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].field, "ensemble_scheduling.step[0].model_version");
  EXPECT_EQ(SuggestionOf(findings[0]), "model_version: -1");
  EXPECT_TRUE(StatusOf(findings).ok());
}

}  // namespace
}  // namespace tidemark
