#include "backends/onnxruntime/onnxruntime_backend.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <exception>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "backends/onnxruntime/ort_model.h"
#include "base/log.h"
#include "base/status.h"
#include "repository/model_directory.h"

namespace tidemark {
namespace {

// A model of one node, Y = Identity(X), FP32 of any length: IR version 8, operator set 17.
constexpr unsigned char kBuiltInModel[] = {0x08, 0x08, 0x42, 0x02, 0x10, 0x11, 0x3a, 0x37, 0x0a, 0x10, 0x0a, 0x01, 'X',
                                           0x12, 0x01, 'Y',  0x22, 0x08, 'I',  'd',  'e',  'n',  't',  'i',  't',  'y',
                                           0x12, 0x01, 'g',  0x5a, 0x0f, 0x0a, 0x01, 'X',  0x12, 0x0a, 0x0a, 0x08, 0x08,
                                           0x01, 0x12, 0x04, 0x0a, 0x02, 0x12, 0x00, 0x62, 0x0f, 0x0a, 0x01, 'Y',  0x12,
                                           0x0a, 0x0a, 0x08, 0x08, 0x01, 0x12, 0x04, 0x0a, 0x02, 0x12, 0x00};

struct Settings {
  int default_max_batch_size = 4;
  WeightsIn weights = WeightsIn::kPrivateFile;
  std::size_t heap_cache_bytes = std::size_t{256} << 20;
};

template <typename Number>
absl::Status ReadSetting(const BackendSettings& settings, const std::string& key, Number* number) {
  const auto it = settings.find(key);
  if (it == settings.end()) return absl::OkStatus();
  const std::string& text = it->second;
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < Number{}) {
    return absl::InvalidArgumentError(
        fmt::format("--backend-config=onnxruntime,{}={}: expected a number that is not negative", key, text));
  }
  *number = value;
  return absl::OkStatus();
}

absl::StatusOr<Settings> ReadSettings(const BackendSettings& given) {
  Settings settings;
  RETURN_IF_ERROR(ReadSetting(given, "default-max-batch-size", &settings.default_max_batch_size));
  RETURN_IF_ERROR(ReadSetting(given, "heap-cache-bytes", &settings.heap_cache_bytes));
  if (const auto it = given.find("map-weights"); it != given.end()) {
    if (it->second == "in-place") {
      settings.weights = WeightsIn::kModelFile;
    } else if (it->second == "no") {
      settings.weights = WeightsIn::kEngine;
    } else if (it->second != "private") {
      return absl::InvalidArgumentError(fmt::format(
          "--backend-config=onnxruntime,map-weights: found '{}', expected private, in-place or no", it->second));
    }
  }
  return settings;
}

class OnnxRuntimeBackend final : public Backend {
 public:
  OnnxRuntimeBackend(std::unique_ptr<OrtRuntime> runtime, const Settings& settings)
      : runtime_(std::move(runtime)), settings_(settings) {}

  std::string_view name() const override { return "onnxruntime"; }
  int default_cpu_instances() const override { return 2; }
  bool batches_ragged() const override { return true; }

  absl::StatusOr<std::unique_ptr<BackendModel>> CreateModel(const ModelArtifact& artifact,
                                                            const inference::ModelConfig& config,
                                                            Scope& scope) override {
    try {
      return Load(artifact, config, scope);
    } catch (const std::exception& error) {
      return absl::InternalError(fmt::format("loading model '{}': {}", artifact.model_name, error.what()));
    }
  }

  // Loads and drops the built-in model, so that what the engine keeps for good is taken.
  absl::Status WarmUp() {
    OnnxFile file;
    file.bytes = std::as_bytes(std::span(kBuiltInModel));
    ASSIGN_OR_RETURN(const OnnxFacts facts, ProbeOnnx(file.bytes, "built-in model"));
    OrtSession::Options options;
    options.name = "built-in";
    ASSIGN_OR_RETURN(const auto session, OrtSession::Create(*runtime_, runtime_->resident(), file, facts, options));
    return session->ReadIo().status();
  }

 private:
  absl::StatusOr<std::unique_ptr<BackendModel>> Load(const ModelArtifact& artifact, const inference::ModelConfig& given,
                                                     Scope& scope) {
    OrtSession::Options options;
    options.name = artifact.model_name;
    ASSIGN_OR_RETURN(options.settings, ReadSessionSettings(given));
    options.weights = settings_.weights;
    options.heap_cache_bytes = settings_.heap_cache_bytes;
    options.cancel = artifact.cancel;

    OnnxFile file;
    ASSIGN_OR_RETURN(file.path, ArtifactPath(artifact.model_directory, artifact.version, given, "model.onnx",
                                             /*look_inside=*/true));
    ASSIGN_OR_RETURN(const Scope::File mapping, scope.MapFile(file.path, "model file"));
    absl::Cleanup unmap = [&scope, &mapping] { scope.Release(mapping.handle); };
    file.bytes = mapping.data;
    absl::StatusOr<OnnxFacts> facts = ProbeOnnx(file.bytes, file.path.string());
    if (!facts.ok()) {  // in the words of the engine, which need not be asked
      return absl::InternalError(
          fmt::format("onnx runtime error 7: Load model from {} failed:Protobuf parsing failed. {}", file.path.string(),
                      MessageOf(facts.status())));
    }
    RETURN_IF_ERROR(CheckExternalFiles(*facts, file.path, artifact.model_directory));

    inference::ModelConfig config = given;
    const bool complete = config.output_size() > 0 && (config.input_size() > 0 || config.batch_input_size() > 0);
    if (complete || !artifact.auto_complete) {
      // What the file alone shows to be wrong is refused before anything is loaded.
      RETURN_IF_ERROR(CheckConfig({facts->inputs, facts->overridable, facts->outputs}, config, false));
    }
    ASSIGN_OR_RETURN(auto session, OrtSession::Create(*runtime_, scope, file, *facts, options));
    ASSIGN_OR_RETURN(const ModelIo io, session->ReadIo());
    if (artifact.auto_complete) RETURN_IF_ERROR(CompleteConfig(io, settings_.default_max_batch_size, &config));
    RETURN_IF_ERROR(CheckConfig(io, config, true));
    return std::make_unique<OrtModel>(std::move(session), std::move(config), io, options.settings.shrink_after_run);
  }

  std::unique_ptr<OrtRuntime> runtime_;
  const Settings settings_;
};

}  // namespace

void DisableOnnxRuntimeTelemetry() { ::setenv("ORT_DISABLE_TELEMETRY", "1", 1); }

absl::StatusOr<std::unique_ptr<Backend>> CreateOnnxRuntimeBackend(const BackendContext& context) {
  DisableOnnxRuntimeTelemetry();
  ASSIGN_OR_RETURN(const Settings settings, ReadSettings(context.settings));
  std::filesystem::path library = context.engine_directory / "onnxruntime" / "libonnxruntime.so";
  if (const auto it = context.settings.find("library"); it != context.settings.end()) library = it->second;
  ASSIGN_OR_RETURN(auto runtime, OrtRuntime::Open(context.resident, library));
  LOG_INFO("ONNX Runtime {} from '{}'", runtime->version(), library.string());
  auto backend = std::make_unique<OnnxRuntimeBackend>(std::move(runtime), settings);
  RETURN_IF_ERROR(backend->WarmUp());
  return backend;
}

}  // namespace tidemark
