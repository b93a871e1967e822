#include "protocol/json_writer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace tidemark {
namespace {

template <typename T>
std::string Written(DataType type, const std::vector<T>& values) {
  std::string out;
  AppendJsonElements(out, type, std::as_bytes(std::span(values)));
  return out;
}

TEST(JsonWriter, EveryTypeHasItsForm) {
  EXPECT_EQ(Written<std::uint8_t>(DataType::kBool, {1, 0, 7}), "[true,false,true]");
  EXPECT_EQ(Written<std::uint8_t>(DataType::kUint8, {0, 255}), "[0,255]");
  EXPECT_EQ(Written<std::uint16_t>(DataType::kUint16, {65535}), "[65535]");
  EXPECT_EQ(Written<std::uint32_t>(DataType::kUint32, {4294967295u}), "[4294967295]");
  EXPECT_EQ(Written<std::uint64_t>(DataType::kUint64, {18446744073709551615u}), "[18446744073709551615]");
  EXPECT_EQ(Written<std::int8_t>(DataType::kInt8, {-128, 127}), "[-128,127]");
  EXPECT_EQ(Written<std::int16_t>(DataType::kInt16, {-32768}), "[-32768]");
  EXPECT_EQ(Written<std::int32_t>(DataType::kInt32, {-2147483647 - 1}), "[-2147483648]");
  EXPECT_EQ(Written<std::int64_t>(DataType::kInt64, {std::numeric_limits<std::int64_t>::min()}),
            "[-9223372036854775808]");
  EXPECT_EQ(Written<std::uint16_t>(DataType::kFp16, {0x3c00, 0x2e66}), "[1.0,0.099975586]");
  EXPECT_EQ(Written<std::uint16_t>(DataType::kBf16, {0x3f80, 0xff80}), "[1.0,-Infinity]");
  EXPECT_EQ(Written<float>(DataType::kFp32, {}), "[]");
}

TEST(JsonWriter, FloatsAreShortInTritonsLayout) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(
      Written<float>(DataType::kFp32, {0.1F, 1.0F, -0.0F, 100.0F, 1e20F, 1e21F, 1e-6F, 1e-7F, 1.5e-7F, 3.4028235e38F}),
      "[0.1,1.0,-0.0,100.0,100000000000000000000.0,1e21,0.000001,1e-7,1.5e-7,3.4028235e38]");
  EXPECT_EQ(Written<float>(DataType::kFp32, {inf, -inf, std::nanf("")}), "[Infinity,-Infinity,NaN]");
  EXPECT_EQ(Written<double>(DataType::kFp64, {0.1, 12345.678, 1e300, 5e-324, 1.7976931348623157e308}),
            "[0.1,12345.678,1e300,5e-324,1.7976931348623157e308]");
}

TEST(JsonWriter, FloatsReadBackAsThemselves) {
  std::mt19937_64 random(11);
  std::vector<float> singles;
  std::vector<double> doubles;
  for (int i = 0; i < 100'000; ++i) {
    singles.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
    doubles.push_back(std::bit_cast<double>(random()));
  }
  const auto check = [](const auto& values, const std::string& text, auto parse) {
    const char* p = text.c_str() + 1;
    for (const auto value : values) {
      char* end = nullptr;
      const auto back = parse(p, &end);
      ASSERT_TRUE(std::isnan(value) ? std::isnan(back) : back == value) << value;
      p = end + 1;
    }
  };
  check(singles, Written(DataType::kFp32, singles), [](const char* p, char** end) { return std::strtof(p, end); });
  check(doubles, Written(DataType::kFp64, doubles), [](const char* p, char** end) { return std::strtod(p, end); });
}

TEST(JsonWriter, StringsAreEscapedAndElseAsTheyAre) {
  std::string out;
  AppendJsonString(out, std::string_view("a\"\\/\b\f\n\r\t\x01\x1f\0\xff\xc3\xa9", 15));
  EXPECT_EQ(out, "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001F\\u0000\xff\xc3\xa9\"");
}

TEST(JsonWriter, StringTensorsAreCheckedWhileTheyAreWritten) {
  const std::string wire("\2\0\0\0ab\0\0\0\0", 10);
  const auto bytes = std::as_bytes(std::span(wire));
  std::string out = "x";
  EXPECT_TRUE(AppendJsonStrings(out, bytes, 2));
  EXPECT_EQ(out, "x[\"ab\",\"\"]");
  for (const std::size_t cut : {9u, 7u, 5u, 3u}) {
    out = "x";
    EXPECT_FALSE(AppendJsonStrings(out, bytes.first(cut), 2)) << cut;
    EXPECT_EQ(out, "x");
  }
  EXPECT_FALSE(AppendJsonStrings(out, bytes, 1));
  EXPECT_FALSE(AppendJsonStrings(out, bytes, 3));
}

}  // namespace
}  // namespace tidemark
