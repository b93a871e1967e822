#include "frontend/grpc/server.h"

#include "base/status.h"
#include "frontend/grpc/connection.h"

namespace tidemark {
namespace {

class GrpcConnectionFactory final : public ConnectionFactory {
 public:
  GrpcConnectionFactory(const GrpcServerOptions& options, EventLoop* loop, GrpcHandler* handler,
                        ConnectionServer::OnClosed on_closed)
      : tls_(options.tls) {
    context_.loop = loop;
    context_.handler = handler;
    context_.limits = options.limits;
    context_.keepalive = options.keepalive;
    context_.on_closed = std::move(on_closed);
  }

  std::unique_ptr<ServedConnection> Make(UniqueFd fd) override {
    const TlsContext* const tls = tls_ != nullptr && !IsUnixSocket(fd.get()) ? tls_ : nullptr;
    return std::make_unique<GrpcConnection>(&context_, std::move(fd), tls);
  }
  void BeginDrain() override { context_.draining = true; }

 private:
  const TlsContext* const tls_;
  GrpcConnectionContext context_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Create(GrpcServerOptions options, std::vector<EventLoop*> loops,
                                                               GrpcHandler* handler) {
  ListenOptions listen;
  listen.port = options.port;
  listen.address = options.address;
  listen.reuse_port = options.reuse_port;
  listen.unix_path = options.unix_path;
  listen.connections = options.limits.connections;
  ASSIGN_OR_RETURN(std::unique_ptr<ConnectionServer> server,
                   ConnectionServer::Create(
                       std::move(listen), std::move(loops), [&](EventLoop* loop, ConnectionServer::OnClosed on_closed) {
                         return std::make_unique<GrpcConnectionFactory>(options, loop, handler, std::move(on_closed));
                       }));
  return std::make_unique<GrpcServer>(Private(), std::move(server));
}

}  // namespace tidemark
