#include "repository/config_edit.h"

#include <gtest/gtest.h>

#include <string>

namespace tidemark {
namespace {

constexpr std::string_view kText = R"(name: "m"  # the name
input [
  {
    name: "X"
    data_type: TYPE_FP32
    dims: [ -1, 3 ]
  },
  { name: "Y" dims: 1 dims: 2 }
]
dynamic_batching { preferred_batch_size: [ 0, 4 ] }
parameters: { key: "a.b" value: { string_value: "v" } }
parameters: { key: "c" value: { string_value: "w" } }
)";

Finding At(std::string field) {
  Finding finding;
  finding.field = std::move(field);
  return finding;
}

std::string Place(std::string field) {
  std::vector<Finding> findings = {At(std::move(field))};
  LocateFindings(kText, "f", &findings);
  return fmt::format("{}:{}:{}", findings[0].file, findings[0].line, findings[0].column);
}

std::string Repaired(std::string_view text, const Finding& finding) {
  return ApplyEdits(text, ConfigPlaces(text).EditsFor({finding}));
}

TEST(ConfigEditTest, APathPointsToItsValue) {
  EXPECT_EQ(Place("name"), "f:1:7");
  EXPECT_EQ(Place("input[0].data_type"), "f:5:16");
  EXPECT_EQ(Place("input[0].dims[1]"), "f:6:17");
  EXPECT_EQ(Place("input[1].dims[1]"), "f:8:29");
  EXPECT_EQ(Place("dynamic_batching"), "f:10:1");
  EXPECT_EQ(Place("parameters[c].string_value"), "f:12:47") << "a map's key";
  EXPECT_EQ(Place("parameters[a.b]"), "f:11:1") << "a key with a dot";
}

TEST(ConfigEditTest, AFieldThatIsNotThereIsWhereItWouldBe) {
  EXPECT_EQ(Place("input[1].data_type"), "f:8:3");
  EXPECT_EQ(Place("version_policy.latest.num_versions"), "f:1:1");
  EXPECT_EQ(Place("input[7].dims"), "f:1:1");
  EXPECT_EQ(Place("parameters[x]"), "f:1:1");
}

TEST(ConfigEditTest, AByteHasThePathOfItsField) {
  const ConfigPlaces places(kText);
  for (const char* path : {"name", "input[0].data_type", "input[0].dims[1]", "input[1].dims[1]",
                           "dynamic_batching.preferred_batch_size[1]", "parameters[a.b].string_value"}) {
    EXPECT_EQ(places.PathAt(places.OffsetOf(path)), path);
  }
  EXPECT_EQ(places.PathAt(12), "") << "inside a comment";
  EXPECT_EQ(ConfigPlaces("input { data_typ: 1 }").PathAt(8), "input[0].data_typ");
}

TEST(ConfigEditTest, SettingTouchesTheValueOnly) {
  EXPECT_EQ(Repaired("a: 1 # one\ndims: [1] # x\n", At("dims").SetTo("[ 2, 3 ]")), "a: 1 # one\ndims: [ 2, 3 ] # x\n");
  EXPECT_EQ(Repaired("dims: 1\ndims: 2\nz: 3\n", At("dims").SetTo("[ 4 ]")), "dims: [ 4 ]\nz: 3\n");
  EXPECT_EQ(Repaired("dims: [ 1, 0 ]", At("dims[1]").SetTo("-1")), "dims: [ 1, -1 ]");
  EXPECT_EQ(Repaired("dims: []", At("dims").SetTo("[ 1 ]")), "dims: [ 1 ]");
  EXPECT_EQ(Repaired(kText, At("parameters[a.b].string_value").SetTo("\"q\"")).find("\"q\""), kText.find("\"v\""));
}

TEST(ConfigEditTest, WhatIsMissingIsAddedInTheStyleOfItsPlace) {
  EXPECT_EQ(Repaired("name: \"m\"", At("max_batch_size").SetTo("8")), "name: \"m\"\nmax_batch_size: 8\n");
  EXPECT_EQ(Repaired("input { name: \"X\" }\n", At("input[0].data_type").SetTo("TYPE_FP32")),
            "input { name: \"X\" data_type: TYPE_FP32 }\n");
  EXPECT_EQ(Repaired("input {\n    name: \"X\"\n}\n", At("input[0].data_type").SetTo("TYPE_FP32")),
            "input {\n    name: \"X\"\n    data_type: TYPE_FP32\n}\n");
  EXPECT_EQ(Repaired("", At("version_policy.latest.num_versions").SetTo("1")),
            "version_policy { latest { num_versions: 1 } }\n");
  EXPECT_EQ(Repaired("x: 1\n", At("output[0]").InsertText("output { name: \"Y\" }")), "x: 1\noutput { name: \"Y\" }\n");
  EXPECT_EQ(Repaired("x: 1\n", At("input[3].data_type").SetTo("TYPE_FP32")), "x: 1\n") << "there is no such input";
}

TEST(ConfigEditTest, RemovingTakesTheLineOrTheComma) {
  EXPECT_EQ(Repaired("a: 1\n  bad: 2\nc: 3\n", At("bad").Remove()), "a: 1\nc: 3\n");
  EXPECT_EQ(Repaired("a: 1 bad: { x: 1 } c: 3", At("bad").Remove()), "a: 1 c: 3");
  EXPECT_EQ(Repaired("l: [ 1, 2, 3 ]", At("l[1]").Remove()), "l: [ 1, 3 ]");
  EXPECT_EQ(Repaired("l: [ 1, 2 ]", At("l[1]").Remove()), "l: [ 1 ]");
  EXPECT_EQ(Repaired("l: [ 1 ]\nm: 2\n", At("l[0]").Remove()), "m: 2\n");
}

TEST(ConfigEditTest, OfTwoRepairsOfOnePlaceTheFirstStands) {
  const std::string_view text = "a: 1 b: 2";
  const auto edits = ConfigPlaces(text).EditsFor({At("b").SetTo("3"), At("a").RenameTo("c"), At("b").SetTo("4")});
  EXPECT_EQ(ApplyEdits(text, edits), "c: 1 b: 3");
}

TEST(ConfigEditTest, OffsetsAreMappedBackThroughTheEdits) {
  const std::string_view text = "nmae: 1 input: 2 z: 3";
  const std::vector<TextEdit> edits = {{0, 4, "name"}, {8, 13, "inputs_"}};
  const std::string after = ApplyEdits(text, edits);
  EXPECT_EQ(after, "name: 1 inputs_: 2 z: 3");
  EXPECT_EQ(OffsetBefore(edits, after.find("1 ")), text.find("1 "));
  EXPECT_EQ(OffsetBefore(edits, after.find("inputs_") + 2), text.find("input"));
  EXPECT_EQ(OffsetBefore(edits, after.find("z:")), text.find("z:"));
  EXPECT_EQ(OffsetBefore(edits, after.size()), text.size());
}

TEST(ConfigEditTest, ATextThatIsNoneHasNoPlaces) {
  std::vector<Finding> findings = {At("name").SetTo("\"m\"")};
  LocateFindings("input [ {", "f", &findings);
  EXPECT_EQ(findings[0].line, 1);
  EXPECT_EQ(findings[0].column, 1);
}

}  // namespace
}  // namespace tidemark
