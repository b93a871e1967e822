// --trace-config and the older options for the same.

#include <algorithm>
#include <cctype>
#include <limits>

#include "server/options_table.h"

namespace tidemark {
namespace {

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

absl::Status SetLevel(const std::string& text, ServerOptions& options) {
  TraceValues& values = options.trace.start;
  const std::string level = Lower(text);
  if (level == "off") {
    values.timestamps = values.tensors = false;
  } else if (level == "timestamps" || level == "min" || level == "max") {
    values.timestamps = true;
  } else if (level == "tensors") {
    values.tensors = true;
  } else {
    return absl::InvalidArgumentError(fmt::format("invalid value for trace level option: {}", level));
  }
  return absl::OkStatus();
}

absl::Status SetFile(const std::string& text, ServerOptions& options) {
  options.trace.start.file = text;
  return absl::OkStatus();
}

absl::Status SetRate(const std::string& text, ServerOptions& options) {
  ASSIGN_OR_RETURN(options.trace.start.rate,
                   ParseNumber<std::uint32_t>(text, 0, std::numeric_limits<std::uint32_t>::max()));
  return absl::OkStatus();
}

absl::Status SetCount(const std::string& text, ServerOptions& options) {
  ASSIGN_OR_RETURN(options.trace.start.count,
                   ParseNumber<std::int32_t>(text, -1, std::numeric_limits<std::int32_t>::max()));
  return absl::OkStatus();
}

absl::Status SetLogFrequency(const std::string& text, ServerOptions& options) {
  ASSIGN_OR_RETURN(options.trace.start.log_frequency,
                   ParseNumber<std::uint32_t>(text, 0, std::numeric_limits<std::uint32_t>::max()));
  return absl::OkStatus();
}

absl::StatusOr<TraceMode> ParseMode(const std::string& text) {
  if (text == "triton") return TraceMode::kTriton;
  if (text == "opentelemetry") return TraceMode::kOpenTelemetry;
  return absl::InvalidArgumentError(fmt::format(
      "invalid value for trace mode option: {}. Available options are \"triton\" and \"opentelemetry\"", text));
}

absl::Status UnknownSetting(const std::string& text, std::string_view expected) {
  return absl::InvalidArgumentError(
      fmt::format("--trace-config: unknown setting in '{}', expected one of {}", text, expected));
}

absl::Status SetOpenTelemetry(const std::string& text, const std::string& key, const std::string& value,
                              ServerOptions& options) {
  Tracer::Options& trace = options.trace;
  constexpr std::uint32_t kMost = 1U << 30;
  if (key == "url") {
    trace.url = value;
  } else if (key == "resource") {
    const std::size_t equals = value.find('=');
    if (equals == std::string::npos || equals == 0) {
      return absl::InvalidArgumentError(
          fmt::format("--trace-config: '{}' is no resource, expected <key>=<value>", value));
    }
    trace.resource.emplace_back(value.substr(0, equals), value.substr(equals + 1));
  } else if (key == "bsp_max_queue_size") {
    ASSIGN_OR_RETURN(trace.max_queue_size, ParseNumber<std::uint32_t>(value, 1, kMost));
  } else if (key == "bsp_max_export_batch_size") {
    ASSIGN_OR_RETURN(trace.max_export_batch_size, ParseNumber<std::uint32_t>(value, 1, kMost));
  } else if (key == "bsp_schedule_delay") {
    ASSIGN_OR_RETURN(const std::uint32_t delay, ParseNumber<std::uint32_t>(value, 1, kMost));
    trace.schedule_delay = absl::Milliseconds(delay);
  } else {
    return UnknownSetting(text, "url, resource, bsp_max_queue_size, bsp_schedule_delay, bsp_max_export_batch_size");
  }
  return absl::OkStatus();
}

// <setting>=<value> or <mode>,<setting>=<value>
absl::Status SetTraceConfig(const std::string& text, ServerOptions& options) {
  const std::size_t equals = text.find('=');
  const std::size_t comma = text.find(',');
  const bool has_mode = comma != std::string::npos && (equals == std::string::npos || comma < equals);
  if (has_mode) RETURN_IF_ERROR(ParseMode(text.substr(0, comma)).status());
  if (equals == std::string::npos) {
    return absl::InvalidArgumentError(
        fmt::format("--trace-config option format is '<trace mode>,<setting>=<value>'. Got {}", text));
  }
  const std::string value = text.substr(equals + 1);
  if (!has_mode) {
    const std::string key = text.substr(0, equals);
    if (key == "level") return SetLevel(value, options);
    if (key == "rate") return SetRate(value, options);
    if (key == "count") return SetCount(value, options);
    if (key != "mode") return UnknownSetting(text, "level, rate, count, mode");
    ASSIGN_OR_RETURN(options.trace.start.mode, ParseMode(value));
    return absl::OkStatus();
  }
  const std::string key = text.substr(comma + 1, equals - comma - 1);
  if (text.starts_with("opentelemetry,")) return SetOpenTelemetry(text, key, value, options);
  if (key == "file") return SetFile(value, options);
  if (key == "log-frequency") return SetLogFrequency(value, options);
  return UnknownSetting(text, "file, log-frequency");
}

}  // namespace

std::vector<OptionRow> TraceOptions() {
  return {
      {"trace-config", "[MODE,]SETTING=VALUE",
       "level (OFF, TIMESTAMPS, TENSORS), rate, count, mode (triton, opentelemetry); triton,file; triton,log-frequency; "
       "opentelemetry,url; opentelemetry,resource; opentelemetry,bsp_max_queue_size, bsp_schedule_delay, "
       "bsp_max_export_batch_size; may be repeated",
       SetTraceConfig},
      {"trace-file", "PATH", "deprecated; --trace-config=triton,file=PATH", SetFile},
      {"trace-level", "LEVEL", "deprecated; --trace-config=level=LEVEL", SetLevel},
      {"trace-rate", "N", "deprecated; --trace-config=rate=N", SetRate},
      {"trace-count", "N", "deprecated; --trace-config=count=N", SetCount},
      {"trace-log-frequency", "N", "deprecated; --trace-config=triton,log-frequency=N", SetLogFrequency},
  };
}

absl::Status CompleteTraceOptions(ServerOptions& options) {
  Tracer::Options& trace = options.trace;
  RETURN_IF_ERROR(CheckTraceValues(trace.start));
  if (trace.start.mode != TraceMode::kOpenTelemetry) return absl::OkStatus();
  auto& shown = trace.start.mode_options;
  shown.emplace_back("bsp_max_export_batch_size", fmt::format("{}", trace.max_export_batch_size));
  shown.emplace_back("bsp_max_queue_size", fmt::format("{}", trace.max_queue_size));
  shown.emplace_back("bsp_schedule_delay", fmt::format("{}", absl::ToInt64Milliseconds(trace.schedule_delay)));
  std::string resource;
  for (const auto& [key, value] : trace.resource) {
    resource += fmt::format("{}{}={}", resource.empty() ? "" : ",", key, value);
  }
  if (!resource.empty()) shown.emplace_back("resource", resource);
  shown.emplace_back("url", trace.url);
  return absl::OkStatus();
}

}  // namespace tidemark
