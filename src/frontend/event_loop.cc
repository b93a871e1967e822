#include "frontend/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"

namespace tidemark {
namespace {

// Tells the core that this is a loop which waits for another one.
void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

bool LoopMailbox::Post(Task task) {
  absl::MutexLock lock(&mutex_);
  if (closed_) return false;
  tasks_.push_back(std::move(task));
  if (!woken_) {
    woken_ = true;
    if (polled_) {
      mail_.store(true, std::memory_order_release);
    } else {
      Wake();
    }
  }
  return true;
}

void LoopMailbox::Wake() {
  // The loop watches edges and never reads the counter; it cannot overflow in practice (2^64 posts).
  const std::uint64_t one = 1;
  while (write(wake_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

EventLoop::Timer::~Timer() {
  if (queued_ != kNever) loop_->HeapErase(this);
}

void EventLoop::Timer::Set(std::int64_t deadline) {
  deadline_ = deadline;
  if (deadline == kNever) return;
  if (queued_ == kNever) {
    queued_ = deadline;
    loop_->HeapInsert(this);
  } else if (deadline < queued_) {
    queued_ = deadline;
    loop_->HeapSift(index_);
  }
}

absl::StatusOr<std::unique_ptr<EventLoop>> EventLoop::Create(std::function<std::int64_t()> clock,
                                                             std::int64_t poll_nanos) {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return absl::ResourceExhaustedError(fmt::format("no epoll instance: {}", ErrnoText(errno)));
  UniqueFd wake(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake.valid()) return absl::ResourceExhaustedError(fmt::format("no eventfd: {}", ErrnoText(errno)));
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.ptr = nullptr;  // the mailbox
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) {
    return absl::ResourceExhaustedError(fmt::format("epoll refuses the eventfd: {}", ErrnoText(errno)));
  }
  if (clock == nullptr) clock = NowNanos;
  return std::unique_ptr<EventLoop>(
      new EventLoop(std::move(epoll), std::make_shared<LoopMailbox>(std::move(wake)), std::move(clock), poll_nanos));
}

EventLoop::EventLoop(UniqueFd epoll, std::shared_ptr<LoopMailbox> mailbox, std::function<std::int64_t()> clock,
                     std::int64_t poll_nanos)
    : epoll_(std::move(epoll)),
      mailbox_(std::move(mailbox)),
      clock_(std::move(clock)),
      poll_nanos_(poll_nanos),
      now_(clock_()) {}

EventLoop::~EventLoop() { Close(); }

void EventLoop::Close() {
  std::vector<LoopMailbox::Task> left;
  absl::MutexLock lock(&mailbox_->mutex_);
  mailbox_->closed_ = true;
  left.swap(mailbox_->tasks_);
}

absl::Status EventLoop::Add(int fd, std::uint32_t events, Handler* handler) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = handler;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return absl::ResourceExhaustedError(fmt::format("epoll refuses a descriptor: {}", ErrnoText(errno)));
  }
  return absl::OkStatus();
}

void EventLoop::Remove(int fd, Handler* handler) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  std::replace(pending_.begin(), pending_.end(), handler, static_cast<Handler*>(nullptr));
  std::replace(again_.begin(), again_.end(), handler, static_cast<Handler*>(nullptr));
}

void EventLoop::Stop() {
  Post([this] { stop_ = true; });
}

void EventLoop::Run() {
  constexpr std::size_t kRound = 128;
  std::array<epoll_event, kRound> events;
  std::vector<std::uint32_t> flags;
  mailbox_->thread_.store(pthread_self(), std::memory_order_relaxed);
  while (!stop_) {
    bool woken = false;
    const int count = Wait(events, &woken);
    now_ = clock_();
    pending_.clear();
    flags.clear();
    for (std::size_t i = 0; i < static_cast<std::size_t>(std::max(count, 0)); ++i) {
      if (events[i].data.ptr == nullptr) {
        woken = true;
        continue;
      }
      pending_.push_back(static_cast<Handler*>(events[i].data.ptr));
      flags.push_back(events[i].events);
    }
    pending_.insert(pending_.end(), again_.begin(), again_.end());
    again_.clear();
    flags.resize(pending_.size(), 0);
    for (std::size_t i = 0; i < pending_.size(); ++i) {
      if (pending_[i] != nullptr) pending_[i]->OnEvents(flags[i]);
    }
    pending_.clear();
    if (woken) RunTasks();
    RunTimers();
  }
  stop_ = false;
  mailbox_->thread_.store(pthread_t{}, std::memory_order_release);
}

int EventLoop::Wait(std::span<epoll_event> events, bool* mail) {
  const int size = static_cast<int>(events.size());
  if (!again_.empty()) return epoll_wait(epoll_.get(), events.data(), size, 0);
  if (awaited_ > 0 && poll_nanos_ > 0) {
    const int count = Poll(events, mail);
    if (count != 0 || *mail) return count;
  }
  return epoll_wait(epoll_.get(), events.data(), size, WaitMillis());
}

int EventLoop::Poll(std::span<epoll_event> events, bool* mail) {
  constexpr int kLooks = 64;  // at the mailbox, for each look at the sockets
  {
    absl::MutexLock lock(&mailbox_->mutex_);
    if (mailbox_->woken_) return 0;  // the eventfd has it
    mailbox_->polled_ = true;
  }
  const std::int64_t end = NowNanos() + poll_nanos_;
  int count = 0;
  do {
    for (int i = 0; i < kLooks && !mailbox_->mail_.load(std::memory_order_acquire); ++i) Pause();
    count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  } while (count == 0 && !mailbox_->mail_.load(std::memory_order_acquire) && NowNanos() < end);
  absl::MutexLock lock(&mailbox_->mutex_);
  mailbox_->polled_ = false;
  *mail = mailbox_->mail_.exchange(false, std::memory_order_acquire);
  return count;
}

void EventLoop::RunTasks() {
  {
    absl::MutexLock lock(&mailbox_->mutex_);
    running_.swap(mailbox_->tasks_);
    mailbox_->woken_ = false;
  }
  for (LoopMailbox::Task& task : running_) {
    task();
    task = nullptr;
  }
  running_.clear();
}

void EventLoop::RunTimers() {
  while (!timers_.empty() && timers_.front()->queued_ <= now_) {
    Timer* timer = timers_.front();
    HeapErase(timer);
    if (timer->deadline_ <= now_) {
      timer->deadline_ = kNever;
      timer->callback_();
    } else if (timer->deadline_ != kNever) {
      timer->queued_ = timer->deadline_;
      HeapInsert(timer);
    }
  }
}

int EventLoop::WaitMillis() const {
  if (timers_.empty()) return -1;
  constexpr std::int64_t kMilli = 1'000'000;
  constexpr std::int64_t kLongest = 60'000;
  const std::int64_t left = std::max<std::int64_t>(timers_.front()->queued_ - now_, 0);
  return static_cast<int>(std::min((left + kMilli - 1) / kMilli, kLongest));
}

void EventLoop::HeapInsert(Timer* timer) {
  timer->index_ = timers_.size();
  timers_.push_back(timer);
  HeapSift(timer->index_);
}

void EventLoop::HeapErase(Timer* timer) {
  const std::size_t index = timer->index_;
  timer->queued_ = kNever;
  Timer* last = timers_.back();
  timers_.pop_back();
  if (last == timer) return;
  timers_[index] = last;
  last->index_ = index;
  HeapSift(index);
}

// Restores the heap after the timer at `index` got another key.
void EventLoop::HeapSift(std::size_t index) {
  const auto place = [this](std::size_t at, Timer* timer) {
    timers_[at] = timer;
    timer->index_ = at;
  };
  Timer* const timer = timers_[index];
  while (index > 0 && timer->queued_ < timers_[(index - 1) / 2]->queued_) {
    place(index, timers_[(index - 1) / 2]);
    index = (index - 1) / 2;
  }
  for (;;) {
    std::size_t child = 2 * index + 1;
    if (child >= timers_.size()) break;
    if (child + 1 < timers_.size() && timers_[child + 1]->queued_ < timers_[child]->queued_) ++child;
    if (timers_[child]->queued_ >= timer->queued_) break;
    place(index, timers_[child]);
    index = child;
  }
  place(index, timer);
}

}  // namespace tidemark
