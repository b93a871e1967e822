#pragma once

#include <cstddef>
#include <deque>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "resource/scope.h"

namespace tidemark {

// What takes a loop too long: more bytes of JSON, or of typed contents of a gRPC request, are decoded beside it, …
inline constexpr std::size_t kLongDecodeBytes = std::size_t{64} << 10;
// … and requests with more bytes are bound to a model there whose response cache reads every one of them (some 0.2 ms).
inline constexpr std::size_t kLongHashBytes = std::size_t{256} << 10;

// Threads for work of requests that would hold up an event loop (large JSON, compressed bodies): it takes long, but never
// blocks. First come, first served; at the loops' priority. Thread-safe. The threads are resident rows of the ledger.
class WorkerPool {
 private:
  struct Private {};  // only Create can name it

 public:
  using Task = absl::AnyInvocable<void()>;

  static absl::StatusOr<std::unique_ptr<WorkerPool>> Create(Ledger& ledger, Platform& platform, int threads);
  WorkerPool(Private, std::unique_ptr<Scope> scope) : scope_(std::move(scope)) {}
  // Runs what is queued, then ends the threads.
  ~WorkerPool() { scope_->ReleaseAll(); }
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  void Post(Task task);

 private:
  void Work();
  void Stop();

  absl::Mutex mutex_;
  absl::CondVar work_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  const std::unique_ptr<Scope> scope_;  // last member: its end joins the threads
};

}  // namespace tidemark
