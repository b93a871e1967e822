#include "repository/config_io.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>

namespace tidemark {
namespace {

template <typename Dims>
Shape ToShape(const Dims& dims) {
  return Shape(dims.begin(), dims.end());
}

template <typename Tensors>
auto FindByName(const Tensors& tensors, std::string_view name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.name() == name; });
  return found == tensors.end() ? nullptr : &*found;
}

}  // namespace

DataType FromProto(inference::DataType type) {
  return inference::DataType_IsValid(type) ? static_cast<DataType>(type) : DataType::kInvalid;
}

inference::DataType ToProto(DataType type) { return static_cast<inference::DataType>(type); }

DataType TypeOf(const inference::ModelInput& input) { return FromProto(input.data_type()); }
DataType TypeOf(const inference::ModelOutput& output) { return FromProto(output.data_type()); }

Shape DimsOf(const inference::ModelInput& input) { return ToShape(input.dims()); }
Shape DimsOf(const inference::ModelOutput& output) { return ToShape(output.dims()); }

Shape BackendDimsOf(const inference::ModelInput& input) {
  return input.has_reshape() ? ToShape(input.reshape().shape()) : DimsOf(input);
}
Shape BackendDimsOf(const inference::ModelOutput& output) {
  return output.has_reshape() ? ToShape(output.reshape().shape()) : DimsOf(output);
}

Shape WithBatch(const inference::ModelConfig& config, const Shape& dims) {
  Shape shape;
  if (config.max_batch_size() > 0) shape.push_back(-1);
  shape.insert(shape.end(), dims.begin(), dims.end());
  return shape;
}

const inference::ModelInput* FindInput(const inference::ModelConfig& config, std::string_view name) {
  return FindByName(config.input(), name);
}
const inference::ModelOutput* FindOutput(const inference::ModelConfig& config, std::string_view name) {
  return FindByName(config.output(), name);
}

std::optional<std::string> ParameterOf(const inference::ModelConfig& config, std::string_view key) {
  const auto found = config.parameters().find(std::string(key));
  if (found == config.parameters().end()) return std::nullopt;
  return found->second.string_value();
}

bool HasLabels(const inference::ModelOutput& output) { return !output.label_filename().empty(); }

bool IsDecoupled(const inference::ModelConfig& config) { return config.model_transaction_policy().decoupled(); }

bool IsEnsemble(const inference::ModelConfig& config) {
  return config.platform() == "ensemble" || config.has_ensemble_scheduling();
}

const std::string& PlatformOf(const inference::ModelConfig& config) {
  return config.platform().empty() ? config.backend() : config.platform();
}

bool OnlyInstancesOrPolicyDiffer(const inference::ModelConfig& before, const inference::ModelConfig& after) {
  google::protobuf::util::MessageDifferencer differ;
  differ.IgnoreField(inference::ModelConfig::descriptor()->FindFieldByName("instance_group"));
  differ.IgnoreField(inference::ModelConfig::descriptor()->FindFieldByName("version_policy"));
  return differ.Compare(before, after);
}

}  // namespace tidemark
