#include "repository/sequence_config.h"

#include <algorithm>
#include <span>
#include <string>

#include "base/status.h"

namespace tidemark {
namespace {

template <typename Tensors>
bool Has(const Tensors& tensors, std::string_view name) {
  return std::any_of(tensors.begin(), tensors.end(), [&](const auto& tensor) { return tensor.name() == name; });
}

absl::Status AddInput(inference::ModelConfig& config, const std::string& name, int data_type,
                      std::span<const std::int64_t> dims) {
  if (Has(config.input(), name)) {
    return absl::InvalidArgumentError(
        fmt::format("model '{}': '{}' of sequence_batching is already an input of the model", config.name(), name));
  }
  inference::ModelInput* input = config.add_input();
  input->set_name(name);
  input->set_data_type(static_cast<inference::DataType>(data_type));
  for (const std::int64_t dim : dims) input->add_dims(dim);
  return absl::OkStatus();
}

}  // namespace

DataType ControlType(const inference::ModelSequenceBatching::Control& control) {
  if (control.int32_false_true_size() != 0) return DataType::kInt32;
  if (control.fp32_false_true_size() != 0) return DataType::kFp32;
  if (control.bool_false_true_size() != 0) return DataType::kBool;
  return static_cast<DataType>(control.data_type());
}

bool IsSequenceInput(const inference::ModelConfig& config, std::string_view name) {
  const auto& sequence = config.sequence_batching();
  return Has(sequence.control_input(), name) ||
         std::any_of(sequence.state().begin(), sequence.state().end(),
                     [&](const auto& state) { return state.input_name() == name; });
}

absl::StatusOr<inference::ModelConfig> EngineConfig(const inference::ModelConfig& config) {
  inference::ModelConfig engine = config;
  if (!config.has_sequence_batching()) return engine;
  const auto& sequence = config.sequence_batching();
  if (sequence.control_input().empty() && sequence.state().empty()) return engine;
  if (config.input().empty() || config.output().empty()) {
    return absl::InvalidArgumentError(
        fmt::format("model '{}' has controls or states in 'sequence_batching': its inputs and outputs must be in the "
                    "configuration, since they cannot be told from those by the model file",
                    config.name()));
  }
  constexpr std::int64_t kOne[] = {1};
  for (const auto& input : sequence.control_input()) {
    if (input.control().empty()) continue;
    RETURN_IF_ERROR(AddInput(engine, input.name(), static_cast<int>(ControlType(input.control(0))), kOne));
  }
  for (const auto& state : sequence.state()) {
    RETURN_IF_ERROR(AddInput(engine, state.input_name(), state.data_type(),
                             {state.dims().data(), static_cast<std::size_t>(state.dims_size())}));
    if (Has(engine.output(), state.output_name())) continue;
    inference::ModelOutput* output = engine.add_output();
    output->set_name(state.output_name());
    output->set_data_type(state.data_type());
    *output->mutable_dims() = state.dims();
  }
  return engine;
}

inference::ModelConfig ClientConfig(const inference::ModelConfig& engine, const inference::ModelConfig& given) {
  inference::ModelConfig config = engine;
  const auto& sequence = given.sequence_batching();
  if (sequence.control_input().empty() && sequence.state().empty()) return config;
  config.mutable_input()->DeleteSubrange(given.input_size(), config.input_size() - given.input_size());
  config.mutable_output()->DeleteSubrange(given.output_size(), config.output_size() - given.output_size());
  return config;
}

}  // namespace tidemark
