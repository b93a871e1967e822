#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tidemark::audit {

// A config.pbtxt from the JSON that a server answers to /v2/models/M/config. Carries over what makes a model load the
// same way again (name, platform, backend, default_model_filename, max_batch_size, inputs, outputs, instance groups,
// parameters); the rest are defaults that the server filled in. INVALID_ARGUMENT when the text is no such JSON.
absl::StatusOr<std::string> ConfigTextFromJson(std::string_view json);

}  // namespace tidemark::audit
