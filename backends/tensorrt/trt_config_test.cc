#include "backends/tensorrt/trt_config.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "backends/tensorrt/plan_header.h"
#include "backends/tensorrt/trt_graph_spec.h"
#include "base/status.h"
#include "google/protobuf/text_format.h"
#include "repository/config_edit.h"

namespace tidemark {
namespace {

using inference::ModelConfig;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TrtTensor Tensor(std::string name, bool input, Shape dims, Shape min = {}, Shape opt = {}, Shape max = {}) {
  TrtTensor tensor;
  tensor.name = std::move(name);
  tensor.input = input;
  tensor.dims = dims;
  tensor.formats.resize(1);
  if (input) tensor.dim_range.push_back({min.empty() ? dims : min, opt.empty() ? dims : opt, max.empty() ? dims : max});
  return tensor;
}

// INPUT, OUTPUT FP32 [-1,16], batch 1 to 64.
TrtIo Batched() {
  TrtIo io;
  io.tensors.push_back(Tensor("INPUT", true, {-1, 16}, {1, 16}, {8, 16}, {64, 16}));
  io.tensors.push_back(Tensor("OUTPUT", false, {-1, 16}));
  return io;
}

ModelConfig Config(const std::string& text) {
  ModelConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
  if (config.name().empty()) config.set_name("N");
  if (config.instance_group_size() == 0) config.add_instance_group()->set_kind(inference::ModelInstanceGroup::KIND_GPU);
  return config;
}

std::vector<Finding> FindingsIn(const TrtIo& io, const std::string& text) {
  return CheckTrtConfig(io, Config(text), 0, "I");
}
// Triton's texts.
std::string Check(const TrtIo& io, const std::string& text) {
  std::vector<std::string> texts;
  for (const Finding& finding : FindingsIn(io, text)) texts.push_back(finding.message);
  return fmt::format("{}", fmt::join(texts, "; also: "));
}
// "FIELD: found X, expected Y; write: …" of each.
std::vector<std::string> Repairs(const TrtIo& io, const std::string& text) {
  std::vector<std::string> lines;
  for (const Finding& finding : FindingsIn(io, text)) {
    lines.push_back(PlaceAndFault(finding) + "; write: " + SuggestionOf(finding));
  }
  return lines;
}

std::string Complete(const TrtIo& io, const std::string& text, ModelConfig* config) {
  *config = Config(text);
  return HeadOf(CompleteTrtConfig(io, config));
}

const char kGood[] = R"(max_batch_size: 8 input { name: "INPUT" data_type: TYPE_FP32 dims: 16 }
                        output { name: "OUTPUT" data_type: TYPE_FP32 dims: 16 })";

TEST(TrtConfigTest, AConfigurationThatFitsIsTaken) { EXPECT_EQ(Check(Batched(), kGood), ""); }

TEST(TrtConfigTest, EveryFindingIsReportedInTritonsWords) {
  EXPECT_EQ(Check(Batched(), R"(max_batch_size: 8
    input { name: "INPUT" data_type: TYPE_FP16 dims: 7 }
    input { name: "MORE" data_type: TYPE_FP64 dims: 7 }
    output { name: "OUTPUT" data_type: TYPE_INT32 dims: 16 })"),
            "unable to load model 'N', configuration expects 2 inputs, model provides at most 1; also: "
            "unexpected inference input 'MORE', allowed inputs are: INPUT; also: "
            "unsupported datatype TYPE_FP64 for input 'MORE' for model 'N'; also: "
            "unexpected datatype TYPE_FP32 for inference input 'INPUT', expecting TYPE_FP16 for I; also: "
            "model 'N', tensor 'INPUT': the model expects 2 dimensions (shape [-1,16]) but the model configuration "
            "specifies 2 dimensions (an initial batch dimension because max_batch_size > 0 followed by the explicit "
            "tensor shape, making complete shape [-1,7]); also: "
            "unexpected datatype TYPE_FP32 for inference output 'OUTPUT', expecting TYPE_INT32 for I");
}

TEST(TrtConfigTest, FindingsHaveAPlaceWhatWasFoundWhatIsExpectedAndARepair) {
  EXPECT_THAT(
      Repairs(Batched(), R"(max_batch_size: 8
        input { name: "INPVT" data_type: TYPE_FP32 dims: 16 }
        output { name: "OUTPUT" data_type: TYPE_INT32 dims: 7 is_shape_tensor: true })"),
      ElementsAre(
          "input[0].name: found 'INPVT', expected one of the plan's: INPUT; write: name: \"INPUT\"",
          "output[0].is_shape_tensor: found true, expected false, as the plan has; write: is_shape_tensor: false",
          "output[0].data_type: found TYPE_INT32, expected TYPE_FP32, as the plan has; write: data_type: TYPE_FP32",
          "output[0].dims: found [ 7 ], expected [ 16 ], as the plan has behind the batch dimension; write: dims: "
          "[ 16 ]",
          "input[1]: found nothing, expected the plan's input 'INPUT'; write: "));
  EXPECT_THAT(Repairs(Batched(), R"(max_batch_size: 8 output { name: "OUTPUT" data_type: TYPE_FP32 dims: 16 })"),
              ElementsAre("input[0]: found nothing, expected the plan's input 'INPUT'; write: input { name: \"INPUT\" "
                          "data_type: TYPE_FP32 dims: [ 16 ] }"));
  EXPECT_THAT(
      Repairs(Batched(), R"(input { name: "INPUT" data_type: TYPE_FP32 dims: [ 65, 16 ] }
                                    output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ -1, 16 ] })"),
      ElementsAre("input[0].dims: found [ 65, 16 ], expected 1 to 64 where there is 65, as optimization profile 0 "
                  "has; write: dims: [ 64, 16 ]"));
}

TEST(TrtConfigTest, TheRepairsMakeTheConfigurationFit) {
  const char bad[] = R"(max_batch_size: 8 input { name: "INPVT" data_type: TYPE_FP16 dims: 16 }
                        output { name: "OUTPUT" data_type: TYPE_FP32 dims: 7 })";
  std::string text = bad;
  for (int round = 0; round < 3; ++round) {
    const std::vector<Finding> findings = FindingsIn(Batched(), text);
    text = ApplyEdits(text, ConfigPlaces(text).EditsFor(findings));
  }
  EXPECT_EQ(Check(Batched(), text), "") << text;
}

TEST(TrtConfigTest, ShapesWithoutBatching) {
  EXPECT_EQ(Check(Batched(), R"(input { name: "INPUT" data_type: TYPE_FP32 dims: 16 }
                                output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ -1, 16 ] })"),
            "model 'N', tensor 'INPUT': the model expects 2 dimensions (shape [-1,16]) but the model configuration "
            "specifies 1 dimensions (shape [16])");
  EXPECT_EQ(Check(Batched(), R"(input { name: "INPUT" data_type: TYPE_FP32 dims: [ 65, 16 ] }
                                output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ -1, 16 ] })"),
            "model configuration specified invalid shape for input 'INPUT' for model N. Error details: model expected "
            "the shape of dimension 0 to be between 1 and 64 but received 65");
  TrtIo io = Batched();
  io.tensors[0] = Tensor("INPUT", true, {});
  EXPECT_THAT(Check(io, kGood), HasSubstr("for the model to support batching the shape should have at least 1 "
                                          "dimension; but shape expected by the model is []"));
}

TEST(TrtConfigTest, TensorsThatNobodyFeedsOrTakesAreNamed) {
  EXPECT_EQ(Check(Batched(), "max_batch_size: 8"),
            "expected configuration for input 'INPUT' for I; also: expected configuration for output 'OUTPUT' for I");
}

TEST(TrtConfigTest, ShapeTensorsAndFormatsMustBeMarked) {
  TrtIo io = Batched();
  io.tensors[0].shape = true;
  io.tensors[0].type = nv::DataType::kInt64;
  io.tensors[0].dims = {2};
  io.tensors[1].formats[0] = {.linear = false, .vectorized_dim = -1, .components = 32, .text = {}};
  const std::string text = Check(io, R"(input { name: "INPUT" data_type: TYPE_INT32 dims: 3 }
                                        output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ -1, 16 ] })");
  EXPECT_THAT(text,
              HasSubstr("input 'INPUT' for model 'N' is a shape tensor but the model configuration doesn't mark it "
                        "as a shape tensor."));
  EXPECT_THAT(text,
              HasSubstr("output 'OUTPUT' for model 'N' uses a non-linear IO format, but 'is_non_linear_format_io' "
                        "is incorrectly set to false in the model configuration."));
  EXPECT_THAT(text,
              HasSubstr("unexpected datatype TYPE_INT64 in engine for shape input 'INPUT', expecting TYPE_INT32"));
  EXPECT_THAT(text, HasSubstr("unable to load model 'I', binding 'INPUT' shape expected by framework [2] doesn't match "
                              "model configuration shape [3]"));
  EXPECT_THAT(text, HasSubstr("unexpected vectorized dim is -1 for non-linear tensor 'OUTPUT' for I"));
}

TEST(TrtConfigTest, AProfileThatIsNotThereIsRefused) {
  EXPECT_THAT(Check(Batched(), std::string(kGood) + R"(instance_group { kind: KIND_GPU profile: "3" })"),
              HasSubstr("for I. Expected optimization profile index range 0-0"));
}

TEST(TrtConfigTest, FourBitTypesAreRefusedByName) {
  TrtIo io = Batched();
  io.tensors[0].type = nv::DataType::kInt4;
  EXPECT_THAT(Check(io, kGood), HasSubstr("TYPE_INT4"));
}

TEST(TrtConfigTest, CompletionFillsInWhatIsMissing) {
  ModelConfig config;
  EXPECT_EQ(Complete(Batched(), "", &config), "");
  EXPECT_EQ(config.max_batch_size(), 64);
  EXPECT_TRUE(config.has_dynamic_batching());
  EXPECT_EQ(config.input(0).name(), "INPUT");
  EXPECT_EQ(config.output(0).dims(0), 16);

  EXPECT_EQ(Complete(Batched(), R"(max_batch_size: 1 input { name: "INPUT" })", &config), "");
  EXPECT_EQ(config.max_batch_size(), 1);
  EXPECT_TRUE(config.has_dynamic_batching()) << "what counts is the engine's largest batch";
  EXPECT_EQ(config.input(0).data_type(), inference::TYPE_FP32);
  EXPECT_EQ(config.input(0).dims(0), 16);

  EXPECT_EQ(Complete(Batched(), R"(input { name: "INPUT" dims: [ -1, 16 ] })", &config), "");
  EXPECT_EQ(config.max_batch_size(), 0) << "the shape leaves no room for a batch dimension";

  TrtIo fixed;
  fixed.tensors.push_back(Tensor("INPUT", true, {1000}));
  fixed.tensors.push_back(Tensor("OUTPUT", false, {1000}));
  EXPECT_EQ(Complete(fixed, "", &config), "");
  EXPECT_EQ(config.max_batch_size(), 0);
  EXPECT_EQ(config.input(0).dims(0), 1000);
}

TEST(TrtConfigTest, CompletionRefusesWhatContradictsTheEngine) {
  ModelConfig config;
  EXPECT_EQ(Complete(Batched(), "max_batch_size: 65", &config),
            "autofill failed for model 'N': configuration specified max-batch 65 but TensorRT engine only supports "
            "max-batch 64");
  EXPECT_EQ(
      Complete(Batched(), R"(input { name: "INPUT" dims: 16 } output { name: "OUTPUT" dims: [ -1, 16 ] })", &config),
      "unable to autofill for 'N', model tensor configurations are contradicting each other in terms of whether "
      "batching is supported");
  EXPECT_EQ(Complete(Batched(), R"(instance_group { kind: KIND_GPU profile: "2" })", &config),
            "unable to autofill for 'N', configuration specified invalid profile 2 . Number of profiles supported by "
            "TensorRT engine: 1");
  EXPECT_EQ(Complete(Batched(), R"(input { name: "INPUT" is_shape_tensor: true dims: 16 })", &config),
            "'INPUT' is incorrectly specified as a shape tensor.");
}

TEST(TrtConfigTest, WhatIsNotServedIsRefusedByNameBeforeThePlanIsOpened) {
  EXPECT_THAT(
      CheckBeforeLoad(Config(R"(input { name: "A" optional: true })")).ToString(),
      HasSubstr("'optional' is set to true for input 'A' while the backend model doesn't support optional input"));
  EXPECT_THAT(
      CheckBeforeLoad(Config(R"(instance_group { kind: KIND_GPU secondary_devices { device_id: 1 } })")).ToString(),
      HasSubstr("NVDLA core 1"));
  EXPECT_THAT(CheckBeforeLoad(Config(R"(instance_group { kind: KIND_CPU })")).ToString(),
              HasSubstr("unable to load model 'N', TensorRT backend supports only GPU device"));
  EXPECT_THAT(
      CheckBeforeLoad(
          Config(R"(parameters { key: "execution_context_allocation_strategy" value { string_value: "X" } })"))
          .ToString(),
      HasSubstr("Invalid value for 'execution_context_allocation_strategy': 'X' for model instance 'N'. Supported "
                "values are 'STATIC' and 'ON_PROFILE_CHANGE'."));
  EXPECT_THAT(
      CheckBeforeLoad(Config(R"(parameters { key: "enable_multi_device" value { string_value: "true" } })")).ToString(),
      HasSubstr("Multi-Device"));
}

TEST(TrtGraphSpecTest, DefaultsAreTritons) {
  const auto sizes = [](const std::string& text) {
    std::vector<std::int64_t> found;
    const auto specs = GraphSpecsOf(Config(text));
    for (const TrtGraphSpec& spec : *specs) found.push_back(spec.batch_size);
    return found;
  };
  EXPECT_THAT(sizes("max_batch_size: 8"), ::testing::ElementsAre(1, 2, 3, 4, 6, 8));
  EXPECT_THAT(sizes("max_batch_size: 64 dynamic_batching { preferred_batch_size: 4 }"),
              ::testing::ElementsAre(1, 4, 64));
  EXPECT_THAT(sizes(""), ::testing::ElementsAre(0));
}

TEST(TrtGraphSpecTest, BadSpecsAreRefusedInTritonsWords) {
  const auto refusal = [](const std::string& head, const std::string& spec) {
    return GraphSpecsOf(Config(head + " optimization { cuda { graphs: true graph_spec {" + spec + "} } }"))
        .status()
        .ToString();
  };
  EXPECT_THAT(refusal("", "batch_size: 1"),
              HasSubstr("graph spec expects 'batch_size' to be 0 if 'max_batch_size' is 0"));
  EXPECT_THAT(refusal("max_batch_size: 8", "batch_size: 9"),
              HasSubstr("graph spec expects 'batch_size' to be >= 1 and <= 8"));
  EXPECT_THAT(refusal("max_batch_size: 8", "batch_size: 2 graph_lower_bound { batch_size: 3 }"),
              HasSubstr("graph lower bound spec expects 'batch_size' to be <= graph spec 'batch_size'"));
  EXPECT_THAT(refusal("max_batch_size: 8", R"(batch_size: 2 input { key: "A" value { dim: 4 } }
                                              graph_lower_bound { batch_size: 1 })"),
              HasSubstr("graph lower bound spec expects shape for input 'A'"));
}

std::vector<std::byte> Header(std::string_view magic, std::uint64_t size, std::size_t bytes) {
  std::vector<std::byte> plan(bytes);
  std::memcpy(plan.data(), magic.data(), magic.size());
  std::memcpy(plan.data() + 16, &size, sizeof size);
  for (const auto& [at, value] : {std::pair{24, 11}, {25, 2}, {26, 1}, {27, 2}}) {
    plan[static_cast<std::size_t>(at)] = static_cast<std::byte>(value);
  }
  return plan;
}

TEST(PlanHeaderTest, TellsTheBuildersVersionAndWhatIsNoPlan) {
  const auto good = ReadPlanHeader(Header("ftrt", 64, 64), "P");
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(good->Text(), "11.2.1.2");
  EXPECT_EQ(good->number(), 110201);
  EXPECT_THAT(ReadPlanHeader(Header("ftrt", 65, 64), "P").status().ToString(),
              HasSubstr("unable to create TensorRT engine: 'P' is cut: 64 of the plan's 65 bytes are there"));
  EXPECT_THAT(ReadPlanHeader(Header("vtrt", 64, 64), "P").status().ToString(), HasSubstr("TensorRT for RTX"));
  EXPECT_THAT(ReadPlanHeader(Header("what", 64, 64), "P").status().ToString(), HasSubstr("not a TensorRT plan"));
  EXPECT_FALSE(ReadPlanHeader({}, "P").ok());
}

}  // namespace
}  // namespace tidemark
