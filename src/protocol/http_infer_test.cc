#include "protocol/http_infer.h"

#include <fmt/format.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "inference/registry.h"
#include "tests/support/real_platform.h"
#include "tests/support/response_outputs.h"

namespace tidemark {
namespace {

constexpr char kModel[] = R"(name: "simple" max_batch_size: 8
  input { name: "A" data_type: TYPE_INT32 dims: [ 4 ] }
  input { name: "S" data_type: TYPE_STRING dims: [ -1 ] }
  output { name: "Y" data_type: TYPE_FP32 dims: [ 4 ] }
  output { name: "T" data_type: TYPE_STRING dims: [ -1 ] })";

class HttpInfer : public testing::Test {
 protected:
  static inference::ModelConfig Config(const std::string& text) {
    inference::ModelConfig config;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
    return config;
  }

  // Decodes `json` followed by `tail`; the error's text, "" when it is good.
  std::string Decode(std::string_view json, std::string_view tail = "") {
    request_.Clear();
    body_ = std::make_unique<std::vector<char>>(json.begin(), json.end());
    body_->insert(body_->end(), tail.begin(), tail.end());
    status_ = DecodeInfer(std::as_bytes(std::span(*body_)), json.size(), model_, limit_, pool_, request_);
    return std::string(MessageOf(status_));
  }
  static std::string Input(std::string_view rest) {
    return fmt::format(R"({{"inputs":[{{"name":"A","datatype":"INT32","shape":[1,4]{}{}}}]}})", rest.empty() ? "" : ",",
                       rest);
  }

  void AddOutput(std::size_t index, DataType type, Shape shape, std::string_view bytes) {
    tidemark::AddOutput(request_.response, model_, pool_, index, type, std::move(shape), bytes);
  }
  // JSON, then '|' and each binary tensor.
  std::string Encode() {
    EncodedInfer encoded;
    const absl::Status status = EncodeInfer(request_, model_, pool_, encoded);
    if (!status.ok()) return std::string(MessageOf(status));
    std::string text = encoded.json;
    for (const Buffer& tensor : encoded.tensors) {
      text += '|';
      text.append(reinterpret_cast<const char*>(tensor.data()), tensor.size());
    }
    return text;
  }

  std::unique_ptr<Platform> platform_ = CreateLinuxPlatform();
  BufferPool pool_{*platform_};
  ModelInfo model_{Config(kModel), 3, {{"Y", {"cat", "dog"}}}};
  std::size_t limit_ = 1 << 20;
  std::unique_ptr<std::vector<char>> body_;
  InferenceRequest request_;
  absl::Status status_;
};

TEST_F(HttpInfer, JsonRequestOfTheSpecificationIsRead) {
  ASSERT_EQ(Decode(R"({"id":"7","inputs":[
      {"name":"INPUT0","datatype":"INT32","shape":[1,4],"data":[[1,2,3,4]]},
      {"data":["x","yz"],"shape":[1,2],"datatype":"BYTES","name":"INPUT1"}],
      "outputs":[{"name":"OUTPUT0"},{"name":"B","parameters":{"binary_data":true,"classification":2}}],
      "parameters":{"sequence_id":5,"sequence_start":true,"sequence_end":true,"priority":2,"timeout":9,
                    "binary_data_output":true,"k":"v","n":-3,"f":1.5,"b":false,"huge":18446744073709551615}})"),
            "");
  EXPECT_EQ(request_.id, "7");
  ASSERT_EQ(request_.inputs.size(), 2u);
  EXPECT_EQ(request_.inputs[0].name, "INPUT0");
  EXPECT_EQ(request_.inputs[0].data_type, DataType::kInt32);
  EXPECT_EQ(request_.inputs[0].shape, (Shape{1, 4}));
  const std::int32_t values[] = {1, 2, 3, 4};
  ASSERT_EQ(request_.inputs[0].data.size(), sizeof(values));
  EXPECT_EQ(std::memcmp(request_.inputs[0].data.data(), values, sizeof(values)), 0);
  EXPECT_EQ(request_.inputs[1].data.size(), 11u);
  ASSERT_EQ(request_.outputs.size(), 2u);
  EXPECT_FALSE(request_.outputs[0].binary);
  EXPECT_TRUE(request_.outputs[1].binary);
  EXPECT_EQ(request_.outputs[1].classification, 2u);
  EXPECT_EQ(std::get<std::uint64_t>(request_.sequence_id), 5u);
  EXPECT_TRUE(request_.sequence_start && request_.sequence_end && request_.binary_data_output);
  EXPECT_EQ(request_.priority, 2u);
  EXPECT_EQ(request_.timeout_us, 9u);
  const Parameters expected = {
      {"k", std::string("v")}, {"n", std::int64_t{-3}}, {"f", 1.5}, {"b", false}, {"huge", 18446744073709551615.0}};
  EXPECT_EQ(request_.parameters, expected);
}

TEST_F(HttpInfer, BinaryDataIsNotCopied) {
  const std::string tail = std::string(16, 'a') + std::string("\3\0\0\0abc", 7);
  ASSERT_EQ(Decode(R"({"inputs":[{"name":"A","datatype":"INT32","shape":[1,4],"parameters":{"binary_data_size":16}},
                                 {"name":"S","datatype":"BYTES","shape":[1,1],"parameters":{"binary_data_size":7}}]})",
                   tail),
            "");
  const char* const behind_json = body_->data() + body_->size() - tail.size();
  EXPECT_EQ(reinterpret_cast<const char*>(request_.inputs[0].data.data()), behind_json);
  EXPECT_EQ(request_.inputs[0].data.size(), 16u);
  EXPECT_EQ(reinterpret_cast<const char*>(request_.inputs[1].data.data()), behind_json + 16);
}

TEST_F(HttpInfer, ScalarsTravelInJson) {
  ASSERT_EQ(Decode(R"({"inputs":[{"name":"A","datatype":"INT32","shape":[],"data":[5]}]})"), "");
  EXPECT_EQ(request_.inputs[0].data.size(), 4u);
}

struct ErrorCase {
  std::string json;
  std::string error;
};

TEST_F(HttpInfer, EachErrorHasTritonsText) {
  const std::string one_of =
      "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
      "'shared_memory_region' in 'parameters'. But ";
  const std::string max = "9223372036854775807";
  const ErrorCase cases[] = {
      {"{", "failed to parse the request JSON buffer: Missing a name for object member. at 1"},
      {"x", "failed to parse the request JSON buffer: Invalid value. at 0"},
      {" ", "failed to parse the request JSON buffer: The document is empty. at 1"},
      {"{}", "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'"},
      {"[]", "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'"},
      {R"({"inputs":5})", "Unable to parse 'inputs': attempt to access JSON non-array as array"},
      {R"({"id":5,"inputs":[]})", "Unable to parse 'id': attempt to access JSON non-string as string"},
      {R"({"inputs":[{}],"id":5})", "Unable to parse 'id': attempt to access JSON non-string as string"},
      {R"({"id":5,"inputs":[],})", "failed to parse the request JSON buffer: Missing a name for object member. at 20"},
      {R"({"parameters":[],"inputs":[]})", "failed to get request params.: attempt to get members for non-object"},
      {R"({"parameters":{"sequence_id":-1},"inputs":[]})",
       "Unable to parse 'sequence_id': attempt to access JSON non-string as string"},
      {R"({"parameters":{"sequence_id":true},"inputs":[]})",
       "Unable to parse 'sequence_id': attempt to access JSON non-string as string"},
      {R"({"parameters":{"sequence_start":1},"inputs":[]})",
       "Unable to parse 'sequence_start': attempt to access JSON non-boolean as boolean"},
      {R"({"parameters":{"sequence_end":"x"},"inputs":[]})",
       "Unable to parse 'sequence_end': attempt to access JSON non-boolean as boolean"},
      {R"({"parameters":{"priority":-1},"inputs":[]})",
       "Unable to parse 'priority': attempt to access JSON non-unsigned-integer as unsigned-integer"},
      {R"({"parameters":{"timeout":1.5},"inputs":[]})",
       "Unable to parse 'timeout': attempt to access JSON non-unsigned-integer as unsigned-integer"},
      {R"({"parameters":{"binary_data_output":0},"inputs":[]})",
       "Unable to parse 'binary_data_output': attempt to access JSON non-boolean as boolean"},
      {R"({"parameters":{"triton_x":0},"inputs":[]})",
       "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified."},
      {R"({"parameters":{"k":[]},"inputs":[]})",
       "parameter 'k' has invalid type. It should be either 'int', 'bool', or 'string'."},
      {R"({"parameters":{"k":null},"inputs":[]})",
       "parameter 'k' has invalid type. It should be either 'int', 'bool', or 'string'."},
      {R"({"inputs":[5]})", "Unable to parse 'name': attempt to access non-existing object member 'name'"},
      {R"({"inputs":[{"datatype":"INT32"}]})",
       "Unable to parse 'name': attempt to access non-existing object member 'name'"},
      {R"({"inputs":[{"name":1}]})", "Unable to parse 'name': attempt to access JSON non-string as string"},
      {R"({"inputs":[{"name":"A"}]})",
       "Unable to parse 'datatype': attempt to access non-existing object member 'datatype'"},
      {R"({"inputs":[{"name":"A","datatype":"INT32"}]})",
       "Unable to parse 'shape': attempt to access non-existing object member 'shape'"},
      {R"({"inputs":[{"name":"A","datatype":"INT32","shape":[-1],"data":[1]}]})",
       "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer"},
      {R"({"inputs":[{"name":"A","datatype":"INT32","shape":4,"data":[1]}]})",
       "Unable to parse 'shape': attempt to access JSON non-array as array"},
      {Input(""), one_of + "no field is set"},
      {Input(R"("data":[1,2,3,4],"parameters":{"binary_data_size":16})"), one_of + "set 'data' 'binary_data_size'"},
      {Input(R"("data":[1,2,3,4],"parameters":{"binary_data_size":16,"shared_memory_region":"r"})"),
       one_of + "set 'data' 'binary_data_size' 'shared_memory_region'"},
      {Input(R"("parameters":{"shared_memory_region":"r"})"), "Unable to find shared memory region: 'r'"},
      {Input(R"("data":5)"), "Unable to parse 'data': attempt to access JSON non-array as array"},
      {Input(R"("data":[1,2,3])"), "Failed to parse 'data' field: shape does not match true shape"},
      {Input(R"("data":[1,2,3,4,5])"), "Unable to parse 'data': Shape does not match true shape of 'data' field"},
      {Input(R"("parameters":{"binary_data_size":"16"})"),
       "Unable to parse 'binary_data_size': attempt to access JSON non-unsigned-integer as unsigned-integer"},
      {Input(R"("parameters":{"binary_data_size":16})"),
       "unexpected size for input 'A', expecting 16 additional bytes for model 'simple'"},
      {R"({"inputs":[{"name":"A","datatype":"INT33","shape":[1],"data":[1]}]})", "invalid datatype for input A"},
      {R"({"inputs":[{"name":"A","datatype":"INT32","shape":[18446744073709551615],"data":[1]}]})",
       "invalid shape for input 'A': shape [-1] contains one or more invalid dimensions"},
      {R"({"inputs":[{"name":"A","datatype":"INT32","shape":[4611686018427387904,4],"data":[1]}]})",
       "invalid shape for input 'A': shape [4611686018427387904,4] causes total element count to exceed maximum size of " +
           max},
      {R"({"inputs":[{"name":"A","datatype":"INT32","shape":[4611686018427387904],"data":[1]}]})",
       "byte size overflow for input 'A': element count (4611686018427387904) * data type size (4) exceeds maximum allowed "
       "size (" +
           max + ")"},
      {R"({"inputs":[{"name":"A","datatype":"INT32","shape":[1000000],"data":[1]}]})",
       "JSON input 'A' has a byte_size (4000000 bytes) that exceeds the maximum allowed value of 1048576 bytes. Use "
       "--http-max-input-size to increase the limit."},
      {R"({"inputs":[{"name":"A","datatype":"INT32","shape":[1],"data":[1]},{"name":"A","datatype":"INT32","shape":[1],"data":[1]}]})",
       "[request id: <id_unknown>] input 'A' already exists in request"},
      {R"({"id":"q","inputs":[],"outputs":[{"name":"Y"},{"name":"Y"}]})",
       "[request id: q] output 'Y' already exists in request"},
      {R"({"inputs":[],"outputs":1})", "Unable to parse 'outputs': attempt to access JSON non-array as array"},
      {R"({"inputs":[],"outputs":[{}]})",
       "Unable to parse 'name': attempt to access non-existing object member 'name'"},
      {R"({"inputs":[],"outputs":[{"name":"Y","parameters":{"classification":-1}}]})",
       "Unable to set 'classification': attempt to access JSON non-unsigned-integer as unsigned-integer"},
      {R"({"inputs":[],"outputs":[{"name":"Y","parameters":{"binary_data":1}}]})",
       "Unable to parse 'binary_data': attempt to access JSON non-boolean as boolean"},
      {R"({"inputs":[],"outputs":[{"name":"Y","parameters":{"shared_memory_region":"r","classification":1}}]})",
       "Output can't set both 'shared_memory_region' and 'classification'"},
      {R"({"inputs":[],"outputs":[{"name":"Y","parameters":{"shared_memory_region":"r","binary_data":true}}]})",
       "Output can't set both 'shared_memory_region' and 'binary_data'"},
      {R"({"inputs":[],"outputs":[{"name":"Y","parameters":{"shared_memory_region":"r","binary_data":false}}]})",
       "Unable to find shared memory region: 'r'"},
  };
  for (const ErrorCase& c : cases) {
    EXPECT_EQ(Decode(c.json), c.error) << c.json;
    EXPECT_TRUE(status_.code() == absl::StatusCode::kInvalidArgument ||
                (status_.code() == absl::StatusCode::kNotFound && c.error.starts_with("Unable to find")))
        << c.json;
  }
}

TEST_F(HttpInfer, TailMustBeWhatWasAnnounced) {
  EXPECT_EQ(Decode(Input(R"("parameters":{"binary_data_size":16})"), std::string(10, 'a')),
            "unexpected size for input 'A', expecting 6 additional bytes for model 'simple'");
  EXPECT_EQ(Decode(Input(R"("parameters":{"binary_data_size":16})"), std::string(17, 'a')),
            "unexpected additional input data for model 'simple'");
  EXPECT_EQ(Decode(Input(R"("data":[1,2,3,4])"), "x"), "unexpected additional input data for model 'simple'");
  EXPECT_EQ(Decode(Input(R"("parameters":{"binary_data_size":18446744073709551615})"), "x"),
            "unexpected size for input 'A', expecting 18446744073709551614 additional bytes for model 'simple'");
}

TEST_F(HttpInfer, ManyInputsOfOneNameAreFoundToo) {
  std::string json = R"({"inputs":[)";
  for (int i = 0; i < 1000; ++i) {
    json += fmt::format(R"({}{{"name":"n{}","datatype":"UINT8","shape":[0],"data":[]}})", i == 0 ? "" : ",", i % 999);
  }
  EXPECT_EQ(Decode(json + "]}"), "[request id: <id_unknown>] input 'n0' already exists in request");
}

TEST_F(HttpInfer, LimitsBoundJsonAndRawBodies) {
  limit_ = 10;
  EXPECT_EQ(
      Decode("{\"inputs\":[]}"),
      "request JSON size of 13 bytes exceeds the maximum allowed input size of 10 bytes. Use --http-max-input-size to "
      "increase the limit.");
  EXPECT_EQ(Decode("", std::string(11, 'x')),
            "Raw input has a byte_size (11 bytes) that exceeds the maximum allowed value of 10 bytes. Use "
            "--http-max-input-size to increase the limit.");
}

TEST_F(HttpInfer, RawRequestIsTheWholeBody) {
  EXPECT_EQ(Decode("", std::string(16, 'x')), "");
  EXPECT_TRUE(request_.raw);
  EXPECT_EQ(request_.inputs[0].data.size(), 16u);
}

TEST_F(HttpInfer, RawStringGetsItsLength) {
  const ModelInfo strings(Config(R"(name: "s" input { name: "S" data_type: TYPE_STRING dims: [ 1 ] })"), 1, {});
  const std::string body = "abc";
  ASSERT_TRUE(DecodeInfer(std::as_bytes(std::span(body)), 0, strings, limit_, pool_, request_).ok());
  const auto data = request_.inputs[0].data;
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(data.data()), data.size()), std::string("\3\0\0\0abc", 7));
}

TEST_F(HttpInfer, HeaderLengthMustBeANumberInTheBody) {
  EXPECT_EQ(*InferJsonBytes(std::nullopt, 12), 12u);
  EXPECT_EQ(*InferJsonBytes("5", 12), 5u);
  EXPECT_EQ(*InferJsonBytes("12", 12), 12u);
  EXPECT_EQ(*InferJsonBytes("0", 12), 0u);
  const auto error = [](std::string_view text) { return std::string(MessageOf(InferJsonBytes(text, 12).status())); };
  EXPECT_EQ(error("13"), "inference header size should be in range (0, 12), got: 13");
  EXPECT_EQ(error("-1"), "inference header size should be in range (0, 12), got: -1");
  for (const std::string_view text : {"", "abc", "96x", "+5", " 5", "0x5", "1.0"}) {
    EXPECT_EQ(error(text), fmt::format("Unable to parse Inference-Header-Content-Length, got: {}", text));
  }
  for (const std::string_view text : {"2147483648", "-2147483649", "99999999999999999999"}) {
    EXPECT_EQ(error(text), fmt::format("Unable to parse Inference-Header-Content-Length, value is out of range [ "
                                       "-2147483648, 2147483647 ], got: {}",
                                       text));
  }
}

const std::string kFloats("\0\0\x80\x3f\0\0\0\x40\0\0\x80\x40\0\0\0\x3f", 16);  // 1 2 4 0.5
const std::string kTexts("\2\0\0\0ab\0\0\0\0", 10);

TEST_F(HttpInfer, JsonAnswerHasTritonsForm) {
  request_.id = "7";
  AddOutput(0, DataType::kFp32, {1, 4}, kFloats);
  AddOutput(1, DataType::kBytes, {1, 2}, kTexts);
  EXPECT_EQ(Encode(), R"({"id":"7","model_name":"simple","model_version":"3","outputs":[)"
                      R"({"name":"Y","datatype":"FP32","shape":[1,4],"data":[1.0,2.0,4.0,0.5]},)"
                      R"({"name":"T","datatype":"BYTES","shape":[1,2],"data":["ab",""]}]})");
}

TEST_F(HttpInfer, BinaryAnswerMovesTheBuffers) {
  request_.binary_data_output = true;
  request_.response.parameters = {{"a", true}, {"b", std::int64_t{-1}}, {"c", 0.5}, {"d", std::string("x\"")}};
  AddOutput(1, DataType::kBytes, {1, 2}, kTexts);
  EXPECT_EQ(Encode(),
            R"({"model_name":"simple","model_version":"3","parameters":{"a":true,"b":-1,"c":0.5,"d":"x\""},"outputs":[)"
            R"({"name":"T","datatype":"BYTES","shape":[1,2],"parameters":{"binary_data_size":10}}]}|)" +
                kTexts);
  EXPECT_TRUE(request_.response.outputs[0].data.empty());
}

TEST_F(HttpInfer, NamedOutputsDecideThemselvesHowTheyTravel) {
  request_.binary_data_output = true;
  request_.outputs.push_back({"Y", false, 0, {}});
  request_.outputs.push_back({"T", true, 0, {}});
  AddOutput(0, DataType::kFp32, {1, 4}, kFloats);
  AddOutput(1, DataType::kBytes, {1, 2}, kTexts);
  EXPECT_EQ(Encode(), R"({"model_name":"simple","model_version":"3","outputs":[)"
                      R"({"name":"Y","datatype":"FP32","shape":[1,4],"data":[1.0,2.0,4.0,0.5]},)"
                      R"({"name":"T","datatype":"BYTES","shape":[1,2],"parameters":{"binary_data_size":10}}]}|)" +
                          kTexts);
}

TEST_F(HttpInfer, RawRequestsAreAnsweredInBinary) {
  request_.raw = true;
  AddOutput(0, DataType::kFp32, {1, 4}, kFloats);
  EXPECT_EQ(Encode(), R"({"model_name":"simple","model_version":"3","outputs":[)"
                      R"({"name":"Y","datatype":"FP32","shape":[1,4],"parameters":{"binary_data_size":16}}]}|)" +
                          kFloats);
}

TEST_F(HttpInfer, ClassificationSortsAndLabels) {
  request_.outputs.push_back({"Y", false, 3, {}});
  AddOutput(0, DataType::kFp32, {1, 4}, kFloats);
  EXPECT_EQ(Encode(),
            R"({"model_name":"simple","model_version":"3","outputs":[{"name":"Y","datatype":"BYTES","shape":[1,3],)"
            R"("data":["4.000000:2","2.000000:1:dog","1.000000:0:cat"]}]})");
  request_.Clear();
  request_.outputs.push_back({"Y", true, 100, {}});
  AddOutput(0, DataType::kInt8, {2, 2}, std::string("\xff\x05\x07\x07", 4));
  EXPECT_EQ(Encode(),
            R"({"model_name":"simple","model_version":"3","outputs":[{"name":"Y","datatype":"BYTES","shape":[2,2],)"
            R"("parameters":{"binary_data_size":45}}]}|)" +
                std::string("\7\0\0\0005:1:dog\x08\0\0\0-1:0:cat\7\0\0\0007:0:cat\7\0\0\0007:1:dog", 45));
}

TEST_F(HttpInfer, ClassificationOfWhatHasNoOrderIsRefused) {
  for (const DataType type : {DataType::kBytes, DataType::kBool, DataType::kFp16, DataType::kBf16}) {
    request_.Clear();
    request_.outputs.push_back({"Y", false, 1, {}});
    AddOutput(0, type, {1, 2}, type == DataType::kBytes ? kTexts : std::string(2 * ElementByteSize(type), '\0'));
    EXPECT_EQ(Encode(),
              fmt::format("class result not available for output due to unsupported type '{}'", ProtocolName(type)));
  }
  request_.Clear();
  request_.outputs.push_back({"Y", false, 1, {}});
  AddOutput(0, DataType::kUint8, {1, 1'000'001}, std::string(1'000'001, '\0'));
  EXPECT_EQ(Encode(), "classification output tensor too large");
}

TEST_F(HttpInfer, OutputsThatDoNotFitTheirShapeAreAnInternalError) {
  AddOutput(0, DataType::kFp32, {1, 3}, kFloats);
  EXPECT_EQ(Encode(), "Failed to write 'data' field: output tensor shape does not match size of output for 'Y'");
  request_.Clear();
  AddOutput(1, DataType::kBytes, {1, 3}, kTexts);
  EXPECT_EQ(Encode(), "output tensor shape does not match size of output for 'T'");
}

}  // namespace
}  // namespace tidemark
