#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

// Bodies of the shared-memory routes (protocol digest 1.13). Errors are INVALID_ARGUMENT with Triton's texts. Pure
// functions, thread-safe.

namespace tidemark {

// `{"key": "<object>", "offset": 0, "byte_size": 64}`; `offset` is optional.
struct SystemMemoryRequest {
  std::string key;
  std::uint64_t offset = 0;
  std::uint64_t byte_size = 0;
};
absl::StatusOr<SystemMemoryRequest> ParseSystemMemoryRequest(std::string_view body);

// `{"raw_handle": {"b64": "<cudaIpcMemHandle_t>"}, "device_id": 0, "byte_size": 64}`.
struct CudaMemoryRequest {
  std::string raw_handle;  // decoded
  int device = 0;
  std::uint64_t byte_size = 0;
};
absl::StatusOr<CudaMemoryRequest> ParseCudaMemoryRequest(std::string_view body);

}  // namespace tidemark
