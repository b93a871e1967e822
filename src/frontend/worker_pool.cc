#include "frontend/worker_pool.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace tidemark {

absl::StatusOr<std::unique_ptr<WorkerPool>> WorkerPool::Create(Ledger& ledger, Platform& platform, int threads) {
  auto scope = std::make_unique<Scope>(ledger, platform, "server/decoders",
                                       Scope::Options{.cancel = nullptr, .reservations = nullptr, .resident = true});
  auto pool = std::make_unique<WorkerPool>(Private(), std::move(scope));
  WorkerPool* const self = pool.get();
  for (int i = 0; i < std::max(threads, 1); ++i) {
    RETURN_IF_ERROR(self->scope_
                        ->StartThread(
                            "decode", [self] { self->Work(); }, [self] { self->Stop(); }, "decoder")
                        .status());
  }
  return pool;
}

void WorkerPool::Post(Task task) {
  absl::MutexLock lock(&mutex_);
  tasks_.push_back(std::move(task));
  work_.Signal();
}

void WorkerPool::Stop() {
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
  work_.SignalAll();
}

void WorkerPool::Work() {
  for (;;) {
    Task task;
    {
      absl::MutexLock lock(&mutex_);
      while (tasks_.empty() && !stopping_) work_.Wait(&mutex_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace tidemark
