#include "backends/openvino/openvino_config.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backends/openvino/built_in_model.h"
#include "base/status.h"
#include "repository/config_finding.h"

namespace tidemark {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

inference::ModelConfig Config(const std::string& text) {
  inference::ModelConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  config.set_name("m");
  return config;
}

OpenVinoPort Port(std::string name, DataType type, std::vector<std::int64_t> dims) {
  return {.names = {std::move(name)}, .data_type = type, .type_name = "t", .known_rank = true, .dims = std::move(dims)};
}

std::string Text(const absl::Status& status) { return HeadOf(status); }

std::string OptionError(const std::string& key, const std::string& value) {
  inference::ModelConfig config = Config("");
  (*config.mutable_parameters())[key].set_string_value(value);
  return Text(ReadOpenVinoOptions(config, {}).status());
}

const std::vector<OpenVinoPort> kInputs = {Port("B", DataType::kFp32, {-1, 4}), Port("A", DataType::kFp32, {-1, -1})};
const std::vector<OpenVinoPort> kOutputs = {Port("Y", DataType::kFp32, {-1, 4})};

std::string BindError(const std::string& text, const std::vector<OpenVinoPort>& inputs = kInputs,
                      const std::vector<OpenVinoPort>& outputs = kOutputs) {
  return Text(BindOpenVinoConfig(inputs, outputs, false, Config(text)).status());
}

constexpr char kA[] = "input { name: 'A' data_type: TYPE_FP32 dims: -1 }";
constexpr char kB[] = "input { name: 'B' data_type: TYPE_FP32 dims: 4 }";
constexpr char kY[] = "output { name: 'Y' data_type: TYPE_FP32 dims: 4 }";

TEST(OpenVinoOptions, DefaultsAreFp32OneThreadOneStream) {
  const auto options = ReadOpenVinoOptions(Config(""), {});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->settings.inference_precision, "f32");
  EXPECT_EQ(options->settings.inference_threads, 1);
  EXPECT_EQ(options->settings.streams, 1);
  EXPECT_FALSE(options->allow_narrow_integers);
}

TEST(OpenVinoOptions, ModelsParametersWinOverTheBackendsSettings) {
  const auto config = Config("parameters { key: 'CPU_THREADS_NUM' value { string_value: '3' } }");
  const auto options = ReadOpenVinoOptions(config, {{"INFERENCE_NUM_THREADS", "2"},
                                                    {"NUM_STREAMS", "2"},
                                                    {"INFERENCE_PRECISION_HINT", "BF16"},
                                                    {"allow_narrow_integers", "true"}});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->settings.inference_threads, 3);
  EXPECT_EQ(options->settings.streams, 2);
  EXPECT_EQ(options->settings.inference_precision, "bf16");
  EXPECT_FALSE(options->allow_narrow_integers) << "one model's decision is not for all";
}

TEST(OpenVinoOptions, UnreadableAndUnsupportedValuesAreNamed) {
  EXPECT_THAT(OptionError("NUM_STREAMS", "auto"), HasSubstr("failed to convert 'auto' to integral number"));
  EXPECT_THAT(OptionError("INFERENCE_NUM_THREADS", "0"), HasSubstr("from 1 to 1024, got 0"));
  EXPECT_THAT(OptionError("INFERENCE_PRECISION_HINT", "int8"), HasSubstr("got 'int8'"));
  EXPECT_THAT(OptionError("allow_narrow_integers", "maybe"), HasSubstr("failed to convert 'maybe' to boolean"));
  EXPECT_THAT(OptionError("CPU_EXTENSION_PATH", "/x.so"), HasSubstr("CPU_EXTENSION_PATH"));
  EXPECT_THAT(OptionError("TARGET_DEVICE", "GPU"), HasSubstr("TARGET_DEVICE"));
  EXPECT_EQ(OptionError("TARGET_DEVICE", "CPU"), "");
}

TEST(OpenVinoCompletion, DynamicFirstDimensionsBecomeTheBatch) {
  auto config = Config("");
  ASSERT_TRUE(CompleteOpenVinoConfig(kInputs, kOutputs, 4, &config).ok());
  EXPECT_EQ(config.max_batch_size(), 4);
  EXPECT_TRUE(config.has_dynamic_batching());
  ASSERT_EQ(config.input_size(), 2);
  EXPECT_EQ(config.input(0).name(), "A");
  EXPECT_THAT(config.input(0).dims(), ElementsAre(-1));
  EXPECT_THAT(config.input(1).dims(), ElementsAre(4));
  EXPECT_EQ(config.output(0).data_type(), inference::TYPE_FP32);
  EXPECT_TRUE(BindOpenVinoConfig(kInputs, kOutputs, false, config).ok());
}

TEST(OpenVinoCompletion, OneStaticFirstDimensionMeansNoBatching) {
  auto config = Config("");
  const std::vector<OpenVinoPort> outputs = {Port("Y", DataType::kFp32, {1, 4})};
  ASSERT_TRUE(CompleteOpenVinoConfig(kInputs, outputs, 4, &config).ok());
  EXPECT_EQ(config.max_batch_size(), 0);
  EXPECT_FALSE(config.has_dynamic_batching());
  EXPECT_THAT(config.input(0).dims(), ElementsAre(-1, -1));
  EXPECT_TRUE(BindOpenVinoConfig(kInputs, outputs, false, config).ok());
  config = Config("max_batch_size: 8");
  EXPECT_EQ(
      Text(CompleteOpenVinoConfig(kInputs, outputs, 4, &config)),
      "autofill failed for model 'm': model does not support batching while non-zero max_batch_size is specified");
}

TEST(OpenVinoCompletion, CompleteConfigurationIsLeftAlone) {
  const auto before = Config(std::string(kA) + kB + kY);
  auto after = before;
  ASSERT_TRUE(CompleteOpenVinoConfig(kInputs, kOutputs, 4, &after).ok());
  EXPECT_EQ(after.SerializeAsString(), before.SerializeAsString());
}

TEST(OpenVinoBinding, MapsConfiguredTensorsToPorts) {
  const auto binding =
      BindOpenVinoConfig(kInputs, kOutputs, false, Config(std::string("max_batch_size: 4 ") + kA + kB + kY));
  ASSERT_TRUE(binding.ok()) << binding.status();
  EXPECT_THAT(binding->inputs, ElementsAre(1, 0));
  EXPECT_THAT(binding->outputs, ElementsAre(0));
}

TEST(OpenVinoBinding, MismatchesHaveTritonsTexts) {
  const std::string batch = "max_batch_size: 4 ";
  EXPECT_EQ(BindError(batch + kA + kY), "unable to load model 'm', configuration expects 1 inputs, model provides 2");
  EXPECT_EQ(BindError(batch + kA + "input { name: 'C' data_type: TYPE_FP32 dims: 4 }" + kY),
            "unexpected inference input 'C', allowed inputs are: A, B");
  EXPECT_EQ(BindError(batch + kA + kB + "output { name: 'Z' data_type: TYPE_FP32 dims: 4 }"),
            "unexpected inference output 'Z', allowed outputs are: Y");
  EXPECT_EQ(
      BindError(batch + kA + kB + "output { name: 'Y' data_type: TYPE_FP16 dims: 4 }"),
      "unable to load model 'm', configuration expects datatype TYPE_FP16 for output 'Y', model provides TYPE_FP32");
  // An output's -1 must be the model's, an input's may not stand for a fixed dimension either.
  EXPECT_THAT(BindError(batch + kA + kB + "output { name: 'Y' data_type: TYPE_FP32 dims: -1 }"),
              HasSubstr("making complete shape [-1,-1])"));
  EXPECT_THAT(BindError(batch + kA + "input { name: 'B' data_type: TYPE_FP32 dims: -1 }" + kY),
              HasSubstr("tensor 'B'"));
  EXPECT_THAT(BindError(std::string(kA) + kB + kY),
              HasSubstr("the model expects 2 dimensions (shape [-1,-1]) but the model configuration specifies 1 "
                        "dimensions (shape [-1])"));
  EXPECT_THAT(BindError(batch + kA + kB + kY, kInputs, {Port("Y", DataType::kFp32, {2, 4})}),
              HasSubstr("the first dimension must be -1; but shape expected by the model is [2,4]"));
  EXPECT_THAT(BindError(batch + kA + kA + kY), HasSubstr("names of the same tensor"));
}

TEST(OpenVinoBinding, RefusesWhatTheEngineAnswersWrongly) {
  const std::string pass =
      "input { name: 'X' data_type: TYPE_INT64 dims: 4 } output { name: 'Y' data_type: TYPE_INT64 dims: 4 }";
  const std::vector<OpenVinoPort> in = {Port("X", DataType::kInt64, {4})};
  const std::vector<OpenVinoPort> out = {Port("Y", DataType::kInt64, {4})};
  EXPECT_THAT(BindError(pass, in, out), HasSubstr("output 'Y' has datatype TYPE_INT64"));
  EXPECT_TRUE(BindOpenVinoConfig(in, out, true, Config(pass)).ok());
  EXPECT_THAT(BindError("", {Port("S", DataType::kBytes, {4})}, {}), HasSubstr("input 'S' has datatype TYPE_STRING"));
  EXPECT_THAT(BindError("", {}, {Port("S", DataType::kBytes, {4})}), HasSubstr("output 'S' has datatype TYPE_STRING"));
}

TEST(OpenVinoBinding, RefusesFeaturesThatItCannotServe) {
  EXPECT_THAT(BindError("sequence_batching {}"), HasSubstr("does not support sequence batching"));
  EXPECT_THAT(BindError("input { name: 'A' optional: true }"), HasSubstr("'optional' is set to true for input 'A'"));
  EXPECT_THAT(BindError("input { name: 'A' allow_ragged_batch: true }"), HasSubstr("ragged"));
}

TEST(BuiltInModel, OnnxBytesAreOfTheLengthsThatTheyName) {
  const std::string onnx = BuiltInOnnx();
  ASSERT_GT(onnx.size(), 4u);
  EXPECT_EQ(onnx[0], 8);  // ir_version
  const auto graph = static_cast<std::size_t>(onnx[3]);
  EXPECT_EQ(onnx[2], 7 << 3 | 2);
  EXPECT_EQ(onnx.size(), 4 + graph + 4);
}

}  // namespace
}  // namespace tidemark
