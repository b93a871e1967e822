#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "frontend/event_loop.h"
#include "frontend/grpc/metadata.h"
#include "frontend/http/compression.h"
#include "protocol/grpc_message.h"

namespace tidemark {

struct GrpcExchange;

// What a client says when it begins a call.
struct GrpcCallHead {
  std::string path;                 // "/package.Service/Method"
  EventLoop* loop = nullptr;        // where the call lives
  std::int64_t deadline_nanos = 0;  // by grpc-timeout, on the loop's clock; 0: none
  GrpcMetadata metadata;
};

// Sends the answer of one call. Copyable; usable from any thread, in turn. May outlive call, connection, server and loop:
// then it does nothing. Nothing blocks.
class GrpcResponder {
 public:
  GrpcResponder() = default;
  explicit GrpcResponder(std::shared_ptr<GrpcExchange> exchange) : exchange_(std::move(exchange)) {}

  // Queues one message. In order, from one thread at a time.
  void Send(GrpcMessage message) const;
  // Ends the call once what was sent before has left. Only the first one counts, and no Send after it.
  void Finish(absl::Status status) const;
  // The one message of a unary call and its end.
  void Answer(GrpcMessage message) const;
  // The call can take requests again: see GrpcCall::Ready.
  void Resume() const;

  // True when nobody is left to read an answer.
  bool gone() const;

 private:
  std::shared_ptr<GrpcExchange> exchange_;  // last owner: whichever of call and responders ends later
};

// The server's side of one call. Belongs to its loop's thread, which destroys it after the call's end, but never while it
// is inside. An error that a method returns ends the call with it. Nothing here may block or throw.
class GrpcCall {
 public:
  virtual ~GrpcCall() = default;

  // A message begins that has at most `most` bytes; they come in pieces of any size, then EndMessage.
  virtual absl::Status BeginMessage(std::size_t most) = 0;
  virtual absl::Status Add(std::span<const std::byte> bytes) = 0;
  virtual absl::Status EndMessage() = 0;
  // The client sends no more messages.
  virtual absl::Status HalfClose() = 0;
  // Nobody waits for the answer any more: the client went away or reset the call, its deadline passed, or an error ended
  // it. At most once; nothing follows. Not called after Finish.
  virtual void Cancel() = 0;
  // False: no further message now. Asked between messages; asked again after each Send and Resume.
  virtual bool Ready() const { return true; }
};

// Takes calls. Called on the loops' threads.
class GrpcHandler {
 public:
  virtual ~GrpcHandler() = default;

  struct Begun {
    std::unique_ptr<GrpcCall> call;  // null: answered already, what the client sends is dropped
    ContentCoding response_coding = ContentCoding::kIdentity;  // what compressed messages of the answer will have
  };
  // `head` is good until Begin returns.
  virtual Begun Begin(GrpcCallHead& head, GrpcResponder responder) = 0;
};

}  // namespace tidemark
