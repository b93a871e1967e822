#include "protocol/control_requests.h"

#include <gtest/gtest.h>

#include <string>

#include "base/status.h"

namespace tidemark {
namespace {

template <typename T>
std::string ErrorOf(const absl::StatusOr<T>& result) {
  return std::string(MessageOf(result.status()));
}

constexpr char kEmpty[] = "failed to parse the request JSON buffer: The document is empty. at 0";

TEST(ControlRequests, IndexTakesAnEmptyBodyAndABoolean) {
  EXPECT_FALSE(*ParseIndexRequest(""));
  EXPECT_FALSE(*ParseIndexRequest("{}"));
  EXPECT_TRUE(*ParseIndexRequest("{\"ready\":true,\"other\":[1]}"));
  EXPECT_EQ(ErrorOf(ParseIndexRequest("{\"ready\":1}")), "Invalid value for 'ready': expected a boolean");
  EXPECT_EQ(ErrorOf(ParseIndexRequest("{")),
            "failed to parse the request JSON buffer: Missing a name for object member. at 1");
}

TEST(ControlRequests, LoadParametersAreDecodedStrictly) {
  EXPECT_TRUE(ParseLoadRequest("")->files.empty());
  const auto good = ParseLoadRequest(R"({"parameters":{"config":"{\"a\":1}","file:1/model.onnx":"Zm9v"}})");
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(good->config, "{\"a\":1}");
  EXPECT_EQ(good->files.at("1/model.onnx"), "foo");
  EXPECT_EQ(ErrorOf(ParseLoadRequest(R"({"parameters":{"file:1/m":"Zm9"}})")), "'file:1/m' is not valid base64");
  EXPECT_EQ(ErrorOf(ParseLoadRequest(R"({"parameters":{"config":{}}})")),
            "attempt to access JSON non-string as string");
  EXPECT_EQ(ErrorOf(ParseLoadRequest(R"({"parameters":{"what":"x"}})")),
            "unexpected error on creating Triton parameter: unrecognized load parameter 'what'");
  EXPECT_EQ(ErrorOf(ParseLoadRequest(R"({"parameters":[]})")), "attempt to access JSON non-object as object");
}

TEST(ControlRequests, UnloadWantsABoolean) {
  EXPECT_FALSE(*ParseUnloadRequest(""));
  EXPECT_TRUE(*ParseUnloadRequest(R"({"parameters":{"unload_dependents":true}})"));
  EXPECT_EQ(ErrorOf(ParseUnloadRequest(R"({"parameters":{"unload_dependents":"yes"}})")),
            "Unable to parse 'unload_dependents': attempt to access JSON non-boolean as boolean");
}

TEST(ControlRequests, LogSettingsChangeWhatIsNamed) {
  LogSettings before;
  before.verbose_level = 3;
  const auto after =
      ParseLogSettings(R"({"log_info":false,"log_format":"ISO8601","log_verbose_level":null,"unknown":{}})", before);
  ASSERT_TRUE(after.ok());
  EXPECT_EQ(LogSettingsJson(*after),
            R"({"log_file":"","log_info":false,"log_warning":true,"log_error":true,"log_verbose_level":3,)"
            R"("log_format":"ISO8601"})");
  EXPECT_EQ(ErrorOf(ParseLogSettings("", before)), kEmpty);
  const auto file = ParseLogSettings(R"({"log_file":"x"})", before);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(ErrorOf(file), "log file location can not be updated through network protocol");
  EXPECT_TRUE(ParseLogSettings(R"({"log_file":null})", before).ok());
  EXPECT_EQ(ErrorOf(ParseLogSettings(R"({"log_info":1})", before)), "attempt to access JSON non-boolean as boolean");
  EXPECT_EQ(ErrorOf(ParseLogSettings(R"({"log_verbose_level":-1})", before)),
            "attempt to access JSON non-unsigned-integer as unsigned-integer");
  EXPECT_EQ(ErrorOf(ParseLogSettings(R"({"log_format":"x"})", before)), "invalid argument for --log_format, got: x");
}

std::string AfterTrace(TraceSettings& settings, std::string_view body) {
  const auto update = ParseTraceUpdate(body);
  const absl::Status status = update.ok() ? settings.UpdateGlobal(*update) : update.status();
  return status.ok() ? TraceSettingsJson(settings.Global()) : std::string(MessageOf(status));
}

TEST(ControlRequests, TraceSettingsSpeakInStrings) {
  TraceSettings settings;
  constexpr char kDefault[] =
      R"({"trace_level":["OFF"],"trace_rate":"1000","trace_count":"-1","log_frequency":"0","trace_file":"",)"
      R"("trace_mode":"triton"})";
  EXPECT_EQ(AfterTrace(settings, "{}"), kDefault);
  EXPECT_EQ(AfterTrace(settings, R"({"trace_level":["FOO"]})"), kDefault);
  EXPECT_EQ(AfterTrace(settings, R"({"trace_rate":"10","trace_count":"5","trace_level":["OFF"]})"),
            R"({"trace_level":["OFF"],"trace_rate":"10","trace_count":"5","log_frequency":"0","trace_file":"",)"
            R"("trace_mode":"triton"})");
  EXPECT_EQ(AfterTrace(settings, R"({"trace_rate":null,"trace_count":null})"), kDefault);
  EXPECT_EQ(AfterTrace(settings, R"({"trace_rate":5})"), "attempt to access JSON non-string as string");
  EXPECT_EQ(AfterTrace(settings, R"({"trace_rate":"x"})"), "Unable to parse 'trace_rate', got: x");
  EXPECT_EQ(AfterTrace(settings, R"({"trace_rate":"10abc"})"), "Unable to parse 'trace_rate', got: 10abc");
  EXPECT_EQ(AfterTrace(settings, R"({"trace_rate":"4294967296"})"),
            "Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], got: 4294967296");
  EXPECT_EQ(AfterTrace(settings, R"({"trace_rate":"99999999999999999999"})"),
            "Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], got: 99999999999999999999");
  EXPECT_EQ(AfterTrace(settings, R"({"trace_count":"-2"})"),
            "Unable to parse 'trace_count'. Expecting value >= -1, got:-2");
  EXPECT_EQ(AfterTrace(settings, R"({"trace_count":"2147483648"})"),
            "Unable to parse 'trace_count', value is out of range [ -1, 2147483647 ], got: 2147483648");
  EXPECT_EQ(AfterTrace(settings, R"({"trace_level":["OFF","TENSORS"]})"),
            "Expect only one trace level 'OFF' is specified");
  EXPECT_EQ(AfterTrace(settings, R"({"trace_level":["TIMESTAMPS"]})"),
            "Attempting to set invalid trace setting :trace file name is not given");
  EXPECT_EQ(AfterTrace(settings, R"({"trace_file":"x"})"),
            "trace file location can not be updated through network protocol");
  EXPECT_EQ(AfterTrace(settings, ""), kEmpty);
  EXPECT_EQ(AfterTrace(settings, "{}"), kDefault);
}

TEST(ControlRequests, ModelTraceSettingsFallBackToTheGlobalOnes) {
  TraceSettings settings;
  ASSERT_TRUE(settings.UpdateModel("m", *ParseTraceUpdate(R"({"trace_rate":"7"})")).ok());
  ASSERT_TRUE(settings.UpdateGlobal(*ParseTraceUpdate(R"({"trace_rate":"9","trace_count":"3"})")).ok());
  EXPECT_EQ(settings.OfModel("m").rate, 7u);
  EXPECT_EQ(settings.OfModel("m").count, 3);
  EXPECT_EQ(settings.OfModel("other").rate, 9u);
  ASSERT_TRUE(settings.UpdateModel("m", *ParseTraceUpdate(R"({"trace_rate":null})")).ok());
  EXPECT_EQ(settings.OfModel("m").rate, 9u);
}

}  // namespace
}  // namespace tidemark
