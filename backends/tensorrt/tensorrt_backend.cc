#include "backends/tensorrt/tensorrt_backend.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <exception>
#include <set>
#include <utility>
#include <vector>

#include "backends/tensorrt/nvinfer_library.h"
#include "backends/tensorrt/trt_config.h"
#include "backends/tensorrt/trt_model.h"
#include "base/log.h"
#include "base/status.h"

namespace tidemark {
namespace {

const std::string* Find(const BackendSettings& settings, const std::string& key) {
  const auto it = settings.find(key);
  return it == settings.end() ? nullptr : &it->second;
}

absl::StatusOr<bool> ReadBool(const std::string& text) {
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (lower == "true" || lower == "1") return true;
  if (lower == "false" || lower == "0") return false;
  return absl::InvalidArgumentError(fmt::format("failed to convert '{}' to boolean", text));
}

absl::Status ReadBytes(const BackendSettings& settings, const std::string& key, std::size_t* bytes) {
  const std::string* const text = Find(settings, key);
  if (text == nullptr) return absl::OkStatus();
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *bytes);
  if (error == std::errc() && end == text->data() + text->size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("--backend-config=tensorrt,{}={}: expected a number of bytes", key, *text));
}

std::vector<std::filesystem::path> ReadPaths(const BackendSettings& settings, const std::string& key) {
  std::vector<std::filesystem::path> paths;
  const std::string* const text = Find(settings, key);
  if (text == nullptr) return paths;
  for (std::size_t from = 0; from < text->size();) {
    const std::size_t to = std::min(text->find(';', from), text->size());
    if (to > from) paths.emplace_back(text->substr(from, to - from));
    from = to + 1;
  }
  return paths;
}

absl::StatusOr<TrtSettings> ReadSettings(const BackendSettings& given) {
  TrtSettings settings;
  if (const std::string* text = Find(given, "version-compatible")) {
    ASSIGN_OR_RETURN(settings.host_code, ReadBool(*text));
    if (settings.host_code) LOG_VERBOSE(1, "Version compatibility enabled for runtime");
  }
  if (const std::string* text = Find(given, "coalesce-request-input")) {
    RETURN_IF_ERROR(ReadBool(*text).status());  // inputs are put together in page-locked memory anyway
  }
  RETURN_IF_ERROR(ReadBytes(given, "zero-copy-bytes", &settings.zero_copy_bytes));
  RETURN_IF_ERROR(ReadBytes(given, "staging-bytes", &settings.staging_bytes));
  settings.staging_bytes = std::max<std::size_t>(settings.staging_bytes, 64 << 10);
  return settings;
}

class TensorRtBackend final : public Backend {
 public:
  TensorRtBackend(const BackendContext& context, const TrtSettings& settings,
                  const std::vector<std::filesystem::path>& libraries)
      : gpus_(context.gpus),
        settings_(settings),
        libraries_(context.resident, libraries, context.engine_directory / "tensorrt") {}

  std::string_view name() const override { return "tensorrt"; }
  bool uses_gpus() const override { return true; }
  TrtLibraries& libraries() { return libraries_; }

  absl::StatusOr<std::unique_ptr<BackendModel>> CreateModel(const ModelArtifact& artifact,
                                                            const inference::ModelConfig& config,
                                                            Scope& scope) override {
    try {
      RETURN_IF_ERROR(CheckBeforeLoad(config));
      if (gpus_ == nullptr) {
        return absl::InvalidArgumentError(
            fmt::format("unable to load model '{}', TensorRT backend supports only GPU device; this server sees none",
                        config.name()));
      }
      return TrtModel::Create(libraries_, *gpus_, settings_, artifact, config, scope);
    } catch (const std::exception& error) {
      return absl::InternalError(fmt::format("loading model '{}': {}", artifact.model_name, error.what()));
    }
  }

  // The plan's file holds the weights and little else; inputs and outputs are as the configuration declares them. What
  // TensorRT needs for activations only the plan's own engine tells.
  std::optional<MemoryEstimate> EstimateMemory(const ModelArtifact& artifact,
                                               const inference::ModelConfig& config) const override {
    if (gpus_ == nullptr) return std::nullopt;
    MemoryEstimate estimate;
    std::uint64_t tensors = 0;
    const auto add = [&](const auto& tensor) {
      Shape shape = EngineDims(tensor);
      shape.insert(shape.begin(), std::max(config.max_batch_size(), 1));
      for (std::int64_t& dim : shape) dim = std::max<std::int64_t>(dim, 1);
      const auto bytes = TensorByteSize(static_cast<DataType>(tensor.data_type()), AsSpan(shape));
      tensors += static_cast<std::uint64_t>(bytes.value_or(0));
    };
    for (const auto& input : config.input()) add(input);
    for (const auto& output : config.output()) add(output);
    std::set<DeviceId> seen;
    for (const auto& group : config.instance_group()) {
      for (const DeviceId device : group.gpus()) {
        if (device < 0 || static_cast<std::size_t>(device) >= gpus_->devices().size()) continue;
        estimate[device] +=
            tensors > settings_.zero_copy_bytes ? tensors * static_cast<std::uint64_t>(std::max(group.count(), 1)) : 0;
        if (!seen.insert(device).second) continue;
        const auto path = PlanPath(artifact, config, gpus_->devices()[static_cast<std::size_t>(device)]);
        std::error_code error;
        const std::uintmax_t bytes = path.ok() ? std::filesystem::file_size(*path, error) : 0;
        if (path.ok() && !error) estimate[device] += bytes;
      }
    }
    return estimate;
  }

 private:
  Gpus* const gpus_;
  const TrtSettings settings_;
  TrtLibraries libraries_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateTensorRtBackend(const BackendContext& context) {
  ASSIGN_OR_RETURN(const TrtSettings settings, ReadSettings(context.settings));
  const std::vector<std::filesystem::path> named = ReadPaths(context.settings, "library");
  auto backend = std::make_unique<TensorRtBackend>(context, settings, named);
  if (!named.empty()) RETURN_IF_ERROR(backend->libraries().OpenNamed());
  // A plug-in library that cannot be opened is said, and only the plans that need it fail, as in Triton.
  for (const std::filesystem::path& path : ReadPaths(context.settings, "plugins")) {
    const absl::StatusOr<Scope::Library> opened = context.resident.OpenLibrary(path, "TensorRT plug-in library");
    if (opened.ok()) {
      KeepLibrary(opened->library);
    } else {
      LOG_ERROR("unable to load TensorRT plug-in library '{}': {}", path.string(), MessageOf(opened.status()));
    }
  }
  return backend;
}

}  // namespace tidemark
