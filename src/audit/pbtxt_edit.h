#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/text_format.h"

namespace tidemark::audit {

// Edits of a model configuration. Each returns the new text; FAILED_PRECONDITION when the configuration has no such
// place, INVALID_ARGUMENT when it cannot be parsed.

// Another element type for the first tensor of `field` ("input" or "output"): TYPE_INT32, or TYPE_FP32 if it was that.
absl::StatusOr<std::string> ChangeFirstDatatype(std::string_view text, std::string_view field);
// One dimension more (of size 3) for the first tensor of `field`: another rank never fits, not even a dynamic shape.
absl::StatusOr<std::string> AppendDimension(std::string_view text, std::string_view field);
// Without the first tensor of `field`.
absl::StatusOr<std::string> RemoveFirst(std::string_view text, std::string_view field);
// `backend: "<name>"`, instead of whatever backend and platform the text names.
absl::StatusOr<std::string> ReplaceBackend(std::string_view text, std::string_view name);
// No protobuf text any more, on its last line.
std::string BreakSyntax(std::string_view text);

}  // namespace tidemark::audit
