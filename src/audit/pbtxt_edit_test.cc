#include "audit/pbtxt_edit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "audit/config_text.h"
#include "audit/fault.h"
#include "base/status.h"

namespace tidemark::audit {
namespace {

using ::testing::HasSubstr;

TEST(PbtxtEdit, DatatypeChangesInEveryWayToWriteAnOutput) {
  EXPECT_EQ(*ChangeFirstDatatype("output [ { name: \"o\" data_type: TYPE_FP32 } ]", "output"),
            "output [ { name: \"o\" data_type: TYPE_INT32 } ]");
  EXPECT_EQ(*ChangeFirstDatatype("output { data_type: TYPE_INT32 }", "output"), "output { data_type: TYPE_FP32 }");
  EXPECT_EQ(*ChangeFirstDatatype("output: <data_type:TYPE_FP16,dims:-1>", "output"),
            "output: <data_type:TYPE_INT32,dims:-1>");
  EXPECT_EQ(*ChangeFirstDatatype("output: [{data_type: 11}]", "output"), "output: [{data_type: TYPE_INT32}]");
}

TEST(PbtxtEdit, OnlyTheFirstTensorOfTheNamedFieldIsTouched) {
  EXPECT_EQ(*ChangeFirstDatatype("input { data_type: TYPE_FP32 } output { data_type: TYPE_FP32 } "
                                 "output { data_type: TYPE_FP32 }",
                                 "output"),
            "input { data_type: TYPE_FP32 } output { data_type: TYPE_INT32 } output { data_type: TYPE_FP32 }");
}

TEST(PbtxtEdit, CommentsAndStringsThatLookLikeFieldsAreLeftAlone) {
  const std::string text =
      "# output { data_type: TYPE_BOOL }\n"
      "name: 'output { data_type: TYPE_BOOL }' \"# no comment\" # one\n"
      "parameters { key: \"output\" value { string_value: \"a \\\" } b\" } }\n"
      "output [\n  {  # data_type: TYPE_BOOL }\n    data_type: TYPE_FP32  # old\n  }\n]\n";
  const auto edited = ChangeFirstDatatype(text, "output");
  ASSERT_TRUE(edited.ok()) << MessageOf(edited.status());
  std::string expected = text;
  expected.replace(expected.find("TYPE_FP32"), 9, "TYPE_INT32");
  EXPECT_EQ(*edited, expected);
}

TEST(PbtxtEdit, DimensionIsAppendedToListsAndToRepeatedFields) {
  EXPECT_EQ(*AppendDimension("output { dims: [ 16 ] }", "output"), "output { dims: [ 16, 3 ] }");
  EXPECT_EQ(*AppendDimension("output { dims: [ ] }", "output"), "output { dims: [3 ] }");
  EXPECT_EQ(*AppendDimension("output { dims: 1 dims: -1 }", "output"), "output { dims: 1 dims: -1 dims: 3 }");
}

TEST(PbtxtEdit, FirstInputIsRemovedAndTheOthersStay) {
  EXPECT_EQ(*RemoveFirst("input [ { name: 'a' }, { name: 'b' } ] output { }", "input"),
            "input [ { name: 'b' } ] output { }");
  EXPECT_EQ(*RemoveFirst("input { name: 'a' } input { name: 'b' }", "input"), " input { name: 'b' }");
  EXPECT_EQ(*RemoveFirst("input [ { name: 'a' } ]", "input"), "");
}

TEST(PbtxtEdit, BackendReplacesBackendAndPlatform) {
  EXPECT_EQ(*ReplaceBackend("platform: \"x\" max_batch_size: 0 backend: \"y\"", "z"),
            "backend: \"z\"\n max_batch_size: 0 ");
}

TEST(PbtxtEdit, BrokenSyntaxIsReallyBroken) {
  EXPECT_FALSE(ParseTextFormat(BreakSyntax("name: \"m\"")).ok());
  EXPECT_FALSE(ParseTextFormat(BreakSyntax("")).ok());
}

TEST(PbtxtEdit, ErrorsNameLineAndColumn) {
  EXPECT_THAT(std::string(MessageOf(ParseTextFormat("name: \"m\"\noutput [ {\n").status())), HasSubstr("line 3"));
  EXPECT_THAT(std::string(MessageOf(ParseTextFormat("a: 1\nb 2").status())), HasSubstr("line 2, column 3"));
  EXPECT_EQ(ChangeFirstDatatype("input { }", "output").status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(PbtxtEdit, DeepNestingIsRefusedRatherThanFatal) {
  EXPECT_FALSE(ParseTextFormat(std::string(100000, '[')).ok());
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "a{";
  EXPECT_FALSE(ParseTextFormat(text).ok());
}

TEST(ConfigText, ServersJsonBecomesAConfigurationThatCanBeBroken) {
  const auto text = ConfigTextFromJson(R"({
    "name":"m","platform":"","backend":"onnxruntime","max_batch_size":8,"version_policy":{"latest":{"num_versions":1}},
    "input":[{"name":"IN \"0\"","data_type":"TYPE_FP32","format":"FORMAT_NONE","dims":[16,-1],"optional":false}],
    "output":[{"name":"OUT","data_type":"TYPE_STRING","dims":[1],"label_filename":""}],
    "instance_group":[{"name":"m","kind":"KIND_CPU","count":2,"gpus":[]}],
    "parameters":{"a":{"string_value":"b"}}})");
  ASSERT_TRUE(text.ok()) << MessageOf(text.status());
  EXPECT_THAT(*text, HasSubstr("backend: \"onnxruntime\""));
  EXPECT_THAT(*text, HasSubstr("name: \"IN \\\"0\\\"\""));
  EXPECT_THAT(*text, HasSubstr("data_type: TYPE_STRING\n"));
  EXPECT_THAT(*text, HasSubstr("kind: KIND_CPU\n"));
  const auto fields = ParseTextFormat(*text);
  ASSERT_TRUE(fields.ok()) << MessageOf(fields.status());
  EXPECT_EQ(RepeatedMessages(*fields, "input").size(), 1U);
  EXPECT_THAT(*BreakConfig(Fault::kOutputDatatype, *text), HasSubstr("data_type: TYPE_INT32"));
  EXPECT_FALSE(ConfigTextFromJson("[]").ok());
}

TEST(Fault, IntendedErrorIsLookedForBehindThePhrasesOfEveryRefusal) {
  const std::string wrapper = "load failed for model 'datatype': version 1 is at UNAVAILABLE state: ";
  EXPECT_TRUE(IsIntendedError(Fault::kOutputDatatype,
                              wrapper +
                                  "Invalid argument: unexpected datatype TYPE_FP32 for inference output 'OUTPUT', "
                                  "expecting TYPE_INT32 for identity_0_0;\n"));
  EXPECT_FALSE(IsIntendedError(Fault::kOutputDatatype, wrapper + "Internal: out of memory;\n"));
  EXPECT_TRUE(IsIntendedError(Fault::kConfigSyntax, "failed to load 'm', failed to poll from model repository"));
  EXPECT_TRUE(IsIntendedError(Fault::kTruncatedModel, wrapper + "Internal: onnx runtime error 7: Failed to load model "
                                                                "because protobuf parsing failed.;\n"));
}

TEST(Fault, ModelIsCutReplacedOrRemoved) {
  const std::string model(1000, 'm');
  EXPECT_EQ((*BreakModel(Fault::kTruncatedModel, model))->size(), 500U);
  EXPECT_NE(**BreakModel(Fault::kGarbageModel, model), model);
  EXPECT_FALSE(BreakModel(Fault::kMissingModel, model)->has_value());
}

}  // namespace
}  // namespace tidemark::audit
