#include <fmt/ranges.h>

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

// Dims as a configuration writes them.
std::string DimsText(const Shape& dims) { return fmt::format("[ {} ]", fmt::join(dims, ", ")); }

// Where a tensor's dims are written that the engine sees.
template <typename Tensor>
std::string DimsField(const Tensor& tensor, const std::string& path) {
  return path + (tensor.has_reshape() ? ".reshape.shape" : ".dims");
}

std::string BoolText(bool value) { return value ? "true" : "false"; }

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
  Checker(const TrtIo& io, const ModelConfig& config, int group, std::string_view instance)
      : io_(io),
        config_(config),
        group_(group),
        instance_(instance),
        profiles_(ProfilesOf(config.instance_group(group))) {}

  std::vector<Finding> Run() {
    CheckProfiles();
    CheckCount();
    CheckNames(true, config_.input());
    CheckNames(false, config_.output());
    const auto input = [](int i) { return fmt::format("input[{}]", i); };
    const auto output = [](int i) { return fmt::format("output[{}]", i); };
    for (int i = 0; i < config_.input_size(); ++i) CheckFlags(config_.input(i), "input", input(i));
    for (int i = 0; i < config_.output_size(); ++i) CheckFlags(config_.output(i), "output", output(i));
    for (int i = 0; i < config_.input_size(); ++i) CheckInput(config_.input(i), input(i));
    for (int i = 0; i < config_.output_size(); ++i) CheckOutput(config_.output(i), output(i));
    CheckComplete();
    return std::move(out_).Take();
  }

 private:
  bool batching() const { return config_.max_batch_size() > 0; }

  void CheckProfiles() {
    for (const int profile : profiles_) {
      if (profile < io_.profiles) continue;
      out_.Add(
              fmt::format("instance_group[{}].profile", group_),
              "Can not set the specified optimization profile {}[{}] for {}. Expected optimization profile index range "
              "0-{}",
              profile, profile, instance_, io_.profiles - 1)
          .Says(fmt::format("{}", profile), fmt::format("0 to {}", io_.profiles - 1));
    }
  }

  void CheckCount() {
    const auto inputs = std::count_if(io_.tensors.begin(), io_.tensors.end(), [](const auto& t) { return t.input; });
    if (config_.input_size() <= inputs) return;
    out_.Add("input", "unable to load model '{}', configuration expects {} inputs, model provides at most {}",
             config_.name(), config_.input_size(), inputs)
        .Says(fmt::format("{} inputs", config_.input_size()), fmt::format("{}: {}", inputs, io_.Names(true)));
  }

  template <typename Tensors>
  void CheckNames(bool input, const Tensors& tensors) {
    const std::string_view what = input ? "input" : "output";
    for (int i = 0; i < tensors.size(); ++i) {
      const std::string& name = tensors.Get(i).name();
      const TrtTensor* const tensor = io_.Find(name);
      if (tensor != nullptr && tensor->input == input) continue;
      ExplainTensorName(
          io_, config_, input, name,
          out_.Add(fmt::format("{}[{}].name", what, i), "unexpected inference {} '{}', allowed {}s are: {}", what, name,
                   what, io_.Names(input)));
    }
  }

  template <typename Tensor>
  void CheckFlags(const Tensor& config, std::string_view what, const std::string& path) {
    const TrtTensor* const tensor = io_.Find(config.name());
    if (!Possible(static_cast<DataType>(config.data_type()))) {
      Finding& finding = out_.AddWithCode(absl::StatusCode::kInternal, path + ".data_type",
                                          "unsupported datatype {} for {} '{}' for model '{}'",
                                          TypeName(config.data_type()), what, config.name(), config_.name());
      if (tensor != nullptr) ExplainType(config.data_type(), *tensor, finding);
    }
    if (tensor == nullptr) return;
    if (tensor->shape && !config.is_shape_tensor()) {
      out_.AddWithCode(
              absl::StatusCode::kInternal, path + ".is_shape_tensor",
              "{} '{}' for model '{}' is a shape tensor but the model configuration doesn't mark it as a shape tensor.",
              what, config.name(), config_.name())
          .Says("false", "true, as the plan has")
          .SetTo("true");
    } else if (!tensor->shape && config.is_shape_tensor()) {
      out_.AddWithCode(absl::StatusCode::kInternal, path + ".is_shape_tensor",
                       "{} '{}' for model '{}' is incorrectly marked as a shape tensor in the model configuration.",
                       what, config.name(), config_.name())
          .Says("true", "false, as the plan has")
          .SetTo("false");
    }
    const bool linear = tensor->linear();
    if (linear == config.is_non_linear_format_io()) {
      out_.AddWithCode(
              absl::StatusCode::kInternal, path + ".is_non_linear_format_io",
              "{} '{}' for model '{}' uses a {} IO format, but 'is_non_linear_format_io' is incorrectly set to "
              "{} in the model configuration.",
              what, config.name(), config_.name(), linear ? "linear" : "non-linear", BoolText(linear))
          .Says(BoolText(linear), BoolText(!linear) + ", as the plan has")
          .SetTo(BoolText(!linear));
    }
  }

  void CheckInput(const inference::ModelInput& config, const std::string& path) {
    const TrtTensor* const tensor = io_.Find(config.name());
    if (tensor == nullptr) return;
    if (!tensor->input) {
      out_.Add(path, "input '{}' is expected to be an input in model for {}", config.name(), instance_)
          .Says(fmt::format("input '{}'", config.name()), "an output, as the plan has");
      return;
    }
    const auto type = static_cast<DataType>(config.data_type());
    if (tensor->shape) {
      CheckShapeInputType(config, *tensor, path + ".data_type");
      CheckShapeTensor(config, *tensor, path);
      return;
    }
    CheckType(config, *tensor, "input", type, path);
    CheckFormat(*tensor, path);
    if (CheckDims(config, *tensor, path)) CheckRange(config, *tensor, path);
  }

  void CheckShapeInputType(const inference::ModelInput& config, const TrtTensor& tensor, const std::string& field) {
    const auto type = static_cast<DataType>(config.data_type());
    if (type != DataType::kInt32 && type != DataType::kInt64) {
      ExplainType(
          config.data_type(), tensor,
          out_.Add(field,
                   "unexpected datatype {} in model configuration for shape input '{}', expecting TYPE_INT32 or "
                   "TYPE_INT64 for {}",
                   TypeName(config.data_type()), config.name(), instance_));
    } else if (!Carries(type, tensor.type)) {
      ExplainType(config.data_type(), tensor,
                  out_.Add(field, "unexpected datatype {} in engine for shape input '{}', expecting {} for {}",
                           TypeNameOf(tensor.type), config.name(), TypeName(config.data_type()), instance_));
    }
  }

  void CheckOutput(const inference::ModelOutput& config, const std::string& path) {
    const TrtTensor* const tensor = io_.Find(config.name());
    if (tensor == nullptr) return;
    if (tensor->input) {
      out_.Add(path, "output '{}' is expected to be an input in model for {}", config.name(), instance_)
          .Says(fmt::format("output '{}'", config.name()), "an input, as the plan has");
      return;
    }
    const auto type = static_cast<DataType>(config.data_type());
    if (tensor->shape && type != DataType::kInt64) {
      ExplainType(config.data_type(), *tensor,
                  out_.Add(path + ".data_type",
                           "unexpected datatype '{} in model configuration for shape output '{}', expecting TYPE_INT64 "
                           "for {}",
                           TypeName(config.data_type()), config.name(), instance_));
      return;
    }
    CheckType(config, *tensor, "output", type, path);
    CheckFormat(*tensor, path);
    if (tensor->shape) {
      CheckShapeTensor(config, *tensor, path);
    } else {
      CheckDims(config, *tensor, path);
    }
  }

  // What the plan has, and the type that a configuration writes for it where there is one.
  static void ExplainType(int data_type, const TrtTensor& tensor, Finding& finding) {
    const DataType served = DataTypeOf(tensor.type);
    const bool own_name = served != DataType::kInvalid && ConfigName(served) != TypeNameOf(tensor.type);
    finding.Says(data_type == inference::TYPE_INVALID ? std::string() : TypeName(data_type),
                 own_name ? fmt::format("{}, for the plan's {}", ConfigName(served), TypeNameOf(tensor.type))
                          : fmt::format("{}, as the plan has", TypeNameOf(tensor.type)));
    if (served != DataType::kInvalid) finding.SetTo(std::string(ConfigName(served)));
  }

  template <typename Tensor>
  void CheckType(const Tensor& config, const TrtTensor& tensor, std::string_view what, DataType type,
                 const std::string& path) {
    const std::string field = path + ".data_type";
    if (ElementBytes(tensor.type) == 0) {
      out_.AddWithCode(absl::StatusCode::kUnimplemented, field,
                       "{} '{}' of model '{}' has the type {}, which packs two elements into a byte and has no "
                       "equivalent in the protocol",
                       what, config.name(), config_.name(), TypeNameOf(tensor.type));
      return;
    }
    if (!Possible(type) || Carries(type, tensor.type)) return;
    ExplainType(config.data_type(), tensor,
                out_.Add(field, "unexpected datatype {} for inference {} '{}', expecting {} for {}",
                         TypeNameOf(tensor.type), what, config.name(), TypeName(config.data_type()), instance_));
  }

  void CheckFormat(const TrtTensor& tensor, const std::string& path) {
    for (const int profile : profiles_) {
      if (profile >= io_.profiles) continue;
      const TrtFormat& format = tensor.formats[static_cast<std::size_t>(profile)];
      if (format.linear || format.vectorized_dim >= 0) continue;
      out_.Add(path, "unexpected vectorized dim is -1 for non-linear tensor '{}' for {}", tensor.name, instance_);
      return;
    }
  }

  // The plan's shape as a configuration writes it.
  Shape DeclarableDims(const TrtTensor& tensor) const {
    Shape dims = tensor.dims;
    if (batching() && !dims.empty()) dims.erase(dims.begin());
    if (dims.empty()) dims.push_back(1);
    return dims;
  }

  // True when the shapes agree.
  template <typename Tensor>
  bool CheckDims(const Tensor& config, const TrtTensor& tensor, const std::string& path) {
    Shape declared = EngineDims(config);
    if (batching() && tensor.dims.empty()) {
      out_.Add("max_batch_size",
               "model '{}', tensor '{}': for the model to support batching the shape should have at least 1 dimension; "
               "but shape expected by the model is []",
               config_.name(), config.name())
          .Says(fmt::format("{}", config_.max_batch_size()),
                fmt::format("0, as '{}' has no batch dimension", config.name()))
          .SetTo("0");
      return false;
    }
    const std::string written = DimsText(declared);
    if (batching()) declared.insert(declared.begin(), -1);
    bool agrees = declared.size() == tensor.dims.size();
    for (std::size_t i = batching() ? 1 : 0; agrees && i < declared.size(); ++i) {
      agrees = tensor.dims[i] == -1 || tensor.dims[i] == declared[i];
    }
    if (agrees) return true;
    const std::string fitting = DimsText(DeclarableDims(tensor));
    out_.Add(
            DimsField(config, path),
            "model '{}', tensor '{}': the model expects {} dimensions (shape {}) but the model configuration specifies "
            "{} dimensions ({}shape {})",
            config_.name(), config.name(), tensor.dims.size(), ShapeText(AsSpan(tensor.dims)), declared.size(),
            batching() ? "an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, "
                         "making complete "
                       : "",
            ShapeText(AsSpan(declared)))
        .Says(written, fmt::format("{}, as the plan has{}", fitting, batching() ? " behind the batch dimension" : ""))
        .SetTo(fitting);
    return false;
  }

  void CheckRange(const inference::ModelInput& config, const TrtTensor& tensor, const std::string& path) {
    Shape declared = EngineDims(config);
    const std::string written = DimsText(declared);
    if (batching()) declared.insert(declared.begin(), -1);
    const std::string field = DimsField(config, path);
    const std::string head = fmt::format(
        "model configuration specified invalid shape for input '{}' for model {}. Error details: model expected ",
        config.name(), config_.name());
    for (const int profile : profiles_) {
      if (profile >= io_.profiles) continue;
      const TrtRange& range = tensor.dim_range[static_cast<std::size_t>(profile)];
      if (range.max.size() != declared.size()) {
        out_.Add(field, "{}{} dimensions but received {} dimensions", head, range.max.size(), declared.size());
        return;
      }
      for (std::size_t i = 0; i < declared.size(); ++i) {
        if (declared[i] < 0 || (declared[i] >= range.min[i] && declared[i] <= range.max[i])) continue;
        Shape fitting = declared;
        fitting[i] = range.max[i];
        if (batching()) fitting.erase(fitting.begin());
        out_.Add(field, "{}the shape of dimension {} to be between {} and {} but received {}", head, i, range.min[i],
                 range.max[i], declared[i])
            .Says(written, fmt::format("{} to {} where there is {}, as optimization profile {} has", range.min[i],
                                       range.max[i], declared[i], profile))
            .SetTo(DimsText(fitting));
        return;
      }
    }
  }

  template <typename Tensor>
  void CheckShapeTensor(const Tensor& config, const TrtTensor& tensor, const std::string& path) {
    if (tensor.dims.size() > 1) {
      out_.AddWithCode(absl::StatusCode::kInternal, path,
                       "unable to load model '{}', shape binding '{}' can only be 0-d or 1-D tensor, got {}", instance_,
                       config.name(), ShapeText(AsSpan(tensor.dims)));
      return;
    }
    const Shape declared = EngineDims(config);
    std::int64_t length = 1;
    for (const std::int64_t dim : declared) length = dim < 0 ? -1 : length * dim;
    const std::int64_t more = batching() ? 1 : 0;
    if (length >= 0 && length + more == tensor.length()) return;
    const std::string fitting = DimsText({tensor.length() - more});
    out_.AddWithCode(absl::StatusCode::kInternal, DimsField(config, path),
                     "unable to load model '{}', binding '{}' shape expected by framework {} doesn't match model "
                     "configuration shape {}",
                     instance_, config.name(), ShapeText(AsSpan(tensor.dims)), ShapeText(AsSpan(declared)))
        .Says(DimsText(declared),
              fitting + (batching() ? ", as the plan has beside the batch size" : ", as the plan has"))
        .SetTo(fitting);
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
      const std::string_view what = tensor.input ? "input" : "output";
      Finding& finding =
          out_.Add(fmt::format("{}[{}]", what, tensor.input ? config_.input_size() : config_.output_size()),
                   "expected configuration for {} '{}' for {}", what, tensor.name, instance_)
              .Says("", fmt::format("the plan's {} '{}'", what, tensor.name));
      // A tensor by a wrong name may be this one: then that is what to repair.
      if (DataTypeOf(tensor.type) == DataType::kInvalid || HasStranger(tensor.input)) continue;
      finding.InsertText(fmt::format("{} {{ name: {} data_type: {} dims: {} }}", what, QuotedText(tensor.name),
                                     ConfigName(DataTypeOf(tensor.type)), DimsText(DeclarableDims(tensor))));
    }
  }

  // Does the configuration name an input (or output) that the plan has not?
  bool HasStranger(bool input) const {
    const auto strange = [&](const auto& given) {
      const TrtTensor* const tensor = io_.Find(given.name());
      return tensor == nullptr || tensor->input != input;
    };
    return input ? std::any_of(config_.input().begin(), config_.input().end(), strange)
                 : std::any_of(config_.output().begin(), config_.output().end(), strange);
  }

  bool StateOutput(const std::string& name) const {
    const auto& states = config_.sequence_batching().state();
    return std::any_of(states.begin(), states.end(), [&](const auto& state) { return state.output_name() == name; });
  }

  const TrtIo& io_;
  const ModelConfig& config_;
  const int group_;
  const std::string_view instance_;
  const std::vector<int> profiles_;
  Findings out_;
};

}  // namespace

std::vector<Finding> CheckTrtConfig(const TrtIo& io, const ModelConfig& config, int group, std::string_view instance) {
  return Checker(io, config, group, instance).Run();
}

}  // namespace tidemark
