#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/data_type.h"
#include "proto/model_config.pb.h"

namespace tidemark {

// One shape for which a CUDA graph is captured.
struct TrtGraphSpec {
  std::int64_t batch_size = 0;          // 0 for a model that does not batch
  std::int64_t lowest_batch = 0;        // serves batches from here up to batch_size
  std::map<std::string, Shape> shapes;  // by input, without the batch dimension; others: as the configuration has them
};

// What `optimization.cuda` asks for, or Triton's defaults: batches 1, the preferred ones and the largest with a dynamic
// batcher, else 1, 2, 3, 4, 6, 8, 12, 16 and the largest. INVALID_ARGUMENT with Triton's texts.
absl::StatusOr<std::vector<TrtGraphSpec>> GraphSpecsOf(const inference::ModelConfig& config);

}  // namespace tidemark
