#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/container/inlined_vector.h"

namespace tidemark {

// Element type of a tensor. The values are the numbers of `inference.DataType` in model_config.proto, so that a
// static_cast between the two is exact.
enum class DataType : std::uint8_t {
  kInvalid = 0,
  kBool = 1,
  kUint8 = 2,
  kUint16 = 3,
  kUint32 = 4,
  kUint64 = 5,
  kInt8 = 6,
  kInt16 = 7,
  kInt32 = 8,
  kInt64 = 9,
  kFp16 = 10,
  kFp32 = 11,
  kFp64 = 12,
  kBytes = 13,  // TYPE_STRING; each element is a little-endian uint32 length and that many bytes
  kBf16 = 14,
};

// Bytes of one element; 0 for kBytes (variable) and kInvalid.
std::size_t ElementByteSize(DataType type);

// The KServe v2 name: "FP32", "BYTES", …; "<invalid>" for kInvalid.
std::string_view ProtocolName(DataType type);
// The name in config.pbtxt: "TYPE_FP32", "TYPE_STRING", …; "TYPE_INVALID" for kInvalid.
std::string_view ConfigName(DataType type);
// From a KServe v2 name, exact match; kInvalid when unknown.
DataType DataTypeFromProtocolName(std::string_view name);

// Dimensions of a tensor, outermost first, in elements; row-major layout. -1 stands for "any" in declarations only.
using Shape = absl::InlinedVector<std::int64_t, 6>;

// Product of the dimensions (1 for rank 0). nullopt when a dimension is negative or the product passes int64.
std::optional<std::int64_t> ElementCount(std::span<const std::int64_t> shape);
// Bytes of a tensor of fixed-size elements; nullopt when unknown (kBytes, negative dims) or past int64.
std::optional<std::int64_t> TensorByteSize(DataType type, std::span<const std::int64_t> shape);

// "[1,16]", "[]" — the form that Triton's messages use.
std::string ShapeText(std::span<const std::int64_t> shape);

inline std::span<const std::int64_t> AsSpan(const Shape& shape) { return {shape.data(), shape.size()}; }

}  // namespace tidemark
