#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/model_config.pb.h"
#include "repository/config_finding.h"

// What is wrong with a model configuration. Every check reports *all* findings, in the order in which Triton
// would meet them, so that the first error is the text that Triton gives. Pure and thread-safe.

namespace tidemark {

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

// The states of a sequence batcher and their initial values, as far as the configuration alone shows. What Triton only logs
// at the first request (growable memory) is a warning.
std::vector<Finding> ValidateSequenceStates(const inference::ModelConfig& config);

// What is allowed and most likely not meant: a composing model's version 0, batching without a batch size, resources of a
// rate limiter that are both global and of a device. Warnings only.
std::vector<Finding> FindDoubts(const inference::ModelConfig& config);

}  // namespace tidemark
