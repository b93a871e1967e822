#include "backends/onnxruntime/model_io.h"

#include <algorithm>
#include <functional>
#include <set>
#include <span>
#include <utility>

#include "base/log.h"
#include "base/status.h"

namespace tidemark {
namespace {

std::string TypeName(int data_type) { return std::string(ConfigName(static_cast<DataType>(data_type))); }

const OnnxValue* Find(const std::vector<OnnxValue>& values, const std::string& name) {
  const auto it = std::find_if(values.begin(), values.end(), [&](const OnnxValue& v) { return v.name == name; });
  return it == values.end() ? nullptr : &*it;
}

// Collects findings and joins them into one status.
class Findings {
 public:
  void Add(absl::StatusCode code, std::string text) {
    if (texts_.empty()) code_ = code;
    if (std::find(texts_.begin(), texts_.end(), text) == texts_.end()) texts_.push_back(std::move(text));
  }
  void Invalid(std::string text) { Add(absl::StatusCode::kInvalidArgument, std::move(text)); }
  absl::Status Status() const {
    if (texts_.empty()) return absl::OkStatus();
    return absl::Status(code_, fmt::format("{}", fmt::join(texts_, "; also: ")));
  }

 private:
  absl::StatusCode code_ = absl::StatusCode::kInternal;
  std::vector<std::string> texts_;
};

class Checker {
 public:
  Checker(const ModelIo& io, const inference::ModelConfig& config) : io_(io), config_(config) {}

  absl::Status Run(bool output_shapes) {
    for (const OnnxValue& value : io_.inputs) CheckKind(value);
    for (const OnnxValue& value : io_.outputs) CheckKind(value);
    CheckControls();
    CheckCount();
    for (const auto& input : config_.input()) CheckInput(input);
    for (const auto& output : config_.output()) CheckOutput(output, output_shapes);
    return findings_.Status();
  }

 private:
  bool batching() const { return config_.max_batch_size() > 0; }

  void CheckKind(const OnnxValue& value) {
    if (value.kind == OnnxKind::kTensor) return;
    findings_.Add(absl::StatusCode::kUnimplemented,
                  fmt::format("Unsupported ONNX Type '{}' for I/O '{}', expected '{}'.", OnnxKindName(value.kind),
                              value.name, OnnxKindName(OnnxKind::kTensor)));
  }

  void CheckControls() {
    for (const auto& input : config_.sequence_batching().control_input()) {
      for (const auto& control : input.control()) {
        const OnnxValue* value = Find(io_.inputs, input.name());
        if (value == nullptr) {
          findings_.Add(absl::StatusCode::kInternal,
                        fmt::format("configuration specified sequence control '{}', but model does not provide that "
                                    "input",
                                    input.name()));
          continue;
        }
        CheckControl(input.name(), *value, control);
      }
    }
  }

  void CheckControl(const std::string& name, const OnnxValue& value,
                    const inference::ModelSequenceBatching::Control& control) {
    Shape shape = value.DeclaredShape();
    if (batching() && !shape.empty()) shape.erase(shape.begin());
    if (shape.size() != 1 || shape[0] != 1) {
      findings_.Invalid(
          fmt::format("unable to load model '{}', sequence control '{}' in model has dims {} but dims [1] "
                      "is expected",
                      config_.name(), name, ShapeText(AsSpan(shape))));
    }
    auto type = DataType::kInvalid;
    if (control.int32_false_true_size() > 0) type = DataType::kInt32;
    if (control.fp32_false_true_size() > 0) type = DataType::kFp32;
    if (control.bool_false_true_size() > 0) type = DataType::kBool;
    if (control.data_type() != inference::TYPE_INVALID) type = static_cast<DataType>(control.data_type());
    if (type != DataTypeOfOnnx(value.element_type)) {
      findings_.Invalid(
          fmt::format("unable to load model '{}', sequence control '{}', the model expects data-type {} "
                      "but the model configuration specifies data-type {}",
                      config_.name(), name, OnnxElementTypeName(value.element_type), ConfigName(type)));
    }
  }

  void CheckCount() {
    std::size_t expected = 0;
    for (const auto& input : config_.input()) expected += input.optional() ? 0U : 1U;
    for (const auto& input : config_.batch_input()) expected += static_cast<std::size_t>(input.target_name_size());
    if (config_.has_sequence_batching()) {
      expected += static_cast<std::size_t>(config_.sequence_batching().control_input_size());
      expected += static_cast<std::size_t>(config_.sequence_batching().state_size());
    }
    if (expected != io_.inputs.size()) {
      findings_.Invalid(fmt::format("unable to load model '{}', configuration expects {} inputs, model provides {}",
                                    config_.name(), expected, io_.inputs.size()));
    }
  }

  void CheckInput(const inference::ModelInput& input) {
    const OnnxValue* value = Find(io_.inputs, input.name());
    if (input.optional()) {
      if (batching()) {
        findings_.Invalid(
            fmt::format("unable to load model '{}', optional input '{}' is not supported for models that "
                        "support batching",
                        config_.name(), input.name()));
        return;
      }
      if (value == nullptr) value = Find(io_.overridable, input.name());
    }
    if (value == nullptr) {
      findings_.Invalid(fmt::format("unexpected inference input '{}', allowed inputs are: {}", input.name(),
                                    Names(io_.inputs, input.optional() ? &io_.overridable : nullptr)));
      return;
    }
    if (!CheckType(input.data_type(), *value, "input")) return;
    if (input.allow_ragged_batch()) {
      CheckRagged(input, *value);
      return;
    }
    const auto& dims = input.has_reshape() ? input.reshape().shape() : input.dims();
    CheckShape(Shape(dims.begin(), dims.end()), *value, /*exact=*/false);
  }

  void CheckRagged(const inference::ModelInput& input, const OnnxValue& value) {
    const Shape shape = value.DeclaredShape();
    if (input.optional()) {
      findings_.Invalid(
          fmt::format("unable to load model '{}', configuration expects model provides input with shape "
                      "[-1] for ragged input '{}', which is not supported for optional input",
                      config_.name(), input.name()));
    } else if (shape.size() != 1 || shape[0] != -1) {
      findings_.Invalid(
          fmt::format("unable to load model '{}', configuration expects model provides input with shape "
                      "[-1]  for ragged input '{}', model provides {}",
                      config_.name(), input.name(), ShapeText(AsSpan(shape))));
    }
  }

  void CheckOutput(const inference::ModelOutput& output, bool shapes) {
    const OnnxValue* value = Find(io_.outputs, output.name());
    if (value == nullptr) {
      findings_.Invalid(fmt::format("unexpected inference output '{}', allowed outputs are: {}", output.name(),
                                    Names(io_.outputs, nullptr)));
      return;
    }
    if (!CheckType(output.data_type(), *value, "output") || !shapes) return;
    const auto& dims = output.has_reshape() ? output.reshape().shape() : output.dims();
    CheckShape(Shape(dims.begin(), dims.end()), *value, /*exact=*/true);
  }

  bool CheckType(int data_type, const OnnxValue& value, std::string_view what) {
    if (value.kind != OnnxKind::kTensor) return false;
    const auto type = static_cast<DataType>(data_type);
    if (OnnxOfDataType(type) == 0) {
      findings_.Add(absl::StatusCode::kInternal, fmt::format("unsupported datatype {} for {} '{}' for model '{}'",
                                                             TypeName(data_type), what, value.name, config_.name()));
      return false;
    }
    const DataType model_type = DataTypeOfOnnx(value.element_type);
    if (model_type == type) return true;
    std::string model_name(ConfigName(model_type));
    if (model_type == DataType::kInvalid) model_name += fmt::format(" ({})", OnnxElementTypeName(value.element_type));
    findings_.Invalid(
        fmt::format("unable to load model '{}', configuration expects datatype {} for {} '{}', model "
                    "provides {}",
                    config_.name(), TypeName(data_type), what, value.name, model_name));
    return false;
  }

  void CheckShape(Shape declared, const OnnxValue& value, bool exact) {
    if (!value.has_shape) return;  // the model says nothing about it, so nothing can be compared
    const Shape model = value.DeclaredShape();
    if (!batching() && model.empty()) {
      if (declared.size() == 1 && declared[0] == 1) return;
      findings_.Invalid(
          fmt::format("unable to load model '{}', scalar tensor '{}', should only provide 1 in the model "
                      "configuration when the model doesn't support batching. Model configuration "
                      "provided: {}.",
                      config_.name(), value.name, ShapeText(AsSpan(declared))));
      return;
    }
    if (batching()) {
      if (model.empty() || model[0] != -1) {
        findings_.Invalid(
            fmt::format("model '{}', tensor '{}': for the model to support batching the shape should have "
                        "at least 1 dimension and the first dimension must be -1; but shape expected by "
                        "the model is {}",
                        config_.name(), value.name, ShapeText(AsSpan(model))));
        return;
      }
      declared.insert(declared.begin(), -1);
    }
    const bool agrees =
        std::equal(declared.begin(), declared.end(), model.begin(), model.end(),
                   [&](std::int64_t ours, std::int64_t theirs) { return ours == theirs || (!exact && theirs == -1); });
    if (agrees) return;
    std::string text = fmt::format(
        "model '{}', tensor '{}': the model expects {} dimensions (shape {}) but the model configuration specifies {} "
        "dimensions (",
        config_.name(), value.name, model.size(), ShapeText(AsSpan(model)), declared.size());
    if (batching()) {
      text +=
          "an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, making "
          "complete shape ";
    } else {
      text += "shape ";
    }
    findings_.Invalid(text + ShapeText(AsSpan(declared)) + ")");
  }

  static std::string Names(const std::vector<OnnxValue>& values, const std::vector<OnnxValue>* more) {
    std::set<std::string> names;
    for (const OnnxValue& value : values) names.insert(value.name);
    if (more != nullptr) {
      for (const OnnxValue& value : *more) names.insert(value.name);
    }
    return fmt::format("{}", fmt::join(names, ", "));
  }

  const ModelIo& io_;
  const inference::ModelConfig& config_;
  Findings findings_;
};

bool CanBatch(const ModelIo& io) {
  const auto batches = [](const OnnxValue& value) { return !value.dims.empty() && value.dims[0].value < 0; };
  return std::all_of(io.inputs.begin(), io.inputs.end(), batches) &&
         std::all_of(io.outputs.begin(), io.outputs.end(), batches);
}

// Name, type and dims of one tensor of the model, as a configuration writes them.
template <typename Tensor>
void FillTensor(const OnnxValue& value, bool batching, Tensor* tensor) {
  tensor->set_name(value.name);
  tensor->set_data_type(static_cast<inference::DataType>(DataTypeOfOnnx(value.element_type)));
  for (std::size_t i = batching ? 1 : 0; i < value.dims.size(); ++i) tensor->add_dims(value.dims[i].value);
  if (tensor->dims_size() != 0) return;
  tensor->add_dims(1);
  if (batching) tensor->mutable_reshape();
}

std::vector<const OnnxValue*> ByName(const std::vector<OnnxValue>& values) {
  std::vector<const OnnxValue*> sorted;
  for (const OnnxValue& value : values) sorted.push_back(&value);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
  return sorted;
}

}  // namespace

absl::Status CompleteConfig(const ModelIo& io, int default_max_batch_size, inference::ModelConfig* config) {
  const bool has_inputs = config->input_size() > 0 || config->batch_input_size() > 0;
  const bool has_outputs = config->output_size() > 0;
  if (has_inputs && has_outputs) {
    LOG_INFO("skipping model configuration auto-complete for '{}': inputs and outputs already specified",
             config->name());
    return absl::OkStatus();
  }
  if (!CanBatch(io)) {
    if (config->max_batch_size() > 0) {
      return absl::InvalidArgumentError(fmt::format(
          "autofill failed for model '{}': model does not support batching while non-zero max_batch_size is "
          "specified",
          config->name()));
    }
  } else {
    if (config->max_batch_size() == 0) {
      config->set_max_batch_size(default_max_batch_size);
      LOG_WARNING(
          "autofilled max_batch_size to {} for model '{}' since batching is supporrted but no max_batch_size is "
          "specified in model configuration. Must specify max_batch_size to utilize autofill with a larger max batch "
          "size",
          default_max_batch_size, config->name());
    }
    if (config->max_batch_size() > 1 && !config->has_sequence_batching() && !config->has_dynamic_batching()) {
      config->mutable_dynamic_batching();
    }
  }
  const bool batching = config->max_batch_size() > 0;
  if (!has_inputs) {
    for (const OnnxValue* value : ByName(io.inputs)) FillTensor(*value, batching, config->add_input());
  }
  if (!has_outputs) {
    for (const OnnxValue* value : ByName(io.outputs)) FillTensor(*value, batching, config->add_output());
  }
  return absl::OkStatus();
}

absl::Status CheckConfig(const ModelIo& io, const inference::ModelConfig& config, bool output_shapes) {
  return Checker(io, config).Run(output_shapes);
}

}  // namespace tidemark
