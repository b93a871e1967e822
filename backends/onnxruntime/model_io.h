#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "backends/onnxruntime/onnx_probe.h"
#include "proto/model_config.pb.h"

namespace tidemark {

// What a model takes and gives, from the file (OnnxFacts) or from the session, which may know output shapes better.
struct ModelIo {
  std::vector<OnnxValue> inputs;
  std::vector<OnnxValue> overridable;
  std::vector<OnnxValue> outputs;
};

// Fills in max_batch_size, dynamic_batching, inputs and outputs as Triton does for this backend. Nothing happens when
// the configuration has inputs and outputs. INVALID_ARGUMENT when max_batch_size is set and the model cannot batch.
absl::Status CompleteConfig(const ModelIo& io, int default_max_batch_size, inference::ModelConfig* config);

// Checks the configuration against the model with Triton's texts: the first finding, the further ones on the same line
// as Finding of repository/config_finding.h. With `output_shapes` false the shapes of outputs are left for later.
absl::Status CheckConfig(const ModelIo& io, const inference::ModelConfig& config, bool output_shapes);

}  // namespace tidemark
