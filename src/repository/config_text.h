#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/model_config.pb.h"

// Between inference.ModelConfig and its two written forms. All functions are pure and thread-safe.

namespace tidemark {

// Reads protobuf text format (config.pbtxt). `file` is only named in errors.
// INVALID_ARGUMENT: "failed to read text proto from FILE" (Triton's text), then every error found, one a
// line, as "FILE:LINE:COLUMN: what", lines and columns from 1; for an unknown field or enum value with the
// nearest known name. Text that is not UTF-8, and strings that become invalid UTF-8 through escapes, are
// refused.
absl::StatusOr<inference::ModelConfig> ParseConfigText(std::string_view text, std::string_view file);

// Reads protobuf JSON (the `config` parameter of a load request): snake_case and camelCase names, enum names
// in any case, 64-bit integers as numbers or strings. Unknown fields are refused. INVALID_ARGUMENT with
// protobuf's own message; the caller adds "Invalid config override: ".
absl::StatusOr<inference::ModelConfig> ParseConfigJson(std::string_view json);

// The JSON form that the model configuration endpoints show: one line, snake_case names, every scalar, enum
// (by name), list and map printed even at its default, absent sub-messages and unset oneof members left out.
// 64-bit integers are JSON numbers, except where Triton leaves protobuf's strings: graph_spec dims, device_id
// of a secondary device, dims of an initial state. Map keys are in ascending order. Strings are always valid
// UTF-8 (invalid bytes become U+FFFD). An empty configuration gives "".
std::string ConfigJson(const inference::ModelConfig& config);

}  // namespace tidemark
