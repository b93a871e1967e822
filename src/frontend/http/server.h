#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/connection_server.h"
#include "frontend/event_loop.h"
#include "frontend/http/limits.h"
#include "frontend/http/message.h"
#include "frontend/tls.h"
#include "resource/buffer_pool.h"

namespace tidemark {

struct HttpServerOptions {
  std::optional<std::uint16_t> port = 8000;  // nothing: no TCP; 0: any free port
  std::string address = "0.0.0.0";
  // False: fail when another process (of the same user) listens on the port with SO_REUSEPORT, as Triton's default does.
  bool reuse_port = false;
  std::string unix_path;            // empty: no UNIX-domain socket
  const TlsContext* tls = nullptr;  // of the TCP port; null: plain. Outlives the server. UNIX-domain sockets are plain
  HttpLimits limits;
  // A content type with the number of JSON bytes behind it, which then says where the tensors begin and the body is aligned,
  // as Inference-Header-Content-Length does elsewhere (cloud_request.h). A literal; empty: there is none.
  std::string_view binary_type;
};

// An HTTP/1.1 transport over event loops: sockets in, HttpHandler calls out. The rules of ConnectionServer hold. Loops and
// pool and handler outlive the server.
class HttpServer {
 private:
  struct Private {};  // only Create can name it

 public:
  static absl::StatusOr<std::unique_ptr<HttpServer>> Create(HttpServerOptions options, std::vector<EventLoop*> loops,
                                                            HttpHandler* handler, BufferPool* pool);
  HttpServer(Private, std::unique_ptr<ConnectionServer> server) : server_(std::move(server)) {}

  void Start() { server_->Start(); }
  std::uint16_t port() const { return server_->port(); }
  void StopAccepting() { server_->StopAccepting(); }
  // Answers of requests in flight carry `Connection: close`.
  bool Stop(std::chrono::milliseconds deadline) { return server_->Stop(deadline); }
  std::size_t connections() const { return server_->connections(); }
  std::size_t TakePeak() { return server_->TakePeak(); }

 private:
  const std::unique_ptr<ConnectionServer> server_;
};

}  // namespace tidemark
