#include "protocol/generate.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>

#include "base/status.h"
#include "inference/registry.h"
#include "tests/support/real_platform.h"
#include "tests/support/response_outputs.h"

namespace tidemark {
namespace {

constexpr char kModel[] = R"(name: "llm" max_batch_size: 8
  input { name: "text" data_type: TYPE_STRING dims: [ 1 ] }
  input { name: "A" data_type: TYPE_INT32 dims: [ 2, -1, 3 ] optional: true }
  input { name: "id" data_type: TYPE_STRING dims: [ 1 ] optional: true }
  output { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }
  output { name: "T" data_type: TYPE_STRING dims: [ -1 ] })";

class Generate : public testing::Test {
 protected:
  static inference::ModelConfig Config(const std::string& text) {
    inference::ModelConfig config;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
    return config;
  }
  // The error's text, "" when it is good.
  std::string Decode(std::string_view body) {
    request_.Clear();
    return std::string(MessageOf(DecodeGenerate(body, model_, limit_, pool_, request_)));
  }
  std::string_view Text(std::size_t input) const {
    const std::span<const std::byte> data = request_.inputs[input].data;
    return {reinterpret_cast<const char*>(data.data()), data.size()};
  }
  void AddOutput(std::size_t index, DataType type, Shape shape, std::string_view bytes) {
    tidemark::AddOutput(response_, model_, pool_, index, type, std::move(shape), bytes);
  }
  std::string Encode(std::string_view id) {
    std::string out;
    const absl::Status status = AppendGenerated(out, id, model_, response_);
    return status.ok() ? out : std::string(MessageOf(status));
  }

  std::unique_ptr<Platform> platform_ = CreateLinuxPlatform();
  BufferPool pool_{*platform_};
  ModelInfo model_{Config(kModel), 3, {}};
  std::size_t limit_ = 1 << 20;
  InferenceRequest request_;
  InferenceResponse response_;
};

TEST_F(Generate, MembersBecomeTensorsAndParameters) {
  ASSERT_EQ(Decode(R"({"text":"hi","n":3,"parameters":{"stream":false,"t":0.5,"s":"x","big":18446744073709551615}})"),
            "");
  ASSERT_EQ(request_.inputs.size(), 1u);
  EXPECT_EQ(request_.inputs[0].name, "text");
  EXPECT_EQ(request_.inputs[0].shape, (Shape{1, 1}));
  EXPECT_EQ(Text(0), std::string_view("\2\0\0\0hi", 6));
  const Parameters expected = {
      {"n", std::int64_t{3}}, {"stream", false}, {"t", 0.5}, {"s", std::string("x")}, {"big", 18446744073709551615.0}};
  EXPECT_EQ(request_.parameters, expected);
}

TEST_F(Generate, ParametersMayNameTensors) {
  ASSERT_EQ(Decode(R"({"parameters":{"text":["a"],"A":[1,2,3,4,5,6,7,8,9,10,11,12]}})"), "");
  ASSERT_EQ(request_.inputs.size(), 2u);
  EXPECT_EQ(request_.inputs[1].shape, (Shape{1, 2, 2, 3}));
  EXPECT_EQ(request_.inputs[1].data.size(), 48u);
}

TEST_F(Generate, IdIsTheRequestsIdAndAMember) {
  ASSERT_EQ(Decode(R"({"id":"7","text":"a"})"), "");
  EXPECT_EQ(request_.id, "7");
  ASSERT_EQ(request_.inputs.size(), 2u) << "this model has an input of that name";
  EXPECT_EQ(Text(0), std::string_view("\1\0\0\0"
                                      "7",
                                      5));
  EXPECT_EQ(Decode(R"({"id":7})"), "Unable to parse 'id': attempt to access JSON non-string as string");
}

TEST_F(Generate, WhatDoesNotFitIsNamed) {
  EXPECT_EQ(Decode(R"({"A":[1,2,3,4]})"), "The schema can not convert input 'A' to tensor with proper shape");
  EXPECT_EQ(Decode(R"({"A":5})"), "The schema can not convert input 'A' to tensor with proper shape");
  EXPECT_EQ(Decode(R"({"text":5})"), "Unable to parse JSON bytes array: attempt to access JSON non-string as string");
  EXPECT_EQ(Decode(R"({"p":[1]})"), "parameter 'p' has invalid type. It should be either 'int', 'bool', or 'string'.");
  EXPECT_EQ(
      Decode(R"({"parameters":{"nested":{}}})"),
      "Converting keyword: 'parameters': parameter 'nested' has invalid type. It should be either 'int', 'bool', or "
      "'string'.");
  EXPECT_EQ(Decode(R"({"parameters":[]})"),
            "Expected JSON object for keyword: 'parameters': attempt to access JSON non-object as object");
  EXPECT_EQ(Decode(R"({"triton_x":1})"),
            "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.");
  EXPECT_EQ(Decode("[]"), "attempt to get members for non-object");
  EXPECT_EQ(Decode(""), "failed to parse the request JSON buffer: The document is empty. at 0");
  EXPECT_EQ(Decode(R"({"p":[],"text":"a)"),
            "failed to parse the request JSON buffer: Missing a closing quotation mark in string. at 17");
}

TEST_F(Generate, EmptyArrayIsAnEmptyTensorWhereTheModelTakesOne) {
  ASSERT_EQ(Decode(R"({"A":[],"text":[]})"), "");
  EXPECT_EQ(request_.inputs[0].shape, (Shape{1, 2, 0, 3}));
  EXPECT_TRUE(request_.inputs[0].data.empty());
  EXPECT_TRUE(request_.inputs[1].shape.empty()) << "the model's check will tell";
}

TEST_F(Generate, TensorsTogetherAreBounded) {
  limit_ = 64;
  EXPECT_EQ(
      Decode(R"({"parameters":{"A":[1,2,3,4,5,6,7,8,9,10,11,12,1,2,3,4,5,6]}})"),
      "Converting keyword: 'parameters': request size of 0 bytes with input 'A' of size 72 bytes exceeds the maximum "
      "allowed input size of 64. Use --http-max-input-size to increase the limit.");
}

TEST_F(Generate, KeywordAsATensorsNameIsRefused) {
  const ModelInfo model(Config(R"(name: "m" input { name: "parameters" data_type: TYPE_INT32 dims: [ 1 ] })"), 1, {});
  EXPECT_EQ(MessageOf(DecodeGenerate(R"({"parameters":{}})", model, limit_, pool_, request_)),
            "Keyword 'parameters' for nested schema also given as input tensor name");
}

TEST_F(Generate, AnswerIsFlatAndAlphabetical) {
  response_.parameters = {{"zeta", std::int64_t{1}}, {"alpha", true}, {"q", std::string("\"")}};
  AddOutput(0, DataType::kFp32, {1, 2}, std::string_view("\0\0\x80\x3f\0\0\0\x40", 8));
  AddOutput(1, DataType::kBytes, {1, 1}, std::string_view("\2\0\0\0hi", 6));
  EXPECT_EQ(
      Encode("7"),
      R"({"T":"hi","Y":[1.0,2.0],"alpha":true,"id":"7","model_name":"llm","model_version":"3","q":"\"","zeta":1})");
  response_.outputs.clear();
  AddOutput(0, DataType::kFp32, {0}, "");
  response_.parameters.clear();
  EXPECT_EQ(Encode(""), R"({"Y":[],"model_name":"llm","model_version":"3"})");
  response_.outputs[0].shape = {3};
  EXPECT_EQ(Encode(""), "output tensor shape does not match size of output for 'Y'");
}

}  // namespace
}  // namespace tidemark
