#include "backends/onnxruntime/session_settings.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "base/log.h"
#include "base/status.h"
#include "repository/config_finding.h"

namespace tidemark {
namespace {

constexpr int kMaxThreads = 1024;

const std::string* Find(const inference::ModelConfig& config, const char* key) {
  const auto it = config.parameters().find(key);
  return it == config.parameters().end() ? nullptr : &it->second.string_value();
}

// What is wrong with parameters[key].
absl::Status BadParameter(const std::string& key, const std::string& value, std::string_view message,
                          std::string expected) {
  Findings out;
  out.Add(fmt::format("parameters[{}].string_value", key), "{}", message).Says(QuotedText(value), std::move(expected));
  return StatusOf(out.list());
}

absl::StatusOr<int> ReadInt(const char* key, const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return BadParameter(key, text, fmt::format("failed to convert '{}' to integral number", text),
                        "a whole number in quotes");
  }
  return value;
}

absl::StatusOr<bool> ReadBool(const char* key, const std::string& text) {
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (lower == "true" || lower == "1") return true;
  if (lower == "false" || lower == "0") return false;
  return BadParameter(key, text, fmt::format("failed to convert '{}' to boolean", text), "\"1\" or \"0\"");
}

absl::Status ReadThreads(const inference::ModelConfig& config, const char* key, int* threads) {
  const std::string* text = Find(config, key);
  if (text == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int value, ReadInt(key, *text));
  if (value > kMaxThreads) {
    return BadParameter(
        key, *text,
        fmt::format("model '{}': parameter '{}' is {}, but must be at most {}", config.name(), key, value, kMaxThreads),
        fmt::format("\"{}\" at most", kMaxThreads));
  }
  // 0 and below mean "the engine decides" in Triton, which takes every core; here one thread unless asked for more.
  *threads = std::max(value, 1);
  return absl::OkStatus();
}

absl::Status ReadFlag(const inference::ModelConfig& config, const char* key, bool* flag) {
  const std::string* text = Find(config, key);
  if (text == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(*flag, ReadBool(key, *text));
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
  Findings out;
  const auto refuse = [&](const char* list, int index, const std::string& name, std::string_view message) {
    out.Add(fmt::format("optimization.execution_accelerators.{}[{}]", list, index), "{}", message)
        .Says(QuotedText(name), "no accelerator: the engine runs on the CPU")
        .Remove();
  };
  const auto unknown = [](const std::string& name) {
    return fmt::format("unknown Execution Accelerator '{}' is requested", name);
  };
  for (int i = 0; i < accelerators.cpu_execution_accelerator_size(); ++i) {
    const std::string& name = accelerators.cpu_execution_accelerator(i).name();
    refuse("cpu_execution_accelerator", i, name,
           name == "openvino" ? fmt::format("model '{}': the onnxruntime engine of this server has no openvino "
                                            "accelerator; use backend: \"openvino\" instead",
                                            config.name())
                              : unknown(name));
  }
  for (int i = 0; i < accelerators.gpu_execution_accelerator_size(); ++i) {
    const std::string& name = accelerators.gpu_execution_accelerator(i).name();
    if (name == "auto_mixed_precision" || name == "gpu_io") continue;
    refuse("gpu_execution_accelerator", i, name,
           name == "tensorrt" || name == "cuda"
               ? fmt::format("model '{}': execution accelerator '{}' needs a GPU, but the onnxruntime engine of this "
                             "server runs on the CPU only",
                             config.name(), name)
               : unknown(name));
  }
  return StatusOf(out.list());
}

}  // namespace

absl::StatusOr<SessionSettings> ReadSessionSettings(const inference::ModelConfig& config) {
  SessionSettings settings;
  settings.graph_level = GraphLevel(config);
  RETURN_IF_ERROR(ReadThreads(config, "intra_op_thread_count", &settings.intra_threads));
  RETURN_IF_ERROR(ReadThreads(config, "inter_op_thread_count", &settings.inter_threads));
  if (const std::string* text = Find(config, "execution_mode")) {
    ASSIGN_OR_RETURN(const int mode, ReadInt("execution_mode", *text));
    if (mode != 0 && mode != 1) {
      return BadParameter(
          "execution_mode", *text,
          fmt::format(
              "Invalid configuration value provided. Expected values for  execution_mode are 0 or 1 but got {} .",
              mode),
          "\"0\" (sequential) or \"1\" (parallel)");
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
