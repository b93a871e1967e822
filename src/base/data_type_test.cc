#include "base/data_type.h"

#include <gtest/gtest.h>

namespace tidemark {
namespace {

TEST(DataTypeTest, ProtocolNamesRoundTrip) {
  for (int i = 1; i <= 14; ++i) {
    const auto type = static_cast<DataType>(i);
    EXPECT_EQ(DataTypeFromProtocolName(ProtocolName(type)), type) << ProtocolName(type);
  }
  EXPECT_EQ(DataTypeFromProtocolName("fp32"), DataType::kInvalid);
}

TEST(DataTypeTest, CountsRefuseOverflowAndNegativeDims) {
  EXPECT_EQ(ElementCount(AsSpan(Shape{})), 1);
  EXPECT_EQ(ElementCount(AsSpan(Shape{3, 0, 5})), 0);
  EXPECT_EQ(ElementCount(AsSpan(Shape{-1, 2})), std::nullopt);
  EXPECT_EQ(ElementCount(AsSpan(Shape{std::int64_t{1} << 40, std::int64_t{1} << 40})), std::nullopt);
  EXPECT_EQ(TensorByteSize(DataType::kFp32, AsSpan(Shape{2, 8})), 64);
  EXPECT_EQ(TensorByteSize(DataType::kFp64, AsSpan(Shape{std::int64_t{1} << 61})), std::nullopt);
  EXPECT_EQ(TensorByteSize(DataType::kBytes, AsSpan(Shape{1})), std::nullopt);
}

TEST(DataTypeTest, ShapeTextIsTritons) {
  EXPECT_EQ(ShapeText(AsSpan(Shape{-1, 16})), "[-1,16]");
  EXPECT_EQ(ShapeText(AsSpan(Shape{})), "[]");
}

}  // namespace
}  // namespace tidemark
