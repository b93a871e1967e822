#include "inference/model_info.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "inference/request.h"

namespace tidemark {
namespace {

inference::ModelConfig Config(const std::string& text) {
  inference::ModelConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  return config;
}

constexpr char kTwoInputs[] = R"(name: "m" max_batch_size: 8
  input { name: "A" data_type: TYPE_FP32 dims: [ 4 ] }
  input { name: "B" data_type: TYPE_STRING dims: [ -1 ] }
  output { name: "Y" data_type: TYPE_FP32 dims: [ 4 ] })";

class Fixture {
 public:
  explicit Fixture(const std::string& config) : info(Config(config), 1, {}) {}

  void Add(std::string name, DataType type, Shape shape, std::string_view bytes) {
    RequestInput& input = request.inputs.emplace_back();
    input.name = std::move(name);
    input.data_type = type;
    input.shape = std::move(shape);
    data.emplace_back(std::make_unique<std::string>(bytes));
    input.data = std::as_bytes(std::span(data.back()->data(), data.back()->size()));
  }
  std::string Check() {
    const absl::Status status = info.Prepare(request, tensors, batch);
    if (!status.ok()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    }
    return std::string(MessageOf(status));
  }

  ModelInfo info;
  InferenceRequest request;
  std::vector<InputTensor> tensors;
  std::int64_t batch = -7;
  std::vector<std::unique_ptr<std::string>> data;
};

const std::string kFour(16, '\0');
const std::string kString = {1, 0, 0, 0, 'x'};

TEST(ModelInfo, GoodRequestBecomesTensorsInConfigOrder) {
  Fixture f(kTwoInputs);
  f.Add("B", DataType::kBytes, {2, 1}, kString + kString);
  f.Add("A", DataType::kFp32, {2, 4}, kFour + kFour);
  EXPECT_EQ(f.Check(), "");
  ASSERT_EQ(f.tensors.size(), 2u);
  EXPECT_EQ(f.tensors[0].name, "A");
  EXPECT_EQ(f.tensors[0].index, 0u);
  EXPECT_EQ(f.tensors[0].data.size(), 32u);
  EXPECT_EQ(f.tensors[1].name, "B");
  EXPECT_EQ(f.batch, 2);
}

TEST(ModelInfo, CountErrorsNameWhatIsMissing) {
  Fixture f(kTwoInputs);
  f.request.id = "7";
  EXPECT_EQ(f.Check(),
            "[request id: 7] expected 2 inputs but got 0 inputs for model 'm'. Got input(s) [], but missing required "
            "input(s) ['A','B']. Please provide all required input(s).");
  f.Add("A", DataType::kFp32, {1, 4}, kFour);
  EXPECT_EQ(
      f.Check(),
      "[request id: 7] expected 2 inputs but got 1 inputs for model 'm'. Got input(s) ['A'], but missing required "
      "input(s) ['B']. Please provide all required input(s).");
}

TEST(ModelInfo, OptionalInputsWidenTheCount) {
  Fixture f(R"(name: "m" input { name: "A" data_type: TYPE_FP32 dims: [ 4 ] }
               input { name: "B" data_type: TYPE_FP32 dims: [ 4 ] optional: true })");
  EXPECT_EQ(f.Check(),
            "[request id: <id_unknown>] expected number of inputs between 1 and 2 but got 0 inputs for model 'm'. Got "
            "input(s) [], but missing required input(s) ['A']. Please provide all required input(s).");
  f.Add("A", DataType::kFp32, {4}, kFour);
  EXPECT_EQ(f.Check(), "");
  EXPECT_EQ(f.batch, 1);
}

struct InputCase {
  const char* claim;
  const char* name;
  DataType type;
  Shape shape;
  std::string data;
  const char* error;
};

class OneInput : public testing::TestWithParam<InputCase> {};

TEST_P(OneInput, GivesTritonsText) {
  const InputCase& c = GetParam();
  Fixture f(kTwoInputs);
  f.Add(c.name, c.type, c.shape, c.data);
  f.Add("B", DataType::kBytes, {1, 1}, kString);
  EXPECT_EQ(f.Check(), c.error);
}

INSTANTIATE_TEST_SUITE_P(
    Errors, OneInput,
    testing::Values(
        InputCase{"UnknownName", "Z", DataType::kFp32, {1, 4}, kFour, "unexpected inference input 'Z' for model 'm'"},
        InputCase{"Twice",
                  "B",
                  DataType::kBytes,
                  {1, 1},
                  kString,
                  "[request id: <id_unknown>] input 'B' already exists in request"},
        InputCase{"NoBatchDimension",
                  "A",
                  DataType::kFp32,
                  {},
                  kFour,
                  "[request id: <id_unknown>] input 'A' has no shape but model requires batch dimension for 'm'"},
        InputCase{"OtherBatch",
                  "A",
                  DataType::kFp32,
                  {2, 4},
                  kFour + kFour,
                  "[request id: <id_unknown>] input 'B' batch size does not match other inputs for 'm'"},
        InputCase{"WrongType",
                  "A",
                  DataType::kInt32,
                  {1, 4},
                  kFour,
                  "[request id: <id_unknown>] inference input 'A' data-type is 'INT32', but model 'm' expects 'FP32'"},
        InputCase{
            "UnknownType",
            "A",
            DataType::kInvalid,
            {1, 4},
            kFour,
            "[request id: <id_unknown>] inference input 'A' data-type is '<invalid>', but model 'm' expects 'FP32'"},
        InputCase{
            "NegativeDim",
            "A",
            DataType::kFp32,
            {1, -1},
            kFour,
            "[request id: <id_unknown>] All input dimensions should be specified for input 'A' for model 'm', got "
            "[1,-1]"},
        InputCase{
            "WrongShape",
            "A",
            DataType::kFp32,
            {1, 5},
            kFour,
            "[request id: <id_unknown>] unexpected shape for input 'A' for model 'm'. Expected [-1,4], got [1,5]. "
            "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended "
            "to each input shape. If you want to specify the full shape including the batch dim in your input dims "
            "config, try setting max_batch_size to zero. See the model configuration docs for more info on "
            "max_batch_size."},
        InputCase{
            "WrongRank",
            "A",
            DataType::kFp32,
            {1},
            kFour,
            "[request id: <id_unknown>] unexpected shape for input 'A' for model 'm'. Expected [-1,4], got [1]. "
            "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended "
            "to each input shape. If you want to specify the full shape including the batch dim in your input dims "
            "config, try setting max_batch_size to zero. See the model configuration docs for more info on "
            "max_batch_size."},
        InputCase{"WrongBytes",
                  "A",
                  DataType::kFp32,
                  {1, 4},
                  kFour + "x",
                  "[request id: <id_unknown>] input byte size mismatch for input 'A' for model 'm'. Expected 16, got "
                  "17"}),
    [](const auto& test) { return std::string(test.param.claim); });

TEST(ModelInfo, BatchAboveTheMaximumIsRefused) {
  Fixture f(kTwoInputs);
  f.Add("A", DataType::kFp32, {9, 4}, std::string(9 * 16, '\0'));
  f.Add("B", DataType::kBytes, {9, 0}, "");
  EXPECT_EQ(f.Check(), "[request id: <id_unknown>] inference request batch-size must be <= 8 for 'm'");
}

TEST(ModelInfo, NonBatchingShapeErrorEndsInDotAndBlank) {
  Fixture f(R"(name: "m" input { name: "A" data_type: TYPE_FP32 dims: [ 4 ] })");
  f.Add("A", DataType::kFp32, {5}, kFour);
  EXPECT_EQ(f.Check(),
            "[request id: <id_unknown>] unexpected shape for input 'A' for model 'm'. Expected [4], got [5]. ");
}

TEST(ModelInfo, UnknownOutputIsRefusedWithoutPrefix) {
  Fixture f(kTwoInputs);
  f.request.outputs.push_back({"DUMMY", false, 0, {}});
  EXPECT_EQ(f.Check(), "unexpected inference output 'DUMMY' for model 'm'");
}

struct StringCase {
  const char* claim;
  std::string data;
  const char* error;
};

class Strings : public testing::TestWithParam<StringCase> {};

TEST_P(Strings, AreCountedAndMeasured) {
  Fixture f(R"(name: "m" input { name: "B" data_type: TYPE_STRING dims: [ 2 ] })");
  f.Add("B", DataType::kBytes, {2}, GetParam().data);
  EXPECT_EQ(f.Check(), GetParam().error);
}

INSTANTIATE_TEST_SUITE_P(
    All, Strings,
    testing::Values(
        StringCase{"Good", kString + std::string(4, '\0'), ""},
        StringCase{
            "CutLength", kString + std::string(3, '\0'),
            "[request id: <id_unknown>] incomplete string length indicator for inference input 'B' for model 'm', "
            "expecting 4 bytes but only 3 bytes available. Please make sure the string length indicator is in one "
            "buffer."},
        StringCase{"CutText", kString + kString.substr(0, 4),
                   "[request id: <id_unknown>] incomplete string data for inference input 'B' for model 'm', expecting "
                   "string of length 1 but only 0 bytes available"},
        StringCase{"HugeLength", std::string(4, '\xff') + "abc",
                   "[request id: <id_unknown>] incomplete string data for inference input 'B' for model 'm', expecting "
                   "string of length 4294967295 but only 3 bytes available"},
        StringCase{
            "TrailingBytes", kString + kString + "xy",
            "[request id: <id_unknown>] incomplete string length indicator for inference input 'B' for model 'm', "
            "expecting 4 bytes but only 2 bytes available. Please make sure the string length indicator is in one "
            "buffer."},
        StringCase{
            "TooMany", kString + kString + kString,
            "[request id: <id_unknown>] unexpected number of string elements 3 for inference input 'B' for model "
            "'m', expecting 2"},
        StringCase{
            "TooFew", kString,
            "[request id: <id_unknown>] expected 2 string elements for inference input 'B' for model 'm', got 1"}),
    [](const auto& test) { return std::string(test.param.claim); });

TEST(ModelInfo, ReshapeGivesTheBackendItsShape) {
  Fixture f(R"(name: "m" max_batch_size: 8
               input { name: "A" data_type: TYPE_FP32 dims: [ 1 ] reshape { } }
               input { name: "V" data_type: TYPE_UINT8 dims: [ -1, 2, -1 ] reshape { shape: [ -1, -1, 1, 2 ] } })");
  f.Add("A", DataType::kFp32, {3, 1}, std::string(12, '\0'));
  f.Add("V", DataType::kUint8, {3, 4, 2, 5}, std::string(120, '\0'));
  EXPECT_EQ(f.Check(), "");
  EXPECT_EQ(f.tensors[0].shape, (Shape{3}));
  EXPECT_EQ(f.tensors[1].shape, (Shape{3, 4, 5, 1, 2}));
}

TEST(ModelInfo, HugeShapesAreRefusedNotMultipliedOut) {
  Fixture f(R"(name: "m" input { name: "A" data_type: TYPE_FP64 dims: [ -1, -1 ] })");
  f.Add("A", DataType::kFp64, {std::int64_t{1} << 40, std::int64_t{1} << 40}, "");
  EXPECT_EQ(f.Check(), "element count for tensor 'A' exceeds maximum size of 9223372036854775807");
  f.request.inputs[0].shape = {std::int64_t{1} << 31, std::int64_t{1} << 31};
  EXPECT_EQ(f.Check(), "byte size for tensor 'A' exceeds maximum size of 9223372036854775807");
}

std::string Raw(const std::string& config, std::size_t bytes, Shape* shape = nullptr) {
  Fixture f(config);
  f.request.raw = true;
  f.Add("", DataType::kInvalid, {}, std::string(bytes, '\0'));
  std::string error = f.Check();
  if (shape != nullptr && error.empty()) *shape = f.request.inputs[0].shape;
  return error;
}

TEST(ModelInfo, RawRequestTakesNameTypeAndShapeFromTheModel) {
  Shape shape;
  EXPECT_EQ(Raw(R"(name: "m" max_batch_size: 8 input { name: "A" data_type: TYPE_FP32 dims: [ -1, 2 ] })", 16, &shape),
            "");
  EXPECT_EQ(shape, (Shape{1, 2, 2}));
  EXPECT_EQ(Raw(R"(name: "m" input { name: "A" data_type: TYPE_FP32 dims: [ 4 ] })", 16, &shape), "");
  EXPECT_EQ(shape, (Shape{4}));
  EXPECT_EQ(Raw(R"(name: "m" input { name: "A" data_type: TYPE_FP32 dims: [ 4 ] })", 12),
            "[request id: <id_unknown>] input byte size mismatch for input 'A' for model 'm'. Expected 16, got 12");
  EXPECT_EQ(Raw(R"(name: "m" input { name: "A" data_type: TYPE_FP32 dims: [ -1 ] })", 15),
            "[request id: <id_unknown>] input byte size mismatch for input 'A' for model 'm'. Expected 12, got 15");
}

TEST(ModelInfo, RawRequestThatCannotBeDeducedIsRefused) {
  EXPECT_EQ(Raw(kTwoInputs, 16),
            "[request id: <id_unknown>] Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in "
            "'m' model configuration");
  EXPECT_EQ(Raw(R"(name: "m" input { name: "A" data_type: TYPE_FP32 dims: [ -1, -1 ] })", 16),
            "[request id: <id_unknown>] The shape of the raw input 'A' can not be deduced because there are more than "
            "one variable-sized dimension");
  EXPECT_EQ(Raw(R"(name: "m" input { name: "A" data_type: TYPE_STRING dims: [ -1 ] })", 4),
            "[request id: <id_unknown>] For BYTE datatype raw input 'A', the model must have input shape [1]");
}

}  // namespace
}  // namespace tidemark
