#include "base/log.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace tidemark {
namespace {

using internal::FormatLogLine;

constexpr timeval kWhen{.tv_sec = 1796033644, .tv_usec = 123};  // 2026-11-30 10:14:04 UTC

std::string Line(LogFormat format, std::string_view message) {
  return FormatLogLine(format, LogLevel::kWarning, kWhen, "/build/src/lifecycle/lifecycle.cc", 42, message);
}

TEST(LogLine, DefaultFormIsTritons) {
  EXPECT_EQ(Line(LogFormat::kDefault, "successfully loaded 'm'"),
            fmt::format("W1130 10:14:04.000123 {} lifecycle.cc:42] \"successfully loaded 'm'\"", getpid()));
}

TEST(LogLine, Iso8601FormIsTritons) {
  EXPECT_EQ(Line(LogFormat::kIso8601, "x"), fmt::format("2026-11-30T10:14:04Z W {} lifecycle.cc:42] \"x\"", getpid()));
}

TEST(LogLine, VerboseLinesAreInfoLinesInTritonsForms) {
  EXPECT_EQ(FormatLogLine(LogFormat::kDefault, LogLevel::kVerbose, kWhen, "a.cc", 1, "x").front(), 'I');
}

TEST(LogLine, AMessageCannotMakeALineOfItsOwn) {
  const std::string text = Line(LogFormat::kDefault, "a\nE1130 forged \"line\"\r\x01");
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_THAT(text, testing::HasSubstr(R"("a\nE1130 forged \"line\"\r\u0001")"));
}

TEST(LogLine, JsonIsOneObjectWithTheRequestsId) {
  const std::string text = Line(LogFormat::kJson, "[request id: r\"1] inference\nfailed \xff");
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const nlohmann::json object = nlohmann::json::parse(text);
  EXPECT_EQ(object.at("time"), "2026-11-30T10:14:04.000123Z");
  EXPECT_EQ(object.at("level"), "WARNING");
  EXPECT_EQ(object.at("file"), "lifecycle.cc");
  EXPECT_EQ(object.at("line"), 42);
  EXPECT_EQ(object.at("pid"), getpid());
  EXPECT_EQ(object.at("request_id"), "r\"1");
  EXPECT_EQ(object.at("message"), "inference\nfailed \xef\xbf\xbd");
  EXPECT_FALSE(nlohmann::json::parse(Line(LogFormat::kJson, "x")).contains("request_id"));
}

TEST(LogFormat, NamesGoBothWays) {
  for (const LogFormat format : {LogFormat::kDefault, LogFormat::kIso8601, LogFormat::kJson}) {
    EXPECT_EQ(ParseLogFormat(LogFormatName(format)), format);
  }
  EXPECT_EQ(ParseLogFormat("iso8601"), std::nullopt);
}

}  // namespace
}  // namespace tidemark
