#include <utility>

#include "frontend/grpc/call.h"
#include "frontend/grpc/connection.h"
#include "frontend/grpc/stream.h"

namespace tidemark {
namespace {

// Runs `step(connection, stream)` on the loop's thread, while the stream lives.
template <typename Step>
void OnLoop(const std::shared_ptr<GrpcExchange>& exchange, Step step) {
  if (exchange == nullptr) return;
  // What another thread has posted before goes first.
  if (exchange->posted.load(std::memory_order_acquire) == 0 && exchange->mailbox->InLoopThread()) {
    if (exchange->stream == nullptr) return;
    GrpcConnection& connection = *exchange->stream->connection;
    step(connection, *exchange->stream);
    return connection.FlushSoon();  // not now: the caller may be the call itself
  }
  exchange->posted.fetch_add(1, std::memory_order_relaxed);
  exchange->mailbox->Post([exchange, step = std::move(step)]() mutable {
    exchange->posted.fetch_sub(1, std::memory_order_release);
    if (exchange->stream == nullptr) return;
    GrpcConnection& connection = *exchange->stream->connection;
    step(connection, *exchange->stream);
    connection.Wake();
  });
}

}  // namespace

void GrpcResponder::Send(GrpcMessage message) const {
  OnLoop(exchange_, [message = std::move(message)](GrpcConnection& connection, GrpcStream& stream) mutable {
    connection.Send(stream, std::move(message));
  });
}

void GrpcResponder::Finish(absl::Status status) const {
  OnLoop(exchange_, [status = std::move(status)](GrpcConnection& connection, GrpcStream& stream) mutable {
    connection.Finish(stream, std::move(status));
  });
}

void GrpcResponder::Answer(GrpcMessage message) const {
  OnLoop(exchange_, [message = std::move(message)](GrpcConnection& connection, GrpcStream& stream) mutable {
    connection.Send(stream, std::move(message));
    connection.Finish(stream, absl::OkStatus());
  });
}

void GrpcResponder::Resume() const {
  OnLoop(exchange_, [](GrpcConnection& connection, GrpcStream& stream) { connection.Resume(stream); });
}

bool GrpcResponder::gone() const { return exchange_ == nullptr || exchange_->gone.load(std::memory_order_relaxed); }

}  // namespace tidemark
