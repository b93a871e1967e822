#include "protocol/json_cursor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "base/status.h"

namespace tidemark {
namespace {

// "" when the whole text is well-formed, else what and where.
std::string Verdict(std::string_view text) {
  JsonCursor cursor(text);
  cursor.SkipValue();
  if (cursor.Finish()) return "";
  const std::string error(MessageOf(cursor.Error()));
  constexpr std::string_view kPrefix = "failed to parse the request JSON buffer: ";
  EXPECT_TRUE(error.starts_with(kPrefix)) << error;
  return error.substr(kPrefix.size());
}

struct SyntaxCase {
  std::string_view text;
  std::string_view error;
};

TEST(JsonCursor, MalformedTextGivesTritonsMessageAndOffset) {
  const SyntaxCase cases[] = {
      {"", "The document is empty. at 0"},
      {"  ", "The document is empty. at 2"},
      {"abc", "Invalid value. at 0"},
      {"{", "Missing a name for object member. at 1"},
      {"{1:2}", "Missing a name for object member. at 1"},
      {"{\"a\"}", "Missing a colon after a name of object member. at 4"},
      {"{\"a\":}", "Invalid value. at 5"},
      {"{\"a\":1", "Missing a comma or } after an object member. at 6"},
      {"{\"a\":1 \"b\":2}", "Missing a comma or } after an object member. at 7"},
      {"{\"a\":1,}", "Missing a name for object member. at 7"},
      {"[", "Invalid value. at 1"},
      {"[1,]", "Invalid value. at 3"},
      {"[1 2]", "Missing a comma or ] after an array element. at 3"},
      {"[01]", "Missing a comma or ] after an array element. at 2"},
      {"{} {}", "The document root must not be followed by other values. at 3"},
      {"\"abc", "Missing a closing quotation mark in string. at 4"},
      {"\"a\\x\"", "Invalid escape character in string. at 2"},
      {"\"a\x01\"", "Invalid encoding in string. at 2"},
      {"\"\\u12g4\"", "Incorrect hex digit after \\u escape in string. at 1"},
      {"\"\\udc00\"", "The surrogate pair in string is invalid. at 1"},
      {"\"\\ud800x\"", "The surrogate pair in string is invalid. at 1"},
      {"tru", "Invalid value. at 3"},
      {"nul]", "Invalid value. at 3"},
      {"1.", "Missing fraction part in number. at 2"},
      {"1e", "Missing exponent in number. at 2"},
      {"-", "Invalid value. at 1"},
      {"Nan", "Invalid value. at 2"},
      {"Infinit", "Invalid value. at 7"},
  };
  for (const SyntaxCase& c : cases) EXPECT_EQ(Verdict(c.text), c.error) << c.text;
}

TEST(JsonCursor, WellFormedTextIsTaken) {
  for (const std::string_view text :
       {"{}", "[]", " [ ] ", "null", "-0", "0", "1e5", "1E-5", "1.5e+3", "NaN", "-Inf", "Infinity", "\"\\u0000\"",
        "{\"a\":{\"b\":[1,[],{}]},\"\":null}", "\"\\ud83d\\ude00\"", "\"\xff\xfe\""}) {
    EXPECT_EQ(Verdict(text), "") << text;
  }
}

TEST(JsonCursor, DeepNestingIsRefusedNotRecursedInto) {
  EXPECT_EQ(Verdict(std::string(4096, '[') + std::string(4096, ']')), "");
  EXPECT_EQ(Verdict(std::string(1'000'000, '[')), "JSON nesting depth exceeds maximum allowed limit (4096). at 4096");
}

TEST(JsonCursor, StringsAreDecoded) {
  JsonCursor cursor(R"(["plain","a\"\\\/\b\f\n\r\t","\u00e9\u20ac\ud83d\ude00\u0000x"])");
  ASSERT_EQ(cursor.Peek(), JsonKind::kArray);
  cursor.EnterArray();
  std::string_view text;
  ASSERT_TRUE(cursor.NextElement() && cursor.ReadString(text));
  EXPECT_EQ(text, "plain");
  ASSERT_TRUE(cursor.NextElement() && cursor.ReadString(text));
  EXPECT_EQ(text, "a\"\\/\b\f\n\r\t");
  ASSERT_TRUE(cursor.NextElement() && cursor.ReadString(text));
  EXPECT_EQ(text, std::string_view("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\0x", 11));
  EXPECT_FALSE(cursor.NextElement());
  EXPECT_TRUE(cursor.Finish());
}

JsonNumber Number(std::string_view text) {
  JsonCursor cursor(text);
  JsonNumber number;
  EXPECT_TRUE(cursor.ReadNumber(number)) << text;
  return number;
}

TEST(JsonCursor, IntegersKeepTheirWholeRange) {
  EXPECT_EQ(Number("18446744073709551615").AsUint64(), 18446744073709551615u);
  EXPECT_EQ(Number("18446744073709551616").AsUint64(), std::nullopt);
  EXPECT_EQ(Number("-9223372036854775808").AsInt64(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(Number("-9223372036854775809").AsInt64(), std::nullopt);
  EXPECT_EQ(Number("9223372036854775808").AsInt64(), std::nullopt);
  EXPECT_EQ(Number("1.0").AsInt64(), std::nullopt);
  EXPECT_EQ(Number("-0").AsUint64(), 0u);
  EXPECT_EQ(Number("-1").AsUint64(), std::nullopt);
  EXPECT_EQ(Number("0.1").AsDouble(), 0.1);
  EXPECT_EQ(Number("1e400").AsDouble(), HUGE_VAL);
  EXPECT_EQ(Number("-Infinity").AsDouble(), -HUGE_VAL);
  EXPECT_TRUE(std::isnan(Number("NaN").AsDouble()));
}

}  // namespace
}  // namespace tidemark
