#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "resource/scope.h"

namespace tidemark {

// The threads that run loads, drains and unloads (`--model-load-thread-count`), one more for drains and unloads alone,
// since loads may wait for them, and one that posts what is due at a time. First in, first out in each lane, unloads
// before loads. Thread-safe. The threads are resident rows of `scope`.
class LoadPool {
 private:
  struct Private {};

 public:
  using Task = absl::AnyInvocable<void()>;

  static absl::StatusOr<std::unique_ptr<LoadPool>> Create(Ledger& ledger, Platform& platform, int threads);
  explicit LoadPool(Private, std::unique_ptr<Scope> scope);
  // Shuts down.
  ~LoadPool();
  LoadPool(const LoadPool&) = delete;
  LoadPool& operator=(const LoadPool&) = delete;

  enum class Lane : std::uint8_t {
    kLoads,    // may block until other tasks of either lane have run
    kUnloads,  // never blocks
  };
  void Post(Task task, Lane lane = Lane::kLoads);
  // Posts the task at `when`, to the lane of those that never block, unless it is revoked or the pool ends before.
  using Ticket = std::pair<absl::Time, std::uint64_t>;
  Ticket PostAt(absl::Time when, Task task);
  // Forgets a task that is not due yet.
  void Revoke(const Ticket& ticket);

  // Runs what is queued (not what is due later), then ends the threads. The object stays usable by tasks that still run.
  void Shutdown();

  // Runs all tasks, on this thread and on whatever pool threads are free, and returns when the last has ended. Safe to
  // call from a pool thread: this thread alone would finish the work.
  void RunAll(std::vector<std::function<void()>> tasks);

 private:
  // A thread that has nothing to do.
  struct Idle {
    absl::CondVar wake;
    bool woken = false;
  };
  void Worker(bool unloads_only);
  void WakeFor(Lane lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Await(Idle& self, bool unloads_only) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Timer();
  void Stop();

  absl::Mutex mutex_;
  absl::CondVar due_changed_;  // of the timer: only when it would sleep too long
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Idle*> idle_ ABSL_GUARDED_BY(mutex_);        // of the threads that take either lane, the latest last
  Idle* idle_unloader_ ABSL_GUARDED_BY(mutex_) = nullptr;  // of the one for unloads alone
  std::deque<Task> loads_ ABSL_GUARDED_BY(mutex_);
  std::deque<Task> unloads_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t next_ticket_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<Ticket, Task> due_ ABSL_GUARDED_BY(mutex_);
  absl::Time timer_sleeps_until_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  std::unique_ptr<Scope> scope_;  // last member: its end joins the threads
};

}  // namespace tidemark
