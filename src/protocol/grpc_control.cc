#include "protocol/grpc_control.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "base/status.h"

namespace tidemark {
namespace {

template <typename... Args>
absl::Status Invalid(fmt::format_string<Args...> text, Args&&... args) {
  return absl::InvalidArgumentError(fmt::format(text, std::forward<Args>(args)...));
}

template <typename Tensor>
void FillTensors(const std::vector<TensorInfo>& tensors, Tensor add) {
  for (const TensorInfo& tensor : tensors) {
    inference::ModelMetadataResponse::TensorMetadata& out = *add();
    out.set_name(tensor.name);
    out.set_datatype(std::string(ProtocolName(tensor.data_type)));
    for (const std::int64_t dim : tensor.dims) out.add_shape(dim);
  }
}

void Fill(const DurationStat& stat, inference::StatisticDuration& out) {
  out.set_count(stat.count);
  out.set_ns(stat.ns);
}

}  // namespace

void FillModelMetadata(const ModelInfo& model, std::span<const std::int64_t> versions,
                       inference::ModelMetadataResponse& response) {
  response.set_name(model.name());
  for (const std::int64_t version : versions) response.add_versions(std::to_string(version));
  response.set_platform(model.config().platform().empty() ? model.config().backend() : model.config().platform());
  FillTensors(model.inputs(), [&] { return response.add_inputs(); });
  FillTensors(model.outputs(), [&] { return response.add_outputs(); });
}

void FillModelStatistics(std::string_view name, std::int64_t version, const ModelStatisticsSnapshot& statistics,
                         std::span<const MemoryUsage> memory, inference::ModelStatistics& out) {
  out.set_name(std::string(name));
  out.set_version(std::to_string(version));
  out.set_last_inference(statistics.last_inference_ms);
  out.set_inference_count(statistics.inference_count);
  out.set_execution_count(statistics.execution_count);
  for (const MemoryUsage& usage : memory) {
    inference::MemoryUsage& entry = *out.add_memory_usage();
    entry.set_type(std::string(usage.type));
    entry.set_id(usage.id);
    entry.set_byte_size(usage.byte_size);
  }
  inference::InferStatistics& sums = *out.mutable_inference_stats();
  Fill(statistics.success, *sums.mutable_success());
  Fill(statistics.fail, *sums.mutable_fail());
  Fill(statistics.queue, *sums.mutable_queue());
  Fill(statistics.compute_input, *sums.mutable_compute_input());
  Fill(statistics.compute_infer, *sums.mutable_compute_infer());
  Fill(statistics.compute_output, *sums.mutable_compute_output());
  Fill(statistics.cache_hit, *sums.mutable_cache_hit());
  Fill(statistics.cache_miss, *sums.mutable_cache_miss());
  for (const auto& [size, stats] : statistics.batch_stats) {
    inference::InferBatchStatistics& batch = *out.add_batch_stats();
    batch.set_batch_size(size);
    Fill(stats.compute_input, *batch.mutable_compute_input());
    Fill(stats.compute_infer, *batch.mutable_compute_infer());
    Fill(stats.compute_output, *batch.mutable_compute_output());
  }
  for (const auto& [index, stats] : statistics.response_stats) {
    inference::InferResponseStatistics& response = (*out.mutable_response_stats())[std::to_string(index)];
    Fill(stats.compute_infer, *response.mutable_compute_infer());
    Fill(stats.compute_output, *response.mutable_compute_output());
    Fill(stats.success, *response.mutable_success());
    Fill(stats.fail, *response.mutable_fail());
    Fill(stats.empty_response, *response.mutable_empty_response());
    Fill(stats.cancel, *response.mutable_cancel());
  }
}

absl::StatusOr<LoadParameters> ReadLoadRequest(inference::RepositoryModelLoadRequest& request) {
  constexpr std::string_view kFile = "file:";
  LoadParameters parameters;
  for (auto& [key, value] : *request.mutable_parameters()) {
    if (key == "config") {
      if (value.parameter_choice_case() != inference::ModelRepositoryParameter::kStringParam) {
        return Invalid("invalid value type for load parameter '{}', expected string_param.", key);
      }
      parameters.config = std::move(*value.mutable_string_param());
    } else if (std::string_view(key).starts_with(kFile)) {
      if (value.parameter_choice_case() != inference::ModelRepositoryParameter::kBytesParam) {
        return Invalid("invalid value type for load parameter '{}', expected bytes_param.", key);
      }
      parameters.files[key.substr(kFile.size())] = std::move(*value.mutable_bytes_param());
    } else {
      return Invalid("unrecognized load parameter '{}'.", key);
    }
  }
  return parameters;
}

absl::StatusOr<bool> ReadUnloadRequest(const inference::RepositoryModelUnloadRequest& request) {
  const auto found = request.parameters().find("unload_dependents");
  if (found == request.parameters().end()) return false;
  if (found->second.parameter_choice_case() != inference::ModelRepositoryParameter::kBoolParam) {
    return Invalid("invalid value type for 'unload_dependents' parameter, expected bool_param.");
  }
  return found->second.bool_param();
}

absl::StatusOr<LogSettings> ReadLogSettings(const inference::LogSettingsRequest& request, LogSettings settings) {
  using Value = inference::LogSettingsRequest::SettingValue;
  const auto find = [&](const char* name) -> const Value* {
    const auto found = request.settings().find(name);
    return found == request.settings().end() ? nullptr : &found->second;
  };
  if (find("log_file") != nullptr) {
    return absl::UnimplementedError("log file location can not be updated through network protocol");
  }
  const std::pair<const char*, bool*> flags[] = {
      {"log_info", &settings.info}, {"log_warning", &settings.warning}, {"log_error", &settings.error}};
  for (const auto& [name, flag] : flags) {
    const Value* value = find(name);
    if (value == nullptr) continue;
    if (value->parameter_choice_case() != Value::kBoolParam) return Invalid("expect boolean for '{}'", name);
    *flag = value->bool_param();
  }
  if (const Value* level = find("log_verbose_level"); level != nullptr) {
    if (level->parameter_choice_case() != Value::kUint32Param) return Invalid("expect int32 for 'log_verbose_level'");
    if (level->uint32_param() > static_cast<std::uint32_t>(std::numeric_limits<int>::max())) {
      return Invalid("log_verbose_level {} is out of range", level->uint32_param());
    }
    settings.verbose_level = static_cast<int>(level->uint32_param());
  }
  if (const Value* format = find("log_format"); format != nullptr) {
    if (format->parameter_choice_case() != Value::kStringParam) return Invalid("expect string for 'log_format'");
    const std::optional<LogFormat> parsed = ParseLogFormat(format->string_param());
    if (!parsed) return Invalid("invalid argument for log_format, got: {}", format->string_param());
    settings.format = *parsed;
  }
  return settings;
}

void FillLogSettings(const LogSettings& settings, inference::LogSettingsResponse& response) {
  auto& out = *response.mutable_settings();
  out["log_file"].set_string_param(settings.file);
  out["log_info"].set_bool_param(settings.info);
  out["log_warning"].set_bool_param(settings.warning);
  out["log_error"].set_bool_param(settings.error);
  out["log_verbose_level"].set_uint32_param(static_cast<std::uint32_t>(settings.verbose_level));
  out["log_format"].set_string_param(std::string(LogFormatName(settings.format)));
}

absl::StatusOr<TraceUpdate> ReadTraceUpdate(const inference::TraceSettingRequest& request) {
  const auto& settings = request.settings();
  TraceUpdate update;
  if (settings.contains("trace_file")) {
    return absl::UnimplementedError("trace file location can not be updated through network protocol");
  }
  if (const auto level = settings.find("trace_level"); level != settings.end()) {
    if (level->second.value().empty()) {
      update.level.emplace();
    } else {
      RETURN_IF_ERROR(
          SetTraceLevel(std::vector<std::string>(level->second.value().begin(), level->second.value().end()), update));
    }
  }
  const auto read = [&]<typename T>(const char* name, std::int64_t low,
                                    std::optional<std::optional<T>>& out) -> absl::Status {
    const auto found = settings.find(name);
    if (found == settings.end()) return absl::OkStatus();
    const auto& values = found->second.value();
    out.emplace();
    if (values.empty()) return absl::OkStatus();
    if (values.size() > 1) return Invalid("expect only 1 value for '{}'", name);
    std::int64_t number = 0;
    RETURN_IF_ERROR(ParseTraceNumber(name, values[0], low, std::numeric_limits<T>::max(), "got: ", number));
    *out = static_cast<T>(number);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(read("trace_rate", 0, update.rate));
  RETURN_IF_ERROR(read("trace_count", -1, update.count));
  RETURN_IF_ERROR(read("log_frequency", 0, update.log_frequency));
  return update;
}

void FillTraceSettings(const TraceValues& values, inference::TraceSettingResponse& response) {
  auto& out = *response.mutable_settings();
  if (values.timestamps) out["trace_level"].add_value("TIMESTAMPS");
  if (values.tensors) out["trace_level"].add_value("TENSORS");
  if (values.off()) out["trace_level"].add_value("OFF");
  out["trace_rate"].add_value(std::to_string(values.rate));
  out["trace_count"].add_value(std::to_string(values.count));
  if (values.mode == TraceMode::kTriton) {
    out["log_frequency"].add_value(std::to_string(values.log_frequency));
    out["trace_file"].add_value(values.file);
  }
  out["trace_mode"].add_value(values.mode == TraceMode::kTriton ? "triton" : "opentelemetry");
  for (const auto& [key, value] : values.mode_options) out[key].add_value(value);
}

}  // namespace tidemark
