#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "resource/ledger.h"

namespace tidemark {

// A region that clients registered, as a request sees it: kept mapped by whoever holds it. Thread-safe.
class SharedMemoryRegion {
 public:
  virtual ~SharedMemoryRegion() = default;

  // INVALID_ARGUMENT, naming the region, once its memory is not what was registered any more (the client cut the
  // object). Touching it stays safe, but what was read may be zeros and what was written may be lost: whoever used the
  // region asks this before it answers.
  virtual absl::Status Check() const = 0;

  // Between the region's memory, wherever it lies, and host memory. Both spans have the same size and do not overlap;
  // the region's one lies in a lease of it. May wait for a device.
  virtual absl::Status Read(std::span<const std::byte> region, std::span<std::byte> host) const = 0;
  virtual absl::Status Write(std::span<const std::byte> host, std::span<std::byte> region) const = 0;
};

// A part of a region, lent for as long as the lease lives. Empty by default.
struct SharedMemoryLease {
  std::span<std::byte> bytes;  // on `device`: to be dereferenced only where that is kHost
  DeviceId device = kHost;
  std::shared_ptr<const SharedMemoryRegion> region;  // last owner: the registry of regions, or the last lease

  explicit operator bool() const { return region != nullptr; }
};

// Finds registered regions for a request. Thread-safe.
class SharedMemoryFinder {
 public:
  virtual ~SharedMemoryFinder() = default;

  // `byte_size` bytes at `offset` of the region. NOT_FOUND or INVALID_ARGUMENT with Triton's texts.
  virtual absl::StatusOr<SharedMemoryLease> Find(std::string_view region, std::uint64_t offset,
                                                 std::uint64_t byte_size) = 0;
};

}  // namespace tidemark
