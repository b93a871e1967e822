#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "inference/shared_memory.h"
#include "resource/scope.h"

namespace tidemark {

// Bytes of a cudaIpcMemHandle_t.
inline constexpr std::size_t kCudaHandleBytes = 64;

// The way to memory that another process allocated on a GPU. Thread-safe; outlives every region.
class CudaSharedMemory {
 public:
  virtual ~CudaSharedMemory() = default;

  // Maps the allocation behind the handle into this process, until `scope` gives it back. INVALID_ARGUMENT when it cannot
  // be opened or has less than `byte_size` bytes; UNAVAILABLE, saying what is missing, without that device.
  virtual absl::StatusOr<std::byte*> Open(Scope& scope, std::span<const std::byte, kCudaHandleBytes> handle, int device,
                                          std::uint64_t byte_size) = 0;
  // Waits until the bytes are there.
  virtual absl::Status CopyToHost(std::span<const std::byte> device_bytes, std::span<std::byte> host, int device) = 0;
  virtual absl::Status CopyToDevice(std::span<const std::byte> host, std::span<std::byte> device_bytes, int device) = 0;
};

// What a status request tells of a region.
struct SharedMemoryInfo {
  std::string name;
  std::string key;           // system only
  std::uint64_t offset = 0;  // system only
  std::uint64_t byte_size = 0;
  int device = 0;  // CUDA only
};

// The shared-memory regions that clients registered, for all front ends (protocol digest 1.13). Names of both kinds
// share one space. Every mapping is a ledger row below the scope it was made with, from registration until nobody uses
// it: an unregistered region is forgotten at once, and its mapping goes with the last lease.
//
// Errors carry Triton's texts, with the reason behind them. Where Triton says INTERNAL for what the client got wrong it is
// INVALID_ARGUMENT here. Thread-safe. Outlived by its leases, but not its scope.
class SharedMemoryRegions final : public SharedMemoryFinder {
 public:
  struct Options {
    bool allowed = false;              // --allow-client-shm
    CudaSharedMemory* cuda = nullptr;  // null: CUDA regions are refused by name
    std::size_t max_regions = 1024;
  };

  SharedMemoryRegions(Scope& scope, Options options) : scope_(scope), options_(options) {}
  SharedMemoryRegions(const SharedMemoryRegions&) = delete;
  SharedMemoryRegions& operator=(const SharedMemoryRegions&) = delete;

  // UNIMPLEMENTED unless clients may register at all: front ends ask this before they look at a request's body.
  absl::Status Allowed() const;

  // `byte_size` bytes at `offset` of the POSIX shared-memory object `key`. ALREADY_EXISTS for a name in use.
  absl::Status RegisterSystem(const std::string& name, const std::string& key, std::uint64_t offset,
                              std::uint64_t byte_size);
  // `handle`: the raw cudaIpcMemHandle_t.
  absl::Status RegisterCuda(const std::string& name, std::span<const std::byte> handle, int device,
                            std::uint64_t byte_size);

  // One of that kind, or all for an empty name. OK when there is none; NOT_FOUND when the name is of the other kind.
  absl::Status UnregisterSystem(std::string_view name) { return Unregister(name, Kind::kSystem); }
  absl::Status UnregisterCuda(std::string_view name) { return Unregister(name, Kind::kCuda); }

  // One of that kind (NOT_FOUND), or all for an empty name, by name.
  absl::StatusOr<std::vector<SharedMemoryInfo>> SystemStatus(std::string_view name) const {
    return Status(name, Kind::kSystem);
  }
  absl::StatusOr<std::vector<SharedMemoryInfo>> CudaStatus(std::string_view name) const {
    return Status(name, Kind::kCuda);
  }

  absl::StatusOr<SharedMemoryLease> Find(std::string_view name, std::uint64_t offset, std::uint64_t byte_size) override;

 private:
  enum class Kind { kSystem, kCuda };
  class Region;

  absl::Status Begin(const std::string& name);
  void End(const std::string& name, std::shared_ptr<Region> region);
  absl::Status Unregister(std::string_view name, Kind kind);
  absl::StatusOr<std::vector<SharedMemoryInfo>> Status(std::string_view name, Kind kind) const;

  Scope& scope_;
  const Options options_;
  mutable absl::Mutex mutex_;
  std::map<std::string, std::shared_ptr<Region>, std::less<>> regions_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string, std::less<>> opening_ ABSL_GUARDED_BY(mutex_);  // names being registered
};

}  // namespace tidemark
