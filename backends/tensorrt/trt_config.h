#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/tensorrt/trt_io.h"
#include "proto/model_config.pb.h"
#include "repository/config_finding.h"

// What a configuration may say about an engine, and what is filled in where it says nothing. Pure functions of facts
// (TrtIo); the texts are Triton's. What is wrong comes as findings (all of them, with places and repairs), which statuses
// carry: FindingsOf.
namespace tidemark {

// What can be told before the plan is opened: kinds of the instance groups, DLA, multi-device, optional and ragged
// inputs, unsupported batch inputs, the allocation strategy.
absl::Status CheckBeforeLoad(const inference::ModelConfig& config);

// The profile indices of a group, ascending, each once; {0} when it names none. The strings are known to be numbers.
std::vector<int> ProfilesOf(const inference::ModelInstanceGroup& group);

// Auto-completion (max_batch_size, dynamic_batching, inputs and outputs) from the engine.
absl::Status CompleteTrtConfig(const TrtIo& io, inference::ModelConfig* config);

// Checks the (complete) configuration against the engine for the group of that number. `instance` is the name of the
// group's first instance, which the texts carry.
std::vector<Finding> CheckTrtConfig(const TrtIo& io, const inference::ModelConfig& config, int group,
                                    std::string_view instance);

// `name`, which `config` gives to an input or an output, is none of the engine's: says so, with the name that was meant if
// one is near.
void ExplainTensorName(const TrtIo& io, const inference::ModelConfig& config, bool input, const std::string& name,
                       Finding& finding);

// Names of engine inputs that are fed by the server and not by `config.input`: sequence controls, states, batch inputs.
std::vector<std::string> ServerFedInputs(const inference::ModelConfig& config);

// Dimensions of a tensor as the configuration gives them to the engine: `reshape` where there is one, else `dims`.
template <typename Tensor>
Shape EngineDims(const Tensor& tensor) {
  const auto& dims = tensor.has_reshape() ? tensor.reshape().shape() : tensor.dims();
  return Shape(dims.begin(), dims.end());
}

}  // namespace tidemark
