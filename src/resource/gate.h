#pragma once

#include <atomic>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"

namespace tidemark {

// Counts the requests inside one published version. An open gate lets everybody in; a closed one refuses, and whoever
// closed it is told, once, when the last one has left. Thread-safe; Enter and Leave are one atomic operation each.
// Whoever calls Leave keeps the gate alive until it has returned.
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

  // Once more, by somebody who is inside: never refused, since the gate is not empty.
  void EnterAgain() noexcept { state_.fetch_add(1, std::memory_order_acq_rel); }

  void Leave() noexcept {
    if (state_.fetch_sub(1, std::memory_order_acq_rel) == kClosed + 1) Emptied();
  }

  // No one enters any more. `on_empty` runs exactly once: on this thread if nobody is inside, else on the thread of the
  // last Leave; it must not block. Called once.
  void Close(absl::AnyInvocable<void()> on_empty);

  std::int64_t inside() const noexcept {
    return static_cast<std::int64_t>(state_.load(std::memory_order_acquire) & ~kClosed);
  }

 private:
  static constexpr std::uint64_t kClosed = std::uint64_t{1} << 63;

  void Emptied() noexcept;

  std::atomic<std::uint64_t> state_{0};
  absl::Mutex mutex_;
  absl::AnyInvocable<void()> on_empty_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidemark
