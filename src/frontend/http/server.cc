#include "frontend/http/server.h"

#include <utility>

#include "base/status.h"
#include "frontend/http/connection.h"

namespace tidemark {
namespace {

class HttpConnectionFactory final : public ConnectionFactory {
 public:
  HttpConnectionFactory(const HttpServerOptions& options, EventLoop* loop, HttpHandler* handler, BufferPool* pool,
                        ConnectionServer::OnClosed on_closed)
      : tls_(options.tls) {
    context_.loop = loop;
    context_.handler = handler;
    context_.pool = pool;
    context_.limits = options.limits;
    context_.binary_type = options.binary_type;
    context_.on_closed = std::move(on_closed);
  }

  std::unique_ptr<ServedConnection> Make(UniqueFd fd) override {
    const TlsContext* const tls = tls_ != nullptr && !IsUnixSocket(fd.get()) ? tls_ : nullptr;
    return std::make_unique<HttpConnection>(&context_, std::move(fd), tls);
  }
  void BeginDrain() override { context_.draining = true; }

 private:
  const TlsContext* const tls_;
  HttpConnectionContext context_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Create(HttpServerOptions options, std::vector<EventLoop*> loops,
                                                               HttpHandler* handler, BufferPool* pool) {
  ListenOptions listen;
  listen.port = options.port;
  listen.address = std::move(options.address);
  listen.reuse_port = options.reuse_port;
  listen.unix_path = std::move(options.unix_path);
  listen.connections = options.limits.connections;
  ASSIGN_OR_RETURN(std::unique_ptr<ConnectionServer> server,
                   ConnectionServer::Create(std::move(listen), std::move(loops),
                                            [&](EventLoop* loop, ConnectionServer::OnClosed on_closed) {
                                              return std::make_unique<HttpConnectionFactory>(
                                                  options, loop, handler, pool, std::move(on_closed));
                                            }));
  return std::make_unique<HttpServer>(Private(), std::move(server));
}

}  // namespace tidemark
