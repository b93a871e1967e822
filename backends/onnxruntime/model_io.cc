#include "backends/onnxruntime/model_io.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>
#include <span>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "repository/config_finding.h"

namespace tidemark {
namespace {

std::string TypeName(int data_type) { return std::string(ConfigName(static_cast<DataType>(data_type))); }

const OnnxValue* Find(const std::vector<OnnxValue>& values, const std::string& name) {
  const auto it = std::find_if(values.begin(), values.end(), [&](const OnnxValue& v) { return v.name == name; });
  return it == values.end() ? nullptr : &*it;
}

// Dims as a configuration writes them.
std::string DimsText(const Shape& dims) { return fmt::format("[ {} ]", fmt::join(dims, ", ")); }

class Checker {
 public:
  Checker(const ModelIo& io, const inference::ModelConfig& config) : io_(io), config_(config) {}

  absl::Status Run(bool output_shapes) {
    for (const OnnxValue& value : io_.inputs) CheckKind(value);
    for (const OnnxValue& value : io_.outputs) CheckKind(value);
    CheckControls();
    CheckCount();
    for (int i = 0; i < config_.input_size(); ++i) CheckInput(config_.input(i), fmt::format("input[{}]", i));
    for (int i = 0; i < config_.batch_input_size(); ++i) CheckBatchInput(config_.batch_input(i), i);
    for (int i = 0; i < config_.output_size(); ++i) {
      CheckOutput(config_.output(i), fmt::format("output[{}]", i), output_shapes && !IsScattered(config_.output(i)));
    }
    return StatusOf(findings_.list());
  }

 private:
  bool batching() const { return config_.max_batch_size() > 0; }

  void CheckKind(const OnnxValue& value) {
    if (value.kind == OnnxKind::kTensor) return;
    findings_.AddWithCode(absl::StatusCode::kUnimplemented, "default_model_filename",
                          "Unsupported ONNX Type '{}' for I/O '{}', expected '{}'.", OnnxKindName(value.kind),
                          value.name, OnnxKindName(OnnxKind::kTensor));
  }

  // `name` is no input or output of the model; what was meant, if one is near.
  void ExplainName(const std::string& name, const std::vector<OnnxValue>& values, const std::string& allowed,
                   Finding& finding) {
    std::vector<std::string_view> names;
    for (const OnnxValue& value : values) {
      const auto declares = [&](const auto& tensor) { return tensor.name() == value.name; };
      if (std::none_of(config_.input().begin(), config_.input().end(), declares) &&
          std::none_of(config_.output().begin(), config_.output().end(), declares)) {
        names.push_back(value.name);
      }
    }
    finding.Says(fmt::format("'{}'", name),
                 allowed.empty() ? std::string("no tensor") : "one of the model's: " + allowed);
    const std::string_view nearest = names.size() == 1 ? names.front() : NearestName(name, names);
    if (!nearest.empty()) finding.SetTo(QuotedText(nearest));
  }

  void CheckControls() {
    const auto& inputs = config_.sequence_batching().control_input();
    for (int i = 0; i < inputs.size(); ++i) {
      const std::string path = fmt::format("sequence_batching.control_input[{}]", i);
      for (int k = 0; k < inputs[i].control_size(); ++k) {
        const OnnxValue* value = Find(io_.inputs, inputs[i].name());
        if (value == nullptr) {
          Finding& finding = findings_.AddWithCode(
              absl::StatusCode::kInternal, path + ".name",
              "configuration specified sequence control '{}', but model does not provide that input", inputs[i].name());
          ExplainName(inputs[i].name(), io_.inputs, Names(io_.inputs, nullptr), finding);
          break;
        }
        CheckControl(inputs[i].name(), *value, inputs[i].control(k), fmt::format("{}.control[{}]", path, k));
      }
    }
  }

  void CheckControl(const std::string& name, const OnnxValue& value,
                    const inference::ModelSequenceBatching::Control& control, const std::string& path) {
    Shape shape = value.DeclaredShape();
    if (batching() && !shape.empty()) shape.erase(shape.begin());
    if (shape.size() != 1 || shape[0] != 1) {
      findings_
          .Add(path, "unable to load model '{}', sequence control '{}' in model has dims {} but dims [1] is expected",
               config_.name(), name, ShapeText(AsSpan(shape)))
          .Says(fmt::format("an input of dims {}", ShapeText(AsSpan(shape))), "an input of dims [1]");
    }
    auto type = DataType::kInvalid;
    if (control.int32_false_true_size() > 0) type = DataType::kInt32;
    if (control.fp32_false_true_size() > 0) type = DataType::kFp32;
    if (control.bool_false_true_size() > 0) type = DataType::kBool;
    if (control.data_type() != inference::TYPE_INVALID) type = static_cast<DataType>(control.data_type());
    if (type != DataTypeOfOnnx(value.element_type)) {
      findings_
          .Add(path + (control.data_type() != inference::TYPE_INVALID ? ".data_type" : ""),
               "unable to load model '{}', sequence control '{}', the model expects data-type {} but the model "
               "configuration specifies data-type {}",
               config_.name(), name, OnnxElementTypeName(value.element_type), ConfigName(type))
          .Says(std::string(ConfigName(type)), std::string(ConfigName(DataTypeOfOnnx(value.element_type))));
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
    if (expected == io_.inputs.size()) return;
    Finding& finding = findings_
                           .Add(fmt::format("input[{}]", config_.input_size()),
                                "unable to load model '{}', configuration expects {} inputs, model provides {}",
                                config_.name(), expected, io_.inputs.size())
                           .Says(fmt::format("{} inputs", expected),
                                 fmt::format("{}: {}", io_.inputs.size(), Names(io_.inputs, nullptr)));
    if (const std::string missing = MissingInputs(); expected < io_.inputs.size() && !missing.empty()) {
      finding.InsertText(missing);
    }
  }

  // The model's inputs that the configuration does not name, as it would write them; empty when some tensor of it may
  // be one of them by a wrong name.
  std::string MissingInputs() const {
    std::set<std::string> named;
    for (const auto& input : config_.input()) {
      if (Find(io_.inputs, input.name()) == nullptr && !input.optional()) return {};
      named.insert(input.name());
    }
    for (const auto& input : config_.batch_input())
      named.insert(input.target_name().begin(), input.target_name().end());
    for (const auto& input : config_.sequence_batching().control_input()) named.insert(input.name());
    for (const auto& state : config_.sequence_batching().state()) named.insert(state.input_name());
    std::vector<std::string> texts;
    for (const OnnxValue& value : io_.inputs) {
      if (named.contains(value.name)) continue;
      texts.push_back(fmt::format("input {{ name: {} data_type: {} dims: {} }}", QuotedText(value.name),
                                  ConfigName(DataTypeOfOnnx(value.element_type)), DimsText(DeclarableDims(value))));
    }
    return fmt::format("{}", fmt::join(texts, "\n"));
  }

  // The model's shape as the configuration should have it.
  Shape DeclarableDims(const OnnxValue& value) const {
    Shape dims = value.DeclaredShape();
    if (batching() && !dims.empty()) dims.erase(dims.begin());
    if (dims.empty()) dims.push_back(1);
    return dims;
  }

  void CheckInput(const inference::ModelInput& input, const std::string& path) {
    const OnnxValue* value = Find(io_.inputs, input.name());
    if (input.optional()) {
      if (batching()) {
        findings_
            .Add(path + ".optional",
                 "unable to load model '{}', optional input '{}' is not supported for models that support batching",
                 config_.name(), input.name())
            .Says("true", "false with max_batch_size above 0")
            .SetTo("false");
        return;
      }
      if (value == nullptr) value = Find(io_.overridable, input.name());
    }
    if (value == nullptr) {
      const std::string allowed = Names(io_.inputs, input.optional() ? &io_.overridable : nullptr);
      ExplainName(input.name(), io_.inputs, allowed,
                  findings_.Add(path + ".name", "unexpected inference input '{}', allowed inputs are: {}", input.name(),
                                allowed));
      return;
    }
    if (value->kind != OnnxKind::kTensor) return;
    CheckType(input.data_type(), *value, "input", path);
    if (input.allow_ragged_batch()) {
      CheckRagged(input, *value, path);
      return;
    }
    const auto& dims = input.has_reshape() ? input.reshape().shape() : input.dims();
    CheckShape(Shape(dims.begin(), dims.end()), *value, /*exact=*/false,
               path + (input.has_reshape() ? ".reshape.shape" : ".dims"));
  }

  void CheckRagged(const inference::ModelInput& input, const OnnxValue& value, const std::string& path) {
    const Shape shape = value.DeclaredShape();
    if (input.optional()) {
      findings_
          .Add(path + ".allow_ragged_batch",
               "unable to load model '{}', configuration expects model provides input with shape [-1] for ragged input "
               "'{}', which is not supported for optional input",
               config_.name(), input.name())
          .Says("true", "false for an optional input")
          .SetTo("false");
    } else if (shape.size() != 1 || shape[0] != -1) {
      findings_
          .Add(
              path + ".allow_ragged_batch",
              "unable to load model '{}', configuration expects model provides input with shape [-1]  for ragged input "
              "'{}', model provides {}",
              config_.name(), input.name(), ShapeText(AsSpan(shape)))
          .Says(fmt::format("true for shape {}", ShapeText(AsSpan(shape))), "false unless the model's shape is [-1]")
          .SetTo("false");
    }
  }

  // A tensor that is made for each batch: the model has it, with that type; its shape is the kind's.
  void CheckBatchInput(const inference::BatchInput& input, int index) {
    for (int i = 0; i < input.target_name_size(); ++i) {
      const std::string& name = input.target_name(i);
      const OnnxValue* value = Find(io_.inputs, name);
      if (value == nullptr) {
        const std::string allowed = Names(io_.inputs, nullptr);
        ExplainName(name, io_.inputs, allowed,
                    findings_.Add(fmt::format("batch_input[{}].target_name[{}]", index, i),
                                  "unexpected inference input '{}', allowed inputs are: {}", name, allowed));
      } else if (value->kind == OnnxKind::kTensor) {
        CheckType(input.data_type(), *value, "input", fmt::format("batch_input[{}]", index));
      }
    }
  }

  // A flat output, which is cut by the shapes of an input: the model's shape of it is not the client's.
  bool IsScattered(const inference::ModelOutput& output) const {
    return std::any_of(config_.batch_output().begin(), config_.batch_output().end(), [&](const auto& batch) {
      return std::find(batch.target_name().begin(), batch.target_name().end(), output.name()) !=
             batch.target_name().end();
    });
  }

  void CheckOutput(const inference::ModelOutput& output, const std::string& path, bool shapes) {
    const OnnxValue* value = Find(io_.outputs, output.name());
    if (value == nullptr) {
      const std::string allowed = Names(io_.outputs, nullptr);
      ExplainName(output.name(), io_.outputs, allowed,
                  findings_.Add(path + ".name", "unexpected inference output '{}', allowed outputs are: {}",
                                output.name(), allowed));
      return;
    }
    if (value->kind != OnnxKind::kTensor) return;
    CheckType(output.data_type(), *value, "output", path);
    if (!shapes) return;
    const auto& dims = output.has_reshape() ? output.reshape().shape() : output.dims();
    CheckShape(Shape(dims.begin(), dims.end()), *value, /*exact=*/true,
               path + (output.has_reshape() ? ".reshape.shape" : ".dims"));
  }

  void CheckType(int data_type, const OnnxValue& value, std::string_view what, const std::string& path) {
    const auto type = static_cast<DataType>(data_type);
    const DataType model_type = DataTypeOfOnnx(value.element_type);
    const std::string field = path + ".data_type";
    const auto explain = [&](Finding& finding) {
      finding.Says(type == DataType::kInvalid ? std::string() : TypeName(data_type),
                   fmt::format("{}, as the model has", ConfigName(model_type)));
      if (model_type != DataType::kInvalid) finding.SetTo(std::string(ConfigName(model_type)));
    };
    if (OnnxOfDataType(type) == 0) {
      explain(findings_.AddWithCode(absl::StatusCode::kInternal, field,
                                    "unsupported datatype {} for {} '{}' for model '{}'", TypeName(data_type), what,
                                    value.name, config_.name()));
      return;
    }
    if (model_type == type) return;
    std::string model_name(ConfigName(model_type));
    if (model_type == DataType::kInvalid) model_name += fmt::format(" ({})", OnnxElementTypeName(value.element_type));
    explain(findings_.Add(field,
                          "unable to load model '{}', configuration expects datatype {} for {} '{}', model provides {}",
                          config_.name(), TypeName(data_type), what, value.name, model_name));
  }

  void CheckShape(Shape declared, const OnnxValue& value, bool exact, const std::string& path) {
    if (!value.has_shape) return;  // the model says nothing about it, so nothing can be compared
    const Shape model = value.DeclaredShape();
    const std::string written = DimsText(declared);
    if (!batching() && model.empty()) {
      if (declared.size() == 1 && declared[0] == 1) return;
      findings_
          .Add(
              path,
              "unable to load model '{}', scalar tensor '{}', should only provide 1 in the model configuration when the "
              "model doesn't support batching. Model configuration provided: {}.",
              config_.name(), value.name, ShapeText(AsSpan(declared)))
          .Says(written, "[ 1 ] for a scalar")
          .SetTo("[ 1 ]");
      return;
    }
    if (batching()) {
      if (model.empty() || model[0] != -1) {
        AddNoBatch(value, model);
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
    const std::string fitting = DimsText(DeclarableDims(value));
    findings_.Add(path, "{}{})", text, ShapeText(AsSpan(declared)))
        .Says(written, fmt::format("{}, as the model has{}", fitting, batching() ? " behind the batch dimension" : ""))
        .SetTo(fitting);
  }

  // One for the whole configuration: it is max_batch_size that does not fit. Triton's text names the first tensor.
  void AddNoBatch(const OnnxValue& value, const Shape& model) {
    if (no_batch_) return;
    no_batch_ = true;
    findings_
        .Add(
            "max_batch_size",
            "model '{}', tensor '{}': for the model to support batching the shape should have at least 1 dimension and the "
            "first dimension must be -1; but shape expected by the model is {}",
            config_.name(), value.name, ShapeText(AsSpan(model)))
        .Says(fmt::format("{}", config_.max_batch_size()), fmt::format("0, as '{}' has no batch dimension", value.name))
        .SetTo("0");
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
  bool no_batch_ = false;
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
      Findings findings;
      findings
          .Add("max_batch_size",
               "autofill failed for model '{}': model does not support batching while non-zero max_batch_size is "
               "specified",
               config->name())
          .Says(fmt::format("{}", config->max_batch_size()), "0, as the model has no batch dimension")
          .SetTo("0");
      return StatusOf(findings.list());
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
