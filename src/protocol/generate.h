#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "inference/model_info.h"
#include "inference/request.h"
#include "protocol/json_reader.h"
#include "resource/buffer_pool.h"

// The generate extension (protocol digest 1.10): one flat JSON object in, whose members are input tensors or parameters,
// and one flat object out for each response. Pure functions, thread-safe. Errors are INVALID_ARGUMENT with Triton's texts
// unless said otherwise.

namespace tidemark {

// Fills `request`, which is clear but for its model handle. Members named like an input of `model` become that tensor, a
// scalar or a flat array, its shape deduced from the model's; all others become custom parameters, those of the member
// `parameters` too. Nothing points into `body` afterwards. `limits` bounds the JSON and the tensors together.
// RESOURCE_EXHAUSTED when the pool is empty.
absl::Status DecodeGenerate(std::string_view body, const ModelInfo& model, const JsonLimits& limits, BufferPool& pool,
                            InferenceRequest& request);

// Appends the object of one good response to `out`: id, model, response parameters and outputs in alphabetical order.
// INTERNAL when an output's bytes do not fit its shape; `out` is then as it was.
absl::Status AppendGenerated(std::string& out, std::string_view id, const ModelInfo& model,
                             const InferenceResponse& response);

}  // namespace tidemark
