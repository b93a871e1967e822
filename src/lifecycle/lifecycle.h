#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "backend/backend.h"
#include "inference/registry.h"
#include "repository/model_repository.h"
#include "resource/buffer_pool.h"
#include "resource/ledger.h"
#include "resource/scope.h"

namespace tidemark {

enum class ControlMode : std::uint8_t { kNone, kPoll, kExplicit };

// One line of the repository index.
struct IndexEntry {
  std::string name;
  std::string version;  // empty for a model that was never loaded, and for a duplicate
  std::string state;    // empty for a model that was never loaded
  std::string reason;
};

// What one unload or rollback gave back, and whether the machine agrees.
struct ReleaseReport {
  std::uint64_t ledger_bytes_before = 0;
  std::uint64_t ledger_bytes_after = 0;
  std::uint64_t rows_left = 0;  // rows of the version that are still there: 0, or stranded ones
};

}  // namespace tidemark
