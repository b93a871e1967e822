#include <algorithm>
#include <string>
#include <utility>

#include "backends/tensorrt/trt_config.h"
#include "base/status.h"

namespace tidemark {
namespace {

using inference::ModelConfig;
using inference::ModelInstanceGroup;

std::string TypeName(int data_type) { return std::string(ConfigName(static_cast<DataType>(data_type))); }

// Can TensorRT have tensors of that configuration type?
bool Possible(DataType type) {
  switch (type) {
    case DataType::kFp32:
    case DataType::kFp16:
    case DataType::kBf16:
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kInt32:
    case DataType::kInt64:
    case DataType::kBool:
      return true;
    default:
      return false;
  }
}

// The checks for one group, in Triton's order; nothing stops at the first finding.
class Checker {
 public:
  Checker(const TrtIo& io, const ModelConfig& config, const ModelInstanceGroup& group, std::string_view instance)
      : io_(io), config_(config), instance_(instance), profiles_(ProfilesOf(group)) {}

  absl::Status Run() {
    CheckProfiles();
    CheckCount();
    CheckNames();
    for (const auto& input : config_.input()) CheckFlags(input, "input");
    for (const auto& output : config_.output()) CheckFlags(output, "output");
    for (const auto& input : config_.input()) CheckInput(input);
    for (const auto& output : config_.output()) CheckOutput(output);
    CheckComplete();
    return out_.Status();
  }

 private:
  bool batching() const { return config_.max_batch_size() > 0; }

  void CheckProfiles() {
    for (const int profile : profiles_) {
      if (profile < io_.profiles) continue;
      out_.Invalid(
          fmt::format("Can not set the specified optimization profile {}[{}] for {}. Expected optimization "
                      "profile index range 0-{}",
                      profile, profile, instance_, io_.profiles - 1));
    }
  }

  void CheckCount() {
    const auto inputs = std::count_if(io_.tensors.begin(), io_.tensors.end(), [](const auto& t) { return t.input; });
    if (config_.input_size() <= inputs) return;
    out_.Invalid(fmt::format("unable to load model '{}', configuration expects {} inputs, model provides at most {}",
                             config_.name(), config_.input_size(), inputs));
  }

  void CheckNames() {
    for (const auto& input : config_.input()) {
      const TrtTensor* const tensor = io_.Find(input.name());
      if (tensor != nullptr && tensor->input) continue;
      out_.Invalid(
          fmt::format("unexpected inference input '{}', allowed inputs are: {}", input.name(), io_.Names(true)));
    }
    for (const auto& output : config_.output()) {
      const TrtTensor* const tensor = io_.Find(output.name());
      if (tensor != nullptr && !tensor->input) continue;
      out_.Invalid(
          fmt::format("unexpected inference output '{}', allowed outputs are: {}", output.name(), io_.Names(false)));
    }
  }

  template <typename Tensor>
  void CheckFlags(const Tensor& config, std::string_view what) {
    const TrtTensor* const tensor = io_.Find(config.name());
    if (!Possible(static_cast<DataType>(config.data_type()))) {
      out_.Internal(fmt::format("unsupported datatype {} for {} '{}' for model '{}'", TypeName(config.data_type()),
                                what, config.name(), config_.name()));
    }
    if (tensor == nullptr) return;
    if (tensor->shape && !config.is_shape_tensor()) {
      out_.Internal(
          fmt::format("{} '{}' for model '{}' is a shape tensor but the model configuration doesn't mark it as "
                      "a shape tensor.",
                      what, config.name(), config_.name()));
    } else if (!tensor->shape && config.is_shape_tensor()) {
      out_.Internal(
          fmt::format("{} '{}' for model '{}' is incorrectly marked as a shape tensor in the model "
                      "configuration.",
                      what, config.name(), config_.name()));
    }
    const bool linear = tensor->linear();
    if (linear == config.is_non_linear_format_io()) {
      out_.Internal(fmt::format(
          "{} '{}' for model '{}' uses a {} IO format, but 'is_non_linear_format_io' is "
          "incorrectly set to {} in the model configuration.",
          what, config.name(), config_.name(), linear ? "linear" : "non-linear", linear ? "true" : "false"));
    }
  }

  void CheckInput(const inference::ModelInput& config) {
    const TrtTensor* const tensor = io_.Find(config.name());
    if (tensor == nullptr) return;
    if (!tensor->input) {
      out_.Invalid(fmt::format("input '{}' is expected to be an input in model for {}", config.name(), instance_));
      return;
    }
    const auto type = static_cast<DataType>(config.data_type());
    if (tensor->shape) {
      if (type != DataType::kInt32 && type != DataType::kInt64) {
        out_.Invalid(
            fmt::format("unexpected datatype {} in model configuration for shape input '{}', expecting "
                        "TYPE_INT32 or TYPE_INT64 for {}",
                        TypeName(config.data_type()), config.name(), instance_));
      } else if (!Carries(type, tensor->type)) {
        out_.Invalid(fmt::format("unexpected datatype {} in engine for shape input '{}', expecting {} for {}",
                                 TypeNameOf(tensor->type), config.name(), TypeName(config.data_type()), instance_));
      }
      CheckShapeTensor(config, *tensor);
      return;
    }
    CheckType(config, *tensor, "input", type);
    CheckFormat(*tensor);
    if (CheckDims(config, *tensor)) CheckRange(config, *tensor);
  }

  void CheckOutput(const inference::ModelOutput& config) {
    const TrtTensor* const tensor = io_.Find(config.name());
    if (tensor == nullptr) return;
    if (tensor->input) {
      out_.Invalid(fmt::format("output '{}' is expected to be an input in model for {}", config.name(), instance_));
      return;
    }
    const auto type = static_cast<DataType>(config.data_type());
    if (tensor->shape && type != DataType::kInt64) {
      out_.Invalid(
          fmt::format("unexpected datatype '{} in model configuration for shape output '{}', expecting "
                      "TYPE_INT64 for {}",
                      TypeName(config.data_type()), config.name(), instance_));
      return;
    }
    CheckType(config, *tensor, "output", type);
    CheckFormat(*tensor);
    if (tensor->shape) {
      CheckShapeTensor(config, *tensor);
    } else {
      CheckDims(config, *tensor);
    }
  }

  template <typename Tensor>
  void CheckType(const Tensor& config, const TrtTensor& tensor, std::string_view what, DataType type) {
    if (ElementBytes(tensor.type) == 0) {
      out_.Add(absl::StatusCode::kUnimplemented,
               fmt::format("{} '{}' of model '{}' has the type {}, which packs two elements into a byte and has no "
                           "equivalent in the protocol",
                           what, config.name(), config_.name(), TypeNameOf(tensor.type)));
      return;
    }
    if (!Possible(type) || Carries(type, tensor.type)) return;
    out_.Invalid(fmt::format("unexpected datatype {} for inference {} '{}', expecting {} for {}",
                             TypeNameOf(tensor.type), what, config.name(), TypeName(config.data_type()), instance_));
  }

  void CheckFormat(const TrtTensor& tensor) {
    for (const int profile : profiles_) {
      if (profile >= io_.profiles) continue;
      const TrtFormat& format = tensor.formats[static_cast<std::size_t>(profile)];
      if (format.linear || format.vectorized_dim >= 0) continue;
      out_.Invalid(
          fmt::format("unexpected vectorized dim is -1 for non-linear tensor '{}' for {}", tensor.name, instance_));
      return;
    }
  }

  // True when the shapes agree.
  template <typename Tensor>
  bool CheckDims(const Tensor& config, const TrtTensor& tensor) {
    Shape declared = EngineDims(config);
    if (batching() && tensor.dims.empty()) {
      out_.Invalid(
          fmt::format("model '{}', tensor '{}': for the model to support batching the shape should have at "
                      "least 1 dimension; but shape expected by the model is []",
                      config_.name(), config.name()));
      return false;
    }
    if (batching()) declared.insert(declared.begin(), -1);
    bool agrees = declared.size() == tensor.dims.size();
    for (std::size_t i = batching() ? 1 : 0; agrees && i < declared.size(); ++i) {
      agrees = tensor.dims[i] == -1 || tensor.dims[i] == declared[i];
    }
    if (agrees) return true;
    std::string text = fmt::format(
        "model '{}', tensor '{}': the model expects {} dimensions (shape {}) but the model configuration specifies {} "
        "dimensions (",
        config_.name(), config.name(), tensor.dims.size(), ShapeText(AsSpan(tensor.dims)), declared.size());
    text += batching() ? "an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, "
                         "making complete shape "
                       : "shape ";
    out_.Invalid(text + ShapeText(AsSpan(declared)) + ")");
    return false;
  }

  void CheckRange(const inference::ModelInput& config, const TrtTensor& tensor) {
    Shape declared = EngineDims(config);
    if (batching()) declared.insert(declared.begin(), -1);
    const std::string head = fmt::format(
        "model configuration specified invalid shape for input '{}' for model {}. Error details: model expected ",
        config.name(), config_.name());
    for (const int profile : profiles_) {
      if (profile >= io_.profiles) continue;
      const TrtRange& range = tensor.dim_range[static_cast<std::size_t>(profile)];
      if (range.max.size() != declared.size()) {
        out_.Invalid(
            fmt::format("{}{} dimensions but received {} dimensions", head, range.max.size(), declared.size()));
        return;
      }
      for (std::size_t i = 0; i < declared.size(); ++i) {
        if (declared[i] < 0 || (declared[i] >= range.min[i] && declared[i] <= range.max[i])) continue;
        out_.Invalid(fmt::format("{}the shape of dimension {} to be between {} and {} but received {}", head, i,
                                 range.min[i], range.max[i], declared[i]));
        return;
      }
    }
  }

  template <typename Tensor>
  void CheckShapeTensor(const Tensor& config, const TrtTensor& tensor) {
    if (tensor.dims.size() > 1) {
      out_.Internal(fmt::format("unable to load model '{}', shape binding '{}' can only be 0-d or 1-D tensor, got {}",
                                instance_, config.name(), ShapeText(AsSpan(tensor.dims))));
      return;
    }
    const Shape declared = EngineDims(config);
    std::int64_t length = 1;
    for (const std::int64_t dim : declared) length = dim < 0 ? -1 : length * dim;
    if (length >= 0 && length + (batching() ? 1 : 0) == tensor.length()) return;
    out_.Internal(
        fmt::format("unable to load model '{}', binding '{}' shape expected by framework {} doesn't match model "
                    "configuration shape {}",
                    instance_, config.name(), ShapeText(AsSpan(tensor.dims)), ShapeText(AsSpan(declared))));
  }

  // Every tensor of the engine needs somebody who feeds or takes it.
  void CheckComplete() {
    const std::vector<std::string> fed = ServerFedInputs(config_);
    for (const TrtTensor& tensor : io_.tensors) {
      const auto named = [&](const auto& t) { return t.name() == tensor.name; };
      const bool known = tensor.input ? std::any_of(config_.input().begin(), config_.input().end(), named) ||
                                            std::find(fed.begin(), fed.end(), tensor.name) != fed.end()
                                      : std::any_of(config_.output().begin(), config_.output().end(), named) ||
                                            StateOutput(tensor.name);
      if (known) continue;
      out_.Invalid(fmt::format("expected configuration for {} '{}' for {}", tensor.input ? "input" : "output",
                               tensor.name, instance_));
    }
  }

  bool StateOutput(const std::string& name) const {
    const auto& states = config_.sequence_batching().state();
    return std::any_of(states.begin(), states.end(), [&](const auto& state) { return state.output_name() == name; });
  }

  const TrtIo& io_;
  const ModelConfig& config_;
  const std::string_view instance_;
  const std::vector<int> profiles_;
  TrtFindings out_;
};

}  // namespace

absl::Status CheckTrtConfig(const TrtIo& io, const ModelConfig& config, const ModelInstanceGroup& group,
                            std::string_view instance) {
  return Checker(io, config, group, instance).Run();
}

}  // namespace tidemark
