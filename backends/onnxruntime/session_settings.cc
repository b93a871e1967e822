#include "backends/onnxruntime/session_settings.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "base/log.h"
#include "base/status.h"

namespace tidemark {
namespace {

constexpr int kMaxThreads = 1024;

const std::string* Find(const inference::ModelConfig& config, const char* key) {
  const auto it = config.parameters().find(key);
  return it == config.parameters().end() ? nullptr : &it->second.string_value();
}

absl::StatusOr<int> ReadInt(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return absl::InvalidArgumentError(fmt::format("failed to convert '{}' to integral number", text));
  }
  return value;
}

absl::StatusOr<bool> ReadBool(const std::string& text) {
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (lower == "true" || lower == "1") return true;
  if (lower == "false" || lower == "0") return false;
  return absl::InvalidArgumentError(fmt::format("failed to convert '{}' to boolean", text));
}

absl::Status ReadThreads(const inference::ModelConfig& config, const char* key, int* threads) {
  const std::string* text = Find(config, key);
  if (text == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int value, ReadInt(*text));
  if (value > kMaxThreads) {
    return absl::InvalidArgumentError(fmt::format("model '{}': parameter '{}' is {}, but must be at most {}",
                                                  config.name(), key, value, kMaxThreads));
  }
  // 0 and below mean "the engine decides" in Triton, which takes every core; here one thread unless asked for more.
  *threads = std::max(value, 1);
  return absl::OkStatus();
}

absl::Status ReadFlag(const inference::ModelConfig& config, const char* key, bool* flag) {
  const std::string* text = Find(config, key);
  if (text == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(*flag, ReadBool(*text));
  return absl::OkStatus();
}

// Triton's numbering: 2 switches optimisation off, 1 is extended, -1 basic, everything else all.
int GraphLevel(const inference::ModelConfig& config) {
  if (!config.optimization().has_graph()) return 99;
  switch (config.optimization().graph().level()) {
    case 2:
      return 0;
    case 1:
      return 2;
    case -1:
      return 1;
    default:
      return 99;
  }
}

absl::Status CheckAccelerators(const inference::ModelConfig& config) {
  const auto& accelerators = config.optimization().execution_accelerators();
  for (const auto& accelerator : accelerators.cpu_execution_accelerator()) {
    if (accelerator.name() == "openvino") {
      return absl::InvalidArgumentError(
          fmt::format("model '{}': the onnxruntime engine of this server has no openvino accelerator; use "
                      "backend: \"openvino\" instead",
                      config.name()));
    }
    return absl::InvalidArgumentError(
        fmt::format("unknown Execution Accelerator '{}' is requested", accelerator.name()));
  }
  for (const auto& accelerator : accelerators.gpu_execution_accelerator()) {
    const std::string& name = accelerator.name();
    if (name == "tensorrt" || name == "cuda") {
      return absl::InvalidArgumentError(fmt::format(
          "model '{}': execution accelerator '{}' needs a GPU, but the onnxruntime engine of this server runs on the "
          "CPU only",
          config.name(), name));
    }
    if (name != "auto_mixed_precision" && name != "gpu_io") {
      return absl::InvalidArgumentError(fmt::format("unknown Execution Accelerator '{}' is requested", name));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SessionSettings> ReadSessionSettings(const inference::ModelConfig& config) {
  SessionSettings settings;
  settings.graph_level = GraphLevel(config);
  RETURN_IF_ERROR(ReadThreads(config, "intra_op_thread_count", &settings.intra_threads));
  RETURN_IF_ERROR(ReadThreads(config, "inter_op_thread_count", &settings.inter_threads));
  if (const std::string* text = Find(config, "execution_mode")) {
    ASSIGN_OR_RETURN(const int mode, ReadInt(*text));
    if (mode != 0 && mode != 1) {
      return absl::InvalidArgumentError(fmt::format(
          "Invalid configuration value provided. Expected values for  execution_mode are 0 or 1 but got {} .", mode));
    }
    settings.parallel = mode == 1;
  }
  RETURN_IF_ERROR(ReadFlag(config, "enable_mem_arena", &settings.keep_memory));
  RETURN_IF_ERROR(ReadFlag(config, "enable_mem_pattern", &settings.memory_pattern));
  const std::string* shrink = Find(config, "memory.enable_memory_arena_shrinkage");
  settings.shrink_after_run = shrink != nullptr && !shrink->empty();
  for (const auto& [key, value] : config.parameters()) {
    if (key.starts_with("session.") || key.starts_with("optimization.") || key.starts_with("mlas.")) {
      settings.entries.emplace_back(key, value.string_value());
    }
  }
  std::sort(settings.entries.begin(), settings.entries.end());
  RETURN_IF_ERROR(CheckAccelerators(config));
  return settings;
}

}  // namespace tidemark
