#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "absl/status/status.h"
#include "base/data_type.h"
#include "protocol/json_cursor.h"
#include "resource/buffer_pool.h"

namespace tidemark {

// Arrays inside one another in the `data` member of an input; as many as this are refused (protocol digest 1.12 row 42).
inline constexpr int kMaxDataDepth = 100;

// What a tensor in JSON may have.
struct JsonLimits {
  // A number of bytes is a limit, too.
  JsonLimits(std::size_t max_bytes) : bytes(max_bytes) {}  // NOLINT(google-explicit-constructor)

  std::size_t bytes;
  int depth = kMaxDataDepth;
  std::int64_t elements = std::numeric_limits<std::int64_t>::max();
};

// Reads the value at the cursor, the `data` member of input `name`, straight into memory from `pool`: row-major,
// little-endian, BYTES in wire form. Arrays may be nested in any way; the elements are taken in order.
//
// `count` elements are expected, not one more or less; for BYTES their number is not looked at here (the model's check
// tells). Integers must fit the type; FP32 and FP64 are the nearest value to the decimal text, FP16 and BF16 are rounded
// to nearest even from the nearest double; NaN, Inf and Infinity are floating-point values, signed or not. A finite
// number too big for its type is refused.
//
// INVALID_ARGUMENT: what is malformed is the cursor's error, whatever else is wrong; else the cursor is behind the value
// and the text is Triton's, where it has one. RESOURCE_EXHAUSTED when the pool is empty.
absl::Status ReadJsonTensor(JsonCursor& cursor, DataType type, std::string_view name, std::int64_t count,
                            const JsonLimits& limits, BufferPool& pool, Buffer& out);

// "JSON input 'X' has a byte_size (N bytes) that exceeds the maximum allowed value of L bytes. …"
absl::Status JsonTensorTooBig(std::string_view name, std::uint64_t bytes, std::size_t max_bytes);

}  // namespace tidemark
