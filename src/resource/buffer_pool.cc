#include "resource/buffer_pool.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <exception>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "base/log.h"
#include "base/status.h"

namespace tidemark {
namespace {

// Engines ask for buffers in the middle of an execution, where an exception would lose what it was about.
absl::StatusOr<std::byte*> Map(Platform& platform, std::size_t bytes) {
  try {
    return platform.MapMemory(bytes);
  } catch (const std::exception& error) {
    return absl::ResourceExhaustedError(error.what());
  }
}

}  // namespace

void Buffer::Reset() noexcept {
  if (data_ == nullptr) return;
  const std::size_t block = front_ + capacity_ + BufferPool::kPadding;
  const bool mapped = front_ != 0 || block > (std::size_t{1} << BufferPool::kMaxShift);
  pool_->Return(std::exchange(data_, nullptr) - front_, block, mapped);
  pool_ = nullptr;
  size_ = capacity_ = front_ = 0;
}

BufferPool::BufferPool(Platform& platform, Options options) : platform_(platform), options_(options) {
  // Giving back must not need memory: the lists have their room from the start.
  for (SizeClass& size_class : classes_) {
    absl::MutexLock lock(&size_class.mutex);
    size_class.free.reserve(options_.cached_per_class);
  }
  absl::MutexLock lock(&large_mutex_);
  large_.reserve(options_.cached_large_bytes >> kAdoptedShift);
}

BufferPool::~BufferPool() {
  Trim();
  if (const std::uint64_t used = used_bytes(); used != 0)
    LOG_ERROR("{} bytes of request buffers outlived their pool", used);
}

absl::StatusOr<Buffer> BufferPool::Allocate(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  if (bytes > options_.limit_bytes) {
    return absl::ResourceExhaustedError(
        fmt::format("a request buffer of {} bytes exceeds the limit of {} bytes", bytes, options_.limit_bytes));
  }
  const std::size_t needed = bytes + kPadding;
  const bool small = needed <= (std::size_t{1} << kMaxShift);
  const std::size_t block =
      small ? std::max(std::bit_ceil(needed), std::size_t{1} << kMinShift) : (needed + kPage - 1) / kPage * kPage;
  // A few clients that announce large bodies must not leave no room for everybody's small ones.
  const std::uint64_t limit = small ? options_.limit_bytes : options_.limit_bytes - options_.limit_bytes / 16;
  const std::uint64_t used = used_.fetch_add(block, std::memory_order_relaxed) + block;
  if (used > limit) {
    used_.fetch_sub(block, std::memory_order_relaxed);
    return absl::ResourceExhaustedError(
        fmt::format("a request buffer of {} bytes does not fit: {} of {} bytes are in use", bytes, used - block,
                    options_.limit_bytes));
  }
  std::byte* data = nullptr;
  std::string why;
  std::size_t actual = block;
  absl::Cleanup count_back = [this, &actual] { used_.fetch_sub(actual, std::memory_order_relaxed); };
  if (small) {
    SizeClass& size_class = classes_[static_cast<std::size_t>(std::countr_zero(block)) - kMinShift];
    {
      absl::MutexLock lock(&size_class.mutex);
      if (!size_class.free.empty()) {
        data = size_class.free.back();
        size_class.free.pop_back();
        cached_.fetch_sub(block, std::memory_order_relaxed);
      }
    }
    if (data == nullptr) data = static_cast<std::byte*>(std::aligned_alloc(64, block));
  } else {
    large_requests_.fetch_add(1, std::memory_order_relaxed);
    {
      absl::MutexLock lock(&large_mutex_);
      for (auto it = large_.begin(); it != large_.end(); ++it) {
        if (it->second < block || it->second > block + block / 4) continue;
        data = it->first;
        used_.fetch_add(it->second - block, std::memory_order_relaxed);
        actual = it->second;
        large_bytes_ -= actual;
        cached_.fetch_sub(actual, std::memory_order_relaxed);
        large_.erase(it);
        break;
      }
    }
    if (data == nullptr) {
      const absl::StatusOr<std::byte*> mapped = Map(platform_, block);
      if (mapped.ok()) {
        data = *mapped;
      } else {
        why = fmt::format(": {}", MessageOf(mapped.status()));
      }
    }
  }
  if (data == nullptr) {
    return absl::ResourceExhaustedError(fmt::format("no memory for a request buffer of {} bytes{}", bytes, why));
  }
  std::move(count_back).Cancel();
  return Buffer(this, data, bytes, actual - kPadding);
}

absl::StatusOr<Buffer> BufferPool::Adopt(std::span<std::byte> block, std::size_t front, std::size_t size) {
  const bool small = block.size() <= (std::size_t{1} << kMaxShift);  // what is kept for small ones: as in Allocate
  const std::uint64_t limit = small ? options_.limit_bytes : options_.limit_bytes - options_.limit_bytes / 16;
  const std::uint64_t used = used_.fetch_add(block.size(), std::memory_order_relaxed) + block.size();
  if (used > limit) {
    used_.fetch_sub(block.size(), std::memory_order_relaxed);
    return absl::ResourceExhaustedError(fmt::format(
        "a request buffer of {} bytes does not fit: {} of {} bytes are in use", size, used - block.size(), limit));
  }
  adopted_.fetch_add(1, std::memory_order_relaxed);
  large_requests_.fetch_add(1, std::memory_order_relaxed);
  return Buffer(this, block.data() + front, size, block.size() - front - kPadding, front);
}

std::byte* BufferPool::TakeCached(std::size_t block) noexcept {
  absl::MutexLock lock(&large_mutex_);
  const auto it = std::find_if(large_.begin(), large_.end(), [&](const auto& one) { return one.second == block; });
  if (it == large_.end()) return nullptr;
  std::byte* const data = it->first;
  large_bytes_ -= block;
  cached_.fetch_sub(block, std::memory_order_relaxed);
  large_.erase(it);
  return data;
}

void BufferPool::Return(std::byte* data, std::size_t block, bool mapped) noexcept {
  used_.fetch_sub(block, std::memory_order_relaxed);
  if (!mapped) {
    SizeClass& size_class = classes_[static_cast<std::size_t>(std::countr_zero(block)) - kMinShift];
    {
      absl::MutexLock lock(&size_class.mutex);
      if (size_class.free.size() < options_.cached_per_class) {
        size_class.free.push_back(data);
        cached_.fetch_add(block, std::memory_order_relaxed);
        return;
      }
    }
    std::free(data);
    return;
  }
  for (;;) {
    std::pair<std::byte*, std::size_t> out{data, block};
    {
      absl::MutexLock lock(&large_mutex_);
      if (large_bytes_ + block <= options_.cached_large_bytes && large_.size() < large_.capacity()) {
        large_.emplace_back(data, block);
        large_bytes_ += block;
        cached_.fetch_add(block, std::memory_order_relaxed);
        return;
      }
      // The oldest make room: sizes that nobody asks for again must not keep out those that are in use.
      if (block <= options_.cached_large_bytes && !large_.empty()) {
        out = large_.front();
        large_.erase(large_.begin());
        large_bytes_ -= out.second;
        cached_.fetch_sub(out.second, std::memory_order_relaxed);
      }
    }
    if (const absl::Status status = platform_.UnmapMemory(out.first, out.second); !status.ok()) {
      LOG_ERROR("a request buffer could not be given back: {}", MessageOf(status));
    }
    if (out.first == data) return;
  }
}

void BufferPool::Trim() noexcept {
  for (std::size_t i = 0; i < classes_.size(); ++i) {
    absl::MutexLock lock(&classes_[i].mutex);
    cached_.fetch_sub(classes_[i].free.size() << (i + kMinShift), std::memory_order_relaxed);
    for (std::byte* block : classes_[i].free) std::free(block);
    classes_[i].free.clear();  // the list keeps its room
  }
  for (;;) {
    std::pair<std::byte*, std::size_t> block;
    {
      absl::MutexLock lock(&large_mutex_);
      if (large_.empty()) return;
      block = large_.back();
      large_.pop_back();
      large_bytes_ -= block.second;
      cached_.fetch_sub(block.second, std::memory_order_relaxed);
    }
    if (const absl::Status status = platform_.UnmapMemory(block.first, block.second); !status.ok()) {
      LOG_ERROR("a request buffer could not be given back: {}", MessageOf(status));
    }
  }
}

}  // namespace tidemark
