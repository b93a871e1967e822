// An HTTP server that sends every body back: the transport alone, for wrk and the like.
//   http_echo [PORT [LOOPS [UNIX_PATH]]]     serves until SIGINT or SIGTERM, then prints the CPU time per request

#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/status.h"
#include "frontend/event_loop.h"
#include "frontend/http/server.h"
#include "platform/platform.h"

namespace tidemark {
namespace {

class EchoHandler : public HttpHandler {
 public:
  void Handle(HttpRequest& request, ResponseSender sender) override {
    requests_.fetch_add(1, std::memory_order_relaxed);
    HttpResponse response;
    const std::span<std::byte> body = request.body();
    response.Append(request.TakeBody(), body);
    sender.Send(std::move(response));
  }
  std::uint64_t requests() const { return requests_.load(); }

 private:
  std::atomic<std::uint64_t> requests_{0};
};

double CpuMicros() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto micros = [](const timeval& time) {
    return 1e6 * static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec);
  };
  return micros(usage.ru_utime) + micros(usage.ru_stime);
}

absl::Status Serve(int port, std::size_t loop_count, const char* unix_path) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const std::unique_ptr<Platform> platform = CreateLinuxPlatform();
  BufferPool pool(*platform);
  EchoHandler handler;
  std::vector<std::unique_ptr<EventLoop>> loops;
  std::vector<EventLoop*> pointers;
  for (std::size_t i = 0; i < loop_count; ++i) {
    ASSIGN_OR_RETURN(loops.emplace_back(), EventLoop::Create());
    pointers.push_back(loops.back().get());
  }
  HttpServerOptions options;
  options.port = static_cast<std::uint16_t>(port);
  options.unix_path = unix_path;
  ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> server, HttpServer::Create(options, pointers, &handler, &pool));
  server->Start();
  std::vector<Platform::Thread*> threads;
  for (EventLoop* loop : pointers) {
    ASSIGN_OR_RETURN(threads.emplace_back(), platform->StartThread("loop", [loop] { loop->Run(); }));
  }
  std::printf("listening on port %d\n", server->port());
  std::fflush(stdout);
  int signal = 0;
  sigwait(&signals, &signal);
  server->Stop(std::chrono::milliseconds(100));
  for (EventLoop* loop : pointers) loop->Stop();
  for (Platform::Thread* thread : threads) RETURN_IF_ERROR(platform->JoinThread(thread));
  std::printf("%llu requests, %.2f us of CPU each\n", static_cast<unsigned long long>(handler.requests()),
              CpuMicros() / static_cast<double>(std::max<std::uint64_t>(handler.requests(), 1)));
  return absl::OkStatus();
}

}  // namespace
}  // namespace tidemark

int main(int argc, char** argv) {
  const absl::Status status =
      tidemark::Serve(argc > 1 ? std::atoi(argv[1]) : 0, argc > 2 ? static_cast<std::size_t>(std::atoi(argv[2])) : 1,
                      argc > 3 ? argv[3] : "");
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(tidemark::MessageOf(status)).c_str());
  return 1;
}
