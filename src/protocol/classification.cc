#include "protocol/classification.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstring>
#include <iterator>
#include <numeric>
#include <optional>

#include "base/status.h"

namespace tidemark {
namespace {

constexpr std::int64_t kMaxElements = 1'000'000;

// One batch item's best `k`, appended to `wire`.
template <typename T>
void AppendBest(std::span<const std::byte> item, std::size_t k, const std::vector<std::string>& labels,
                std::vector<std::uint32_t>& order, std::string& wire) {
  std::vector<T> values(item.size() / sizeof(T));
  if (!item.empty()) std::memcpy(values.data(), item.data(), item.size());
  order.resize(values.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto better = [&](std::uint32_t a, std::uint32_t b) {
    const T left = values[a];
    const T right = values[b];
    if constexpr (std::floating_point<T>) {
      const bool no_left = std::isnan(left);
      const bool no_right = std::isnan(right);
      if (no_left != no_right) return no_right;
      if (no_left) return a < b;
    }
    return left != right ? left > right : a < b;
  };
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k), order.end(), better);
  for (std::size_t i = 0; i < k; ++i) {
    const std::uint32_t index = order[i];
    const std::size_t length_at = wire.size();
    wire.append(sizeof(std::uint32_t), '\0');
    if constexpr (std::floating_point<T>) {
      fmt::format_to(std::back_inserter(wire), "{:.6f}:{}", values[index], index);
    } else {
      fmt::format_to(std::back_inserter(wire), "{}:{}", +values[index], index);  // + : never as a character
    }
    if (index < labels.size()) fmt::format_to(std::back_inserter(wire), ":{}", labels[index]);
    const auto length = static_cast<std::uint32_t>(wire.size() - length_at - sizeof(std::uint32_t));
    std::memcpy(wire.data() + length_at, &length, sizeof(length));
  }
}

using AppendFunction = void (*)(std::span<const std::byte>, std::size_t, const std::vector<std::string>&,
                                std::vector<std::uint32_t>&, std::string&);

AppendFunction FunctionFor(DataType type) {
  switch (type) {
    case DataType::kUint8:
      return AppendBest<std::uint8_t>;
    case DataType::kUint16:
      return AppendBest<std::uint16_t>;
    case DataType::kUint32:
      return AppendBest<std::uint32_t>;
    case DataType::kUint64:
      return AppendBest<std::uint64_t>;
    case DataType::kInt8:
      return AppendBest<std::int8_t>;
    case DataType::kInt16:
      return AppendBest<std::int16_t>;
    case DataType::kInt32:
      return AppendBest<std::int32_t>;
    case DataType::kInt64:
      return AppendBest<std::int64_t>;
    case DataType::kFp32:
      return AppendBest<float>;
    case DataType::kFp64:
      return AppendBest<double>;
    default:
      return nullptr;
  }
}

}  // namespace

absl::StatusOr<ClassResult> Classify(DataType type, const Shape& shape, std::span<const std::byte> data, bool batched,
                                     std::uint32_t k, const std::vector<std::string>& labels, BufferPool& pool) {
  const AppendFunction append = FunctionFor(type);
  if (append == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("class result not available for output due to unsupported type '{}'", ProtocolName(type)));
  }
  const std::span<const std::int64_t> dims = AsSpan(shape);
  const bool has_batch = batched && !dims.empty();
  const std::optional<std::int64_t> elements = ElementCount(has_batch ? dims.subspan(1) : dims);
  if (!elements || *elements > kMaxElements) {
    return absl::InvalidArgumentError("classification output tensor too large");
  }
  const std::int64_t items = has_batch ? dims[0] : 1;
  const std::size_t item_bytes = static_cast<std::size_t>(*elements) * ElementByteSize(type);
  if (TensorByteSize(type, dims) != static_cast<std::int64_t>(data.size())) {
    return absl::InternalError("output tensor shape does not match size of output for classification");
  }
  const std::size_t best = std::min<std::size_t>(k, static_cast<std::size_t>(*elements));
  std::string wire;
  std::vector<std::uint32_t> order;
  for (std::int64_t item = 0; item < items && item_bytes != 0; ++item) {
    append(data.subspan(static_cast<std::size_t>(item) * item_bytes, item_bytes), best, labels, order, wire);
  }
  ClassResult result;
  if (has_batch) result.shape.push_back(items);
  result.shape.push_back(static_cast<std::int64_t>(best));
  ASSIGN_OR_RETURN(result.data, pool.Allocate(wire.size()));
  if (!wire.empty()) std::memcpy(result.data.data(), wire.data(), wire.size());
  return result;
}

absl::Status ClassifyOutput(ResponseOutput& output, const ModelInfo& model, std::uint32_t k, BufferPool& pool) {
  const std::vector<std::string>& labels = model.outputs()[output.index].labels;
  ASSIGN_OR_RETURN(ClassResult result, Classify(output.data_type, output.shape, output.data.bytes(),
                                                model.max_batch_size() > 0, k, labels, pool));
  output.data_type = DataType::kBytes;
  output.shape = std::move(result.shape);
  output.data = std::move(result.data);
  return absl::OkStatus();
}

}  // namespace tidemark
