#include "lifecycle/load_pool.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/time/clock.h"
#include "base/status.h"

namespace tidemark {

absl::StatusOr<std::unique_ptr<LoadPool>> LoadPool::Create(Ledger& ledger, Platform& platform, int threads) {
  auto scope = std::make_unique<Scope>(ledger, platform, "server/load pool",
                                       Scope::Options{.cancel = nullptr, .reservations = nullptr, .resident = true});
  auto pool = std::make_unique<LoadPool>(Private(), std::move(scope));
  LoadPool* self = pool.get();
  {
    absl::MutexLock lock(&self->mutex_);
    self->idle_.reserve(static_cast<std::size_t>(std::max(threads, 1)));  // nothing fails on the threads
  }
  RETURN_IF_ERROR(self->scope_
                      ->StartThread(
                          "load timer", [self] { self->Timer(); }, [self] { self->Stop(); }, "timer")
                      .status());
  for (int i = 0; i <= std::max(threads, 1); ++i) {
    const bool unloads_only = i == 0;
    RETURN_IF_ERROR(self->scope_
                        ->StartThread(
                            unloads_only ? "unload" : "load",
                            [self, &platform, unloads_only] {
                              platform.LowerThreadPriority();
                              self->Worker(unloads_only);
                            },
                            [self] { self->Stop(); }, "load thread")
                        .status());
  }
  return pool;
}

LoadPool::LoadPool(Private /*only Create*/, std::unique_ptr<Scope> scope) : scope_(std::move(scope)) {}

LoadPool::~LoadPool() { Shutdown(); }

void LoadPool::Shutdown() { scope_->ReleaseAll(); }

void LoadPool::Stop() {
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
  for (Idle* idle : idle_) idle->wake.Signal();
  if (idle_unloader_ != nullptr) idle_unloader_->wake.Signal();
  due_changed_.SignalAll();
}

// One thread that may take it: with all of them awake, a task of a millisecond costs half as much again in waking up. The
// one that worked last: what an engine's code and the model's memory need is still in the caches of its processor.
void LoadPool::WakeFor(Lane lane) {
  Idle* idle = nullptr;
  if (!idle_.empty()) {
    idle = idle_.back();
    idle_.pop_back();
  } else if (lane == Lane::kUnloads) {
    idle = std::exchange(idle_unloader_, nullptr);
  }
  if (idle == nullptr) return;  // whoever is done first looks for more
  idle->woken = true;
  idle->wake.Signal();
}

void LoadPool::Await(Idle& self, bool unloads_only) {
  self.woken = false;
  if (unloads_only) {
    idle_unloader_ = &self;
  } else {
    idle_.push_back(&self);
  }
  while (!self.woken && !stopping_) self.wake.Wait(&mutex_);
  if (self.woken) return;  // at the end nobody has taken it off the list
  if (unloads_only) {
    idle_unloader_ = nullptr;
  } else {
    std::erase(idle_, &self);
  }
}

void LoadPool::Post(Task task, Lane lane) {
  absl::MutexLock lock(&mutex_);
  (lane == Lane::kLoads ? loads_ : unloads_).push_back(std::move(task));
  WakeFor(lane);
}

LoadPool::Ticket LoadPool::PostAt(absl::Time when, Task task) {
  absl::MutexLock lock(&mutex_);
  const Ticket ticket{when, next_ticket_++};
  due_.emplace(ticket, std::move(task));
  if (when < timer_sleeps_until_) due_changed_.Signal();
  return ticket;
}

void LoadPool::Revoke(const Ticket& ticket) {
  Task revoked;  // dies outside the lock
  absl::MutexLock lock(&mutex_);
  if (const auto it = due_.find(ticket); it != due_.end()) {
    revoked = std::move(it->second);
    due_.erase(it);
  }
}

void LoadPool::Worker(bool unloads_only) {
  Idle idle;
  for (;;) {
    Task task;
    {
      absl::MutexLock lock(&mutex_);
      const auto nothing = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return unloads_.empty() && (unloads_only || loads_.empty());
      };
      while (nothing() && !stopping_) Await(idle, unloads_only);
      if (nothing()) return;
      std::deque<Task>& lane = unloads_.empty() ? loads_ : unloads_;
      task = std::move(lane.front());
      lane.pop_front();
    }
    task();
  }
}

void LoadPool::Timer() {
  absl::MutexLock lock(&mutex_);
  while (!stopping_) {
    const auto next = due_.begin();
    if (next == due_.end() || next->first.first > absl::Now()) {
      // Every unload announces an answer that is late and takes it back: later ones must not wake this thread each time,
      // so it sleeps on until what it last knew would have been due.
      const absl::Time until = next == due_.end() ? absl::InfiniteFuture() : next->first.first;
      timer_sleeps_until_ = until;
      due_changed_.WaitWithDeadline(&mutex_, until);
      timer_sleeps_until_ = absl::InfinitePast();
    } else {
      unloads_.push_back(std::move(next->second));
      due_.erase(next);
      WakeFor(Lane::kUnloads);
    }
  }
}

void LoadPool::RunAll(std::vector<std::function<void()>> tasks) {
  struct Shared {
    std::vector<std::function<void()>> tasks;
    std::atomic<std::size_t> next{0};
    absl::Mutex mutex;
    std::size_t done ABSL_GUARDED_BY(mutex) = 0;
    void Work() {
      for (std::size_t i = next.fetch_add(1); i < tasks.size(); i = next.fetch_add(1)) {
        tasks[i]();
        absl::MutexLock lock(&mutex);
        ++done;
      }
    }
    bool Finished() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return done == tasks.size(); }
  };
  auto shared = std::make_shared<Shared>();  // last owner: a helper that comes too late to find work
  shared->tasks = std::move(tasks);
  for (std::size_t i = 1; i < shared->tasks.size(); ++i) Post([shared] { shared->Work(); }, Lane::kLoads);
  shared->Work();
  absl::MutexLock lock(&shared->mutex);
  shared->mutex.Await(absl::Condition(shared.get(), &Shared::Finished));
}

}  // namespace tidemark
