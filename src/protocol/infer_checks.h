#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "inference/request.h"

// What both protocols ask of an infer request.

namespace tidemark {

inline constexpr std::size_t kMaxRank = 64;
inline constexpr std::size_t kMaxParameters = 1024;

// No name twice among inputs or outputs (`what`). Linear for the usual few, by a set for many.
template <typename Tensor>
absl::Status CheckNamesOnce(const InferenceRequest& request, const std::vector<Tensor>& tensors,
                            std::string_view what) {
  const auto twice = [&](std::string_view name) {
    return absl::InvalidArgumentError(fmt::format("{}{} '{}' already exists in request", request.Prefix(), what, name));
  };
  if (tensors.size() > 16) {
    absl::flat_hash_set<std::string> seen;
    for (const Tensor& tensor : tensors) {
      if (!seen.insert(tensor.name).second) return twice(tensor.name);
    }
    return absl::OkStatus();
  }
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (tensors[i].name == tensors[j].name) return twice(tensors[i].name);
    }
  }
  return absl::OkStatus();
}

// May a forwarded header or a client's own parameter not have this name? Triton's reserved keys.
bool IsReservedParameter(std::string_view key);

// NOT_FOUND, Triton's text.
absl::Status NoSuchRegion(std::string_view region);

}  // namespace tidemark
