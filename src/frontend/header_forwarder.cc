#include "frontend/header_forwarder.h"

#include "base/status.h"
#include "protocol/infer_checks.h"

namespace tidemark {
namespace {

// Longer names are not matched: what matching costs grows with them.
constexpr std::size_t kLongestName = 256;

}  // namespace

absl::StatusOr<HeaderForwarder> HeaderForwarder::Create(const std::string& pattern, std::string_view option) {
  HeaderForwarder forwarder;
  if (pattern.empty()) return forwarder;
  try {
    forwarder.pattern_.emplace(pattern, std::regex::ECMAScript | std::regex::icase | std::regex::optimize);
  } catch (const std::regex_error& error) {
    return absl::InvalidArgumentError(
        fmt::format("Invalid regex pattern '{}' for --{}: {}", pattern, option, error.what()));
  }
  return forwarder;
}

absl::Status HeaderForwarder::Forward(std::string_view name, std::string_view value, Parameters& parameters) const {
  if (!pattern_ || name.size() > kLongestName || !std::regex_search(name.begin(), name.end(), *pattern_)) {
    return absl::OkStatus();
  }
  if (IsReservedParameter(name)) {
    return absl::InvalidArgumentError(
        fmt::format("Header '{}' is reserved for Triton usage and cannot be forwarded.", name));
  }
  parameters.emplace_back(std::string(name), std::string(value));
  return absl::OkStatus();
}

}  // namespace tidemark
