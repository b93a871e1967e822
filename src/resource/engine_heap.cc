#include "resource/engine_heap.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "base/log.h"
#include "base/status.h"

namespace tidemark {

namespace {

enum class State : std::uint8_t { kOut, kClaimed, kFreed };  // freed: while it was claimed
constexpr std::size_t kPadding = 64;                         // behind large blocks, which may become a pool's buffers

// The least of 4, 5, 6 and 7 quarters of a power of two that is not below `total`, which is not 0.
std::size_t SizeClass(std::size_t total) {
  const std::size_t step = std::max<std::size_t>(std::bit_floor(total) / 4, 1);
  return (total + step - 1) / step * step;
}

std::size_t WholePages(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

// Lies in front of every block, as large as the alignment so that the block itself stays aligned.
struct alignas(64) EngineHeap::Header {
  EngineHeap* heap = nullptr;
  std::size_t total = 0;           // bytes of the block with its header
  std::size_t mapped = 0;          // bytes mapped; 0 for a small block
  std::size_t counted = 0;         // of them in the row
  Scope::Handle handle = nullptr;  // of a large block
  Header* newer = nullptr;         // neighbours in the list of blocks that are out
  Header* older = nullptr;
  std::atomic<State> state{State::kOut};
};

absl::StatusOr<std::unique_ptr<EngineHeap>> EngineHeap::Create(Scope& scope, std::size_t cache_bytes) {
  auto heap = std::make_unique<EngineHeap>(Private(), scope, cache_bytes);
  ASSIGN_OR_RETURN(heap->small_row_, scope.Acquire(
                                         ResourceKind::kSmallHeap, kHost, 0, "small blocks",
                                         [] { return absl::OkStatus(); }, [] { return absl::OkStatus(); }));
  return heap;
}

EngineHeap::~EngineHeap() {
  if (const std::uint64_t blocks = live_blocks(); blocks != 0) {
    LOG_ERROR("an engine kept {} blocks ({} bytes) of '{}' past its end", blocks, live_bytes(), scope_.owner());
  }
  for (;;) {
    Header* left = nullptr;
    {
      absl::MutexLock lock(&mutex_);
      left = blocks_;
    }
    if (left == nullptr) break;
    FreeBlock(left);
  }
  Trim();
  scope_.Release(small_row_);
}

void* EngineHeap::Allocate(std::size_t bytes) noexcept {
  try {
    if (bytes > SIZE_MAX / 2) {
      return Refuse(absl::ResourceExhaustedError(fmt::format("a block of {} bytes is more than there can be", bytes)));
    }
    std::size_t total = bytes + sizeof(Header);
    const bool large = total >= kLarge;
    if (large) total += kPadding;
    void* block = large ? AllocateLarge(total) : AllocateSmall(total);
    if (block == nullptr) return nullptr;
    CountIn(total);
    auto* header = static_cast<Header*>(block) - 1;
    absl::MutexLock lock(&mutex_);
    header->older = blocks_;
    if (blocks_ != nullptr) blocks_->newer = header;
    blocks_ = header;
    return block;
  } catch (const std::exception& error) {
    return Refuse(absl::InternalError(error.what()));
  } catch (...) {
    return Refuse(absl::InternalError("unknown exception"));
  }
}

void* EngineHeap::Refuse(absl::Status why) noexcept {
  absl::MutexLock lock(&mutex_);
  last_error_ = std::move(why);
  return nullptr;
}

void EngineHeap::CountIn(std::size_t bytes) noexcept {
  live_blocks_.fetch_add(1, std::memory_order_relaxed);
  const std::uint64_t live = live_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  std::uint64_t peak = peak_bytes_.load(std::memory_order_relaxed);
  while (live > peak && !peak_bytes_.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
}

void* EngineHeap::AllocateLarge(std::size_t total) {
  Block block;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = cache_.lower_bound(total);
    if (it != cache_.end() && it->first <= total + total / 2) {
      block = it->second;
      cached_bytes_ -= block.memory.bytes;
      cache_.erase(it);
    }
  }
  if (block.memory.data == nullptr) {
    absl::StatusOr<Scope::Memory> fresh = Map(total);
    if (!fresh.ok()) return Refuse(fresh.status());
    block.memory = *fresh;
  }
  // The row has what users could touch: the kernel knows no more of it.
  if (const std::size_t bytes = WholePages(total); bytes > block.counted) {
    if (bytes != block.memory.bytes || block.counted != 0) scope_.Resize(block.memory.handle, bytes);
    block.counted = bytes;
  }
  auto* header = ::new (block.memory.data) Header{this, total, block.memory.bytes, block.counted, block.memory.handle};
  return header + 1;
}

absl::StatusOr<Scope::Memory> EngineHeap::Map(std::size_t total) {
  constexpr std::string_view kSite = "engine memory";
  if (scope_.loading()) return scope_.AllocateHost(total, kSite);
  if (!scope_.ledger().RoomOn(kHost).has_value()) {
    const std::size_t rounded = SizeClass(total);  // pages that nobody touches cost nothing
    return scope_.AllocateHost(rounded <= cache_limit_ ? rounded : total, kSite);
  }
  absl::StatusOr<Scope::Memory> memory = scope_.AllocateHost(total, kSite);
  if (!absl::IsResourceExhausted(memory.status())) return memory;
  absl::MutexLock lock(&squeeze_mutex_);  // what another thread is giving back here counts as given back
  do {
    Trim();
    memory = scope_.AllocateHost(total, kSite);
  } while (absl::IsResourceExhausted(memory.status()) && cached_bytes() != 0);
  return memory;
}

void* EngineHeap::AllocateSmall(std::size_t total) {
  if (scope_.cancelled()) return Refuse(absl::CancelledError("the load was cancelled"));
  void* memory = std::aligned_alloc(alignof(Header), (total + alignof(Header) - 1) / alignof(Header) * alignof(Header));
  if (memory == nullptr) {
    return Refuse(absl::ResourceExhaustedError(fmt::format("no memory for a block of {} bytes", total)));
  }
  auto* header = ::new (memory) Header{this, total};
  const std::uint64_t small = small_bytes_.fetch_add(total, std::memory_order_relaxed) + total;
  absl::MutexLock lock(&mutex_);
  if (small > small_row_bytes_) {  // the row shows the high-water mark in steps, so that small blocks stay cheap
    small_row_bytes_ = small + kLarge;
    scope_.Resize(small_row_, small_row_bytes_);
  }
  return header + 1;
}

void EngineHeap::Free(void* block) noexcept {
  if (block == nullptr) return;
  Header* header = static_cast<Header*>(block) - 1;
  State claimed = State::kClaimed;
  if (header->state.compare_exchange_strong(claimed, State::kFreed)) return;
  header->heap->FreeBlock(header);
}

bool EngineHeap::Claim(void* block) noexcept {
  absl::MutexLock lock(&mutex_);
  // By its address among those that are out, newest first: what lies before a pointer of the engine's may be no header.
  Header* header = blocks_;
  while (header != nullptr && header + 1 != block) header = header->older;
  if (header == nullptr || header->mapped == 0) return false;
  header->state.store(State::kClaimed);
  return true;
}

void EngineHeap::EndClaim(Header* header) noexcept {
  State claimed = State::kClaimed;
  if (!header->state.compare_exchange_strong(claimed, State::kOut)) FreeBlock(header);
}

absl::StatusOr<Buffer> EngineHeap::Move(void* block, std::size_t size, BufferPool& pool) {
  Header* const header = static_cast<Header*>(block) - 1;
  if (header->state.load() == State::kFreed) {
    absl::StatusOr<Buffer> moved = MoveFreed(header, size, pool);
    if (moved.ok()) return moved;
  }
  absl::StatusOr<Buffer> copy = pool.Allocate(size);
  if (copy.ok()) std::memcpy(copy->data(), block, size);
  EndClaim(header);
  return copy;
}

absl::StatusOr<Buffer> EngineHeap::MoveFreed(Header* header, std::size_t size, BufferPool& pool) {
  Block block{{reinterpret_cast<std::byte*>(header), header->mapped, header->handle}, header->counted};
  Scope::Memory& memory = block.memory;
  ASSIGN_OR_RETURN(Buffer buffer, pool.Adopt({memory.data, memory.bytes}, sizeof(Header), size));
  Unlist(header);
  std::byte* const other = memory.bytes <= cache_limit_ ? pool.TakeCached(memory.bytes) : nullptr;
  if (other == nullptr) {
    scope_.Disown(memory);
  } else {
    scope_.Exchange(memory, other);
    if (!KeepForReuse(block)) scope_.Release(memory.handle);
  }
  return buffer;
}

void EngineHeap::Unlist(Header* header) noexcept {
  {
    absl::MutexLock lock(&mutex_);
    (header->newer != nullptr ? header->newer->older : blocks_) = header->older;
    if (header->older != nullptr) header->older->newer = header->newer;
  }
  live_blocks_.fetch_sub(1, std::memory_order_relaxed);
  live_bytes_.fetch_sub(header->total, std::memory_order_relaxed);
}

void EngineHeap::FreeBlock(Header* header) noexcept {
  Unlist(header);
  if (header->mapped == 0) {
    small_bytes_.fetch_sub(header->total, std::memory_order_relaxed);
    std::free(header);
    return;
  }
  const Block block{{reinterpret_cast<std::byte*>(header), header->mapped, header->handle}, header->counted};
  if (!KeepForReuse(block)) scope_.Release(block.memory.handle);
}

bool EngineHeap::KeepForReuse(const Block& block) noexcept {
  const std::size_t bytes = block.memory.bytes;
  absl::MutexLock lock(&mutex_);
  if (bytes > cache_limit_ || cached_bytes_ > cache_limit_ - bytes) return false;
  try {
    cache_.emplace(bytes, block);
  } catch (const std::bad_alloc&) {
    return false;  // no memory to remember it by: it goes back instead
  }
  cached_bytes_ += bytes;
  return true;
}

void EngineHeap::Trim() noexcept {
  std::multimap<std::size_t, Block> cache;
  {
    absl::MutexLock lock(&mutex_);
    cache.swap(cache_);
    cached_bytes_ = 0;
  }
  for (const auto& [bytes, block] : cache) scope_.Release(block.memory.handle);
}

absl::Status EngineHeap::last_error() const {
  absl::MutexLock lock(&mutex_);
  return last_error_;
}

}  // namespace tidemark
