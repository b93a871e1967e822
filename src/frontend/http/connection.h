#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/connection_server.h"
#include "frontend/event_loop.h"
#include "frontend/http/chunked_decoder.h"
#include "frontend/http/exchange.h"
#include "frontend/http/head_parser.h"
#include "frontend/http/limits.h"
#include "frontend/http/message.h"
#include "frontend/socket.h"
#include "frontend/tls.h"
#include "resource/buffer_pool.h"

namespace tidemark {

// What the connections of one loop share. Outlives them.
struct HttpConnectionContext {
  EventLoop* loop = nullptr;
  HttpHandler* handler = nullptr;
  BufferPool* pool = nullptr;
  HttpLimits limits;
  std::string_view binary_type;  // HttpServerOptions'
  bool draining = false;         // every answer closes its connection
  // Takes the connection over for destruction after the current event.
  ConnectionServer::OnClosed on_closed;
  std::vector<char> scratch = std::vector<char>(64 * 1024);  // for bytes that nobody wants
};

// One HTTP/1.x connection: receives a request, hands it to the handler, waits (reading nothing), writes the answer, and
// goes on with the next. Belongs to its loop's thread. In the steady state a request costs one recv and one sendmsg.
class HttpConnection final : public EventLoop::Handler, public ServedConnection {
 public:
  // `tls`: null for a plain connection; else it outlives this one.
  HttpConnection(HttpConnectionContext* context, UniqueFd fd, const TlsContext* tls);
  ~HttpConnection() override;

  absl::Status Start() override;
  // Answers 503 without having read anything, and closes.
  void Refuse(std::size_t limit) override;
  // Closes now if no request is being received, handled or answered; else the next answer is the last.
  void Drain() override;
  void Cut() override { Close(); }

  void OnEvents(std::uint32_t events) override;

  // The answer to the request in hand; from ResponseSender.
  void OnResponse(HttpResponse&& response);
  // More of a streamed answer; from ResponseStream.
  void OnStream();

 private:
  enum class State {
    kHandshake,  // TLS is not established yet
    kHead,       // receiving a head, or idle
    kMemory,     // head complete, no memory for the body yet
    kBody,       // receiving a body of known length
    kChunks,     // receiving a chunked body
    kHandling,   // the handler has it
    kWriting,    // an answer is leaving
    kLinger,     // last answer sent; dropping what the client still sends, so that it can read the answer
    kClosed,
  };
  enum class Progress { kGoOn, kWait };

  // Moves on until something must be waited for.
  void Advance();
  Progress AdvanceHandshake();
  Progress AdvanceHead();
  Progress AdvanceMemory();
  Progress AdvanceBody();
  Progress AdvanceChunks();
  Progress AdvanceWriting();
  Progress AdvanceLinger();
  void OnTimer();
  void SetIdleTimer();

  // recv/readv with the bookkeeping of edges; bytes read, 0 when there is nothing now or the connection was closed.
  std::size_t Receive(std::byte* first, std::size_t first_size, char* second, std::size_t second_size);
  void MakeInputRoom();
  bool SendContinue();

  Progress BeginBody();
  bool AllocateBody(std::size_t bytes);
  bool GrowChunkedBody(std::size_t more);
  void FailTooLarge();
  void Dispatch();
  // The loop knows whether this connection's answer is due from another thread.
  void SetAwaited(bool awaited);
  void PrepareExchange();
  void BeginWindow();
  void BeginWriting();
  void FormatHead();
  // Something of a streamed answer to write, or its end.
  enum class Streamed { kMore, kNothingNow, kEnded, kCut };
  Streamed TakeStreamed();
  void FinishResponse();
  void Fail(int status, std::string_view message);
  void TellDisconnect();
  void Close();

  std::string_view input() const { return {in_.get() + in_begin_, in_end_ - in_begin_}; }
  std::string_view unread() const { return {in_.get() + in_next_, in_end_ - in_next_}; }

  HttpConnectionContext& context_;
  Transport transport_;
  const TlsContext* const tls_;
  EventLoop::Timer timer_;
  State state_ = State::kHead;
  bool readable_ = false;  // the kernel may have bytes
  bool hung_up_ = false;   // the client sends no more; what it sent may still be unread
  bool keep_alive_ = false;
  bool linger_ = false;     // after the answer the client may still be sending
  bool head_only_ = false;  // HEAD
  bool streaming_ = false;  // the answer in hand comes piece by piece
  bool in_handle_ = false;
  bool awaited_ = false;
  bool has_inline_response_ = false;
  bool timing_head_ = false;

  // Input: [in_begin_, in_next_) is the head of the request in hand, [in_next_, in_end_) not used yet.
  std::unique_ptr<char[]> in_;
  std::size_t in_capacity_ = 0;
  std::size_t in_begin_ = 0;
  std::size_t in_next_ = 0;
  std::size_t in_end_ = 0;

  HeadParser parser_;
  ChunkedDecoder chunks_;
  Buffer body_;
  std::size_t body_offset_ = 0;    // of the body in body_
  std::size_t body_size_ = 0;      // received
  std::uint64_t body_length_ = 0;  // expected, of kBody
  std::int64_t memory_deadline_ = 0;
  std::int64_t head_nanos_ = 0;  // when the head of the request in hand was complete
  std::int64_t body_deadline_ = 0;

  std::size_t window_bytes_ = 0;  // moved in the current progress window
  std::size_t turn_bytes_ = 0;    // moved since others had their turn
  int turn_requests_ = 0;

  std::shared_ptr<HttpExchange> exchange_;  // last owner: see ResponseSender
  HttpResponse response_;
  std::string out_head_;
  std::size_t out_part_ = 0;    // 0: the head, n: part n-1
  std::size_t out_offset_ = 0;  // written of it
};

}  // namespace tidemark
