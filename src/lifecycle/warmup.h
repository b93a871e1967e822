#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "inference/model_info.h"
#include "inference/scheduler.h"
#include "proto/model_config.pb.h"
#include "resource/buffer_pool.h"

namespace tidemark {

// A request made from one `model_warmup` entry: zeros, random values, or a file of the model's `warmup` folder.
// INVALID_ARGUMENT when the entry does not fit the model; the texts are Triton's.
absl::StatusOr<ScheduledRequest> MakeWarmupRequest(const ModelInfo& info, const inference::ModelWarmup& sample,
                                                   const std::filesystem::path& model_directory, BufferPool& buffers);

// A request of zeros (and empty strings) for a model that declares no warm-up: batch 1, each variable dimension 1,
// required inputs only.
absl::StatusOr<ScheduledRequest> MakeZeroRequest(const ModelInfo& info, BufferPool& buffers);

}  // namespace tidemark
