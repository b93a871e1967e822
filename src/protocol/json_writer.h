#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/data_type.h"

// Compact JSON, appended to a string that is sent as it is; no document is built. Strings are written byte by byte,
// quotation marks, backslashes and control characters escaped, whatever else they hold as it is (as Triton does; invalid
// UTF-8 in gives invalid UTF-8 out). Numbers have the fewest digits that read back as the same value, in the layout that
// Triton's writer has ("1.0", "0.001", "1e30", "1.5e-7"); NaN and Infinity are bare. All functions are thread-safe.

namespace tidemark {

void AppendJsonString(std::string& out, std::string_view text);
void AppendJsonInt(std::string& out, std::int64_t value);
void AppendJsonUint(std::string& out, std::uint64_t value);
void AppendJsonDouble(std::string& out, double value);
inline void AppendJsonBool(std::string& out, bool value) { out += value ? "true" : "false"; }
// "[1,16]"
void AppendJsonShape(std::string& out, std::span<const std::int64_t> shape);

// The flat array "[…]" of a tensor's elements. `data` holds whole elements of a fixed-size type; FP16 and BF16 are
// written as the floats they are.
void AppendJsonElements(std::string& out, DataType type, std::span<const std::byte> data);

// The flat array of strings of a BYTES tensor in wire form. False, with `out` as it was, when `data` is cut or does not
// hold exactly `count` strings.
bool AppendJsonStrings(std::string& out, std::span<const std::byte> data, std::uint64_t count);

}  // namespace tidemark
