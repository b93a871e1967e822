#include "base/data_type.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

namespace tidemark {
namespace {

struct TypeRow {
  std::string_view protocol;
  std::string_view config;
  std::size_t bytes;
};

constexpr std::array<TypeRow, 15> kTypes = {{
    {"<invalid>", "TYPE_INVALID", 0},
    {"BOOL", "TYPE_BOOL", 1},
    {"UINT8", "TYPE_UINT8", 1},
    {"UINT16", "TYPE_UINT16", 2},
    {"UINT32", "TYPE_UINT32", 4},
    {"UINT64", "TYPE_UINT64", 8},
    {"INT8", "TYPE_INT8", 1},
    {"INT16", "TYPE_INT16", 2},
    {"INT32", "TYPE_INT32", 4},
    {"INT64", "TYPE_INT64", 8},
    {"FP16", "TYPE_FP16", 2},
    {"FP32", "TYPE_FP32", 4},
    {"FP64", "TYPE_FP64", 8},
    {"BYTES", "TYPE_STRING", 0},
    {"BF16", "TYPE_BF16", 2},
}};

const TypeRow& RowOf(DataType type) {
  const auto index = static_cast<std::size_t>(type);
  return index < kTypes.size() ? kTypes[index] : kTypes[0];
}

}  // namespace

std::size_t ElementByteSize(DataType type) { return RowOf(type).bytes; }
std::string_view ProtocolName(DataType type) { return RowOf(type).protocol; }
std::string_view ConfigName(DataType type) { return RowOf(type).config; }

DataType DataTypeFromProtocolName(std::string_view name) {
  for (std::size_t i = 1; i < kTypes.size(); ++i) {
    if (kTypes[i].protocol == name) return static_cast<DataType>(i);
  }
  return DataType::kInvalid;
}

std::optional<std::int64_t> ElementCount(std::span<const std::int64_t> shape) {
  std::int64_t count = 1;
  bool zero = false;
  for (const std::int64_t dim : shape) {
    if (dim < 0) return std::nullopt;
    if (dim == 0) {
      zero = true;
    } else if (__builtin_mul_overflow(count, dim, &count)) {
      return std::nullopt;
    }
  }
  return zero ? 0 : count;
}

std::optional<std::int64_t> TensorByteSize(DataType type, std::span<const std::int64_t> shape) {
  const auto element = static_cast<std::int64_t>(ElementByteSize(type));
  const std::optional<std::int64_t> count = ElementCount(shape);
  std::int64_t bytes = 0;
  if (element == 0 || !count || __builtin_mul_overflow(*count, element, &bytes)) return std::nullopt;
  return bytes;
}

std::string ShapeText(std::span<const std::int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ",")); }

}  // namespace tidemark
