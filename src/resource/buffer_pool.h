#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "platform/platform.h"

namespace tidemark {

class BufferPool;

// Memory of one request or answer, 64-byte aligned, with at least 64 readable bytes behind `size()`. Move-only; goes
// back to its pool on destruction, from any thread. Contents are undefined at first.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)),
        front_(std::exchange(other.front_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    if (this != &other) {
      Reset();
      pool_ = std::exchange(other.pool_, nullptr);
      data_ = std::exchange(other.data_, nullptr);
      size_ = std::exchange(other.size_, 0);
      capacity_ = std::exchange(other.capacity_, 0);
      front_ = std::exchange(other.front_, 0);
    }
    return *this;
  }
  ~Buffer() { Reset(); }

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::size_t capacity() const { return capacity_; }
  bool empty() const { return data_ == nullptr; }
  std::span<std::byte> bytes() const { return {data_, size_}; }
  // `size` <= capacity().
  void Truncate(std::size_t size) { size_ = size; }
  void Reset() noexcept;

 private:
  friend class BufferPool;
  Buffer(BufferPool* pool, std::byte* data, std::size_t size, std::size_t capacity, std::size_t front = 0)
      : pool_(pool), data_(data), size_(size), capacity_(capacity), front_(front) {}

  BufferPool* pool_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
  std::size_t front_ = 0;  // bytes of the block before the data: not 0 for adopted blocks, which are mapped
};

// Request and answer memory of the whole server, outside the ledger (the data plane opens no rows) but counted: what is
// out and what is cached. Blocks up to 1 MiB come in powers of two from the C library, larger ones are mapped. Freed
// blocks are cached up to a cap per size, mapped ones up to `cached_large_bytes` together; the rest goes back at once.
// Thread-safe. Outlives its buffers.
class BufferPool {
 public:
  struct Options {
    std::size_t limit_bytes = std::size_t{8} << 30;  // bytes out at one time; beyond it RESOURCE_EXHAUSTED
    std::size_t cached_per_class = 32;               // small blocks kept of each size
    std::size_t cached_large_bytes = std::size_t{64} << 20;
  };

  explicit BufferPool(Platform& platform) : BufferPool(platform, Options()) {}
  BufferPool(Platform& platform, Options options);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  absl::StatusOr<Buffer> Allocate(std::size_t bytes);

  // A block that somebody else had the platform map becomes a buffer of `size` bytes that begin `front` bytes into it.
  // `front` is a multiple of 64 and not 0; 64 bytes remain behind the data. RESOURCE_EXHAUSTED beyond the limit: then the
  // block stays the caller's.
  absl::StatusOr<Buffer> Adopt(std::span<std::byte> block, std::size_t front, std::size_t size);
  // The way back: a cached block of exactly that many mapped bytes, the caller's to unmap; null when there is none.
  std::byte* TakeCached(std::size_t block) noexcept;

  // Gives all cached blocks back.
  void Trim() noexcept;

  std::uint64_t used_bytes() const { return used_.load(std::memory_order_relaxed); }
  std::uint64_t cached_bytes() const { return cached_.load(std::memory_order_relaxed); }
  // Large blocks that were asked for so far.
  std::uint64_t large_requests() const { return large_requests_.load(std::memory_order_relaxed); }
  // Blocks that were adopted so far.
  std::uint64_t adopted() const { return adopted_.load(std::memory_order_relaxed); }

 private:
  friend class Buffer;
  static constexpr std::size_t kMinShift = 8;       // 256 bytes
  static constexpr std::size_t kMaxShift = 20;      // 1 MiB
  static constexpr std::size_t kAdoptedShift = 16;  // adopted blocks may be as small as 64 KiB
  static constexpr std::size_t kPadding = 64;

  struct SizeClass {
    absl::Mutex mutex;
    std::vector<std::byte*> free ABSL_GUARDED_BY(mutex);
  };

  void Return(std::byte* data, std::size_t block, bool mapped) noexcept;

  Platform& platform_;
  const Options options_;
  std::atomic<std::uint64_t> used_{0};
  std::atomic<std::uint64_t> cached_{0};
  std::atomic<std::uint64_t> large_requests_{0};
  std::atomic<std::uint64_t> adopted_{0};
  std::array<SizeClass, kMaxShift - kMinShift + 1> classes_;
  absl::Mutex large_mutex_;
  std::vector<std::pair<std::byte*, std::size_t>> large_ ABSL_GUARDED_BY(large_mutex_);
  std::size_t large_bytes_ ABSL_GUARDED_BY(large_mutex_) = 0;
};

}  // namespace tidemark
