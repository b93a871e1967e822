#include "base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <ctime>
#include <memory>

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

std::string Prefix(LogLevel level, LogFormat format, std::string_view file, int line) {
  timeval now{};
  gettimeofday(&now, nullptr);
  std::tm utc{};
  gmtime_r(&now.tv_sec, &utc);
  const auto slash = file.rfind('/');
  const std::string_view name = slash == std::string_view::npos ? file : file.substr(slash + 1);
  const long tid = syscall(SYS_gettid);
  if (format == LogFormat::kIso8601) {
    return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z {} {}:{}] ", utc.tm_year + 1900, utc.tm_mon + 1,
                       utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, tid, name, line);
  }
  return fmt::format("{}{:02}{:02} {:02}:{:02}:{:02}.{:06} {} {}:{}] ", static_cast<char>(level), utc.tm_mon + 1,
                     utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, now.tv_usec, tid, name, line);
}

}  // namespace

namespace internal {

void WriteLog(LogLevel level, std::string_view file, int line, std::string_view message) {
  LogState& state = State();
  std::shared_ptr<spdlog::sinks::sink> sink;
  LogFormat format;
  {
    absl::MutexLock lock(&state.mutex);
    sink = state.sink;
    format = state.settings.format;
  }
  const std::string text = Prefix(level, format, file, line) + std::string(message);
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
