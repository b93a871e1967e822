#pragma once

#include <chrono>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "base/cancel.h"
#include "platform/platform.h"

namespace tidemark::audit {

// Turns SIGINT and SIGTERM into a CancelFlag while it lives, so that an audit ends by its ordinary road: files put back,
// server stopped, report written. One at a time per process; made and destroyed on the main thread before other threads
// are started (threads inherit the blocked mask).
class Interrupt {
 public:
  // `platform` must outlive it. Errors when the signals cannot be taken or the watching thread not be started.
  static absl::StatusOr<std::unique_ptr<Interrupt>> Create(Platform* platform);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  CancelFlag& flag() { return flag_; }

 private:
  struct State;
  Interrupt(Platform* platform, std::unique_ptr<State> state);

  Platform* platform_;
  std::unique_ptr<State> state_;
  CancelFlag flag_;
};

// Waits that a CancelFlag cuts short. `flag` must outlive it.
class Waiter {
 public:
  explicit Waiter(CancelFlag* flag) : on_cancel_(flag, [this] { cancelled_.Notify(); }) {}

  // False when cancelled, before or during the wait.
  bool WaitFor(std::chrono::nanoseconds duration) {
    return !cancelled_.WaitForNotificationWithTimeout(absl::FromChrono(duration));
  }
  bool cancelled() const { return cancelled_.HasBeenNotified(); }

 private:
  absl::Notification cancelled_;
  ScopedOnCancel on_cancel_;
};

}  // namespace tidemark::audit
