#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "repository/config_validate.h"

// Shared by the config_validate*.cc files only.

namespace tidemark {

// Gathers findings in the order in which they are added. Not thread-safe.
class Findings {
 public:
  template <typename... Args>
  void Add(std::string field, std::string_view format, const Args&... args) {
    AddWithCode(absl::StatusCode::kInvalidArgument, std::move(field), format, args...);
  }
  template <typename... Args>
  void AddWithCode(absl::StatusCode code, std::string field, std::string_view format, const Args&... args) {
    findings_.push_back(
        {.field = std::move(field),
         .message = fmt::vformat(fmt::string_view(format.data(), format.size()), fmt::make_format_args(args...)),
         .code = code});
  }
  std::vector<Finding> Take() && { return std::move(findings_); }

 private:
  std::vector<Finding> findings_;
};

// The static rules of ensemble_scheduling; nothing when it is absent.
void CheckEnsemble(const inference::ModelConfig& config, Findings* out);

}  // namespace tidemark
