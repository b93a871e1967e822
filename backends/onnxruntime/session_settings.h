#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/model_config.pb.h"

namespace tidemark {

// How a configuration wants its session: Triton's `optimization` block and `parameters`, checked.
struct SessionSettings {
  int graph_level = 99;           // the engine's number: 0 none, 1 basic, 2 extended, 99 all
  int intra_threads = 1;          // threads inside one operator
  int inter_threads = 1;          // operators at a time, with `parallel`
  bool parallel = false;          // execution_mode 1
  bool memory_pattern = false;    // enable_mem_pattern
  bool keep_memory = true;        // enable_mem_arena: freed memory stays with the model for the next execution
  bool shrink_after_run = false;  // memory.enable_memory_arena_shrinkage
  std::vector<std::pair<std::string, std::string>> entries;  // session.*, as written

  bool needs_threads() const { return intra_threads > 1 || (parallel && inter_threads > 1); }
};

// INVALID_ARGUMENT with Triton's texts.
absl::StatusOr<SessionSettings> ReadSessionSettings(const inference::ModelConfig& config);

}  // namespace tidemark
