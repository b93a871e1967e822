#pragma once

#include <atomic>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tidemark {

// Counts the requests inside one published version. An open gate lets everybody in; a closed one refuses, and whoever
// closed it may wait until the last one has left. Thread-safe; Enter and Leave are one atomic operation each.
class Gate {
 public:
  Gate() = default;
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // False when the gate is closed. Each true answer needs exactly one Leave.
  bool Enter() noexcept {
    if ((state_.fetch_add(1, std::memory_order_acq_rel) & kClosed) == 0) return true;
    Leave();
    return false;
  }

  void Leave() noexcept {
    if (state_.fetch_sub(1, std::memory_order_acq_rel) == kClosed + 1) Wake();
  }

  // No one enters any more. Idempotent.
  void Close() noexcept { state_.fetch_or(kClosed, std::memory_order_acq_rel); }

  // After Close: waits until nobody is inside. False when the deadline came first.
  bool WaitEmpty(absl::Time deadline);

  std::int64_t inside() const noexcept {
    return static_cast<std::int64_t>(state_.load(std::memory_order_acquire) & ~kClosed);
  }

 private:
  static constexpr std::uint64_t kClosed = std::uint64_t{1} << 63;

  void Wake() noexcept;

  std::atomic<std::uint64_t> state_{0};
  absl::Mutex mutex_;
  absl::CondVar empty_;
};

}  // namespace tidemark
