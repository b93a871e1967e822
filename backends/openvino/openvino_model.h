#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backend/backend.h"
#include "backends/openvino/adapter.h"
#include "backends/openvino/openvino_config.h"
#include "base/status.h"
#include "proto/model_config.pb.h"
#include "resource/scope.h"

namespace tidemark {

// The engine's answer as a status with "WHAT: openvino error: TEXT"; OK when it went well.
absl::Status OpenVinoStatus(const OpenVinoOutcome& outcome, std::string_view what);

// The engine object that `create` makes, held by a row of `scope`: the pointer is good for as long as the row.
// Stage: OpenVinoCore, OpenVinoNetwork, OpenVinoCompiled or OpenVinoRequest.
template <typename Stage, typename Create>
absl::StatusOr<Stage*> HoldOpenVino(Scope& scope, std::uint64_t bytes, std::string_view site, std::string_view what,
                                    Create&& create, Scope::Handle* handle = nullptr) {
  // Shared between this call and the row's release, which is the last owner.
  const auto slot = std::make_shared<std::unique_ptr<Stage>>();
  ASSIGN_OR_RETURN(const Scope::Handle held, scope.Acquire(
                                                 ResourceKind::kEngineObject, kHost, bytes, site,
                                                 [&] { return OpenVinoStatus(create(slot.get()), what); },
                                                 [slot] {
                                                   slot->reset();
                                                   return absl::OkStatus();
                                                 }));
  if (handle != nullptr) *handle = held;
  return slot->get();
}

// One version in the engine: a core of its own, so that its threads go with it, and one compiled model that all
// instances share. Thread-safe.
class OpenVinoModel final : public BackendModel {
  struct Private {};

 public:
  explicit OpenVinoModel(Private /*only Create*/) {}
  // Reads, completes and checks the configuration, compiles. `adapter` outlives the model.
  static absl::StatusOr<std::unique_ptr<OpenVinoModel>> Create(OpenVinoAdapter& adapter,
                                                               const BackendSettings& backend_settings,
                                                               const ModelArtifact& artifact,
                                                               const inference::ModelConfig& config, Scope& scope);

  const inference::ModelConfig& config() const override { return config_; }
  absl::StatusOr<std::unique_ptr<BackendInstance>> CreateInstance(Scope& scope,
                                                                  const inference::ModelInstanceGroup& group,
                                                                  std::string_view name, DeviceId device) override;

  // How one configured tensor lies in the engine.
  struct Tensor {
    std::string name;
    DataType data_type = DataType::kInvalid;
    std::size_t port = 0;
    Shape shape;  // the model's, -1 = dynamic
    bool known_rank = false;
    std::size_t static_bytes = 0;  // outputs: exact size; 0 when it is only known after the inference
    Shape scalar_shape;            // the declared shape of a scalar that is served as [1]
  };
  const std::vector<Tensor>& inputs() const { return inputs_; }
  const std::vector<Tensor>& outputs() const { return outputs_; }
  OpenVinoCompiled& compiled() const { return *compiled_; }

 private:
  void Describe(const OpenVinoNetwork& network, const OpenVinoBinding& binding);

  inference::ModelConfig config_;
  std::vector<Tensor> inputs_;            // in the order of config_.input
  std::vector<Tensor> outputs_;           // in the order of config_.output
  OpenVinoCompiled* compiled_ = nullptr;  // held by the model's scope
};

}  // namespace tidemark
