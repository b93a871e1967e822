#include "tests/support/accumulate_backend.h"

#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "backend/batch_execution.h"
#include "base/status.h"

namespace tidemark {
namespace {

template <typename Element>
Element At(const InputTensor* tensor, std::size_t row, Element otherwise) {
  if (tensor == nullptr) return otherwise;
  std::memcpy(&otherwise, tensor->data.data() + row * sizeof otherwise, sizeof otherwise);
  return otherwise;
}

class AccumulateInstance final : public BackendInstance {
 public:
  explicit AccumulateInstance(const inference::ModelConfig& config) : config_(config) {}

  void Execute(std::span<Execution* const> requests) noexcept override {
    ExecuteAsBatch(requests, config_.max_batch_size() > 0,
                   [this](Execution& request) { request.status = Run(request); });
  }

 private:
  const InputTensor* Find(const Execution& request, std::string_view name) const {
    for (const InputTensor& input : request.inputs) {
      if (input.name == name) return &input;
    }
    return nullptr;
  }
  std::size_t OutputIndex(std::string_view name) const {
    for (int i = 0; i < config_.output_size(); ++i) {
      if (config_.output(i).name() == name) return static_cast<std::size_t>(i);
    }
    return SIZE_MAX;
  }
  absl::StatusOr<std::int32_t*> Allocate(Execution& request, std::string_view name, const InputTensor& like) {
    const std::size_t index = OutputIndex(name);
    if (index == SIZE_MAX || !request.outputs->Wants(index)) return nullptr;
    ASSIGN_OR_RETURN(const std::span<std::byte> bytes,
                     request.outputs->Allocate(index, DataType::kInt32, AsSpan(like.shape), like.data.size()));
    return reinterpret_cast<std::int32_t*>(bytes.data());
  }

  absl::Status Run(Execution& request) {
    const InputTensor* input = Find(request, "INPUT");
    if (input == nullptr) return absl::InvalidArgumentError("no INPUT");
    ASSIGN_OR_RETURN(std::int32_t* const output, Allocate(request, "OUTPUT", *input));
    ASSIGN_OR_RETURN(std::int32_t* const state, Allocate(request, "STATE_OUT", *input));
    for (std::size_t row = 0; row < input->data.size() / sizeof(std::int32_t); ++row) {
      const std::int32_t sum = At<std::int32_t>(Find(request, "STATE_IN"), row, 0) + At<std::int32_t>(input, row, 0);
      if (state != nullptr) state[row] = sum;
      if (output == nullptr) continue;
      output[row] = sum + static_cast<std::int32_t>(At<std::uint64_t>(Find(request, "CORRID"), row, 0));
      if (At<std::int32_t>(Find(request, "READY"), row, 1) == 0) output[row] = -1;
    }
    return absl::OkStatus();
  }

  const inference::ModelConfig& config_;
};

class AccumulateModel final : public BackendModel {
 public:
  explicit AccumulateModel(inference::ModelConfig config) : config_(std::move(config)) {}
  const inference::ModelConfig& config() const override { return config_; }
  absl::StatusOr<std::unique_ptr<BackendInstance>> CreateInstance(Scope& /*scope*/,
                                                                  const inference::ModelInstanceGroup& /*group*/,
                                                                  std::string_view /*name*/,
                                                                  DeviceId /*device*/) override {
    return std::make_unique<AccumulateInstance>(config_);
  }

 private:
  const inference::ModelConfig config_;
};

class AccumulateBackend final : public Backend {
 public:
  std::string_view name() const override { return "accumulate"; }
  absl::StatusOr<std::unique_ptr<BackendModel>> CreateModel(const ModelArtifact& /*artifact*/,
                                                            const inference::ModelConfig& config,
                                                            Scope& /*scope*/) override {
    return std::make_unique<AccumulateModel>(config);
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateAccumulateBackend(const BackendContext& /*context*/) {
  return std::make_unique<AccumulateBackend>();
}

}  // namespace tidemark
