#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tidemark::audit {

// One field of a protobuf text, with the places where it stands, so that a text can be edited without losing its
// comments and its layout. Offsets are bytes into the parsed text.
struct TextField {
  enum class Kind { kScalar, kMessage, kList };

  std::string name;  // empty for the elements of a list
  Kind kind = Kind::kScalar;
  std::size_t begin = 0;  // of the name (of the value for list elements)
  std::size_t end = 0;    // after the value
  std::size_t value_begin = 0;
  std::vector<TextField> children;  // fields of a message, elements of a list

  // The text of a scalar: the inside of a string (adjacent strings joined, escapes kept), else the word itself.
  std::string Scalar(std::string_view text) const;
};

// Parses as much of the protobuf text format as model configurations use: fields with and without a colon, {…} and <…>
// messages, […] lists of scalars and messages, strings in either quote, # comments, separators. Knows no schema.
// INVALID_ARGUMENT with line and column.
absl::StatusOr<std::vector<TextField>> ParseTextFormat(std::string_view text);

// The messages of a repeated message field, in order: `output { } output { }`, `output [ { }, { } ]`, `output: …`.
// Pointers into `fields`.
std::vector<const TextField*> RepeatedMessages(const std::vector<TextField>& fields, std::string_view name);

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
