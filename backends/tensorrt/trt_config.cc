#include "backends/tensorrt/trt_config.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <set>
#include <utility>

#include "base/log.h"
#include "base/status.h"

namespace tidemark {
namespace {

using inference::ModelConfig;
using inference::ModelInstanceGroup;

const std::string* Parameter(const ModelConfig& config, const std::string& key) {
  const auto it = config.parameters().find(key);
  return it == config.parameters().end() ? nullptr : &it->second.string_value();
}

void CheckDevices(const ModelConfig& config, TrtFindings* out) {
  for (const ModelInstanceGroup& group : config.instance_group()) {
    if (group.secondary_devices_size() > 1) {
      out->Invalid(
          fmt::format("{} of model {} must have either zero or or one secondary devices", group.name(), config.name()));
    }
    for (const auto& secondary : group.secondary_devices()) {
      out->Add(
          absl::StatusCode::kUnimplemented,
          fmt::format("instance group {} of model {} asks for NVDLA core {}; this server runs TensorRT on GPUs only",
                      group.name(), config.name(), secondary.device_id()));
    }
    if (group.kind() != ModelInstanceGroup::KIND_GPU) {
      out->Invalid(
          fmt::format("unable to load model '{}', TensorRT backend supports only GPU device (instance group {} "
                      "is {})",
                      config.name(), group.name(), ModelInstanceGroup::Kind_Name(group.kind())));
    }
  }
}

void CheckInputsBefore(const ModelConfig& config, TrtFindings* out) {
  for (const auto& input : config.input()) {
    if (input.optional()) {
      out->Invalid(
          fmt::format("'optional' is set to true for input '{}' while the backend model doesn't support "
                      "optional input",
                      input.name()));
    }
    if (input.allow_ragged_batch()) {
      out->Add(
          absl::StatusCode::kUnimplemented,
          fmt::format("input '{}' of model '{}' has 'allow_ragged_batch', which this server's TensorRT backend does "
                      "not do",
                      input.name(), config.name()));
    }
  }
  for (const auto& input : config.batch_input()) {
    out->Invalid(fmt::format("batch input type '{}' is not supported", inference::BatchInput::Kind_Name(input.kind())));
  }
  for (const auto& output : config.batch_output()) {
    for (const std::string& name : output.target_name()) {
      out->Add(absl::StatusCode::kUnimplemented,
               fmt::format("batch output '{}' of model '{}': this server's TensorRT backend does not scatter outputs",
                           name, config.name()));
    }
  }
}

// One pass over what the configuration says about shapes: does it take the engine's first dimension for a batch?
struct Hints {
  bool any_tensor = false;
  bool any_shape = false;  // some shape was given
  bool batching = false;
  bool contradiction = false;
};

template <typename Tensor>
void ReadHint(const TrtIo& io, const Tensor& tensor, bool input, Hints* hints, TrtFindings* out) {
  hints->any_tensor = true;
  const TrtTensor* const found = io.Find(tensor.name());
  if (found == nullptr || found->input != input) {
    out->Invalid(fmt::format("unexpected inference {} '{}', allowed {} are: {}", input ? "input" : "output",
                             tensor.name(), input ? "inputs" : "outputs", io.Names(input)));
    return;
  }
  const Shape dims = EngineDims(tensor);
  if (dims.empty() && !tensor.has_reshape()) return;
  hints->any_shape = true;
  const bool one_more =
      found->shape ? !dims.empty() && found->length() == dims[0] + 1 : found->dims.size() == dims.size() + 1;
  if (one_more) {
    hints->batching = true;
  } else if (hints->batching) {
    hints->contradiction = true;
  }
}

// The largest batch that the engine takes: the best of the listed profiles, each as good as its worst input.
std::int64_t EngineMaxBatch(const TrtIo& io, const std::set<int>& profiles) {
  std::int64_t best = 0;
  for (const int profile : profiles) {
    const auto p = static_cast<std::size_t>(profile);
    std::int64_t worst = std::numeric_limits<std::int32_t>::max();
    for (const TrtTensor& tensor : io.tensors) {
      if (!tensor.input) continue;
      const Shape& max = tensor.shape && p < tensor.values.size() ? tensor.values[p].max : tensor.dim_range[p].max;
      if (!max.empty()) worst = std::min(worst, max[0]);
    }
    best = std::max(best, worst);
  }
  return best;
}

// Every tensor begins with a dimension that may vary: without this, taking the first one for a batch (as Triton does for
// an engine whose configuration says nothing) would only ever serve one batch size.
bool LooksBatched(const TrtIo& io) {
  return std::all_of(io.tensors.begin(), io.tensors.end(),
                     [](const TrtTensor& t) { return t.shape || (!t.dims.empty() && t.dims[0] == -1); });
}

template <typename Tensor>
void FillDims(const TrtTensor& tensor, bool batching, Tensor* out) {
  Shape dims = tensor.dims;
  if (tensor.shape) {
    dims = Shape{tensor.length() - (batching ? 1 : 0)};
  } else if (batching && !dims.empty()) {
    dims.erase(dims.begin());
  }
  for (const std::int64_t dim : dims) out->add_dims(dim);
  if (!dims.empty()) return;
  out->add_dims(1);
  out->mutable_reshape();
}

template <typename Tensor>
void FillFlags(const TrtTensor& tensor, TrtFindings* out, Tensor* config) {
  if (config->is_shape_tensor() && !tensor.shape) {
    out->Invalid(fmt::format("'{}' is incorrectly specified as a shape tensor.", tensor.name));
  }
  if (config->is_non_linear_format_io() && tensor.linear()) {
    out->Invalid(
        fmt::format("'{}' uses a linear IO format, but 'is_non_linear_format_io' is incorrectly set to true in "
                    "the model configuration.",
                    tensor.name));
  }
  if (tensor.shape) config->set_is_shape_tensor(true);
  if (!tensor.linear()) config->set_is_non_linear_format_io(true);
}

template <typename Tensors>
void FillTensors(const TrtIo& io, bool inputs, bool batching, TrtFindings* out, Tensors* tensors) {
  const bool all = tensors->empty();
  for (const TrtTensor& tensor : io.tensors) {
    if (tensor.input != inputs) continue;
    auto it = std::find_if(tensors->begin(), tensors->end(), [&](const auto& t) { return t.name() == tensor.name; });
    if (it == tensors->end()) {
      if (!all) continue;
      auto* added = tensors->Add();
      added->set_name(tensor.name.substr(0, tensor.name.find(' ')));
      it = std::prev(tensors->end());
    }
    if (it->data_type() == inference::TYPE_INVALID) {
      it->set_data_type(static_cast<inference::DataType>(DataTypeOf(tensor.type)));
    }
    if (it->dims().empty()) FillDims(tensor, batching, &*it);
    FillFlags(tensor, out, &*it);
  }
}

absl::Status CompleteBatch(const Hints& hints, std::int64_t engine_max, ModelConfig* config) {
  if (hints.contradiction) {
    return absl::InternalError(
        fmt::format("unable to autofill for '{}', model tensor configurations are contradicting "
                    "each other in terms of whether batching is supported",
                    config->name()));
  }
  if (hints.batching && engine_max == 0) {
    return absl::InternalError(fmt::format(
        "autofill failed for model '{}': model tensor shape configuration hints for dynamic batching but the "
        "underlying engine doesn't support batching.",
        config->name()));
  }
  if (hints.any_shape && !hints.batching) {
    LOG_WARNING("The specified dimensions in model config for {} hints that batching is unavailable", config->name());
    engine_max = 0;
  }
  if (config->max_batch_size() == 0) {
    config->set_max_batch_size(static_cast<std::int32_t>(engine_max));
  } else if (config->max_batch_size() > engine_max) {
    return absl::InternalError(
        fmt::format("autofill failed for model '{}': configuration specified max-batch {} but "
                    "TensorRT engine only supports max-batch {}",
                    config->name(), config->max_batch_size(), engine_max));
  }
  if (engine_max > 1 && !config->has_sequence_batching() && !config->has_dynamic_batching()) {
    config->mutable_dynamic_batching();
  }
  return absl::OkStatus();
}

}  // namespace

void TrtFindings::Add(absl::StatusCode code, std::string text) {
  if (texts_.empty()) code_ = code;
  if (std::find(texts_.begin(), texts_.end(), text) == texts_.end()) texts_.push_back(std::move(text));
}

absl::Status TrtFindings::Status() const {
  if (texts_.empty()) return absl::OkStatus();
  return absl::Status(code_, fmt::format("{}", fmt::join(texts_, "; also: ")));
}

absl::Status CheckBeforeLoad(const ModelConfig& config) {
  TrtFindings out;
  CheckInputsBefore(config, &out);
  if (const std::string* strategy = Parameter(config, "execution_context_allocation_strategy")) {
    if (*strategy != "STATIC" && *strategy != "ON_PROFILE_CHANGE") {
      out.Invalid(
          fmt::format("Invalid value for 'execution_context_allocation_strategy': '{}' for model instance '{}'. "
                      "Supported values are 'STATIC' and 'ON_PROFILE_CHANGE'.",
                      *strategy, config.name()));
    } else {
      LOG_INFO("'execution_context_allocation_strategy' set to '{}' for model instance '{}'", *strategy, config.name());
    }
  }
  if (const std::string* multi = Parameter(config, "enable_multi_device"); multi != nullptr && *multi == "true") {
    out.Add(absl::StatusCode::kUnimplemented,
            fmt::format("unable to load model '{}': TensorRT Multi-Device (enable_multi_device) is not something that "
                        "this server does",
                        config.name()));
  }
  CheckDevices(config, &out);
  return out.Status();
}

std::vector<int> ProfilesOf(const ModelInstanceGroup& group) {
  std::set<int> profiles;
  for (const std::string& name : group.profile()) profiles.insert(std::atoi(name.c_str()));
  if (profiles.empty()) profiles.insert(0);
  return {profiles.begin(), profiles.end()};
}

std::vector<std::string> ServerFedInputs(const ModelConfig& config) {
  std::vector<std::string> names;
  for (const auto& control : config.sequence_batching().control_input()) names.push_back(control.name());
  for (const auto& state : config.sequence_batching().state()) names.push_back(state.input_name());
  return names;
}

absl::Status CompleteTrtConfig(const TrtIo& io, ModelConfig* config) {
  TrtFindings out;
  Hints hints;
  for (const auto& input : config->input()) ReadHint(io, input, true, &hints, &out);
  for (const auto& output : config->output()) ReadHint(io, output, false, &hints, &out);
  if (!out.empty()) return out.Status();

  std::set<int> profiles;
  for (const ModelInstanceGroup& group : config->instance_group()) {
    for (const int profile : ProfilesOf(group)) {
      if (profile >= io.profiles) {
        return absl::InternalError(
            fmt::format("unable to autofill for '{}', configuration specified invalid profile {} "
                        ". Number of profiles supported by TensorRT engine: {}",
                        config->name(), profile, io.profiles));
      }
      profiles.insert(profile);
    }
  }
  if (profiles.empty()) profiles.insert(0);
  std::int64_t engine_max = EngineMaxBatch(io, profiles);
  if (!hints.batching && config->max_batch_size() == 0 && !LooksBatched(io)) engine_max = 0;
  RETURN_IF_ERROR(CompleteBatch(hints, engine_max, config));

  const bool batching = config->max_batch_size() > 0;
  FillTensors(io, true, batching, &out, config->mutable_input());
  FillTensors(io, false, batching, &out, config->mutable_output());
  return out.Status();
}

}  // namespace tidemark
