#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "resource/buffer_pool.h"
#include "resource/scope.h"

namespace tidemark {

// The heap that an engine's allocator hook draws on: blocks of 64 KiB and more are mapped through a scope, a ledger row
// each; smaller ones come from the C library and share one row of kind small_heap. Freed large blocks are kept for reuse
// up to a cap (their rows stay open), so that a model opens no rows while its sizes stay the same. Once the load has ended,
// large blocks come in four sizes to each doubling, so that requests of any size share a few rows (which have the bytes that
// users could touch, not those mapped); where the host has a budget they are as large as asked for, and kept blocks go before one is refused. Blocks: 64-byte aligned.
//
// Thread-safe. Must outlive the engine objects that use it and die before its scope; blocks that are still out when the
// heap dies are given back with it and reported. A block may be freed from any thread, by Free alone (the heap is found
// through the block).
class EngineHeap {
 private:
  struct Private {};  // only Create can name it

 public:
  EngineHeap(Private, Scope& scope, std::size_t cache_bytes) : scope_(scope), cache_limit_(cache_bytes) {}
  // `cache_bytes`: how much freed memory the heap keeps for reuse.
  static absl::StatusOr<std::unique_ptr<EngineHeap>> Create(Scope& scope, std::size_t cache_bytes);
  ~EngineHeap();
  EngineHeap(const EngineHeap&) = delete;
  EngineHeap& operator=(const EngineHeap&) = delete;

  // Null when nothing can be had (the budget, the kernel, a cancelled load); last_error() then says why.
  void* Allocate(std::size_t bytes) noexcept;
  // Null is allowed.
  static void Free(void* block) noexcept;

  // A large block may leave the heap without a copy, for an answer that outlives the model: Claim it, have the engine let
  // go of it, Move it. Its row closes, or stays for a block of the pool that takes its place in the cache.
  // Claim: true when `block` is a large one of this heap and is out. From then on Free only marks it.
  bool Claim(void* block) noexcept;
  // The first `size` bytes of a claimed block as a buffer. Where the engine has not called Free, and so may still use the
  // block, or the pool cannot take it, they are copied. The claim ends either way. RESOURCE_EXHAUSTED by the pool.
  absl::StatusOr<Buffer> Move(void* block, std::size_t size, BufferPool& pool);

  // Gives cached blocks back.
  void Trim() noexcept;

  std::uint64_t live_bytes() const { return live_bytes_.load(std::memory_order_relaxed); }
  std::uint64_t live_blocks() const { return live_blocks_.load(std::memory_order_relaxed); }
  std::uint64_t peak_bytes() const { return peak_bytes_.load(std::memory_order_relaxed); }
  // Freed blocks that are kept for reuse.
  std::uint64_t cached_bytes() const {
    absl::MutexLock lock(&mutex_);
    return cached_bytes_;
  }
  // Why the last Allocate answered null; OK if none did.
  absl::Status last_error() const;

 private:
  struct Header;
  struct Block {
    Scope::Memory memory;
    std::size_t counted = 0;  // bytes in its row: the most that a user had of it
  };

  void* AllocateLarge(std::size_t total);
  absl::StatusOr<Scope::Memory> Map(std::size_t total);
  void* AllocateSmall(std::size_t total);
  void* Refuse(absl::Status why) noexcept;
  void FreeBlock(Header* header) noexcept;
  // Takes it out of the list and the counters.
  void Unlist(Header* header) noexcept;
  void EndClaim(Header* header) noexcept;
  absl::StatusOr<Buffer> MoveFreed(Header* header, std::size_t size, BufferPool& pool);
  bool KeepForReuse(const Block& block) noexcept;
  void CountIn(std::size_t bytes) noexcept;

  static constexpr std::size_t kLarge = 64 << 10;

  Scope& scope_;
  const std::size_t cache_limit_;
  Scope::Handle small_row_ = nullptr;
  std::atomic<std::uint64_t> live_bytes_{0};
  std::atomic<std::uint64_t> live_blocks_{0};
  std::atomic<std::uint64_t> peak_bytes_{0};
  std::atomic<std::uint64_t> small_bytes_{0};
  absl::Mutex squeeze_mutex_;  // held while kept blocks make room; before mutex_
  mutable absl::Mutex mutex_;
  std::multimap<std::size_t, Block> cache_ ABSL_GUARDED_BY(mutex_);
  std::size_t cached_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t small_row_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status last_error_ ABSL_GUARDED_BY(mutex_);
  Header* blocks_ ABSL_GUARDED_BY(mutex_) = nullptr;  // every block that is out, newest first
};

}  // namespace tidemark
