#pragma once

#include <pthread.h>
#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "frontend/socket.h"

namespace tidemark {

// The any-thread door of an EventLoop: a queue of tasks and the eventfd that wakes the loop. Held by shared_ptr by
// whoever may post after the loop is gone (last owner: the latest of them); then Post drops the task. Thread-safe.
class LoopMailbox {
 public:
  using Task = absl::AnyInvocable<void()>;

  explicit LoopMailbox(UniqueFd wake) : wake_(std::move(wake)) {}
  LoopMailbox(const LoopMailbox&) = delete;
  LoopMailbox& operator=(const LoopMailbox&) = delete;

  // Runs `task` on the loop's thread, in order. False when the loop has ended; the task is destroyed unrun.
  bool Post(Task task);

  // True on the thread that is inside EventLoop::Run.
  bool InLoopThread() const { return thread_.load(std::memory_order_relaxed) == pthread_self(); }

 private:
  friend class EventLoop;

  void Wake();

  const UniqueFd wake_;
  std::atomic<pthread_t> thread_{};
  absl::Mutex mutex_;
  std::vector<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  // The loop is awake and looks at `mail_`, so that nobody need wake it.
  bool polled_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> mail_{false};
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

// One epoll instance with timers and a mailbox; everything of it but the mailbox, Post and Stop belongs to the thread
// inside Run (or, while nobody runs it, to its owner). Threads come from outside: whoever has a thread calls Run.
class EventLoop {
 public:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  // Somebody with a descriptor. Must be removed before it dies.
  class Handler {
   public:
    virtual ~Handler() = default;
    // epoll's EPOLLIN, EPOLLOUT, … or 0 after CallAgain.
    virtual void OnEvents(std::uint32_t events) = 0;
  };

  // One deadline. Moving it to a later time is a store; the loop looks again when the earlier one is due.
  class Timer {
   public:
    Timer(EventLoop* loop, std::function<void()> callback) : loop_(loop), callback_(std::move(callback)) {}
    ~Timer();
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

    // Runs the callback once at `deadline` (clock of the loop, nanoseconds), not earlier. kNever: not at all. The
    // callback must not destroy its timer.
    void Set(std::int64_t deadline);
    void Clear() { deadline_ = kNever; }
    std::int64_t deadline() const { return deadline_; }

   private:
    friend class EventLoop;
    EventLoop* const loop_;
    const std::function<void()> callback_;
    std::int64_t deadline_ = kNever;  // wanted
    std::int64_t queued_ = kNever;    // key in the heap, <= deadline_
    std::size_t index_ = 0;           // place in the heap when queued_ != kNever
  };

  // `clock` gives monotonic nanoseconds; tests pass their own and Post something after having advanced it.
  // `poll_nanos`: how long, of real time, a loop that awaits posts (see Await) looks for them before it sleeps.
  static absl::StatusOr<std::unique_ptr<EventLoop>> Create(std::function<std::int64_t()> clock = nullptr,
                                                           std::int64_t poll_nanos = 0);
  // Not while a thread is inside Run. Tasks left in the mailbox are destroyed.
  ~EventLoop();
  // Not while a thread is inside Run, and Run is not called again: tasks that are in the mailbox, or are posted later, are
  // destroyed.
  void Close();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Serves until Stop. May be called again afterwards.
  void Run();
  // Any thread. Run returns after the tasks posted before have run.
  void Stop();
  // Any thread.
  bool Post(LoopMailbox::Task task) { return mailbox_->Post(std::move(task)); }
  const std::shared_ptr<LoopMailbox>& mailbox() const { return mailbox_; }
  // Any thread. False: nobody is inside Run, and what Run did is visible to the caller.
  bool running() const { return mailbox_->thread_.load(std::memory_order_acquire) != pthread_t{}; }

  // Time at which the current round of events began.
  std::int64_t now() const { return now_; }

  absl::Status Add(int fd, std::uint32_t events, Handler* handler);
  // `handler` gets no further event, not even of the current round. The descriptor is still open.
  void Remove(int fd, Handler* handler);
  // `more` (+1, -1) requests are with other threads, which will post their answers soon: going to sleep for so short a
  // time may cost more than looking for them.
  void Await(int more) { awaited_ += more; }
  // Calls handler->OnEvents(0) in the next round, after the events of others: fairness for long transfers.
  void CallAgain(Handler* handler) { again_.push_back(handler); }

 private:
  EventLoop(UniqueFd epoll, std::shared_ptr<LoopMailbox> mailbox, std::function<std::int64_t()> clock,
            std::int64_t poll_nanos);

  // The next events, as epoll_wait, and whether there is mail.
  int Wait(std::span<epoll_event> events, bool* mail);
  // The same without sleeping, for `poll_nanos_` at most.
  int Poll(std::span<epoll_event> events, bool* mail);
  void RunTasks();
  void RunTimers();
  int WaitMillis() const;
  void HeapInsert(Timer* timer);
  void HeapErase(Timer* timer);
  void HeapSift(std::size_t index);

  const UniqueFd epoll_;
  const std::shared_ptr<LoopMailbox> mailbox_;  // last owner: see LoopMailbox
  const std::function<std::int64_t()> clock_;
  const std::int64_t poll_nanos_;
  std::int64_t now_ = 0;
  int awaited_ = 0;
  bool stop_ = false;
  std::vector<Timer*> timers_;  // binary heap by queued_
  std::vector<Handler*> again_;
  std::vector<Handler*> pending_;  // whom this round has still to call; null once removed
  std::vector<LoopMailbox::Task> running_;
};

}  // namespace tidemark
