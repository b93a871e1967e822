#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/connection_server.h"
#include "frontend/event_loop.h"
#include "frontend/grpc/call.h"
#include "frontend/grpc/limits.h"
#include "frontend/tls.h"

namespace tidemark {

struct GrpcServerOptions {
  std::optional<std::uint16_t> port = 8001;  // nothing: no TCP; 0: any free port
  std::string address = "0.0.0.0";
  bool reuse_port = false;          // see ListenOptions
  std::string unix_path;            // empty: no UNIX-domain socket
  const TlsContext* tls = nullptr;  // of the TCP port; null: plain. Outlives the server. UNIX-domain sockets are plain
  GrpcLimits limits;
  GrpcKeepalive keepalive;
};

// A gRPC transport (HTTP/2) over event loops: sockets in, GrpcHandler calls out. The rules of ConnectionServer
// hold. Loops and handler outlive the server.
class GrpcServer {
 private:
  struct Private {};  // only Create can name it

 public:
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Create(GrpcServerOptions options, std::vector<EventLoop*> loops,
                                                            GrpcHandler* handler);
  GrpcServer(Private, std::unique_ptr<ConnectionServer> server) : server_(std::move(server)) {}

  void Start() { server_->Start(); }
  std::uint16_t port() const { return server_->port(); }
  void StopAccepting() { server_->StopAccepting(); }
  bool Stop(std::chrono::milliseconds deadline) { return server_->Stop(deadline); }
  std::size_t connections() const { return server_->connections(); }
  std::size_t TakePeak() { return server_->TakePeak(); }

 private:
  const std::unique_ptr<ConnectionServer> server_;
};

}  // namespace tidemark
