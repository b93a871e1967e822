#include "protocol/control_requests.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/status.h"
#include "protocol/base64.h"
#include "protocol/json_cursor.h"
#include "protocol/json_writer.h"

namespace tidemark {
namespace {

constexpr char kNotString[] = "attempt to access JSON non-string as string";
constexpr char kNotBool[] = "attempt to access JSON non-boolean as boolean";
constexpr char kNotUnsigned[] = "attempt to access JSON non-unsigned-integer as unsigned-integer";
constexpr char kNotObject[] = "attempt to access JSON non-object as object";
constexpr char kNotArray[] = "attempt to access JSON non-array as array";

using MemberReader = absl::FunctionRef<absl::Status(JsonCursor& cursor, std::string_view key)>;

// Skips the value and gives the error.
absl::Status WrongKind(JsonCursor& cursor, std::string_view text) {
  cursor.SkipValue();
  return absl::InvalidArgumentError(std::string(text));
}

// Calls `reader` for each member; it reads or skips the value. The first error is kept, the rest is still walked.
absl::Status ReadObject(JsonCursor& cursor, MemberReader reader) {
  if (cursor.Peek() != JsonKind::kObject) return WrongKind(cursor, kNotObject);
  absl::Status first;
  cursor.EnterObject();
  std::string_view key;
  while (cursor.NextMember(key)) first.Update(reader(cursor, key));
  return first;
}

// A whole body; malformed JSON comes before every other error.
absl::Status ReadDocument(std::string_view body, MemberReader reader) {
  JsonCursor cursor(body);
  absl::Status status = ReadObject(cursor, reader);
  return cursor.Finish() ? status : cursor.Error();
}

absl::Status ReadString(JsonCursor& cursor, std::string& value) {
  if (cursor.Peek() != JsonKind::kString) return WrongKind(cursor, kNotString);
  std::string_view text;
  if (cursor.ReadString(text)) value.assign(text);
  return absl::OkStatus();
}

absl::Status ReadBool(JsonCursor& cursor, bool& value) {
  const JsonKind kind = cursor.Peek();
  if (kind != JsonKind::kTrue && kind != JsonKind::kFalse) return WrongKind(cursor, kNotBool);
  cursor.ReadBool(value);
  return absl::OkStatus();
}

absl::Status Skip(JsonCursor& cursor) {
  cursor.SkipValue();
  return absl::OkStatus();
}

absl::Status ReadLoadParameter(JsonCursor& cursor, std::string_view key, LoadParameters& parameters) {
  if (key == "config") {
    std::string text;
    RETURN_IF_ERROR(ReadString(cursor, text));
    parameters.config = std::move(text);
    return absl::OkStatus();
  }
  std::string name(key);
  if (!name.starts_with("file:")) {
    cursor.SkipValue();
    return absl::InvalidArgumentError(
        fmt::format("unexpected error on creating Triton parameter: unrecognized load parameter '{}'", name));
  }
  if (cursor.Peek() != JsonKind::kString) return WrongKind(cursor, kNotString);
  std::string_view text;
  if (!cursor.ReadString(text)) return absl::OkStatus();
  if (!DecodeBase64(text, parameters.files[name.substr(5)])) {
    return absl::InvalidArgumentError(fmt::format("'{}' is not valid base64", name));
  }
  return absl::OkStatus();
}

// "parameters" of a repository request: absent is fine, and so is an empty body.
absl::Status ReadRepositoryRequest(std::string_view body, MemberReader parameter) {
  if (body.empty()) return absl::OkStatus();
  return ReadDocument(body, [&](JsonCursor& cursor, std::string_view key) {
    return key == "parameters" ? ReadObject(cursor, parameter) : Skip(cursor);
  });
}

template <typename T>
absl::Status ReadTraceNumber(JsonCursor& cursor, std::string_view name, std::int64_t low,
                             std::optional<std::optional<T>>& out) {
  if (cursor.Peek() == JsonKind::kNull) {
    out.emplace();
    return Skip(cursor);
  }
  std::string text;
  RETURN_IF_ERROR(ReadString(cursor, text));
  if (cursor.failed()) return absl::OkStatus();
  std::int64_t value = 0;
  RETURN_IF_ERROR(ParseTraceNumber(name, text, low, std::numeric_limits<T>::max(), "got:", value));
  out.emplace(static_cast<T>(value));
  return absl::OkStatus();
}

absl::Status ReadTraceLevel(JsonCursor& cursor, TraceUpdate& update) {
  if (cursor.Peek() == JsonKind::kNull) {
    update.level.emplace();
    return Skip(cursor);
  }
  if (cursor.Peek() != JsonKind::kArray) return WrongKind(cursor, kNotArray);
  absl::Status first;
  std::vector<std::string> names;
  cursor.EnterArray();
  while (cursor.NextElement()) first.Update(ReadString(cursor, names.emplace_back()));
  RETURN_IF_ERROR(first);
  return SetTraceLevel(names, update);
}

absl::Status ReadLogSetting(JsonCursor& cursor, std::string_view key, LogSettings& settings) {
  if (cursor.Peek() == JsonKind::kNull) return Skip(cursor);
  if (key == "log_file") {
    cursor.SkipValue();
    return absl::UnimplementedError("log file location can not be updated through network protocol");
  }
  if (key == "log_info") return ReadBool(cursor, settings.info);
  if (key == "log_warning") return ReadBool(cursor, settings.warning);
  if (key == "log_error") return ReadBool(cursor, settings.error);
  if (key == "log_verbose_level") {
    if (cursor.Peek() != JsonKind::kNumber) return WrongKind(cursor, kNotUnsigned);
    JsonNumber number;
    if (!cursor.ReadNumber(number)) return absl::OkStatus();
    const std::optional<std::uint64_t> level = number.AsUint64();
    if (!level) return absl::InvalidArgumentError(kNotUnsigned);
    if (*level > static_cast<std::uint64_t>(std::numeric_limits<int>::max())) {
      return absl::InvalidArgumentError(fmt::format("log_verbose_level {} is out of range", *level));
    }
    settings.verbose_level = static_cast<int>(*level);
    return absl::OkStatus();
  }
  if (key == "log_format") {
    std::string text;
    RETURN_IF_ERROR(ReadString(cursor, text));
    if (const std::optional<LogFormat> format = ParseLogFormat(text); format) {
      settings.format = *format;
    } else if (!cursor.failed()) {
      return absl::InvalidArgumentError(fmt::format("invalid argument for --log_format, got: {}", text));
    }
    return absl::OkStatus();
  }
  return Skip(cursor);
}

}  // namespace

absl::Status CheckJsonSize(std::size_t bytes, std::size_t max_bytes) {
  if (bytes <= max_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("request JSON size of {} bytes exceeds the maximum allowed input size of {} bytes. Use "
                  "--http-max-input-size to increase the limit.",
                  bytes, max_bytes));
}

absl::StatusOr<bool> ParseIndexRequest(std::string_view body) {
  bool ready = false;
  if (body.empty()) return ready;
  RETURN_IF_ERROR(ReadDocument(body, [&](JsonCursor& cursor, std::string_view key) {
    if (key != "ready") return Skip(cursor);
    if (ReadBool(cursor, ready).ok()) return absl::OkStatus();
    return absl::Status(absl::InvalidArgumentError("Invalid value for 'ready': expected a boolean"));
  }));
  return ready;
}

absl::StatusOr<LoadParameters> ParseLoadRequest(std::string_view body) {
  LoadParameters parameters;
  RETURN_IF_ERROR(ReadRepositoryRequest(
      body, [&](JsonCursor& cursor, std::string_view key) { return ReadLoadParameter(cursor, key, parameters); }));
  return parameters;
}

absl::StatusOr<bool> ParseUnloadRequest(std::string_view body) {
  bool dependents = false;
  RETURN_IF_ERROR(ReadRepositoryRequest(body, [&](JsonCursor& cursor, std::string_view key) {
    if (key != "unload_dependents") return Skip(cursor);
    return WithContext(ReadBool(cursor, dependents), "Unable to parse 'unload_dependents'");
  }));
  return dependents;
}

absl::StatusOr<LogSettings> ParseLogSettings(std::string_view body, LogSettings settings) {
  RETURN_IF_ERROR(ReadDocument(
      body, [&](JsonCursor& cursor, std::string_view key) { return ReadLogSetting(cursor, key, settings); }));
  return settings;
}

std::string LogSettingsJson(const LogSettings& settings) {
  std::string out = "{\"log_file\":";
  AppendJsonString(out, settings.file);
  out += fmt::format(
      ",\"log_info\":{},\"log_warning\":{},\"log_error\":{},\"log_verbose_level\":{},\"log_format\":\"{}\"}}",
      settings.info, settings.warning, settings.error, settings.verbose_level, LogFormatName(settings.format));
  return out;
}

absl::Status ParseTraceNumber(std::string_view name, std::string_view text, std::int64_t low, std::int64_t high,
                              std::string_view got, std::int64_t& value) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::invalid_argument || stop != text.data() + text.size()) {
    return absl::InvalidArgumentError(fmt::format("Unable to parse '{}', got: {}", name, text));
  }
  if (error == std::errc() && name == "trace_count" && value < low) {
    return absl::InvalidArgumentError(
        fmt::format("Unable to parse 'trace_count'. Expecting value >= -1, {}{}", got, text));
  }
  if (error != std::errc() || value < low || value > high) {
    return absl::InvalidArgumentError(
        fmt::format("Unable to parse '{}', value is out of range [ {}, {} ], got: {}", name, low, high, text));
  }
  return absl::OkStatus();
}

absl::Status SetTraceLevel(std::span<const std::string> names, TraceUpdate& update) {
  TraceUpdate::Level level;
  bool off = false;
  for (const std::string& name : names) {
    off |= name == "OFF";
    level.timestamps |= name == "TIMESTAMPS";
    level.tensors |= name == "TENSORS";
  }
  if (off && names.size() > 1) return absl::InvalidArgumentError("Expect only one trace level 'OFF' is specified");
  if (off || level.timestamps || level.tensors) update.level.emplace(level);
  return absl::OkStatus();
}

absl::StatusOr<TraceUpdate> ParseTraceUpdate(std::string_view body) {
  TraceUpdate update;
  RETURN_IF_ERROR(ReadDocument(body, [&](JsonCursor& cursor, std::string_view key) {
    if (key == "trace_file") {
      cursor.SkipValue();
      return absl::UnimplementedError("trace file location can not be updated through network protocol");
    }
    if (key == "trace_level") return ReadTraceLevel(cursor, update);
    if (key == "trace_rate") return ReadTraceNumber(cursor, "trace_rate", 0, update.rate);
    if (key == "trace_count") return ReadTraceNumber(cursor, "trace_count", -1, update.count);
    if (key == "log_frequency") return ReadTraceNumber(cursor, "log_frequency", 0, update.log_frequency);
    return Skip(cursor);
  }));
  return update;
}

std::string TraceSettingsJson(const TraceValues& values) {
  std::string levels;
  if (values.timestamps) levels += "\"TIMESTAMPS\"";
  if (values.tensors) levels += levels.empty() ? "\"TENSORS\"" : ",\"TENSORS\"";
  if (levels.empty()) levels = "\"OFF\"";
  std::string out = fmt::format("{{\"trace_level\":[{}],\"trace_rate\":\"{}\",\"trace_count\":\"{}\"", levels,
                                values.rate, values.count);
  if (values.mode == TraceMode::kTriton) {
    out += fmt::format(",\"log_frequency\":\"{}\",\"trace_file\":", values.log_frequency);
    AppendJsonString(out, values.file);
  }
  out += fmt::format(",\"trace_mode\":\"{}\"", values.mode == TraceMode::kTriton ? "triton" : "opentelemetry");
  for (const auto& [key, value] : values.mode_options) {
    out += ',';
    AppendJsonString(out, key);
    out += ':';
    AppendJsonString(out, value);
  }
  out += '}';
  return out;
}

}  // namespace tidemark
