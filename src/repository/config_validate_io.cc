#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/data_type.h"
#include "repository/config_io.h"
#include "repository/config_validate_internal.h"

namespace tidemark {
namespace {

using inference::ModelConfig;

bool ValidDim(std::int64_t dim) { return dim >= 1 || dim == -1; }

// The product of the fixed dimensions between two -1s, for each such run. nullopt past int64.
std::optional<std::vector<std::int64_t>> FixedRuns(const Shape& dims) {
  std::vector<std::int64_t> runs = {1};
  for (const std::int64_t dim : dims) {
    if (dim == -1) {
      runs.push_back(1);
    } else if (__builtin_mul_overflow(runs.back(), dim, &runs.back())) {
      return std::nullopt;
    }
  }
  return runs;
}

// What an input and an output have in common.
struct Tensor {
  bool input = false;
  std::string path;    // "input[0]"
  std::string prefix;  // "model input 'X' "
  std::string name;
  Shape dims;
  bool has_reshape = false;
  Shape reshape;
  inference::DataType type = inference::TYPE_INVALID;
  bool shape_tensor = false;
  bool non_linear = false;
};

template <typename Proto>
Tensor Describe(const Proto& proto, bool input, int index) {
  Tensor t;
  t.input = input;
  t.path = fmt::format("{}[{}]", input ? "input" : "output", index);
  t.prefix = fmt::format("model {} '{}' ", input ? "input" : "output", proto.name());
  t.name = proto.name();
  t.dims = DimsOf(proto);
  t.has_reshape = proto.has_reshape();
  if (t.has_reshape) t.reshape = BackendDimsOf(proto);
  t.type = proto.data_type();
  t.shape_tensor = proto.is_shape_tensor();
  t.non_linear = proto.is_non_linear_format_io();
  return t;
}

class IoValidator {
 public:
  explicit IoValidator(const ModelConfig& config) : config_(config) {}

  std::vector<Finding> Run() {
    for (int i = 0; i < config_.input_size(); ++i) {
      const Tensor t = Describe(config_.input(i), true, i);
      CheckCommon(t);
      if (config_.input(i).format() != inference::ModelInput::FORMAT_NONE && t.dims.size() != 3) {
        Add(t.path + ".format", "model input NHWC/NCHW require 3 dims")
            .Says(fmt::format("{} with {} dims", inference::ModelInput::Format_Name(config_.input(i).format()),
                              t.dims.size()),
                  "FORMAT_NONE unless there are 3 dims")
            .SetTo("FORMAT_NONE");
      }
      CheckTensorRtOnly(t);
    }
    for (int i = 0; i < config_.output_size(); ++i) {
      const Tensor t = Describe(config_.output(i), false, i);
      CheckCommon(t);
      CheckTensorRtOnly(t);
    }
    CheckRepeatedNames();
    CheckBatchInputs();
    CheckBatchOutputs();
    return std::move(out_).Take();
  }

 private:
  // Every message of this group ends with " for N".
  Finding& Add(const std::string& field, const std::string& message) {
    return out_.Add(field, "{} for {}", message, config_.name());
  }

  void CheckCommon(const Tensor& t) {
    const char* what = t.input ? "input" : "output";
    if (t.name.empty()) {
      Add(t.path + ".name", fmt::format("model {} must specify 'name'", what))
          .Says("", fmt::format("the name of the model's {}", what));
      return;  // the other messages name the tensor
    }
    if (FromProto(t.type) == DataType::kInvalid) {
      Add(t.path + ".data_type", t.prefix + "must specify 'data_type'")
          .Says(t.type == inference::TYPE_INVALID ? std::string() : fmt::format("{}", static_cast<int>(t.type)),
                "TYPE_FP32 or another type")
          .Advise("data_type: TYPE_FP32, or the type that the model has");
    }
    if (t.dims.empty()) {
      Add(t.path + ".dims", t.prefix + "must specify 'dims'")
          .Says("", "the shape without the batch dimension")
          .Advise("dims: [ -1 ], or the shape that the model has");
    }
    if (t.has_reshape && t.reshape.empty() && config_.max_batch_size() == 0) {
      Add(t.path + ".reshape",
          t.prefix + "cannot have empty reshape for non-batching model as scalar tensors are not supported")
          .Says("an empty shape", "at least one dimension, as max_batch_size is 0")
          .SetTo("{ shape: [ 1 ] }");
    }
    const bool dims_valid = CheckDims(t, t.dims, ".dims", "dimension must be integer >= 1");
    const bool reshape_valid = CheckDims(t, t.reshape, ".reshape.shape", "reshape dimensions must be integer >= 1");
    if (dims_valid && reshape_valid) CheckSizes(t);
  }

  // One finding for the tensor, at its first bad dimension, as Triton has it.
  bool CheckDims(const Tensor& t, const Shape& dims, const char* field, const char* what) {
    const auto bad = std::find_if_not(dims.begin(), dims.end(), ValidDim);
    if (bad == dims.end()) return true;
    Finding& finding = Add(fmt::format("{}{}[{}]", t.path, field, bad - dims.begin()),
                           fmt::format("{}{}, or -1 to indicate a variable-size dimension", t.prefix, what));
    finding.Says(fmt::format("{}", *bad), "1 or more, or -1 for a variable size").SetTo("-1");
    return false;
  }

  void CheckSizes(const Tensor& t) {
    const auto dims = FixedRuns(t.dims);
    const auto reshape = FixedRuns(t.reshape);
    const auto too_large = [&](const char* what, const Shape& shape) {
      Add(fmt::format("{}.{}", t.path, what), fmt::format("element count for tensor '{} {}' exceeds maximum size of {}",
                                                          t.name, what, std::numeric_limits<std::int64_t>::max()))
          .Says(ShapeText(AsSpan(shape)), "fewer than 2^63 elements");
    };
    if (!dims) too_large("dims", t.dims);
    if (t.has_reshape && !reshape) too_large("reshape", t.reshape);
    if (!t.has_reshape || !dims || !reshape || t.dims.empty()) return;
    if (t.reshape.empty() && dims->size() == 1 && dims->front() == 1) return;
    const auto differ = [&](const char* what) {
      Add(t.path + ".reshape.shape", t.prefix + what)
          .Says(ShapeText(AsSpan(t.reshape)), fmt::format("as many elements as dims {}", ShapeText(AsSpan(t.dims))))
          .SetTo(fmt::format("[ {} ]", fmt::join(t.dims, ", ")));
    };
    if (dims->size() != reshape->size()) {
      // One of them has a fixed size: then it is the sizes that differ.
      differ(dims->size() == 1 || reshape->size() == 1
                 ? "has different size for dims and reshape"
                 : "has different number of variable-size dimensions for dims and reshape");
    } else if (*dims != *reshape) {
      differ("has different size for dims and reshape");
    }
  }

  void CheckTensorRtOnly(const Tensor& t) {
    const bool tensorrt = config_.platform() == "tensorrt_plan";
    if (t.shape_tensor && !tensorrt) {
      Add(t.path + ".is_shape_tensor", "shape tensors are only supported for TensorRT platform")
          .Says("true", "false unless the platform is tensorrt_plan")
          .Remove();
    }
    if (!t.non_linear) return;
    if (!tensorrt) {
      Add(t.path + ".is_non_linear_format_io", "Non-linear IO format is only supported for the TensorRT platform")
          .Says("true", "false unless the platform is tensorrt_plan")
          .Remove();
    }
    if (t.dims.size() != 3) {
      Add(t.path + ".dims", fmt::format("Non-linear IO format {} requires 3 dims", t.input ? "input" : "output"))
          .Says(fmt::format("{} dims", t.dims.size()), "3 dims with is_non_linear_format_io");
    }
  }

  // Our own rule, after Triton's: with two tensors of one name, requests cannot say which one they mean.
  void CheckRepeatedNames() {
    const auto check = [this](const auto& tensors, const char* what) {
      std::set<std::string> seen;
      for (int i = 0; i < tensors.size(); ++i) {
        if (!tensors[i].name().empty() && !seen.insert(tensors[i].name()).second) {
          Add(fmt::format("{}[{}].name", what, i),
              fmt::format("model {} '{}' is declared more than once", what, tensors[i].name()))
              .Says(fmt::format("'{}' again", tensors[i].name()), fmt::format("another name for each {}", what))
              .Advise(fmt::format("rename it, or remove {}[{}]", what, i));
        }
      }
    };
    check(config_.input(), "input");
    check(config_.output(), "output");
  }

  void CheckSources(const std::string& path, const std::string& what, const std::string& kind,
                    const google::protobuf::RepeatedPtrField<std::string>& sources) {
    if (sources.size() != 1) {
      Add(path + ".source_input",
          fmt::format("{} kind '{}' expects 1 source input, got {}", what, kind, sources.size()))
          .Says(sources.empty() ? std::string() : fmt::format("{} sources", sources.size()), "one input of the model");
    }
  }

  // `name` is no tensor of `tensors`; what was meant, if one is near.
  template <typename Tensors>
  static void ExplainName(const Tensors& tensors, const std::string& name, const char* what, Finding& finding) {
    std::vector<std::string_view> names;
    for (const auto& tensor : tensors) names.push_back(tensor.name());
    finding.Says(fmt::format("'{}'", name), fmt::format("one of the {}s {}", what, fmt::join(names, ", ")));
    if (const std::string_view nearest = NearestName(name, names); !nearest.empty()) {
      finding.SetTo(QuotedText(nearest));
    }
  }

  void CheckKnownInputs(const std::string& path, const google::protobuf::RepeatedPtrField<std::string>& sources) {
    for (int i = 0; i < sources.size(); ++i) {
      if (FindInput(config_, sources[i]) != nullptr) continue;
      ExplainName(
          config_.input(), sources[i], "input",
          Add(fmt::format("{}.source_input[{}]", path, i), fmt::format("unknown source input name '{}'", sources[i])));
    }
  }

  void CheckBatchInputs() {
    for (int i = 0; i < config_.batch_input_size(); ++i) {
      const inference::BatchInput& batch = config_.batch_input(i);
      const std::string path = fmt::format("batch_input[{}]", i);
      if (!inference::BatchInput::Kind_IsValid(batch.kind())) {
        Add(path + ".kind", fmt::format("unknown batch input kind '{}'", static_cast<int>(batch.kind())));
      } else {
        CheckSources(path, "batch input", inference::BatchInput::Kind_Name(batch.kind()), batch.source_input());
      }
      if (batch.data_type() != inference::TYPE_INT32 && batch.data_type() != inference::TYPE_FP32) {
        const bool none = batch.data_type() == inference::TYPE_INVALID;
        Add(path + ".data_type", "batch input data type must be TYPE_INT32 or TYPE_FP32")
            .Says(none ? std::string() : inference::DataType_Name(batch.data_type()), "TYPE_INT32 or TYPE_FP32")
            .SetTo("TYPE_INT32");
      }
      CheckKnownInputs(path, batch.source_input());
    }
  }

  void CheckBatchOutputs() {
    std::set<std::string> seen;
    for (int i = 0; i < config_.batch_output_size(); ++i) {
      const inference::BatchOutput& batch = config_.batch_output(i);
      const std::string path = fmt::format("batch_output[{}]", i);
      if (!inference::BatchOutput::Kind_IsValid(batch.kind())) {
        Add(path + ".kind", fmt::format("unknown batch output kind '{}'", static_cast<int>(batch.kind())));
      } else {
        CheckSources(path, "batch output", inference::BatchOutput::Kind_Name(batch.kind()), batch.source_input());
      }
      CheckKnownInputs(path, batch.source_input());
      for (int k = 0; k < batch.target_name_size(); ++k) {
        const std::string& target = batch.target_name(k);
        const std::string where = fmt::format("{}.target_name[{}]", path, k);
        if (FindOutput(config_, target) == nullptr) {
          ExplainName(config_.output(), target, "output",
                      Add(where, fmt::format("unknown target output name '{}'", target)));
        }
        if (!seen.insert(target).second) {
          Add(where, fmt::format("target output name '{}' can only be specified once", target))
              .Says(fmt::format("'{}' again", target), "each output once")
              .Remove();
        }
      }
    }
  }

  const ModelConfig& config_;
  Findings out_;
};

}  // namespace

std::vector<Finding> ValidateModelIo(const ModelConfig& config) { return IoValidator(config).Run(); }

}  // namespace tidemark
