#include "audit/interrupt.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/status.h"

namespace tidemark::audit {

struct Interrupt::State {
  ~State() {
    if (signals >= 0) close(signals);
    if (stop >= 0) close(stop);
    if (masked) pthread_sigmask(SIG_SETMASK, &old_mask, nullptr);
  }
  sigset_t old_mask{};
  bool masked = false;
  int signals = -1;
  int stop = -1;
  Platform::Thread* watcher = nullptr;
};

absl::StatusOr<std::unique_ptr<Interrupt>> Interrupt::Create(Platform* platform) {
  auto state = std::make_unique<State>();
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGINT);
  sigaddset(&mask, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &mask, &state->old_mask);
  state->masked = true;
  state->signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
  state->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (state->signals < 0 || state->stop < 0) {
    return absl::InternalError(fmt::format("cannot watch for signals: {}", std::strerror(errno)));
  }
  auto interrupt = std::unique_ptr<Interrupt>(new Interrupt(platform, std::move(state)));
  Interrupt* self = interrupt.get();
  ASSIGN_OR_RETURN(self->state_->watcher, platform->StartThread("audit-signals", [self] {
    pollfd watched[2] = {{self->state_->signals, POLLIN, 0}, {self->state_->stop, POLLIN, 0}};
    while (poll(watched, 2, -1) >= 0 || errno == EINTR) {
      if (watched[1].revents != 0) return;
      signalfd_siginfo info;
      if (watched[0].revents != 0 && read(self->state_->signals, &info, sizeof(info)) > 0) self->flag_.Cancel();
    }
  }));
  return interrupt;
}

Interrupt::Interrupt(Platform* platform, std::unique_ptr<State> state)
    : platform_(platform), state_(std::move(state)) {}

Interrupt::~Interrupt() {
  if (state_->watcher == nullptr) return;
  const std::uint64_t one = 1;
  if (write(state_->stop, &one, sizeof(one)) == static_cast<ssize_t>(sizeof(one))) {
    (void)platform_->JoinThread(state_->watcher);
  }
}

}  // namespace tidemark::audit
