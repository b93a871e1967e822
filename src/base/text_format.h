#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

// Protobuf text with the places of its parts, for those who report positions or edit a file without losing its layout.
// Pure and thread-safe.

namespace tidemark {

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

}  // namespace tidemark
