#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "resource/scope.h"

namespace tidemark {

// The threads that run loads, drains and unloads (`--model-load-thread-count`), and one more that runs what is due at a
// time. First in, first out. Thread-safe. The threads are resident rows of `scope`.
class LoadPool {
 private:
  struct Private {};

 public:
  using Task = absl::AnyInvocable<void()>;

  static absl::StatusOr<std::unique_ptr<LoadPool>> Create(Ledger& ledger, Platform& platform, int threads);
  explicit LoadPool(Private, std::unique_ptr<Scope> scope);
  // Runs what is queued (not what is due later), then ends the threads.
  ~LoadPool();
  LoadPool(const LoadPool&) = delete;
  LoadPool& operator=(const LoadPool&) = delete;

  void Post(Task task);
  // Posts the task at `when`, unless the pool ends before.
  void PostAt(absl::Time when, Task task);

  // Runs all tasks, on this thread and on whatever pool threads are free, and returns when the last has ended. Safe to
  // call from a pool thread: this thread alone would finish the work.
  void RunAll(std::vector<std::function<void()>> tasks);

 private:
  struct Due {
    absl::Time when;
    Task task;
  };

  void Worker();
  void Timer();
  void Stop();

  absl::Mutex mutex_;
  absl::CondVar work_;
  absl::CondVar due_changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  std::vector<Due> due_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Scope> scope_;  // last member: its end joins the threads
};

}  // namespace tidemark
