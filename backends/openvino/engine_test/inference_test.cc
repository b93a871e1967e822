#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/openvino/engine_test/engine_fixture.h"

namespace tidemark::testing {
namespace {

using ::testing::ElementsAre;
using Inference = EngineTest;

// SUM = A + B, DIFFERENCE = A - B.
IrModel AddSub(const std::string& type, const IrModel::Dims& dims) {
  IrModel ir;
  const int a = ir.Parameter("A", type, dims);
  const int b = ir.Parameter("B", type, dims);
  ir.Result(ir.Node("Add", R"(auto_broadcast="numpy")", {a, b}, "SUM", type, dims));
  ir.Result(ir.Node("Subtract", R"(auto_broadcast="numpy")", {a, b}, "DIFFERENCE", type, dims));
  return ir;
}

Value Floats(Shape shape, const std::vector<float>& numbers) {
  return Value::Of(DataType::kFp32, std::move(shape), numbers);
}

TEST_F(Inference, IdentityOfDynamicShapeReturnsEveryShape) {
  IrModel ir;
  ir.Result(ir.Parameter("X", "f32", {-1, -1}));
  ir.Write(version());
  auto loaded = MustLoad(Config(R"(max_batch_size: 8 input { name: "X" data_type: TYPE_FP32 dims: -1 }
                                   output { name: "X" data_type: TYPE_FP32 dims: -1 })"));
  ASSERT_NE(loaded, nullptr);
  for (const std::int64_t width : {3, 1, 7, 0, 3}) {
    std::vector<float> numbers(static_cast<std::size_t>(2 * width));
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i) + 0.1f;
    const Answer answer = Run(*loaded, {Floats({2, width}, numbers)});
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    EXPECT_EQ(answer.outputs.at(0).shape, (Shape{2, width}));
    EXPECT_EQ(answer.outputs.at(0).As<float>(), numbers);
  }
}

TEST_F(Inference, AddSubOfStaticFp32WritesIntoTheRequestsMemory) {
  AddSub("f32", {4}).Write(version());
  auto loaded = MustLoad(Config(""));
  ASSERT_NE(loaded, nullptr);
  EXPECT_EQ(loaded->model->config().max_batch_size(), 0);
  ASSERT_EQ(loaded->model->config().output(0).name(), "DIFFERENCE");
  for (int round = 0; round < 3; ++round) {
    const Answer answer = Run(*loaded, {Floats({4}, {1, 2, 3, 4}), Floats({4}, {10, 20, 30, 40})});
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    EXPECT_THAT(answer.outputs.at(0).As<float>(), ElementsAre(-9, -18, -27, -36));
    EXPECT_THAT(answer.outputs.at(1).As<float>(), ElementsAre(11, 22, 33, 44));
  }
}

TEST_F(Inference, AddSubOfInt32IsExact) {
  AddSub("i32", {-1, 2}).Write(version());
  auto loaded = MustLoad(Config(""));
  ASSERT_NE(loaded, nullptr);
  const auto ints = [](std::vector<std::int32_t> v) { return Value::Of(DataType::kInt32, {1, 2}, v); };
  const Answer answer = Run(*loaded, {ints({2000000001, -7}), ints({100000001, 5})});
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_THAT(answer.outputs.at(0).As<std::int32_t>(), ElementsAre(1900000000, -12));
  EXPECT_THAT(answer.outputs.at(1).As<std::int32_t>(), ElementsAre(2100000002, -2));
}

TEST_F(Inference, AddOfFp16) {
  AddSub("f16", {2}).Write(version());
  auto loaded = MustLoad(Config(""));
  ASSERT_NE(loaded, nullptr);
  const auto halves = [](std::vector<std::uint16_t> v) { return Value::Of(DataType::kFp16, {2}, v); };
  const Answer answer = Run(*loaded, {halves({0x3C00, 0x4000}), halves({0x3C00, 0x3C00})});  // 1 2 and 1 1
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_THAT(answer.outputs.at(0).As<std::uint16_t>(), ElementsAre(0x0000, 0x3C00));
  EXPECT_THAT(answer.outputs.at(1).As<std::uint16_t>(), ElementsAre(0x4000, 0x4200));
}

// Y[?,n] = X[?,n] x W[n,n], W = 1 + i / 1000: numbers that bfloat16 does not have.
constexpr std::int64_t kWidth = 64;
IrModel MatMul(std::int64_t batch) {
  IrModel ir;
  const int x = ir.Parameter("X", "f32", {batch, kWidth});
  std::vector<float> weights(kWidth * kWidth);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = 1.0f + static_cast<float>(i % 97) / 1000.0f;
  const int w = ir.Constant("f32", {kWidth, kWidth}, weights);
  ir.Result(ir.Node("MatMul", R"(transpose_a="false" transpose_b="false")", {x, w}, "Y", "f32", {batch, kWidth}));
  return ir;
}

double WorstMatMulError(const Value& y) {
  const std::vector<float> got = y.As<float>();
  double worst = 0;
  for (std::size_t column = 0; column < kWidth; ++column) {
    double expected = 0;
    for (std::size_t row = 0; row < kWidth; ++row) {
      const std::size_t i = row * kWidth + column;
      expected +=
          (0.5 + static_cast<double>(row) / 1000) * static_cast<double>(1.0f + static_cast<float>(i % 97) / 1000.0f);
    }
    worst = std::max(worst, std::abs(expected - static_cast<double>(got[column])) / expected);
  }
  return worst;
}

Value MatMulInput() {
  std::vector<float> x(kWidth);
  for (std::size_t row = 0; row < x.size(); ++row) x[row] = 0.5f + static_cast<float>(row) / 1000;
  return Floats({1, kWidth}, x);
}

TEST_F(Inference, MatMulIsFp32UnlessAskedOtherwise) {
  for (const std::int64_t batch : {std::int64_t{1}, std::int64_t{-1}}) {
    MatMul(batch).Write(version());
    auto loaded = MustLoad(Config(""));
    ASSERT_NE(loaded, nullptr);
    const Answer answer = Run(*loaded, {MatMulInput()});
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    EXPECT_LT(WorstMatMulError(answer.outputs.at(0)), 1e-6);
  }
}

TEST_F(Inference, Bf16WhenTheParametersAskForIt) {
  MatMul(1).Write(version());
  auto loaded = MustLoad(Config(R"(parameters { key: "HINT_BF16" value { string_value: "YES" } })"));
  ASSERT_NE(loaded, nullptr);
  const Answer answer = Run(*loaded, {MatMulInput()});
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  if (__builtin_cpu_supports("avx512bf16")) {
    EXPECT_GT(WorstMatMulError(answer.outputs.at(0)), 1e-6);
  }
  EXPECT_LT(WorstMatMulError(answer.outputs.at(0)), 2e-2);
}

TEST_F(Inference, OutputThatIsNotWantedIsNotWrittenIntoAnEarlierRequestsMemory) {
  AddSub("f32", {4}).Write(version());
  auto loaded = MustLoad(Config(""));
  ASSERT_NE(loaded, nullptr);
  const Answer first = Run(*loaded, {Floats({4}, {9, 9, 9, 9}), Floats({4}, {2, 2, 2, 2})});
  ASSERT_TRUE(first.status.ok()) << first.status;
  const std::vector<Value> inputs = {Floats({4}, {1, 2, 3, 4}), Floats({4}, {1, 1, 1, 1})};
  const Answer answer = Run(*loaded, inputs, nullptr, 0, {false, true});
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_THAT(first.sink->values().at(0).As<float>(), ElementsAre(7, 7, 7, 7));
  EXPECT_THAT(first.sink->values().at(1).As<float>(), ElementsAre(11, 11, 11, 11));
  EXPECT_EQ(answer.outputs.size(), 1u);
  EXPECT_THAT(answer.outputs.at(1).As<float>(), ElementsAre(2, 3, 4, 5));
}

TEST_F(Inference, WrongBytesShapesAndTypesAreRefusedAndTheNextRequestWorks) {
  AddSub("f32", {-1, 4}).Write(version());
  auto loaded = MustLoad(Config(""));
  ASSERT_NE(loaded, nullptr);
  const Value good = Floats({1, 4}, {1, 2, 3, 4});
  Value cut = good;
  cut.bytes.pop_back();
  Value other_type = good;
  other_type.data_type = DataType::kInt32;
  for (const Value& bad : {cut, other_type, Floats({1, 3}, {1, 2, 3}), Floats({4}, {1, 2, 3, 4})}) {
    EXPECT_EQ(Run(*loaded, {good, bad}).status.code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(Run(*loaded, {good}).status.code(), absl::StatusCode::kInvalidArgument);
  const Answer answer = Run(*loaded, {good, good});
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_THAT(answer.outputs.at(1).As<float>(), ElementsAre(2, 4, 6, 8));
}

TEST_F(Inference, ScalarWithoutBatchingIsServedAsOneElement) {
  AddSub("f32", {}).Write(version());
  auto loaded = MustLoad(Config(""));
  ASSERT_NE(loaded, nullptr);
  ASSERT_THAT(loaded->model->config().input(0).dims(), ElementsAre(1));
  const Answer answer = Run(*loaded, {Floats({1}, {5}), Floats({1}, {3})});
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.outputs.at(1).shape, Shape({1}));
  EXPECT_THAT(answer.outputs.at(1).As<float>(), ElementsAre(8));
}

}  // namespace
}  // namespace tidemark::testing
