#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
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
        Add(t.path + ".format", "model input NHWC/NCHW require 3 dims");
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
  void Add(const std::string& field, const std::string& message) {
    out_.Add(field, "{} for {}", message, config_.name());
  }

  void CheckCommon(const Tensor& t) {
    if (t.name.empty()) {
      Add(t.path + ".name", fmt::format("model {} must specify 'name'", t.input ? "input" : "output"));
      return;  // the other messages name the tensor
    }
    if (FromProto(t.type) == DataType::kInvalid) Add(t.path + ".data_type", t.prefix + "must specify 'data_type'");
    if (t.dims.empty()) Add(t.path + ".dims", t.prefix + "must specify 'dims'");
    if (t.has_reshape && t.reshape.empty() && config_.max_batch_size() == 0) {
      Add(t.path + ".reshape",
          t.prefix + "cannot have empty reshape for non-batching model as scalar tensors are not supported");
    }
    const bool dims_valid = std::all_of(t.dims.begin(), t.dims.end(), ValidDim);
    const bool reshape_valid = std::all_of(t.reshape.begin(), t.reshape.end(), ValidDim);
    if (!dims_valid) {
      Add(t.path + ".dims", t.prefix + "dimension must be integer >= 1, or -1 to indicate a variable-size dimension");
    }
    if (!reshape_valid) {
      Add(t.path + ".reshape",
          t.prefix + "reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension");
    }
    if (dims_valid && reshape_valid) CheckSizes(t);
  }

  void CheckSizes(const Tensor& t) {
    const auto dims = FixedRuns(t.dims);
    const auto reshape = FixedRuns(t.reshape);
    const auto too_large = [&](const char* what) {
      Add(fmt::format("{}.{}", t.path, what), fmt::format("element count for tensor '{} {}' exceeds maximum size of {}",
                                                          t.name, what, std::numeric_limits<std::int64_t>::max()));
    };
    if (!dims) too_large("dims");
    if (t.has_reshape && !reshape) too_large("reshape");
    if (!t.has_reshape || !dims || !reshape || t.dims.empty()) return;
    if (t.reshape.empty() && dims->size() == 1 && dims->front() == 1) return;
    if (dims->size() != reshape->size()) {
      // One of them has a fixed size: then it is the sizes that differ.
      Add(t.path + ".reshape",
          t.prefix + (dims->size() == 1 || reshape->size() == 1
                          ? "has different size for dims and reshape"
                          : "has different number of variable-size dimensions for dims and reshape"));
    } else if (*dims != *reshape) {
      Add(t.path + ".reshape", t.prefix + "has different size for dims and reshape");
    }
  }

  void CheckTensorRtOnly(const Tensor& t) {
    const bool tensorrt = config_.platform() == "tensorrt_plan";
    if (t.shape_tensor && !tensorrt) {
      Add(t.path + ".is_shape_tensor", "shape tensors are only supported for TensorRT platform");
    }
    if (!t.non_linear) return;
    if (!tensorrt) {
      Add(t.path + ".is_non_linear_format_io", "Non-linear IO format is only supported for the TensorRT platform");
    }
    if (t.dims.size() != 3) {
      Add(t.path + ".dims", fmt::format("Non-linear IO format {} requires 3 dims", t.input ? "input" : "output"));
    }
  }

  // Our own rule, after Triton's: with two tensors of one name, requests cannot say which one they mean.
  void CheckRepeatedNames() {
    const auto check = [this](const auto& tensors, const char* what) {
      std::set<std::string> seen;
      for (int i = 0; i < tensors.size(); ++i) {
        if (!tensors[i].name().empty() && !seen.insert(tensors[i].name()).second) {
          Add(fmt::format("{}[{}].name", what, i),
              fmt::format("model {} '{}' is declared more than once", what, tensors[i].name()));
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
          fmt::format("{} kind '{}' expects 1 source input, got {}", what, kind, sources.size()));
    }
  }

  void CheckKnownInputs(const std::string& path, const google::protobuf::RepeatedPtrField<std::string>& sources) {
    for (const std::string& source : sources) {
      if (FindInput(config_, source) == nullptr) {
        Add(path + ".source_input", fmt::format("unknown source input name '{}'", source));
      }
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
        Add(path + ".data_type", "batch input data type must be TYPE_INT32 or TYPE_FP32");
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
      for (const std::string& target : batch.target_name()) {
        if (FindOutput(config_, target) == nullptr) {
          Add(path + ".target_name", fmt::format("unknown target output name '{}'", target));
        }
        if (!seen.insert(target).second) {
          Add(path + ".target_name", fmt::format("target output name '{}' can only be specified once", target));
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
