#include "backends/openvino/openvino_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>

#include "backends/openvino/openvino_instance.h"
#include "base/log.h"
#include "base/status.h"

namespace tidemark {
namespace {

// The model's file in the version's directory: default_model_filename, else model.xml, else model.onnx. (The core fills
// in "model.xml" for every openvino model, so that name alone does not exclude model.onnx.)
absl::StatusOr<std::filesystem::path> FindArtifact(const ModelArtifact& artifact,
                                                   const inference::ModelConfig& config) {
  const std::filesystem::path file =
      config.default_model_filename().empty() ? "model.xml" : config.default_model_filename();
  const std::filesystem::path normal = file.lexically_normal();
  if (normal.is_absolute() || normal.empty() || *normal.begin() == "..") {
    return absl::InvalidArgumentError(
        fmt::format("model '{}': default_model_filename '{}' leads out of the version's directory", artifact.model_name,
                    file.string()));
  }
  std::error_code error;
  const std::filesystem::path path = artifact.version_directory / normal;
  if (std::filesystem::is_regular_file(path, error)) return path;
  const std::filesystem::path onnx = artifact.version_directory / "model.onnx";
  if (normal == "model.xml" && !std::filesystem::exists(path, error) && std::filesystem::is_regular_file(onnx, error)) {
    return onnx;
  }
  if (std::filesystem::exists(path, error)) {
    return absl::UnavailableError(
        fmt::format("unable to find '{}' for model instance '{}'", path.string(), artifact.model_name));
  }
  return absl::InternalError(fmt::format("failed to stat file {}", path.string()));
}

absl::StatusOr<int> DefaultMaxBatchSize(const BackendSettings& settings) {
  constexpr int kTritonDefault = 4;
  const auto found = settings.find("default-max-batch-size");
  if (found == settings.end()) return kTritonDefault;
  int number = 0;
  const std::string& text = found->second;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size() || number < 0) {
    return absl::InvalidArgumentError(
        fmt::format("backend setting 'default-max-batch-size' must be a number from 0, got '{}'", text));
  }
  return number;
}

absl::Status CheckCancelled(const ModelArtifact& artifact, const Scope& scope) {
  if ((artifact.cancel != nullptr && artifact.cancel->cancelled()) || scope.cancelled()) {
    return absl::CancelledError(fmt::format("the load of model '{}' was cancelled", artifact.model_name));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status OpenVinoStatus(const OpenVinoOutcome& outcome, std::string_view what) {
  const auto text = [&] { return fmt::format("{}: openvino error: {}", what, outcome.text); };
  switch (outcome.code) {
    case OpenVinoOutcome::Code::kOk:
      return absl::OkStatus();
    case OpenVinoOutcome::Code::kCancelled:
      return absl::CancelledError(text());
    case OpenVinoOutcome::Code::kOutOfMemory:
      return absl::ResourceExhaustedError(text());
    case OpenVinoOutcome::Code::kFailed:
      break;
  }
  return absl::InternalError(text());
}

absl::StatusOr<std::unique_ptr<OpenVinoModel>> OpenVinoModel::Create(OpenVinoAdapter& adapter,
                                                                     const BackendSettings& backend_settings,
                                                                     const ModelArtifact& artifact,
                                                                     const inference::ModelConfig& config,
                                                                     Scope& scope) {
  auto model = std::make_unique<OpenVinoModel>(Private());
  model->config_ = config;
  ASSIGN_OR_RETURN(const OpenVinoOptions options, ReadOpenVinoOptions(config, backend_settings));
  ASSIGN_OR_RETURN(const std::filesystem::path path, FindArtifact(artifact, config));
  const std::string what = fmt::format("unable to load model '{}' from '{}'", artifact.model_name, path.string());

  ASSIGN_OR_RETURN(OpenVinoCore* const core, HoldOpenVino<OpenVinoCore>(scope, 0, "core", what, [&](auto* made) {
                     return adapter.CreateCore(made);
                   }));
  Scope::Handle network_row = nullptr;
  ASSIGN_OR_RETURN(
      OpenVinoNetwork* const network,
      HoldOpenVino<OpenVinoNetwork>(
          scope, 0, "read model", what, [&](auto* made) { return core->Read(path.string(), made); }, &network_row));
  if (artifact.auto_complete) {
    ASSIGN_OR_RETURN(const int max_batch_size, DefaultMaxBatchSize(backend_settings));
    RETURN_IF_ERROR(CompleteOpenVinoConfig(network->inputs(), network->outputs(), max_batch_size, &model->config_));
  }
  ASSIGN_OR_RETURN(const OpenVinoBinding binding, BindOpenVinoConfig(network->inputs(), network->outputs(),
                                                                     options.allow_narrow_integers, model->config_));
  model->Describe(*network, binding);
  // The engine cannot be stopped while it compiles: the last moment to stop is here.
  RETURN_IF_ERROR(CheckCancelled(artifact, scope));
  ASSIGN_OR_RETURN(model->compiled_, HoldOpenVino<OpenVinoCompiled>(
                                         scope, network->constant_bytes(), "compiled model", what,
                                         [&](auto* made) { return core->Compile(*network, options.settings, made); }));
  scope.Release(network_row);
  RETURN_IF_ERROR(CheckCancelled(artifact, scope));
  LOG_VERBOSE(1, "model '{}': openvino, precision {}, {} thread(s), {} stream(s)", artifact.model_name,
              options.settings.inference_precision, options.settings.inference_threads, options.settings.streams);
  return model;
}

void OpenVinoModel::Describe(const OpenVinoNetwork& network, const OpenVinoBinding& binding) {
  const auto describe = [](const auto& declared, std::size_t index, const OpenVinoPort& port) {
    Tensor tensor;
    tensor.name = declared.name();
    tensor.data_type = port.data_type;
    tensor.port = index;
    tensor.shape = Shape(port.dims.begin(), port.dims.end());
    tensor.known_rank = port.known_rank;
    if (port.known_rank && port.dims.empty() && !declared.has_reshape()) tensor.scalar_shape = {1};
    if (const auto bytes = TensorByteSize(port.data_type, AsSpan(tensor.shape)); port.known_rank && bytes) {
      tensor.static_bytes = static_cast<std::size_t>(*bytes);
    }
    return tensor;
  };
  for (int i = 0; i < config_.input_size(); ++i) {
    const std::size_t port = binding.inputs[static_cast<std::size_t>(i)];
    inputs_.push_back(describe(config_.input(i), port, network.inputs()[port]));
  }
  for (int i = 0; i < config_.output_size(); ++i) {
    const std::size_t port = binding.outputs[static_cast<std::size_t>(i)];
    outputs_.push_back(describe(config_.output(i), port, network.outputs()[port]));
  }
}

absl::StatusOr<std::unique_ptr<BackendInstance>> OpenVinoModel::CreateInstance(
    Scope& scope, const inference::ModelInstanceGroup& group, std::string_view name, DeviceId device) {
  if (device != kHost || (group.kind() != inference::ModelInstanceGroup::KIND_CPU &&
                          group.kind() != inference::ModelInstanceGroup::KIND_AUTO)) {
    return absl::InvalidArgumentError(fmt::format(
        "instance '{}': instance_group kind {} is not supported by the openvino backend, which runs on the CPU", name,
        inference::ModelInstanceGroup::Kind_Name(group.kind())));
  }
  try {
    return OpenVinoInstance::Create(*this, scope, name);
  } catch (const std::exception& error) {
    return absl::InternalError(fmt::format("unable to create instance '{}': {}", name, error.what()));
  }
}

}  // namespace tidemark
