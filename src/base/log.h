#pragma once

#include <fmt/format.h>
#include <sys/time.h>

#include <atomic>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

// Process-wide log in the line form that Triton prints, the message as a JSON string, so that it stays on its line:
//   I1130 06:16:00.123456 4711 lifecycle.cc:42] "successfully loaded 'identity'"
// Messages hold no tensor contents and no keys or header values: callers see to that.
// Writing is thread-safe. Settings may change at run time (the /v2/logging API).

namespace tidemark {

enum class LogLevel : char { kInfo = 'I', kWarning = 'W', kError = 'E', kVerbose = 'V' };
// kJson: one object a line, {"time":…,"level":…,"pid":…,"thread":…,"file":…,"line":…,"message":…}, with "request_id" where the
// message is about a request.
enum class LogFormat { kDefault, kIso8601, kJson };
std::string_view LogFormatName(LogFormat format);  // "default", "ISO8601", "json"
// Nothing when there is no format of that name.
std::optional<LogFormat> ParseLogFormat(std::string_view name);

struct LogSettings {
  bool info = true;
  bool warning = true;
  bool error = true;
  int verbose_level = 0;
  LogFormat format = LogFormat::kDefault;
  std::string file;  // empty: standard error
};

// Applies new settings. Opening `file` may fail (INVALID_ARGUMENT); then nothing changes.
absl::Status SetLogSettings(const LogSettings& settings);
LogSettings GetLogSettings();

namespace internal {
extern std::atomic<int> log_mask;       // bit 0 info, 1 warning, 2 error
extern std::atomic<int> log_verbosity;  // LOG_VERBOSE(n) is written when n <= this
// One line without its end, as it would be written at `when`.
std::string FormatLogLine(LogFormat format, LogLevel level, timeval when, std::string_view file, int line,
                          std::string_view message);
void WriteLog(LogLevel level, std::string_view file, int line, std::string_view message);
}  // namespace internal

}  // namespace tidemark

#define TIDEMARK_LOG(level, enabled, ...)                                                               \
  do {                                                                                                  \
    if (enabled) ::tidemark::internal::WriteLog(level, __FILE__, __LINE__, ::fmt::format(__VA_ARGS__)); \
  } while (false)
#define LOG_INFO(...)                                                                                                  \
  TIDEMARK_LOG(::tidemark::LogLevel::kInfo, (::tidemark::internal::log_mask.load(std::memory_order_relaxed) & 1) != 0, \
               __VA_ARGS__)
#define LOG_WARNING(...)                       \
  TIDEMARK_LOG(::tidemark::LogLevel::kWarning, \
               (::tidemark::internal::log_mask.load(std::memory_order_relaxed) & 2) != 0, __VA_ARGS__)
#define LOG_ERROR(...)                       \
  TIDEMARK_LOG(::tidemark::LogLevel::kError, \
               (::tidemark::internal::log_mask.load(std::memory_order_relaxed) & 4) != 0, __VA_ARGS__)
#define LOG_VERBOSE(n, ...)                    \
  TIDEMARK_LOG(::tidemark::LogLevel::kVerbose, \
               (n) <= ::tidemark::internal::log_verbosity.load(std::memory_order_relaxed), __VA_ARGS__)
