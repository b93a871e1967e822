#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inference/model.h"
#include "inference/model_info.h"
#include "observe/model_statistics.h"

// The JSON documents that describe server and models (protocol digest 1.5, 1.6, 5), compact, members in Triton's order.
// Pure functions, thread-safe.

namespace tidemark {

// The extensions that this server really has, in Triton's order; ours, which is `memory`, comes last. Both protocols list
// these.
std::span<const std::string_view> ServedExtensions(bool memory);

std::string ServerMetadataJson(std::string_view name, std::string_view version,
                               std::span<const std::string_view> extensions);

// `versions`: those to be listed, ascending.
std::string ModelMetadataJson(const ModelInfo& model, std::span<const std::int64_t> versions);

// One entry of "memory_usage": what the rows of a version hold on one device.
struct MemoryUsage {
  std::string_view type;  // "CPU", "GPU"
  std::int64_t id = 0;
  std::uint64_t byte_size = 0;
};
// Of devices on which it holds something.
std::vector<MemoryUsage> MemoryUsageOf(Model& model);

// One entry of "model_stats", appended.
void AppendModelStatistics(std::string& out, std::string_view name, std::int64_t version,
                           const ModelStatisticsSnapshot& statistics, std::span<const MemoryUsage> memory = {});

}  // namespace tidemark
