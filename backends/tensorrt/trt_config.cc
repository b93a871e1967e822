#include "backends/tensorrt/trt_config.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
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

void CheckDevices(const ModelConfig& config, Findings& out) {
  for (int i = 0; i < config.instance_group_size(); ++i) {
    const ModelInstanceGroup& group = config.instance_group(i);
    const std::string path = fmt::format("instance_group[{}]", i);
    if (group.secondary_devices_size() > 1) {
      out.Add(path + ".secondary_devices", "{} of model {} must have either zero or or one secondary devices",
              group.name(), config.name())
          .Says(fmt::format("{} devices", group.secondary_devices_size()), "none");
    }
    for (int k = 0; k < group.secondary_devices_size(); ++k) {
      out.AddWithCode(absl::StatusCode::kUnimplemented, fmt::format("{}.secondary_devices[{}]", path, k),
                      "instance group {} of model {} asks for NVDLA core {}; this server runs TensorRT on GPUs only",
                      group.name(), config.name(), group.secondary_devices(k).device_id())
          .Remove();
    }
    if (group.kind() != ModelInstanceGroup::KIND_GPU) {
      const std::string kind = ModelInstanceGroup::Kind_Name(group.kind());
      out.Add(path + ".kind",
              "unable to load model '{}', TensorRT backend supports only GPU device (instance group {} is {})",
              config.name(), group.name(), kind)
          .Says(kind, "KIND_GPU")
          .SetTo("KIND_GPU");
    }
  }
}

void CheckInputsBefore(const ModelConfig& config, Findings& out) {
  for (int i = 0; i < config.input_size(); ++i) {
    const auto& input = config.input(i);
    if (input.optional()) {
      out.Add(fmt::format("input[{}].optional", i),
              "'optional' is set to true for input '{}' while the backend model doesn't support optional input",
              input.name())
          .Says("true", "false: a plan needs all its inputs")
          .SetTo("false");
    }
    if (input.allow_ragged_batch()) {
      out.AddWithCode(
             absl::StatusCode::kUnimplemented, fmt::format("input[{}].allow_ragged_batch", i),
             "input '{}' of model '{}' has 'allow_ragged_batch', which this server's TensorRT backend does not do",
             input.name(), config.name())
          .Says("true", "false")
          .SetTo("false");
    }
  }
  for (int i = 0; i < config.batch_input_size(); ++i) {
    out.Add(fmt::format("batch_input[{}].kind", i), "batch input type '{}' is not supported",
            inference::BatchInput::Kind_Name(config.batch_input(i).kind()));
  }
  for (int i = 0; i < config.batch_output_size(); ++i) {
    for (const std::string& name : config.batch_output(i).target_name()) {
      out.AddWithCode(absl::StatusCode::kUnimplemented, fmt::format("batch_output[{}]", i),
                      "batch output '{}' of model '{}': this server's TensorRT backend does not scatter outputs", name,
                      config.name())
          .Remove();
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
void ReadHint(const TrtIo& io, const ModelConfig& config, const Tensor& tensor, bool input, int index, Hints* hints,
              Findings& out) {
  hints->any_tensor = true;
  const TrtTensor* const found = io.Find(tensor.name());
  if (found == nullptr || found->input != input) {
    const std::string_view what = input ? "input" : "output";
    ExplainTensorName(
        io, config, input, tensor.name(),
        out.Add(fmt::format("{}[{}].name", what, index), "unexpected inference {} '{}', allowed {}s are: {}", what,
                tensor.name(), what, io.Names(input)));
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
void FillFlags(const TrtTensor& tensor, const std::string& path, Findings& out, Tensor* config) {
  if (config->is_shape_tensor() && !tensor.shape) {
    out.Add(path + ".is_shape_tensor", "'{}' is incorrectly specified as a shape tensor.", tensor.name)
        .Says("true", "false, as the plan has")
        .SetTo("false");
  }
  if (config->is_non_linear_format_io() && tensor.linear()) {
    out.Add(path + ".is_non_linear_format_io",
            "'{}' uses a linear IO format, but 'is_non_linear_format_io' is incorrectly set to true in the model "
            "configuration.",
            tensor.name)
        .Says("true", "false, as the plan has")
        .SetTo("false");
  }
  if (tensor.shape) config->set_is_shape_tensor(true);
  if (!tensor.linear()) config->set_is_non_linear_format_io(true);
}

template <typename Tensors>
void FillTensors(const TrtIo& io, bool inputs, bool batching, Findings& out, Tensors* tensors) {
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
    FillFlags(tensor, fmt::format("{}[{}]", inputs ? "input" : "output", std::distance(tensors->begin(), it)), out,
              &*it);
  }
}

void CompleteBatch(const Hints& hints, std::int64_t engine_max, Findings& out, ModelConfig* config) {
  if (hints.contradiction) {
    out.AddWithCode(absl::StatusCode::kInternal, "input",
                    "unable to autofill for '{}', model tensor configurations are contradicting each other in terms of "
                    "whether batching is supported",
                    config->name())
        .Advise("leave 'dims' out, or give all of them with the batch dimension or all without it");
    return;
  }
  if (hints.batching && engine_max == 0) {
    out.AddWithCode(
        absl::StatusCode::kInternal, "input",
        "autofill failed for model '{}': model tensor shape configuration hints for dynamic batching but the "
        "underlying engine doesn't support batching.",
        config->name());
    return;
  }
  if (hints.any_shape && !hints.batching) {
    LOG_WARNING("The specified dimensions in model config for {} hints that batching is unavailable", config->name());
    engine_max = 0;
  }
  if (config->max_batch_size() == 0) {
    config->set_max_batch_size(static_cast<std::int32_t>(engine_max));
  } else if (config->max_batch_size() > engine_max) {
    out.AddWithCode(absl::StatusCode::kInternal, "max_batch_size",
                    "autofill failed for model '{}': configuration specified max-batch {} but TensorRT engine only "
                    "supports max-batch {}",
                    config->name(), config->max_batch_size(), engine_max)
        .Says(fmt::format("{}", config->max_batch_size()), fmt::format("at most {}, as the plan has", engine_max))
        .SetTo(fmt::format("{}", engine_max));
    return;
  }
  if (engine_max > 1 && !config->has_sequence_batching() && !config->has_dynamic_batching()) {
    config->mutable_dynamic_batching();
  }
}

}  // namespace

void ExplainTensorName(const TrtIo& io, const ModelConfig& config, bool input, const std::string& name,
                       Finding& finding) {
  const auto declared = [&](const std::string& tensor) {
    const auto same = [&](const auto& given) { return given.name() == tensor; };
    return std::any_of(config.input().begin(), config.input().end(), same) ||
           std::any_of(config.output().begin(), config.output().end(), same);
  };
  std::vector<std::string_view> free;
  for (const TrtTensor& tensor : io.tensors) {
    if (tensor.input == input && !declared(tensor.name)) free.push_back(tensor.name);
  }
  finding.Says(fmt::format("'{}'", name), "one of the plan's: " + io.Names(input));
  const std::string_view nearest = free.size() == 1 ? free.front() : NearestName(name, free);
  if (!nearest.empty()) finding.SetTo(QuotedText(nearest));
}

absl::Status CheckBeforeLoad(const ModelConfig& config) {
  Findings out;
  CheckInputsBefore(config, out);
  if (const std::string* strategy = Parameter(config, "execution_context_allocation_strategy")) {
    if (*strategy != "STATIC" && *strategy != "ON_PROFILE_CHANGE") {
      out.Add("parameters[execution_context_allocation_strategy]",
              "Invalid value for 'execution_context_allocation_strategy': '{}' for model instance '{}'. Supported "
              "values are 'STATIC' and 'ON_PROFILE_CHANGE'.",
              *strategy, config.name())
          .Says(fmt::format("'{}'", *strategy), "'STATIC' or 'ON_PROFILE_CHANGE'");
    } else {
      LOG_INFO("'execution_context_allocation_strategy' set to '{}' for model instance '{}'", *strategy, config.name());
    }
  }
  if (const std::string* multi = Parameter(config, "enable_multi_device"); multi != nullptr && *multi == "true") {
    out.AddWithCode(absl::StatusCode::kUnimplemented, "parameters[enable_multi_device]",
                    "unable to load model '{}': TensorRT Multi-Device (enable_multi_device) is not something that this "
                    "server does",
                    config.name())
        .Says("true", "false");
  }
  CheckDevices(config, out);
  return StatusOf(out.list());
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
  Findings out;
  Hints hints;
  for (int i = 0; i < config->input_size(); ++i) ReadHint(io, *config, config->input(i), true, i, &hints, out);
  for (int i = 0; i < config->output_size(); ++i) ReadHint(io, *config, config->output(i), false, i, &hints, out);
  std::set<int> profiles;
  for (int g = 0; g < config->instance_group_size(); ++g) {
    for (const int profile : ProfilesOf(config->instance_group(g))) {
      if (profile < io.profiles) {
        profiles.insert(profile);
        continue;
      }
      out.AddWithCode(absl::StatusCode::kInternal, fmt::format("instance_group[{}].profile", g),
                      "unable to autofill for '{}', configuration specified invalid profile {} . Number of profiles "
                      "supported by TensorRT engine: {}",
                      config->name(), profile, io.profiles)
          .Says(fmt::format("{}", profile), fmt::format("0 to {}", io.profiles - 1));
    }
  }
  if (!out.empty()) return StatusOf(out.list());
  if (profiles.empty()) profiles.insert(0);
  std::int64_t engine_max = EngineMaxBatch(io, profiles);
  if (!hints.batching && config->max_batch_size() == 0 && !LooksBatched(io)) engine_max = 0;
  CompleteBatch(hints, engine_max, out, config);
  if (!out.empty()) return StatusOf(out.list());

  const bool batching = config->max_batch_size() > 0;
  FillTensors(io, true, batching, out, config->mutable_input());
  FillTensors(io, false, batching, out, config->mutable_output());
  return StatusOf(out.list());
}

}  // namespace tidemark
