#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/platform.h"

// The POSIX part of Platform::MapShared and its kin, and the guard without which a mapping of a file that others can
// shorten is a way to kill the process: touching what is no longer there raises SIGBUS.
//
// The guard is a handler of SIGBUS, set by the first mapping and left in place. When the address lies in a guarded
// mapping it puts zeroed private memory in the place of the whole mapping and marks it damaged; the access is repeated
// and goes on. From then on the mapping shows nothing of the client's, CheckShared says so, and whoever used it answers
// with an error instead of a result. The same happens when /dev/shm is full and a page that was never touched cannot be
// made. Any other SIGBUS goes to whoever handled it before.

namespace tidemark {

// Guarded mappings at one time.
inline constexpr int kMaxGuardedMappings = 4096;

absl::StatusOr<SharedMapping> MapSharedObject(const std::string& key, std::uint64_t offset, std::uint64_t bytes);
absl::Status UnmapSharedObject(const SharedMapping& mapping);
absl::Status CheckSharedObject(const SharedMapping& mapping);

}  // namespace tidemark
