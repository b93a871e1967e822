#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tidemark {

// One "stop what you are doing" flag, set at most once and never reset. Thread-safe. Whoever starts the work owns it
// and keeps it alive until the work has ended.
class CancelFlag {
 public:
  CancelFlag() = default;
  CancelFlag(const CancelFlag&) = delete;
  CancelFlag& operator=(const CancelFlag&) = delete;

  bool cancelled() const noexcept { return cancelled_.load(std::memory_order_acquire); }

  // Sets the flag and runs every registered callback once, on this thread.
  void Cancel();

  // Runs `callback` when the flag is set, at once if it already is. The callback must be short and must not touch this
  // flag. Returns an id for Remove.
  std::uint64_t OnCancel(std::function<void()> callback);

  // After Remove returns the callback neither runs nor will run.
  void Remove(std::uint64_t id);

 private:
  std::atomic<bool> cancelled_{false};
  absl::Mutex mutex_;
  std::uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<std::uint64_t, std::function<void()>> callbacks_ ABSL_GUARDED_BY(mutex_);
};

// Registers a callback for as long as this object lives. `flag` may be null: then it does nothing.
class ScopedOnCancel {
 public:
  ScopedOnCancel(CancelFlag* flag, std::function<void()> callback)
      : flag_(flag), id_(flag != nullptr ? flag->OnCancel(std::move(callback)) : 0) {}
  ~ScopedOnCancel() {
    if (flag_ != nullptr) flag_->Remove(id_);
  }
  ScopedOnCancel(const ScopedOnCancel&) = delete;
  ScopedOnCancel& operator=(const ScopedOnCancel&) = delete;

 private:
  CancelFlag* flag_;
  std::uint64_t id_;
};

}  // namespace tidemark
