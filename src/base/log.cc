#include "base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/status.h"

namespace tidemark {
namespace internal {
std::atomic<int> log_mask{7};
std::atomic<int> log_verbosity{0};
}  // namespace internal

namespace {

std::shared_ptr<spdlog::sinks::sink> StandardError() {
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  sink->set_pattern("%v");
  return sink;
}

// The one process-wide piece of state of this file; never destroyed, so that threads may log until the very end.
struct LogState {
  absl::Mutex mutex;
  LogSettings settings ABSL_GUARDED_BY(mutex);
  std::shared_ptr<spdlog::sinks::sink> sink ABSL_GUARDED_BY(mutex) = StandardError();
};

LogState& State() {
  static LogState& state = *std::make_unique<LogState>().release();
  return state;
}

std::string_view LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return "INFO";
    case LogLevel::kWarning:
      return "WARNING";
    case LogLevel::kError:
      return "ERROR";
    case LogLevel::kVerbose:
      break;
  }
  return "VERBOSE";
}

// `value` as JSON; bytes that are no UTF-8 are replaced.
std::string Json(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The ID of a message that begins with "[request id: ID] ", taken off it.
std::string_view TakeRequestId(std::string_view& message) {
  constexpr std::string_view kBefore = "[request id: ";
  constexpr std::string_view kAfter = "] ";
  if (!message.starts_with(kBefore)) return {};
  const std::size_t end = message.find(kAfter);
  if (end == std::string_view::npos) return {};
  const std::string_view id = message.substr(kBefore.size(), end - kBefore.size());
  message.remove_prefix(end + kAfter.size());
  return id;
}

}  // namespace

std::string_view LogFormatName(LogFormat format) {
  switch (format) {
    case LogFormat::kDefault:
      break;
    case LogFormat::kIso8601:
      return "ISO8601";
    case LogFormat::kJson:
      return "json";
  }
  return "default";
}

std::optional<LogFormat> ParseLogFormat(std::string_view name) {
  for (const LogFormat format : {LogFormat::kDefault, LogFormat::kIso8601, LogFormat::kJson}) {
    if (LogFormatName(format) == name) return format;
  }
  return std::nullopt;
}

namespace internal {

std::string FormatLogLine(LogFormat format, LogLevel level, timeval when, std::string_view file, int line,
                          std::string_view message) {
  std::tm utc{};
  gmtime_r(&when.tv_sec, &utc);
  const auto slash = file.rfind('/');
  const std::string_view name = slash == std::string_view::npos ? file : file.substr(slash + 1);
  const auto letter = static_cast<char>(level == LogLevel::kVerbose ? LogLevel::kInfo : level);  // as Triton
  const std::string date = fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", utc.tm_year + 1900, utc.tm_mon + 1,
                                       utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec);
  if (format == LogFormat::kJson) {
    nlohmann::ordered_json object = {{"time", fmt::format("{}.{:06}Z", date, when.tv_usec)},
                                     {"level", LevelName(level)},
                                     {"pid", getpid()},
                                     {"thread", static_cast<std::int64_t>(syscall(SYS_gettid))},
                                     {"file", name},
                                     {"line", line}};
    if (const std::string_view id = TakeRequestId(message); !id.empty()) object["request_id"] = id;
    object["message"] = message;
    return Json(object);
  }
  // Most messages are JSON as they are, but for the quotes around them.
  const bool plain = std::all_of(message.begin(), message.end(),
                                 [](char c) { return c >= ' ' && c < '\x7f' && c != '"' && c != '\\'; });
  const std::string text = plain ? fmt::format("\"{}\"", message) : Json(message);
  if (format == LogFormat::kIso8601) {
    return fmt::format("{}Z {} {} {}:{}] {}", date, letter, getpid(), name, line, text);
  }
  return fmt::format("{}{:02}{:02} {:02}:{:02}:{:02}.{:06} {} {}:{}] {}", letter, utc.tm_mon + 1, utc.tm_mday,
                     utc.tm_hour, utc.tm_min, utc.tm_sec, when.tv_usec, getpid(), name, line, text);
}

void WriteLog(LogLevel level, std::string_view file, int line, std::string_view message) {
  LogState& state = State();
  std::shared_ptr<spdlog::sinks::sink> sink;
  LogFormat format;
  {
    absl::MutexLock lock(&state.mutex);
    sink = state.sink;
    format = state.settings.format;
  }
  timeval now{};
  gettimeofday(&now, nullptr);
  const std::string text = FormatLogLine(format, level, now, file, line, message);
  sink->log(spdlog::details::log_msg(spdlog::source_loc{}, "", spdlog::level::info, text));
  sink->flush();
}

}  // namespace internal

absl::Status SetLogSettings(const LogSettings& settings) {
  std::shared_ptr<spdlog::sinks::sink> sink;
  try {
    if (settings.file.empty()) {
      sink = StandardError();
    } else {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(settings.file);
      sink->set_pattern("%v");
    }
  } catch (const spdlog::spdlog_ex& error) {
    return absl::InvalidArgumentError(fmt::format("cannot open log file '{}': {}", settings.file, error.what()));
  }
  LogState& state = State();
  absl::MutexLock lock(&state.mutex);
  state.settings = settings;
  state.sink = std::move(sink);
  internal::log_mask = (settings.info ? 1 : 0) | (settings.warning ? 2 : 0) | (settings.error ? 4 : 0);
  internal::log_verbosity = settings.verbose_level;
  return absl::OkStatus();
}

LogSettings GetLogSettings() {
  LogState& state = State();
  absl::MutexLock lock(&state.mutex);
  return state.settings;
}

}  // namespace tidemark
