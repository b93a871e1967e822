#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/data_type.h"
#include "inference/model_info.h"
#include "inference/request.h"
#include "resource/buffer_pool.h"

namespace tidemark {

// The classification extension (protocol digest 6.4): a tensor turned into its best elements, as strings in wire form.
struct ClassResult {
  Shape shape;  // [batch, k] for a batching model, else [k]
  Buffer data;  // "<value>:<index>" or "<value>:<index>:<label>" each, best first, equal values by index
};

// `k` is cut to what there is. NaN counts as less than any number. INVALID_ARGUMENT for a type that has no order here
// (BYTES, BOOL, FP16, BF16) and for more than a million elements per batch item; INTERNAL when `data` does not fit
// `shape`. Thread-safe.
absl::StatusOr<ClassResult> Classify(DataType type, const Shape& shape, std::span<const std::byte> data, bool batched,
                                     std::uint32_t k, const std::vector<std::string>& labels, BufferPool& pool);

// Replaces an output of `model` by its `k` best elements.
absl::Status ClassifyOutput(ResponseOutput& output, const ModelInfo& model, std::uint32_t k, BufferPool& pool);

}  // namespace tidemark
