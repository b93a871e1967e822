#include "protocol/grpc_control.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>

#include "base/status.h"

namespace tidemark {
namespace {

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
  return message;
}
template <typename T>
std::string ErrorOf(const absl::StatusOr<T>& result) {
  return std::string(MessageOf(result.status()));
}

TEST(GrpcControl, LoadParametersHaveTheirKinds) {
  auto request = Parse<inference::RepositoryModelLoadRequest>(
      R"(parameters { key: "config" value { string_param: "{}" } }
         parameters { key: "file:1/m" value { bytes_param: "\000\377" } })");
  const auto read = ReadLoadRequest(request);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->config, "{}");
  EXPECT_EQ(read->files.at("1/m"), std::string("\0\xFF", 2));
  request = Parse<inference::RepositoryModelLoadRequest>(R"(parameters { key: "config" value { bytes_param: "x" } })");
  EXPECT_EQ(ErrorOf(ReadLoadRequest(request)),
            "invalid value type for load parameter 'config', expected string_param.");
  request = Parse<inference::RepositoryModelLoadRequest>(R"(parameters { key: "file:x" value { string_param: "x" } })");
  EXPECT_EQ(ErrorOf(ReadLoadRequest(request)), "invalid value type for load parameter 'file:x', expected bytes_param.");
  request = Parse<inference::RepositoryModelLoadRequest>(R"(parameters { key: "what" value { } })");
  EXPECT_EQ(ErrorOf(ReadLoadRequest(request)), "unrecognized load parameter 'what'.");
}

TEST(GrpcControl, UnloadDependentsIsABoolean) {
  EXPECT_FALSE(*ReadUnloadRequest({}));
  EXPECT_TRUE(*ReadUnloadRequest(Parse<inference::RepositoryModelUnloadRequest>(
      R"(parameters { key: "unload_dependents" value { bool_param: true } } parameters { key: "other" value { } })")));
  EXPECT_EQ(ErrorOf(ReadUnloadRequest(Parse<inference::RepositoryModelUnloadRequest>(
                R"(parameters { key: "unload_dependents" value { int64_param: 1 } })"))),
            "invalid value type for 'unload_dependents' parameter, expected bool_param.");
}

TEST(GrpcControl, EveryLogFormatIsReadAndTold) {
  for (const char* name : {"default", "ISO8601", "json"}) {
    const auto read =
        ReadLogSettings(Parse<inference::LogSettingsRequest>(
                            std::string(R"(settings { key: "log_format" value { string_param: ")") + name + "\" } }"),
                        {});
    ASSERT_TRUE(read.ok()) << name;
    inference::LogSettingsResponse told;
    FillLogSettings(*read, told);
    EXPECT_EQ(told.settings().at("log_format").string_param(), name);
  }
}

TEST(GrpcControl, LogSettingsAreAllTakenOrNone) {
  const auto error = [](const std::string& text) {
    return ErrorOf(ReadLogSettings(Parse<inference::LogSettingsRequest>(text), {}));
  };
  EXPECT_EQ(error(R"(settings { key: "log_info" value { uint32_param: 1 } })"), "expect boolean for 'log_info'");
  EXPECT_EQ(error(R"(settings { key: "log_verbose_level" value { bool_param: true } })"),
            "expect int32 for 'log_verbose_level'");
  EXPECT_EQ(error(R"(settings { key: "log_format" value { bool_param: true } })"), "expect string for 'log_format'");
  EXPECT_EQ(error(R"(settings { key: "log_format" value { string_param: "x" } })"),
            "invalid argument for log_format, got: x");
  EXPECT_EQ(error(R"(settings { key: "log_file" value { string_param: "x" } })"),
            "log file location can not be updated through network protocol");
  const auto read = ReadLogSettings(Parse<inference::LogSettingsRequest>(
                                        R"(settings { key: "log_error" value { bool_param: false } }
                                           settings { key: "log_verbose_level" value { uint32_param: 3 } })"),
                                    {});
  ASSERT_TRUE(read.ok());
  EXPECT_FALSE(read->error);
  EXPECT_TRUE(read->info);
  EXPECT_EQ(read->verbose_level, 3);
}

TEST(GrpcControl, TraceSettingsAreTextsOfNumbers) {
  const auto error = [](const std::string& text) {
    return ErrorOf(ReadTraceUpdate(Parse<inference::TraceSettingRequest>(text)));
  };
  EXPECT_EQ(error(R"(settings { key: "trace_rate" value { value: [ "1", "2" ] } })"),
            "expect only 1 value for 'trace_rate'");
  EXPECT_EQ(error(R"(settings { key: "trace_rate" value { value: "x" } })"), "Unable to parse 'trace_rate', got: x");
  EXPECT_EQ(error(R"(settings { key: "trace_rate" value { value: "4294967296" } })"),
            "Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], got: 4294967296");
  EXPECT_EQ(error(R"(settings { key: "trace_count" value { value: "-2" } })"),
            "Unable to parse 'trace_count'. Expecting value >= -1, got: -2");
  EXPECT_EQ(error(R"(settings { key: "trace_file" value { value: "x" } })"),
            "trace file location can not be updated through network protocol");
  const auto read = ReadTraceUpdate(Parse<inference::TraceSettingRequest>(
      R"(settings { key: "trace_rate" value { value: "7" } } settings { key: "trace_count" value { } })"));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(**read->rate, 7u);
  EXPECT_TRUE(read->count.has_value() && !read->count->has_value()) << "no value: as it is set elsewhere";
  EXPECT_FALSE(read->log_frequency.has_value());
}

}  // namespace
}  // namespace tidemark
