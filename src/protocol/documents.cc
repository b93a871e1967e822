#include "protocol/documents.h"

#include <fmt/format.h>

#include <array>
#include <iterator>
#include <utility>

#include "protocol/json_writer.h"

namespace tidemark {
namespace {

void AppendTensors(std::string& out, const std::vector<TensorInfo>& tensors) {
  out += '[';
  bool first = true;
  for (const TensorInfo& tensor : tensors) {
    if (!std::exchange(first, false)) out += ',';
    out += "{\"name\":";
    AppendJsonString(out, tensor.name);
    out += ",\"datatype\":\"";
    out += ProtocolName(tensor.data_type);
    out += "\",\"shape\":";
    AppendJsonShape(out, AsSpan(tensor.dims));
    out += '}';
  }
  out += ']';
}

// "name":{"count":N,"ns":N}
void AppendDuration(std::string& out, std::string_view name, const DurationStat& stat) {
  fmt::format_to(std::back_inserter(out), "\"{}\":{{\"count\":{},\"ns\":{}}}", name, stat.count, stat.ns);
}

void AppendResponseStatistics(std::string& out, const ModelStatisticsSnapshot::Response& stats) {
  const std::pair<std::string_view, const DurationStat*> members[] = {{"compute_infer", &stats.compute_infer},
                                                                      {"compute_output", &stats.compute_output},
                                                                      {"success", &stats.success},
                                                                      {"fail", &stats.fail},
                                                                      {"empty_response", &stats.empty_response},
                                                                      {"cancel", &stats.cancel}};
  bool first = true;
  for (const auto& [key, stat] : members) {
    if (!std::exchange(first, false)) out += ',';
    AppendDuration(out, key, *stat);
  }
}

}  // namespace

std::span<const std::string_view> ServedExtensions(bool memory) {
  static constexpr std::array<std::string_view, 14> kExtensions = {"classification",
                                                                   "sequence",
                                                                   "model_repository",
                                                                   "model_repository(unload_dependents)",
                                                                   "schedule_policy",
                                                                   "model_configuration",
                                                                   "system_shared_memory",
                                                                   "cuda_shared_memory",
                                                                   "binary_tensor_data",
                                                                   "parameters",
                                                                   "statistics",
                                                                   "trace",
                                                                   "logging",
                                                                   "memory"};
  return std::span(kExtensions).first(kExtensions.size() - (memory ? 0 : 1));
}

std::string ServerMetadataJson(std::string_view name, std::string_view version,
                               std::span<const std::string_view> extensions) {
  std::string out = "{\"name\":";
  AppendJsonString(out, name);
  out += ",\"version\":";
  AppendJsonString(out, version);
  out += ",\"extensions\":[";
  for (std::size_t i = 0; i < extensions.size(); ++i) {
    if (i != 0) out += ',';
    AppendJsonString(out, extensions[i]);
  }
  out += "]}";
  return out;
}

std::string ModelMetadataJson(const ModelInfo& model, std::span<const std::int64_t> versions) {
  std::string out = "{\"name\":";
  AppendJsonString(out, model.name());
  out += ",\"versions\":[";
  for (std::size_t i = 0; i < versions.size(); ++i) {
    fmt::format_to(std::back_inserter(out), "{}\"{}\"", i == 0 ? "" : ",", versions[i]);
  }
  out += "],\"platform\":";
  AppendJsonString(out, model.config().platform().empty() ? model.config().backend() : model.config().platform());
  out += ",\"inputs\":";
  AppendTensors(out, model.inputs());
  out += ",\"outputs\":";
  AppendTensors(out, model.outputs());
  out += '}';
  return out;
}

std::vector<MemoryUsage> MemoryUsageOf(Model& model) {
  std::vector<MemoryUsage> usages;
  for (const auto& [device, figures] : model.scope().MemoryUse()) {
    if (figures.now == 0) continue;
    usages.push_back({device == kHost ? "CPU" : "GPU", device == kHost ? 0 : device, figures.now});
  }
  return usages;
}

void AppendModelStatistics(std::string& out, std::string_view name, std::int64_t version,
                           const ModelStatisticsSnapshot& statistics, std::span<const MemoryUsage> memory) {
  out += "{\"name\":";
  AppendJsonString(out, name);
  fmt::format_to(std::back_inserter(out),
                 ",\"version\":\"{}\",\"last_inference\":{},\"inference_count\":{},\"execution_count\":{},"
                 "\"inference_stats\":{{",
                 version, statistics.last_inference_ms, statistics.inference_count, statistics.execution_count);
  const std::pair<std::string_view, const DurationStat*> members[] = {
      {"success", &statistics.success},
      {"fail", &statistics.fail},
      {"queue", &statistics.queue},
      {"compute_input", &statistics.compute_input},
      {"compute_infer", &statistics.compute_infer},
      {"compute_output", &statistics.compute_output},
      {"cache_hit", &statistics.cache_hit},
      {"cache_miss", &statistics.cache_miss},
  };
  bool first = true;
  for (const auto& [key, stat] : members) {
    if (!std::exchange(first, false)) out += ',';
    AppendDuration(out, key, *stat);
  }
  out += "},\"response_stats\":{";
  first = true;
  for (const auto& [index, stats] : statistics.response_stats) {
    if (!std::exchange(first, false)) out += ',';
    fmt::format_to(std::back_inserter(out), "\"{}\":{{", index);
    AppendResponseStatistics(out, stats);
    out += '}';
  }
  out += "},\"batch_stats\":[";
  first = true;
  for (const auto& [batch, stats] : statistics.batch_stats) {
    if (!std::exchange(first, false)) out += ',';
    fmt::format_to(std::back_inserter(out), "{{\"batch_size\":{},", batch);
    AppendDuration(out, "compute_input", stats.compute_input);
    out += ',';
    AppendDuration(out, "compute_infer", stats.compute_infer);
    out += ',';
    AppendDuration(out, "compute_output", stats.compute_output);
    out += '}';
  }
  out += "],\"memory_usage\":[";
  first = true;
  for (const MemoryUsage& usage : memory) {
    if (!std::exchange(first, false)) out += ',';
    fmt::format_to(std::back_inserter(out), "{{\"type\":\"{}\",\"id\":{},\"byte_size\":{}}}", usage.type, usage.id,
                   usage.byte_size);
  }
  out += "]}";
}

}  // namespace tidemark
