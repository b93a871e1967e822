#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/text_format.h"
#include "repository/config_finding.h"

// Findings and the text that they are about: where they stand in it, and the text with their repairs, in which every byte
// that no repair touches stays. Pure and thread-safe.

namespace tidemark {

// Bytes [begin, end) become `text`.
struct TextEdit {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::string text;
};

// Line and column, from 1, columns in bytes.
struct TextPosition {
  int line = 1;
  int column = 1;
};
TextPosition PositionOf(std::string_view text, std::size_t offset);

// A configuration in protobuf text with the places of its fields. The text outlives it.
class ConfigPlaces {
 public:
  // A text that cannot be parsed has no places: everything stands at its beginning.
  explicit ConfigPlaces(std::string_view text);

  // The byte that a finding about this path points to: the value of a scalar or list, the name of a message; for a field
  // that is not there the innermost message around it that is; 0 when there is none.
  std::size_t OffsetOf(std::string_view path) const;

  // The path of the innermost field around a byte; empty outside all. With the names of inference.ModelConfig known, so
  // that fields of which there can be only one have no index.
  std::string PathAt(std::size_t offset) const;

  // The edits that the findings' repairs amount to, by position, without overlaps: of two that touch the same bytes the
  // first stands. Findings without a repair, and repairs of places that do not exist, give none.
  std::vector<TextEdit> EditsFor(const std::vector<Finding>& findings) const;

 private:
  struct Match;
  Match Resolve(std::string_view path) const;
  void AddEdits(const Finding& finding, std::vector<TextEdit>& edits) const;
  TextEdit Insertion(const TextField* message, std::string_view field_text) const;

  std::string_view text_;
  std::vector<TextField> fields_;
};

std::string ApplyEdits(std::string_view text, const std::vector<TextEdit>& edits);

// The byte of the text before the edits that became byte `offset` of the text after them.
std::size_t OffsetBefore(const std::vector<TextEdit>& edits, std::size_t offset);

// Says where the findings stand: `file`, line and column. Findings that name a file already are left alone.
void LocateFindings(std::string_view text, std::string_view file, std::vector<Finding>* findings);

}  // namespace tidemark
