#include "tests/support/iterative_backend.h"

#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace tidemark {
namespace {

const InputTensor* Find(const Execution& request, std::string_view name) {
  for (const InputTensor& input : request.inputs) {
    if (input.name == name) return &input;
  }
  return nullptr;
}

std::optional<std::int32_t> Read(const Execution& request, std::string_view name) {
  const InputTensor* input = Find(request, name);
  if (input == nullptr || input->data.size() != sizeof(std::int32_t)) return std::nullopt;
  std::int32_t value = 0;
  std::memcpy(&value, input->data.data(), sizeof value);
  return value;
}

class IterativeInstance final : public BackendInstance {
 public:
  explicit IterativeInstance(const inference::ModelConfig& config) : config_(config) {}

  void Execute(std::span<Execution* const> requests) noexcept override {
    for (Execution* request : requests) request->status = Run(*request);
  }

 private:
  absl::Status Write(Execution& request, std::string_view name, const Shape& shape, std::int32_t value) const {
    for (int i = 0; i < config_.output_size(); ++i) {
      const auto index = static_cast<std::size_t>(i);
      if (config_.output(i).name() != name || !request.outputs->Wants(index)) continue;
      ASSIGN_OR_RETURN(const std::span<std::byte> bytes,
                       request.outputs->Allocate(index, DataType::kInt32, AsSpan(shape), sizeof value));
      std::memcpy(bytes.data(), &value, sizeof value);
    }
    return absl::OkStatus();
  }

  absl::Status Run(Execution& request) const {
    const std::optional<std::int32_t> wanted = Read(request, "N");
    const std::optional<std::int32_t> before = Read(request, "STATE_IN");
    if (!wanted.has_value() || !before.has_value()) return absl::InvalidArgumentError("expected one N and its state");
    if (const auto start = Read(request, "START"); start.has_value() && (*start == 1) != (*before == 0)) {
      return absl::InternalError(fmt::format("START is {} after {} executions", *start, *before));
    }
    if (*wanted < 0 && *before == 1) return absl::InvalidArgumentError("N is negative");
    const Shape& shape = Find(request, "N")->shape;
    const std::int32_t count = *before + 1;
    RETURN_IF_ERROR(Write(request, "OUT", shape, count));
    RETURN_IF_ERROR(Write(request, "STATE_OUT", shape, count));
    request.reschedule = *wanted < 0 || count < *wanted;
    return absl::OkStatus();
  }

  const inference::ModelConfig& config_;
};

class IterativeModel final : public BackendModel {
 public:
  explicit IterativeModel(inference::ModelConfig config) : config_(std::move(config)) {}
  const inference::ModelConfig& config() const override { return config_; }
  absl::StatusOr<std::unique_ptr<BackendInstance>> CreateInstance(Scope& /*scope*/,
                                                                  const inference::ModelInstanceGroup& /*group*/,
                                                                  std::string_view /*name*/,
                                                                  DeviceId /*device*/) override {
    return std::make_unique<IterativeInstance>(config_);
  }

 private:
  const inference::ModelConfig config_;
};

class IterativeBackend final : public Backend {
 public:
  std::string_view name() const override { return "iterate"; }
  bool warms_up_unasked() const override { return false; }
  absl::StatusOr<std::unique_ptr<BackendModel>> CreateModel(const ModelArtifact& /*artifact*/,
                                                            const inference::ModelConfig& config,
                                                            Scope& /*scope*/) override {
    return std::make_unique<IterativeModel>(config);
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateIterativeBackend(const BackendContext& /*context*/) {
  return std::make_unique<IterativeBackend>();
}

}  // namespace tidemark
