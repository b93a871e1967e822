#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/model_config.pb.h"

// What is wrong with a model configuration. Every check reports *all* findings, in the order in which Triton
// would meet them, so that the first one is the text that Triton gives. Pure and thread-safe.

namespace tidemark {

// One thing that is wrong.
struct Finding {
  std::string field;    // path in the configuration: "input[0].dims", "dynamic_batching.preferred_batch_size[1]"
  std::string message;  // Triton's text where Triton has the rule
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
};

// OK when there is no finding; else the first finding's code and message. With more than one, the others
// follow, each on a line of its own as "also FIELD: MESSAGE".
absl::Status StatusOf(const std::vector<Finding>& findings);

// The rules of a normalised configuration (NormalizeConfig) apart from its inputs and outputs: name, backend
// and platform, batching, priorities, sequence controls, the static part of an ensemble, response cache,
// metrics.
std::vector<Finding> ValidateConfig(const inference::ModelConfig& config);

// The rules of inputs, outputs, batch inputs and batch outputs. Apart, because with auto-completion it can
// only run when the backend has filled them in.
std::vector<Finding> ValidateModelIo(const inference::ModelConfig& config);

// The rules of instance groups, after NormalizeInstanceGroups with the same devices.
struct DeviceFacts {
  std::vector<std::int32_t> gpus;           // ids of the GPUs that may be used, ascending
  bool gpu_build = false;                   // the server can use GPUs at all
  double minimum_compute_capability = 6.0;  // only named in a text
};
std::vector<Finding> ValidateInstanceGroups(const inference::ModelConfig& config, const DeviceFacts& devices);

// Declared warm-up data, as far as the configuration alone shows (variable dimensions, no choice of data).
std::vector<Finding> ValidateWarmup(const inference::ModelConfig& config);

}  // namespace tidemark
