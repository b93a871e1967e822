#include "backends/onnxruntime/onnx_probe.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/onnx_builder.h"

namespace tidemark {
namespace {

using testing::OnnxBuilder;

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(OnnxProbeTest, TellsInputsFromWeights) {
  const std::string model = OnnxBuilder()
                                .Input("X", testing::kOnnxFloat, {"batch", 4, ""})
                                .Input("W", testing::kOnnxInt64, {2})
                                .Weights("W", testing::kOnnxInt64, {2}, std::string(16, '\0'))
                                .Node("Identity", {"X"}, {"Y"})
                                .Output("Y", testing::kOnnxString, {})
                                .Build();
  const auto facts = ProbeOnnx(Bytes(model), "m");
  ASSERT_TRUE(facts.ok()) << facts.status();
  ASSERT_EQ(facts->inputs.size(), 1U);
  EXPECT_EQ(facts->inputs[0].name, "X");
  EXPECT_EQ(facts->inputs[0].DeclaredShape(), (Shape{-1, 4, -1}));
  EXPECT_EQ(facts->inputs[0].dims[0].symbol, "batch");
  ASSERT_EQ(facts->overridable.size(), 1U);
  EXPECT_EQ(facts->overridable[0].name, "W");
  EXPECT_EQ(DataTypeOfOnnx(facts->outputs[0].element_type), DataType::kBytes);
  EXPECT_TRUE(facts->outputs[0].has_shape);
  EXPECT_TRUE(facts->inline_weights.empty());
}

TEST(OnnxProbeTest, FindsLargeWeightsAndMovesThemOut) {
  const std::string model = testing::OnnxMatMulChain(256, 2);
  const auto facts = ProbeOnnx(Bytes(model), "m");
  ASSERT_TRUE(facts.ok());
  ASSERT_EQ(facts->inline_weights.size(), 2U);
  EXPECT_EQ(facts->inline_weights[1].data_end - facts->inline_weights[1].data_begin, 256U * 256 * 4);
  const std::string slim = MoveWeightsOut(Bytes(model), *facts, "model.onnx");
  EXPECT_LT(slim.size(), 1000U);
  const auto again = ProbeOnnx(Bytes(slim), "slim");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->external_files, std::vector<std::string>{"model.onnx"});
  EXPECT_TRUE(again->inline_weights.empty());
  EXPECT_EQ(again->inputs.size(), 1U);
  EXPECT_EQ(again->outputs.size(), 1U);
}

TEST(OnnxProbeTest, EveryCutAndEveryFlippedByteIsReadWithoutHarm) {
  const std::string model = testing::OnnxAddSub(testing::kOnnxFloat, {"n", 4});
  for (std::size_t length = 0; length < model.size(); ++length) {
    EXPECT_FALSE(ProbeOnnx(Bytes(model.substr(0, length)), "cut").ok()) << length;
  }
  for (std::size_t at = 0; at < model.size(); ++at) {
    for (const char flip : {'\x01', '\x80', '\xff'}) {
      std::string bad = model;
      bad[at] = static_cast<char>(bad[at] ^ flip);
      const auto facts = ProbeOnnx(Bytes(bad), "flipped");
      if (facts.ok()) static_cast<void>(MoveWeightsOut(Bytes(bad), *facts, "x"));
    }
  }
}

}  // namespace
}  // namespace tidemark
