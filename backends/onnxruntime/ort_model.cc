#include "backends/onnxruntime/ort_model.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace tidemark {
namespace {

const OnnxValue* Find(const ModelIo& io, const std::string& name, bool input) {
  for (const auto* values : {input ? &io.inputs : &io.outputs, input ? &io.overridable : &io.outputs}) {
    for (const OnnxValue& value : *values) {
      if (value.name == name) return &value;
    }
  }
  return nullptr;
}

template <typename Tensor>
OrtTensorPlan PlanOf(const Tensor& tensor, const OnnxValue& value, bool batching) {
  OrtTensorPlan plan;
  plan.name = tensor.name();
  plan.data_type = static_cast<DataType>(tensor.data_type());
  plan.element_type = value.element_type;
  plan.scalar = !batching && value.has_shape && value.dims.empty() && !tensor.has_reshape();
  return plan;
}

}  // namespace

OrtModel::OrtModel(std::unique_ptr<OrtSession> session, inference::ModelConfig config, const ModelIo& io,
                   bool shrink_after_run)
    : session_(std::move(session)), config_(std::move(config)), ragged_(config_), shrink_after_run_(shrink_after_run) {
  const bool batching = config_.max_batch_size() > 0;
  for (const auto& input : config_.input()) {
    const OnnxValue* value = Find(io, input.name(), true);
    inputs_.push_back(PlanOf(input, value == nullptr ? OnnxValue() : *value, batching));
  }
  for (const RaggedPlan::Made& made : ragged_.made()) {
    const OnnxValue* value = Find(io, made.name, true);
    OrtTensorPlan& plan = inputs_.emplace_back();
    plan.name = made.name;
    plan.data_type = made.data_type;
    plan.element_type = value == nullptr ? OnnxOfDataType(made.data_type) : value->element_type;
  }
  // The first place where each named dimension of an input is seen.
  const auto source_of = [&](const OnnxDim& dim) {
    OrtDimSource source;
    source.value = dim.value;
    if (dim.value >= 0 || dim.symbol.empty()) return source;
    for (int i = 0; i < config_.input_size(); ++i) {
      const OnnxValue* value = Find(io, config_.input(i).name(), true);
      if (value == nullptr || config_.input(i).optional()) continue;
      for (std::size_t axis = 0; axis < value->dims.size(); ++axis) {
        if (value->dims[axis].symbol != dim.symbol) continue;
        source.input = i;
        source.axis = static_cast<int>(axis);
        return source;
      }
    }
    return source;
  };
  for (const auto& output : config_.output()) {
    const OnnxValue* found = Find(io, output.name(), false);
    const OnnxValue value = found == nullptr ? OnnxValue() : *found;
    OrtTensorPlan plan = PlanOf(output, value, batching);
    plan.predictable = value.has_shape && plan.data_type != DataType::kBytes;
    for (const OnnxDim& dim : value.dims) {
      plan.dims.push_back(source_of(dim));
      if (plan.dims.back().value < 0 && plan.dims.back().input < 0) plan.predictable = false;
    }
    outputs_.push_back(std::move(plan));
  }
}

absl::StatusOr<std::unique_ptr<BackendInstance>> OrtModel::CreateInstance(Scope& scope,
                                                                          const inference::ModelInstanceGroup& group,
                                                                          std::string_view /*name*/, DeviceId device) {
  if (device != kHost || group.kind() == inference::ModelInstanceGroup::KIND_GPU) {
    return absl::InvalidArgumentError(
        "instance_group kind KIND_GPU not supported: the onnxruntime engine of this server runs on the CPU only");
  }
  const OrtRuntime& runtime = session_->runtime();
  const auto options = std::make_shared<ort::RunOptions*>(nullptr);  // last owner: the release closure on the scope
  ASSIGN_OR_RETURN(const Scope::Handle handle,
                   scope.Acquire(
                       ResourceKind::kEngineObject, kHost, 0, "run options",
                       [&] { return runtime.Take(runtime.api().CreateRunOptions(options.get())); },
                       [options, &runtime] {
                         runtime.api().ReleaseRunOptions(*options);
                         return absl::OkStatus();
                       }));
  static_cast<void>(handle);
  return std::make_unique<OrtInstance>(*this, *options);
}

}  // namespace tidemark
