#include "cli/serve_command.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <memory>

#include "base/log.h"
#include "base/status.h"
#include "server/options.h"
#include "server/server.h"

namespace tidemark {
namespace {

sigset_t Signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGHUP);
  return signals;
}

// Waits for SIGINT or SIGTERM. Meanwhile certificates and API keys are read again: on SIGHUP, and when their files change.
int AwaitStop(Server& server, const sigset_t& signals) {
  constexpr timespec kLook{.tv_sec = 2, .tv_nsec = 0};
  for (;;) {
    const int signal = sigtimedwait(&signals, nullptr, &kLook);
    if (signal == SIGINT || signal == SIGTERM) return signal;
    if (signal == SIGHUP || errno == EAGAIN) {
      server.ReloadSecrets(/*all=*/signal == SIGHUP);
      server.TidyAfterCrowd();
    }
  }
}

// What a second signal reaches. Set once, before the handler is.
Server* stopping_server = nullptr;

// The second signal: leaves at once, but not the temporary directories.
extern "C" void ExitAtOnce(int /*signal*/) {
  stopping_server->RemoveTraces();
  _exit(1);
}

int Leave(Server& server, const absl::Status& status, std::string_view what) {
  LOG_ERROR("error: {}: {}", what, TritonStatusText(status));
  fmt::print(stderr, "error: {}: {} - {}\n", what, TritonCodeName(status.code()), MessageOf(status));
  server.RemoveTraces();
  std::fflush(nullptr);
  _exit(1);  // requests are still running: their threads cannot be joined
}

}  // namespace

int ServeMain(std::span<char* const> args, std::span<const NamedBackendFactory> more_backends) {
  absl::StatusOr<ServerOptions> options = ParseServerOptions(args);
  if (!options.ok()) {
    fmt::print(stderr, "{}\n", MessageOf(options.status()));
    return 1;
  }
  if (absl::Status status = SetLogSettings(options->log); !status.ok()) {
    fmt::print(stderr, "{}\n", MessageOf(status));
    return 1;
  }
  // Every thread inherits this: the signals wait for this thread to ask.
  const sigset_t signals = Signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);

  absl::StatusOr<std::unique_ptr<Server>> server = Server::Create(*std::move(options), more_backends);
  if (!server.ok()) {
    fmt::print(stderr, "error: creating server: {} - {}\n", TritonCodeName(server.status().code()),
               MessageOf(server.status()));
    return 1;
  }
  if (absl::Status status = (*server)->LoadModels(); !status.ok()) {
    fmt::print(stderr, "error: creating server: {} - {}\n", TritonCodeName(status.code()), MessageOf(status));
    return 1;
  }
  const int signal = AwaitStop(**server, signals);
  LOG_INFO("signal {} received; a second one ends the process at once", signal);
  stopping_server = server->get();
  std::signal(SIGINT, ExitAtOnce);
  std::signal(SIGTERM, ExitAtOnce);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  if (absl::Status status = (*server)->Stop(); !status.ok()) return Leave(**server, status, "failed to stop server");
  server->reset();
  return 0;
}

}  // namespace tidemark
