#include "audit/onnx_model.h"

#include <gtest/gtest.h>

#include "audit/pbtxt_edit.h"

namespace tidemark::audit {
namespace {

TEST(OnnxModel, BytesAreTheWireFormOfTheModel) {
  OnnxModelSpec spec;
  spec.elements = 300;
  spec.batch = true;
  const std::string model = *MakeOnnxModel(spec);
  // ir_version 7; producer "tidemark"; then the graph.
  EXPECT_EQ(model.substr(0, 12), std::string("\x08\x07\x12\x08tidemark"));
  EXPECT_NE(model.find("\x0a\x06INPUT0\x12\x07OUTPUT0\x1a\x08Identity\x22\x08Identity"), std::string::npos);
  // ValueInfo INPUT0: FLOAT, dimensions "batch" and 300 (varint AC 02).
  EXPECT_NE(model.find("\x0a\x06INPUT0\x12\x14\x0a\x12\x08\x01\x12\x0e\x0a\x07\x12\x05"
                       "batch\x0a\x03\x08\xac\x02"),
            std::string::npos);
  EXPECT_EQ(model.substr(model.size() - 6), std::string("\x42\x04\x0a\x00\x10\x0e", 6));
}

TEST(OnnxModel, WhatCannotBeMadeIsRefused) {
  OnnxModelSpec spec;
  spec.elements = 0;
  EXPECT_FALSE(MakeOnnxModel(spec).ok());
  spec.elements = 1;
  spec.kind = OnnxModelSpec::Kind::kAddSub;
  spec.dtype = DataType::kBytes;
  EXPECT_FALSE(MakeOnnxModel(spec).ok());
}

TEST(OnnxModel, ConfigurationNamesEveryTensor) {
  OnnxModelSpec spec;
  spec.kind = OnnxModelSpec::Kind::kAddSub;
  const auto fields = ParseTextFormat(MakeOnnxConfig(spec, "m"));
  ASSERT_TRUE(fields.ok());
  EXPECT_EQ(RepeatedMessages(*fields, "input").size(), 2U);
  EXPECT_EQ(RepeatedMessages(*fields, "output").size(), 2U);
}

}  // namespace
}  // namespace tidemark::audit
