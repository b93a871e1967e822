#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "frontend/event_loop.h"
#include "frontend/grpc/call.h"
#include "frontend/grpc/message_decoder.h"
#include "protocol/grpc_message.h"

namespace tidemark {

class GrpcConnection;
struct GrpcStream;

// What the responders of a call and its stream share.
struct GrpcExchange {
  GrpcExchange(std::shared_ptr<LoopMailbox> loop_mailbox, GrpcStream* of)
      : mailbox(std::move(loop_mailbox)), stream(of) {}

  const std::shared_ptr<LoopMailbox> mailbox;  // last owner: see LoopMailbox
  GrpcStream* stream;                          // of the loop's thread; null once the stream has ended
  std::atomic<bool> gone{false};
  std::atomic<int> posted{0};  // steps on their way to the loop
};

// One HTTP/2 stream: a call on its way. Belongs to its connection, on its loop's thread.
struct GrpcStream {
  GrpcStream(GrpcConnection* owner, std::int32_t stream_id, std::uint64_t max_message_bytes)
      : connection(owner), id(stream_id), decoder(max_message_bytes) {}

  GrpcConnection* const connection;
  const std::int32_t id;
  std::size_t slot = 0;  // in the connection's list

  // The request.
  GrpcCallHead head;  // until the call begins
  std::string method, content_type, encoding, timeout, accept_encoding;
  std::size_t metadata_bytes = 0;
  bool begun = false;
  bool remote_closed = false;  // the client sends no more
  std::unique_ptr<GrpcCall> call;
  std::shared_ptr<GrpcExchange> exchange;  // last owner: see GrpcResponder
  GrpcMessageDecoder decoder;
  bool paused = false;          // the call takes no more for now
  bool half_close_due = false;  // the client has closed, the backlog has not been taken yet
  std::string backlog;          // what came meanwhile; bounded by the stream's window, which it keeps closed
  std::optional<EventLoop::Timer> deadline;

  // The answer.
  ContentCoding response_coding = ContentCoding::kIdentity;
  bool headers_sent = false;
  bool finished = false;  // `status` is decided
  bool ended = false;     // END_STREAM was given to the session
  bool deferred = false;  // the session waits for something to send
  absl::Status status;
  // Messages that have not left, the first one from (piece, offset) on. Shared with what the connection still writes.
  std::deque<std::shared_ptr<GrpcMessage>> out;
  std::size_t out_piece = 0;
  std::size_t out_offset = 0;
  std::size_t out_bytes = 0;

  // Bytes that moved in the current progress window.
  std::size_t window_in = 0;
  std::size_t window_out = 0;
  bool was_receiving = false;
  bool was_sending = false;
};

}  // namespace tidemark
