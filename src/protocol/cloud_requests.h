#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

// Bodies of the cloud front ends (protocol digest 1.17). Pure functions, thread-safe.

namespace tidemark {

// POST /models of SageMaker: `{"model_name": "…", "url": "…"}`, both strings and not empty; other members are ignored.
struct SageMakerLoad {
  std::string model_name;
  std::string url;  // a repository: the path of a directory that has the model's directory in it
};
// INVALID_ARGUMENT with what is wrong.
absl::StatusOr<SageMakerLoad> ParseSageMakerLoad(std::string_view body);

}  // namespace tidemark
