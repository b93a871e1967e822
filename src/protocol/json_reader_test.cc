#include "protocol/json_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/status.h"
#include "protocol/half.h"
#include "tests/support/real_platform.h"

namespace tidemark {
namespace {

struct Read {
  std::string error;
  std::vector<std::byte> bytes;
  std::uint64_t used_after = 0;
};

// Reads `text` as the data of input "X". The text is copied to memory of its exact size, so that asan sees every step
// beyond it.
Read ReadData(DataType type, std::string_view text, std::int64_t count,
              const JsonLimits& limits = std::size_t{1} << 20) {
  static const std::unique_ptr<Platform> platform = CreateLinuxPlatform();
  BufferPool pool(*platform);
  const std::vector<char> exact(text.begin(), text.end());
  JsonCursor cursor({exact.data(), exact.size()});
  Read result;
  {
    Buffer out;
    const absl::Status status = ReadJsonTensor(cursor, type, "X", count, limits, pool, out);
    result.error = MessageOf(status);
    if (status.ok()) {
      EXPECT_TRUE(cursor.Finish()) << text;
      result.bytes.assign(out.bytes().begin(), out.bytes().end());
    } else if (!cursor.failed()) {
      EXPECT_TRUE(cursor.Finish()) << "not behind the value: " << text;
    }
  }
  result.used_after = pool.used_bytes();
  EXPECT_EQ(result.used_after, 0u);
  return result;
}

template <typename T>
void ExpectValues(DataType type, std::string_view text, const std::vector<T>& expected) {
  const Read read = ReadData(type, text, static_cast<std::int64_t>(expected.size()));
  ASSERT_EQ(read.error, "") << text;
  ASSERT_EQ(read.bytes.size(), expected.size() * sizeof(T));
  if (expected.empty()) return;  // memcmp takes no null pointer
  EXPECT_EQ(std::memcmp(read.bytes.data(), expected.data(), read.bytes.size()), 0) << text;
}

TEST(JsonReader, EveryTypeReadsItsWholeRange) {
  ExpectValues<std::uint8_t>(DataType::kUint8, "[0,255,-0]", {0, 255, 0});
  ExpectValues<std::uint16_t>(DataType::kUint16, "[0,65535]", {0, 65535});
  ExpectValues<std::uint32_t>(DataType::kUint32, "[0,4294967295]", {0, 4294967295u});
  ExpectValues<std::uint64_t>(DataType::kUint64, "[0,18446744073709551615,9999999999999999999]",
                              {0, 18446744073709551615u, 9999999999999999999u});
  ExpectValues<std::int8_t>(DataType::kInt8, "[-128,127]", {-128, 127});
  ExpectValues<std::int16_t>(DataType::kInt16, "[-32768,32767]", {-32768, 32767});
  ExpectValues<std::int32_t>(DataType::kInt32, "[-2147483648,2147483647]",
                             {std::numeric_limits<std::int32_t>::min(), 2147483647});
  ExpectValues<std::int64_t>(DataType::kInt64, "[-9223372036854775808,9223372036854775807]",
                             {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()});
  ExpectValues<std::uint8_t>(DataType::kBool, "[true,false]", {1, 0});
  ExpectValues<double>(DataType::kFp64, "[0.1,1e308,5e-324,-0.0,1,1E2,123456789.125,1e22,1e23]",
                       {0.1, 1e308, 5e-324, -0.0, 1, 100, 123456789.125, 1e22, 1e23});
  ExpectValues<float>(DataType::kFp32, "[0.1,3.4028235e38,1e-45,-0.0,16777217,1]",
                      {0.1F, 3.4028235e38F, 1e-45F, -0.0F, 16777216.0F, 1.0F});
  ExpectValues<std::uint16_t>(DataType::kFp16, "[1,65504,0.1,-2,5.9604645e-8,65519.9]",
                              {0x3c00, 0x7bff, 0x2e66, 0xc000, 0x0001, 0x7bff});
  ExpectValues<std::uint16_t>(DataType::kBf16, "[1,0.1,-2,3.3895314e38]", {0x3f80, 0x3dcd, 0xc000, 0x7f7f});
}

TEST(JsonReader, NanAndInfinitiesAreFloatingPointValues) {
  for (const DataType type : {DataType::kFp32, DataType::kFp64, DataType::kFp16, DataType::kBf16}) {
    EXPECT_EQ(ReadData(type, "[NaN,Infinity,-Infinity,Inf,-Inf,-NaN]", 6).error, "") << ProtocolName(type);
  }
  const Read read = ReadData(DataType::kFp32, "[NaN,-Infinity]", 2);
  float values[2];
  std::memcpy(values, read.bytes.data(), sizeof(values));
  EXPECT_TRUE(std::isnan(values[0]));
  EXPECT_EQ(values[1], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(ReadData(DataType::kInt32, "[NaN]", 1).error,
            "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer");
}

TEST(JsonReader, NestingIsIgnored) {
  ExpectValues<std::int32_t>(DataType::kInt32, "[[1,2],[3,[4]],[],5 , [ [ ] ] ]", {1, 2, 3, 4, 5});
  ExpectValues<std::int32_t>(DataType::kInt32, "[]", {});
}

TEST(JsonReader, DepthOfAHundredIsRefused) {
  const auto nested = [](int depth, std::string_view inner) {
    return std::string(static_cast<std::size_t>(depth), '[') + std::string(inner) +
           std::string(static_cast<std::size_t>(depth), ']');
  };
  ExpectValues<std::int32_t>(DataType::kInt32, nested(99, "7"), {7});
  EXPECT_EQ(ReadData(DataType::kInt32, nested(100, "7"), 1).error,
            "Unable to parse 'data': JSON nesting depth exceeds maximum allowed limit (100)");
  EXPECT_EQ(ReadData(DataType::kBytes, nested(100, "\"a\""), 1).error,
            "JSON nesting depth exceeds maximum allowed limit (100)");
}

struct BadCase {
  DataType type;
  std::string_view text;
  std::int64_t count;
  std::string_view error;
};

TEST(JsonReader, WhatDoesNotFitIsRefusedByName) {
  const std::string_view no_bool = "Unable to parse 'data': attempt to access JSON non-boolean as boolean";
  const std::string_view no_signed =
      "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer";
  const std::string_view no_unsigned =
      "Unable to parse 'data': attempt to access JSON non-unsigned-integer as unsigned-integer";
  const std::string_view no_double = "Unable to parse 'data': attempt to access JSON non-number as double";
  const std::string_view too_many = "Unable to parse 'data': Shape does not match true shape of 'data' field";
  const std::string_view too_few = "Failed to parse 'data' field: shape does not match true shape";
  const BadCase cases[] = {
      {DataType::kBool, "[1]", 1, no_bool},
      {DataType::kBool, "[\"true\"]", 1, no_bool},
      {DataType::kInt8, "[1.0]", 1, no_signed},
      {DataType::kInt8, "[1e3]", 1, no_signed},
      {DataType::kInt32, "[\"1\"]", 1, no_signed},
      {DataType::kInt32, "[true]", 1, no_signed},
      {DataType::kInt32, "[null]", 1, no_signed},
      {DataType::kInt32, "[{\"a\":[1]}]", 1, no_signed},
      {DataType::kUint8, "[-1]", 1, no_unsigned},
      {DataType::kUint8, "[0.5]", 1, no_unsigned},
      {DataType::kFp32, "[\"1\"]", 1, no_double},
      {DataType::kFp64, "[null]", 1, no_double},
      {DataType::kFp16, "[false]", 1, no_double},
      {DataType::kBytes, "[1]", 1, "Unable to parse JSON bytes array: attempt to access JSON non-string as string"},
      {DataType::kInt8, "[128]", 1, "Unable to parse 'data': value 128 of input 'X' is out of range for datatype INT8"},
      {DataType::kInt8, "[-129]", 1,
       "Unable to parse 'data': value -129 of input 'X' is out of range for datatype INT8"},
      {DataType::kUint8, "[256]", 1,
       "Unable to parse 'data': value 256 of input 'X' is out of range for datatype UINT8"},
      {DataType::kInt32, "[2147483648]", 1,
       "Unable to parse 'data': value 2147483648 of input 'X' is out of range for datatype INT32"},
      {DataType::kInt64, "[9223372036854775808]", 1,
       "Unable to parse 'data': value 9223372036854775808 of input 'X' is out of range for datatype INT64"},
      {DataType::kUint64, "[18446744073709551616]", 1,
       "Unable to parse 'data': value 18446744073709551616 of input 'X' is out of range for datatype UINT64"},
      {DataType::kFp32, "[1e39]", 1,
       "Unable to parse 'data': value 1e39 of input 'X' is out of range for datatype FP32"},
      {DataType::kFp64, "[1e309]", 1,
       "Unable to parse 'data': value 1e309 of input 'X' is out of range for datatype FP64"},
      {DataType::kFp16, "[65520]", 1,
       "Unable to parse 'data': value 65520 of input 'X' is out of range for datatype FP16"},
      {DataType::kInt32, "[1,2,3]", 2, too_many},
      {DataType::kInt32, "[1]", 0, too_many},
      {DataType::kInt32, "[1,2]", 3, too_few},
      {DataType::kInt32, "[1,2]", 1'000'000'000,
       "JSON input 'X' has a byte_size (4000000000 bytes) that exceeds the "
       "maximum allowed value of 1048576 bytes. Use --http-max-input-size to "
       "increase the limit."},
      {DataType::kInt32, "[1,2]", 200'000, too_few},
      {DataType::kInt32, "5", 1, "Unable to parse 'data': attempt to access JSON non-array as array"},
      // Malformed text comes first, whatever else is wrong.
      {DataType::kInt32, "[true,", 1, "failed to parse the request JSON buffer: Invalid value. at 6"},
      {DataType::kInt32, "[1,2,3", 1,
       "failed to parse the request JSON buffer: Missing a comma or ] after an array element. at 6"},
      {DataType::kInt32, "[tru]", 1, "failed to parse the request JSON buffer: Invalid value. at 4"},
      {DataType::kInt32, "[01]", 1,
       "failed to parse the request JSON buffer: Missing a comma or ] after an array element. at 2"},
      {DataType::kFp32, "[1.]", 1, "failed to parse the request JSON buffer: Missing fraction part in number. at 3"},
      {DataType::kFp32, "[1e]", 1, "failed to parse the request JSON buffer: Missing exponent in number. at 3"},
      {DataType::kFp32, "[1,]", 2, "failed to parse the request JSON buffer: Invalid value. at 3"},
      {DataType::kBytes, "[\"a", 1,
       "failed to parse the request JSON buffer: Missing a closing quotation mark in string. at 3"},
  };
  for (const BadCase& c : cases) EXPECT_EQ(ReadData(c.type, c.text, c.count).error, c.error) << c.text;
}

TEST(JsonReader, StringsBecomeWireForm) {
  const Read read = ReadData(DataType::kBytes, "[[\"\",\"ab\"],[\"\\u00e9\\u0000\"]]", 3);
  ASSERT_EQ(read.error, "");
  const std::string wire(reinterpret_cast<const char*>(read.bytes.data()), read.bytes.size());
  EXPECT_EQ(wire, std::string("\0\0\0\0\2\0\0\0ab\3\0\0\0\xc3\xa9\0", 17));
  std::string many = "[";
  for (int i = 0; i < 1000; ++i) many += i == 0 ? "\"\"" : ",\"\"";
  EXPECT_EQ(ReadData(DataType::kBytes, many + "]", 1000).bytes.size(), 4000u);
}

TEST(JsonReader, MoreElementsThanTheLimitAreRefused) {
  JsonLimits limits(1 << 20);
  limits.elements = 2;
  for (const auto& [type, text] :
       {std::pair(DataType::kInt32, "[1,[2,3]]"), std::pair(DataType::kBytes, R"([["a"],"b","c"])")}) {
    EXPECT_EQ(
        ReadData(type, text, 3, limits).error,
        "JSON input 'X' has 3 elements, at most 2 are taken. Use --http-max-json-elements to increase the limit.");
  }
}

TEST(JsonReader, StringsAboveTheLimitAreRefused) {
  EXPECT_EQ(ReadData(DataType::kBytes, "[\"abcdef\"]", 1, 9).error,
            "JSON input 'X' has a byte_size (10 bytes) that exceeds the maximum allowed value of 9 bytes. Use "
            "--http-max-input-size to increase the limit.");
}

// Against the C library, which rounds correctly: random bit patterns in every notation.
TEST(JsonReader, FloatsAreTheNearestToTheirText) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 200'000; ++i) {
    const auto single = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    const auto real = std::bit_cast<double>(random());
    if (!std::isfinite(single) || !std::isfinite(real)) continue;
    std::string text;
    switch (i % 4) {
      case 0:
        text = fmt::format("{}", single);
        break;
      case 1:
        text = fmt::format("{:.{}e}", single, static_cast<int>(random() % 20));
        break;
      case 2:  // just beside the middle of two floats
        text = fmt::format("{:.17g}",
                           (static_cast<double>(single) + static_cast<double>(std::nextafter(single, 1e38F))) / 2);
        break;
      default:
        text = fmt::format("{}{:.{}f}", random() % 2 == 0 ? "" : "-", static_cast<double>(random() % 1'000'000) / 997,
                           static_cast<int>(random() % 12));
    }
    const float expected = std::strtof(text.c_str(), nullptr);
    if (std::isinf(expected)) continue;
    ExpectValues<float>(DataType::kFp32, "[" + text + "]", {expected});
    const std::string wide = fmt::format("{:.{}g}", real, 1 + static_cast<int>(random() % 25));
    if (const double value = std::strtod(wide.c_str(), nullptr); std::isfinite(value)) {
      ExpectValues<double>(DataType::kFp64, "[" + wide + "]", {value});
    }
  }
}

TEST(Half, EveryValueSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = HalfToFloat(half);
    if (std::isnan(value)) {
      EXPECT_EQ(half & 0x7c00, 0x7c00);
      EXPECT_EQ(DoubleToHalf(static_cast<double>(value)) & 0x7e00, 0x7e00);
    } else {
      EXPECT_EQ(DoubleToHalf(static_cast<double>(value)), half);
    }
    const float brain = Bf16ToFloat(half);
    if (!std::isnan(brain)) {
      EXPECT_EQ(DoubleToBf16(static_cast<double>(brain)), half);
    }
  }
}

TEST(Half, RoundsToNearestEven) {
  EXPECT_EQ(DoubleToHalf(1.0 + 0x1p-11), 0x3c00);            // tie, even is below
  EXPECT_EQ(DoubleToHalf(1.0 + 3 * 0x1p-11), 0x3c02);        // tie, even is above
  EXPECT_EQ(DoubleToHalf(1.0 + 0x1p-11 + 0x1p-40), 0x3c01);  // just above the tie
  EXPECT_EQ(DoubleToHalf(0x1p-25), 0x0000);
  EXPECT_EQ(DoubleToHalf(0x1p-25 + 0x1p-60), 0x0001);
  EXPECT_EQ(DoubleToHalf(65519.999), 0x7bff);
  EXPECT_EQ(DoubleToHalf(65520), 0x7c00);
  EXPECT_EQ(DoubleToBf16(1.0 + 0x1p-8), 0x3f80);
  EXPECT_EQ(DoubleToBf16(1.0 + 0x1p-8 + 0x1p-40), 0x3f81);  // a float in between would lose this
}

}  // namespace
}  // namespace tidemark
