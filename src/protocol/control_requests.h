#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/log.h"
#include "observe/trace_settings.h"

// Bodies of the control routes: repository, logging and trace settings. Errors are INVALID_ARGUMENT with Triton's texts,
// UNIMPLEMENTED for what may not be set over the network. Unknown members are ignored, as there, except in load
// parameters. Pure functions, thread-safe.

namespace tidemark {

// INVALID_ARGUMENT when a JSON body of that size is too big ("request JSON size of …").
absl::Status CheckJsonSize(std::size_t bytes, std::size_t max_bytes);

// `{"ready": bool}`, or nothing at all: false.
absl::StatusOr<bool> ParseIndexRequest(std::string_view body);

// `{"parameters": {"config": "<json>", "file:<path>": "<base64>"}}`, all optional.
struct LoadParameters {
  std::optional<std::string> config;
  std::map<std::string, std::string> files;  // path -> decoded bytes
};
absl::StatusOr<LoadParameters> ParseLoadRequest(std::string_view body);

// `{"parameters": {"unload_dependents": bool}}`, all optional: false.
absl::StatusOr<bool> ParseUnloadRequest(std::string_view body);

// `settings` with what the body changes.
absl::StatusOr<LogSettings> ParseLogSettings(std::string_view body, LogSettings settings);
std::string LogSettingsJson(const LogSettings& settings);

absl::StatusOr<TraceUpdate> ParseTraceUpdate(std::string_view body);
// What both protocols share: the level by its names, of which unknown ones change nothing (a list of nothing but them is no
// change at all), and a number in a string. `got` is how the text about a low trace_count goes on before the value.
absl::Status SetTraceLevel(std::span<const std::string> names, TraceUpdate& update);
absl::Status ParseTraceNumber(std::string_view name, std::string_view text, std::int64_t low, std::int64_t high,
                              std::string_view got, std::int64_t& value);
std::string TraceSettingsJson(const TraceValues& values);

}  // namespace tidemark
