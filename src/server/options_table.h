#pragma once

#include <charconv>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "server/options.h"

// The parts of the table of options; for the options*.cc files. To add an option: a row in the list of its subject. A row
// of OptionsWithoutEffect is ignored when another list has its name.

namespace tidemark {

// One option of the command line. The value is empty for a flag.
struct OptionRow {
  std::string_view name;
  std::string_view argument;  // "" for a flag
  std::string_view help;
  std::function<absl::Status(const std::string&, ServerOptions&)> apply;
};

// true, on, 1, false, off, 0, in any case.
absl::StatusOr<bool> ParseBool(std::string text);

// The whole of `text`, within the bounds; errors have Triton's texts.
template <typename T>
absl::StatusOr<T> ParseNumber(const std::string& text, T low, T high) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) {
    return absl::InvalidArgumentError(fmt::format("Provided option value is out of bound. Got {}", text));
  }
  if (error != std::errc() || end != text.data() + text.size()) {
    return absl::InvalidArgumentError(fmt::format("Invalid option value. Got {}", text));
  }
  if (value < low || value > high) {
    return absl::InvalidArgumentError(
        fmt::format("Provided option value is out of bound. Got {}, expected {} to {}", text, low, high));
  }
  return value;
}

using Apply = std::function<absl::Status(const std::string&, ServerOptions&)>;

// Setters for a member that `get` finds.
template <typename Get>
Apply SetString(Get get) {
  return [get](const std::string& text, ServerOptions& options) {
    get(options) = text;
    return absl::OkStatus();
  };
}
template <typename Get>
Apply SetBool(Get get) {
  return [get](const std::string& text, ServerOptions& options) -> absl::Status {
    ASSIGN_OR_RETURN(get(options), ParseBool(text));
    return absl::OkStatus();
  };
}
template <typename T, typename Get>
Apply SetNumber(T low, T high, Get get) {
  return [low, high, get](const std::string& text, ServerOptions& options) -> absl::Status {
    ASSIGN_OR_RETURN(get(options), ParseNumber<T>(text, low, high));
    return absl::OkStatus();
  };
}
// For an option that does nothing here, with the reason that is logged and shown by --help.
Apply WithoutEffect(std::string_view name, std::string_view why);

std::vector<OptionRow> GeneralOptions();
std::vector<OptionRow> AccessOptions();
std::vector<OptionRow> TraceOptions();
std::vector<OptionRow> LimitOptions();
std::vector<OptionRow> ObservationOptions();
std::vector<OptionRow> GrpcOptions();
std::vector<OptionRow> ExecutionOptions();
std::vector<OptionRow> CloudOptions();
std::vector<OptionRow> OptionsWithoutEffect();
// Checks trace options together and fills in what the trace settings show.
absl::Status CompleteTraceOptions(ServerOptions& options);
// The same for the response cache.
absl::Status CompleteCacheOptions(ServerOptions& options);
// The same for the cloud front ends, with what the environment says; before the options are checked together.
absl::Status CompleteCloudOptions(ServerOptions& options);
// All of them, in the order of --help.
std::vector<OptionRow> AllOptions();

}  // namespace tidemark
