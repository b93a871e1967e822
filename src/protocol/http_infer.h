#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "inference/model_info.h"
#include "inference/request.h"
#include "protocol/json_reader.h"
#include "resource/buffer_pool.h"

// The infer request and response of the HTTP protocol (protocol digest 1.9): JSON with tensors in it, or JSON followed by
// the tensors' bytes. Pure functions, thread-safe. Errors are INVALID_ARGUMENT with Triton's texts unless said otherwise.

namespace tidemark {

// How many bytes at the front of a body are JSON: `header_length` is the value of Inference-Header-Content-Length, or
// nothing when it was not sent (then all). 0 means a raw request: no JSON at all.
absl::StatusOr<std::size_t> InferJsonBytes(std::optional<std::string_view> header_length, std::size_t body_bytes);

// Fills `request`, which is clear but for its model handle, from a whole decompressed body of which the first `json_bytes`
// are JSON. The inputs' data points into `body`, whose memory is request.body or outlives the request, or into memory
// from `pool`. `model` is only named in texts and asked what a raw request's bytes are. `limits` bounds the
// JSON part, every tensor in it, and a raw request. `regions` finds shared memory that the request names; null: there is none.
// RESOURCE_EXHAUSTED when the pool is empty.
absl::Status DecodeInfer(std::span<const std::byte> body, std::size_t json_bytes, const ModelInfo& model,
                         const JsonLimits& limits, BufferPool& pool, InferenceRequest& request,
                         SharedMemoryFinder* regions = nullptr);

// A response on its way out: `json`, then `tensors` in order.
struct EncodedInfer {
  std::string json;
  absl::InlinedVector<Buffer, 4> tensors;
  std::size_t tensor_bytes = 0;  // 0: the response is plain JSON, and no Inference-Header-Content-Length is sent
};

// Encodes a good response. Output buffers that travel in binary are moved, not copied; `encoded.json` is filled from its
// beginning, its capacity is kept. INTERNAL when an output's bytes do not fit its shape.
absl::Status EncodeInfer(InferenceRequest& request, const ModelInfo& model, BufferPool& pool, EncodedInfer& encoded);

}  // namespace tidemark
