#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backend/backend.h"

namespace tidemark {

// The "tensorrt" backend: plans of TensorRT 10 and 11 on NVIDIA GPUs. Libraries are opened when the first plan needs
// them. Without a GPU the backend opens and refuses every model with Triton's text.
//
// Settings (--backend-config=tensorrt,KEY=VALUE): library (files or folders, separated by ';'), plugins (the same),
// version-compatible, execution-policy, coalesce-request-input, zero-copy-bytes, staging-bytes. NOT_FOUND when a library
// that was named cannot be opened, INVALID_ARGUMENT for a value that cannot be read.
absl::StatusOr<std::unique_ptr<Backend>> CreateTensorRtBackend(const BackendContext& context);

}  // namespace tidemark
