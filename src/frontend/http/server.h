#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/event_loop.h"
#include "frontend/http/limits.h"
#include "frontend/http/message.h"
#include "resource/buffer_pool.h"

namespace tidemark {

struct HttpServerOptions {
  std::optional<std::uint16_t> port = 8000;  // nothing: no TCP; 0: any free port
  std::string address = "0.0.0.0";
  // False: fail when another process (of the same user) listens on the port with SO_REUSEPORT, as Triton's default does.
  bool reuse_port = false;
  std::string unix_path;  // empty: no UNIX-domain socket
  HttpLimits limits;
};

// An HTTP/1.1 transport over event loops: sockets in, HttpHandler calls out. Connections are spread over the loops so
// that their numbers differ by at most one at the moment of an accept; a connection stays on its loop.
//
// Legal order: Create (binds, so that errors come early) - Start - StopAccepting - Stop - destruction. Loops and pool and
// handler outlive the server. Public calls are thread-safe and, but for Stop, do not block; none is made on a loop.
class HttpServer {
 public:
  static absl::StatusOr<std::unique_ptr<HttpServer>> Create(HttpServerOptions options, std::vector<EventLoop*> loops,
                                                            HttpHandler* handler, BufferPool* pool);
  // Calls Stop(0) if that was not done.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Begins to accept. The loops may be started before or after.
  void Start();
  // The bound TCP port; 0 without TCP.
  std::uint16_t port() const;

  // Closes the listening sockets: new connections are refused, open ones live on.
  void StopAccepting();
  // StopAccepting, closes idle connections, lets requests in flight finish (their answers carry `Connection: close`) for
  // `deadline`, then cuts the rest. Returns when no connection is left: true when all ended by themselves. The loops
  // must be running, or not run again.
  bool Stop(std::chrono::milliseconds deadline);

  // Open connections, all loops.
  std::size_t connections() const;

 private:
  struct Shared;
  class Shard;

  HttpServer();
  void OnEachShard(void (Shard::*step)());

  std::shared_ptr<Shared> shared_;  // last owner: the server, or a task still in a loop's mailbox
  std::vector<std::shared_ptr<Shard>> shards_;
};

}  // namespace tidemark
