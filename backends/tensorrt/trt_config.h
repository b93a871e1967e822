#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/tensorrt/trt_io.h"
#include "proto/model_config.pb.h"

// What a configuration may say about an engine, and what is filled in where it says nothing. Pure functions of facts
// (TrtIo); the texts are Triton's.
namespace tidemark {

// Everything that is wrong, one after the other: the first one's code, all texts on one line after "; also: ".
class TrtFindings {
 public:
  void Add(absl::StatusCode code, std::string text);
  void Invalid(std::string text) { Add(absl::StatusCode::kInvalidArgument, std::move(text)); }
  void Internal(std::string text) { Add(absl::StatusCode::kInternal, std::move(text)); }
  bool empty() const { return texts_.empty(); }
  absl::Status Status() const;

 private:
  absl::StatusCode code_ = absl::StatusCode::kInvalidArgument;
  std::vector<std::string> texts_;
};

// What can be told before the plan is opened: kinds of the instance groups, DLA, multi-device, optional and ragged
// inputs, unsupported batch inputs, the allocation strategy.
absl::Status CheckBeforeLoad(const inference::ModelConfig& config);

// The profile indices of a group, ascending, each once; {0} when it names none. The strings are known to be numbers.
std::vector<int> ProfilesOf(const inference::ModelInstanceGroup& group);

// Auto-completion (max_batch_size, dynamic_batching, inputs and outputs) from the engine.
absl::Status CompleteTrtConfig(const TrtIo& io, inference::ModelConfig* config);

// Checks the (complete) configuration against the engine for one group. `instance` is the name of the group's first
// instance, which the texts carry.
absl::Status CheckTrtConfig(const TrtIo& io, const inference::ModelConfig& config,
                            const inference::ModelInstanceGroup& group, std::string_view instance);

// Names of engine inputs that are fed by the server and not by `config.input`: sequence controls, states, batch inputs.
std::vector<std::string> ServerFedInputs(const inference::ModelConfig& config);

// Dimensions of a tensor as the configuration gives them to the engine: `reshape` where there is one, else `dims`.
template <typename Tensor>
Shape EngineDims(const Tensor& tensor) {
  const auto& dims = tensor.has_reshape() ? tensor.reshape().shape() : tensor.dims();
  return Shape(dims.begin(), dims.end());
}

}  // namespace tidemark
