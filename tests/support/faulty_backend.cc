#include "tests/support/faulty_backend.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace tidemark {
namespace {

class FaultyInstance final : public BackendInstance {
 public:
  explicit FaultyInstance(std::atomic<bool>& refuses) : refuses_(refuses) {}

  void Execute(std::span<Execution* const> requests) noexcept override {
    for (Execution* request : requests) request->status = Run(*request);
  }
  absl::Status Health() const override {
    return lost_ ? absl::UnavailableError("the device is lost") : absl::OkStatus();
  }

 private:
  absl::Status Run(Execution& request) {
    if (request.inputs.size() != 1 || request.inputs[0].data.size() != sizeof(std::int32_t)) {
      return absl::InvalidArgumentError("expected one IN of one element");
    }
    std::int32_t value = 0;
    std::memcpy(&value, request.inputs[0].data.data(), sizeof value);
    if (value == -1) lost_ = true;
    if (value == -2) refuses_ = true;
    RETURN_IF_ERROR(Health());
    if (!request.outputs->Wants(0)) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::span<std::byte> out,
                     request.outputs->Allocate(0, DataType::kInt32, AsSpan(request.inputs[0].shape), sizeof value));
    std::memcpy(out.data(), &value, sizeof value);
    return absl::OkStatus();
  }

  std::atomic<bool>& refuses_;
  std::atomic<bool> lost_{false};
};

class FaultyModel final : public BackendModel {
 public:
  explicit FaultyModel(inference::ModelConfig config) : config_(std::move(config)) {}

  absl::Status Take(Scope& scope) {
    return scope
        .Acquire(
            ResourceKind::kEngineObject, kHost, 4096, "session", [] { return absl::OkStatus(); },
            [refuses = refuses_] { return *refuses ? absl::InternalError("the driver refused") : absl::OkStatus(); })
        .status();
  }
  const inference::ModelConfig& config() const override { return config_; }
  absl::StatusOr<std::unique_ptr<BackendInstance>> CreateInstance(Scope& /*scope*/,
                                                                  const inference::ModelInstanceGroup& /*group*/,
                                                                  std::string_view /*name*/,
                                                                  DeviceId /*device*/) override {
    return std::make_unique<FaultyInstance>(*refuses_);
  }

 private:
  const inference::ModelConfig config_;
  const std::shared_ptr<std::atomic<bool>> refuses_ = std::make_shared<std::atomic<bool>>(false);
};

class FaultyBackend final : public Backend {
 public:
  std::string_view name() const override { return "faulty"; }
  absl::StatusOr<std::unique_ptr<BackendModel>> CreateModel(const ModelArtifact& /*artifact*/,
                                                            const inference::ModelConfig& config,
                                                            Scope& scope) override {
    auto model = std::make_unique<FaultyModel>(config);
    RETURN_IF_ERROR(model->Take(scope));
    return model;
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateFaultyBackend(const BackendContext& /*context*/) {
  return std::make_unique<FaultyBackend>();
}

}  // namespace tidemark
