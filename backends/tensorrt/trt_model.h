#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backend/backend.h"
#include "backends/tensorrt/trt_engine.h"
#include "backends/tensorrt/trt_io.h"
#include "resource/gpu.h"

namespace tidemark {

// `--backend-config=tensorrt,…`, read once.
struct TrtSettings {
  bool host_code = false;                               // version-compatible
  std::size_t zero_copy_bytes = std::size_t{64} << 10;  // tensors of an instance, together, that stay on the host
  std::size_t staging_bytes = std::size_t{8} << 20;     // page-locked memory of an instance for copies
};

// One loaded plan: an engine on each GPU that the instance groups name, which the instances there share, so that the
// weights are there once.
class TrtModel final : public BackendModel {
 private:
  struct Private {};  // only a member function can name it

 public:
  // Loads, completes the configuration (if `artifact` allows) and checks it against the engine of every device.
  static absl::StatusOr<std::unique_ptr<TrtModel>> Create(TrtLibraries& libraries, Gpus& gpus,
                                                          const TrtSettings& settings, const ModelArtifact& artifact,
                                                          const inference::ModelConfig& given, Scope& scope);
  TrtModel(Private, Gpus& gpus, const TrtSettings& settings, const inference::ModelConfig& config)
      : gpus_(gpus), settings_(settings), config_(config) {}

  const inference::ModelConfig& config() const override { return config_; }
  bool takes_device_memory() const override { return true; }
  absl::StatusOr<std::unique_ptr<BackendInstance>> CreateInstance(Scope& scope,
                                                                  const inference::ModelInstanceGroup& group,
                                                                  std::string_view name, DeviceId device) override;

  Gpus& gpus() const { return gpus_; }
  const TrtSettings& settings() const { return settings_; }

 private:
  struct Loaded {
    std::unique_ptr<TrtEngine> engine;
    TrtIo io;
  };

  absl::Status LoadOn(TrtLibraries& libraries, const ModelArtifact& artifact, Scope& scope, DeviceId device);
  absl::Status Check() const;
  absl::Status WithTypes(const absl::Status& status, const TrtIo& io) const;

  Gpus& gpus_;
  const TrtSettings settings_;
  inference::ModelConfig config_;
  std::map<DeviceId, Loaded> engines_;
};

// The plan's file for a device: cc_model_filenames names one for its compute capability, or default_model_filename, or
// model.plan. Errors as ArtifactPath has them.
absl::StatusOr<std::filesystem::path> PlanPath(const ModelArtifact& artifact, const inference::ModelConfig& config,
                                               const GpuFacts& gpu);

}  // namespace tidemark
