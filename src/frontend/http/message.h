#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "resource/buffer_pool.h"

// What an HTTP handler sees: requests, responses, and the ticket with which a request is answered. Bytes only; routes,
// JSON and tensors are the business of `protocol` and of the handlers.

namespace tidemark {

enum class HttpMethod : std::uint8_t { kGet, kHead, kPost, kPut, kDelete, kPatch, kOptions, kOther };

// One header field. Views into the connection's buffer; the value has no surrounding blanks.
struct HttpHeader {
  std::string_view name;
  std::string_view value;
};

// "a" and "A" are the same in header names and some values. ASCII only.
bool EqualsIgnoreCase(std::string_view a, std::string_view b);

// A non-negative decimal number without sign, blanks or other decoration; nothing when it is not one or exceeds 2^63-1.
std::optional<std::uint64_t> ParseDecimal(std::string_view text);

// The reason phrase that Triton prints ("405 Not Allowed"), the registered one for codes that Triton does not use.
std::string_view ReasonPhrase(int status);

// One received request, head and whole body. Belongs to its connection. All views are valid until the response was
// sent (ResponseSender::Send or the sender's destruction); what must live longer is copied or, for the body, taken.
// Used by one thread at a time.
class HttpRequest {
 public:
  HttpMethod method() const { return method_; }
  std::string_view method_name() const { return method_name_; }
  // Raw, never percent-decoded, without the query: "/v2/models/a%20b".
  std::string_view path() const { return path_; }
  // What follows the first '?', without it. Empty when there is none.
  std::string_view query() const { return query_; }
  // When its head was there, NowNanos() clock to the round of events.
  std::int64_t received_nanos() const { return received_nanos_; }
  // 0 or 1, of HTTP/1.x.
  int minor_version() const { return minor_version_; }
  std::span<const HttpHeader> headers() const { return headers_; }
  // The first header of that name (any case), or nothing when absent; present but empty is an empty view.
  std::optional<std::string_view> Find(std::string_view name) const;

  // The body, decoded from chunks, contiguous. Byte H of it is 64-byte aligned, H being the value of
  // Inference-Header-Content-Length (or of what HttpServerOptions::binary_type says) when that is a plain number not
  // beyond the body (else 0), so that the first binary tensor lies aligned. At least 64 zero bytes follow the body
  // (simdjson reads beyond the end). May be written to.
  std::span<std::byte> body() const { return body_; }
  std::string_view body_text() const { return {reinterpret_cast<const char*>(body_.data()), body_.size()}; }
  // The memory that body() points into; body() stays valid as long as the buffer lives. Empty when there is no body.
  Buffer TakeBody() { return std::move(buffer_); }
  // Where further request memory comes from (decompression, conversion). Outlives the server's connections.
  BufferPool& pool() const { return *pool_; }

  // For a handler in front of another one: from now on the request asks for `target`, a path with perhaps '?' and a query.
  void Redirect(HttpMethod method, std::string target);
  // The same for a path without a query, whatever characters it has.
  void RedirectToPath(HttpMethod method, std::string path);
  // Puts a header in front of the others. Both views live as long as the request's own.
  void PutHeader(std::string_view name, std::string_view value);
  // A literal: an answer with binary tensors has this content type with the number of its JSON bytes behind it, in place
  // of application/octet-stream and Inference-Header-Content-Length. Empty: it has those.
  void set_binary_type(std::string_view type) { binary_type_ = type; }
  std::string_view binary_type() const { return binary_type_; }

 private:
  friend class HeadParser;
  friend class HttpConnection;

  HttpMethod method_ = HttpMethod::kOther;
  int minor_version_ = 1;
  std::int64_t received_nanos_ = 0;
  std::string_view method_name_;
  std::string_view path_;
  std::string_view query_;
  std::string target_;            // of Redirect: path_ and query_ are parts of it
  std::string_view binary_type_;  // set anew for every request of a port that has one
  std::vector<HttpHeader> headers_;
  std::span<std::byte> body_;
  Buffer buffer_;
  BufferPool* pool_ = nullptr;
};

// One response. Body parts are sent in order without being copied together. Movable; used by one thread at a time. Parts
// and their owners are destroyed on the loop's thread after the last byte was handed to the kernel, or where the
// response dies when the client is gone.
//
// The connection adds `Content-Length`, `Content-Type: text/plain` when none was set, and `Connection` where needed.
class HttpResponse {
 public:
  explicit HttpResponse(int status = 200) : status_(status) {}
  HttpResponse(HttpResponse&&) = default;
  HttpResponse& operator=(HttpResponse&&) = default;

  int status() const { return status_; }
  void set_status(int status) { status_ = status; }
  // Name and value are copied. They come from this program or from a request's header, so that they hold no line break;
  // should one appear it is replaced by a blank (no response splitting). Not for Content-Length and Connection.
  void AddHeader(std::string_view name, std::string_view value);
  void SetContentType(std::string_view value);  // once
  // The connection is closed after this response.
  void set_close() { close_ = true; }

  // An owned part. Empty parts are dropped.
  void Append(std::string text);
  // The whole of `buffer`, or the part `bytes` of it, kept until written.
  void Append(Buffer buffer);
  void Append(Buffer buffer, std::span<const std::byte> bytes);
  // A borrowed part. `owner` keeps it alive until written; null only for memory that outlives the server (literals).
  void Append(std::span<const std::byte> bytes, std::shared_ptr<const void> owner);
  // `owner` lives until the last byte was handed to the kernel. Once.
  void KeepUntilWritten(std::shared_ptr<const void> owner) { kept_ = std::move(owner); }
  // A literal.
  void AppendStatic(std::string_view text) { Append(std::as_bytes(std::span(text)), nullptr); }

  std::size_t body_bytes() const { return body_bytes_; }
  std::string_view header_block() const { return {headers_.data(), headers_.size()}; }

 private:
  friend class HttpConnection;
  friend class ResponseSender;

  // As a new one.
  void Clear();

  struct Part {
    std::span<const std::byte> bytes;  // unset for a string (short strings move)
    std::variant<std::monostate, std::string, Buffer, std::shared_ptr<const void>> owner;
    std::span<const std::byte> view() const;
  };

  int status_;
  bool close_ = false;
  bool has_content_type_ = false;
  bool streamed_ = false;  // the rest comes through a ResponseStream
  std::size_t body_bytes_ = 0;
  fmt::basic_memory_buffer<char, 160> headers_;  // complete lines
  absl::InlinedVector<Part, 3> parts_;
  std::shared_ptr<const void> kept_;  // last owner: usually this
};

// `{"error":"<message>"}` with that status; the message is JSON-escaped. Content type as given, text/plain by default.
HttpResponse MakeErrorResponse(int status, std::string_view message, std::string_view content_type = {});

class HttpExchange;

// The rest of an answer that is sent piece by piece, in chunked transfer coding (to HTTP/1.0: until the connection
// closes). Move-only; usable from any thread, by one thread at a time. May outlive the connection, the server and the
// loop. Destroyed before End it cuts the connection, so that the client sees that something is missing.
class ResponseStream {
 public:
  ResponseStream() = default;
  ResponseStream(ResponseStream&&) noexcept = default;
  ResponseStream& operator=(ResponseStream&& other) noexcept;
  ~ResponseStream();
  ResponseStream(const ResponseStream&) = delete;
  ResponseStream& operator=(const ResponseStream&) = delete;

  explicit operator bool() const { return exchange_ != nullptr; }

  // Sends one piece as one chunk; nothing for an empty one. Never blocks: what the client does not read yet waits here, up
  // to HttpLimits::stream_bytes. False when the client is gone or, having read too slowly for that, was cut: nothing more
  // will be sent.
  bool Write(std::string_view piece);
  // The answer is complete; the stream is empty afterwards.
  void End();

 private:
  friend class ResponseSender;
  explicit ResponseStream(std::shared_ptr<HttpExchange> exchange) : exchange_(std::move(exchange)) {}
  void Finish(bool whole);

  std::shared_ptr<HttpExchange> exchange_;  // last owner: whichever of stream and connection ends later
};

// The one-time right to answer a request. Move-only; usable from any thread, by one thread at a time. May outlive the
// connection, the server and the loop: then Send drops the response. Destroyed unsent it answers 500 and closes.
class ResponseSender {
 public:
  ResponseSender() = default;
  ResponseSender(ResponseSender&&) noexcept = default;
  ResponseSender& operator=(ResponseSender&& other) noexcept;
  ~ResponseSender();
  ResponseSender(const ResponseSender&) = delete;
  ResponseSender& operator=(const ResponseSender&) = delete;

  explicit operator bool() const { return exchange_ != nullptr; }

  // Answers; the sender is empty afterwards. On the connection's loop thread the response is written at once (inside
  // HttpHandler::Handle: as soon as Handle returns); from another thread it is queued to the loop. Never blocks.
  void Send(HttpResponse&& response);

  // Answers with a body of unknown length: `head` without a body now, the rest through the stream. The sender is empty
  // afterwards; an OnDisconnect callback stays in force until the stream ends.
  ResponseStream Begin(HttpResponse head);

  // `callback` runs once when the client goes away before the answer was sent: on the loop's thread, or here when it is
  // gone already. It must be short and must not block, and it owns what it touches: it may still be running on the loop
  // when Send returns on another thread, but it never begins after Send. One callback per request. A client that has
  // shut down its sending side counts as gone, as it cannot be told from one that closed; an answer is still written.
  void OnDisconnect(absl::AnyInvocable<void()> callback);

  // True on the thread of the connection's loop.
  bool InLoopThread() const;
  // Runs `task` there, in order with other tasks; when the loop has ended it is destroyed unrun. It may own this sender.
  void PostToLoop(absl::AnyInvocable<void()> task) const;

  // True when the client is known to be gone: an answer would not be read.
  bool disconnected() const;

  // A string with the capacity of an earlier response of this connection, empty. Fill it and give it to
  // HttpResponse::Append, and small answers allocate nothing.
  std::string TakeSpareString();

 private:
  friend class HttpConnection;
  explicit ResponseSender(std::shared_ptr<HttpExchange> exchange) : exchange_(std::move(exchange)) {}
  static void Deliver(std::shared_ptr<HttpExchange> exchange, HttpResponse&& response);

  std::shared_ptr<HttpExchange> exchange_;  // last owner: whichever of sender and connection ends later
};

// Takes requests. Called on a loop's thread, one request of a connection at a time, from several loops at once.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;

  // Must not block and not throw. `request` stays where it is until the response was sent, so that its address may be
  // kept by whoever holds `sender`.
  virtual void Handle(HttpRequest& request, ResponseSender sender) = 0;
};

}  // namespace tidemark
