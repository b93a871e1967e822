#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backend/backend.h"
#include "backends/openvino/adapter.h"
#include "proto/model_config.pb.h"

// What a configuration says about an OpenVINO model and whether it fits it. Pure and thread-safe. The texts are those of
// Triton's ONNX Runtime backend, so that a model gives the same answers in either engine.

namespace tidemark {

// What the parameters ask for (see openvino_backend.h).
struct OpenVinoOptions {
  OpenVinoSettings settings;
  bool allow_narrow_integers = false;
};

// Parameters of the configuration, those of `backend_settings` where it has none. INVALID_ARGUMENT for a value that
// cannot be read; UNIMPLEMENTED for a parameter of Triton's backend that would change answers and is not offered here.
absl::StatusOr<OpenVinoOptions> ReadOpenVinoOptions(const inference::ModelConfig& config,
                                                    const BackendSettings& backend_settings);

// Fills in inputs, outputs, max_batch_size and dynamic batching from the model unless the configuration already has an
// input and an output. A model can batch when the first dimension of every input and output is dynamic.
absl::Status CompleteOpenVinoConfig(const std::vector<OpenVinoPort>& inputs, const std::vector<OpenVinoPort>& outputs,
                                    int default_max_batch_size, inference::ModelConfig* config);

// The ports of the configured tensors: element i is the port of config.input(i) / config.output(i).
struct OpenVinoBinding {
  std::vector<std::size_t> inputs;
  std::vector<std::size_t> outputs;
};

// Checks names, types and shapes against the model, and refuses what the engine would answer wrongly or die of: string
// tensors, and 64-bit outputs unless `allow_narrow_integers`.
absl::StatusOr<OpenVinoBinding> BindOpenVinoConfig(const std::vector<OpenVinoPort>& inputs,
                                                   const std::vector<OpenVinoPort>& outputs, bool allow_narrow_integers,
                                                   const inference::ModelConfig& config);

}  // namespace tidemark
