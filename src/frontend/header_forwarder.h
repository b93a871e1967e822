#pragma once

#include <optional>
#include <regex>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "inference/request.h"

namespace tidemark {

// Turns headers whose names match a pattern (anywhere in the name, in any case) into request parameters. Thread-safe.
class HeaderForwarder {
 public:
  // An empty pattern forwards nothing. INVALID_ARGUMENT, naming `option`, for a pattern that is none.
  static absl::StatusOr<HeaderForwarder> Create(const std::string& pattern, std::string_view option);
  HeaderForwarder() = default;

  bool enabled() const { return pattern_.has_value(); }
  // Appends the header if it matches. INVALID_ARGUMENT when it does but has a name that is reserved.
  absl::Status Forward(std::string_view name, std::string_view value, Parameters& parameters) const;

 private:
  std::optional<std::regex> pattern_;
};

}  // namespace tidemark
