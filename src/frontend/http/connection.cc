#include "frontend/http/connection.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/status.h"

namespace tidemark {
namespace {

constexpr std::size_t kInputBytes = 16 * 1024;         // first size of the head buffer
constexpr std::size_t kMinReadBytes = 4 * 1024;        // room that a recv into the head buffer wants
constexpr std::size_t kReceiveBytes = 1024 * 1024;     // most of one recv
constexpr std::size_t kTurnBytes = 2 * 1024 * 1024;    // then other connections get a turn
constexpr int kTurnRequests = 16;                      // the same for pipelined requests
constexpr std::size_t kFirstChunkedBytes = 16 * 1024;  // first size of a body of unknown length
constexpr std::size_t kSpareBytes = 64 * 1024;         // strings up to this capacity are kept for the next answer
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kPadding = 64;
constexpr std::int64_t kMemoryPollNanos = 5'000'000;
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

std::int64_t Nanos(std::chrono::milliseconds duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

}  // namespace

HttpConnection::HttpConnection(HttpConnectionContext* context, UniqueFd fd, const TlsContext* tls)
    : context_(*context),
      transport_(std::move(fd)),
      tls_(tls),
      timer_(context->loop, [this] { OnTimer(); }),
      parser_(context->limits, context->binary_type) {}

HttpConnection::~HttpConnection() = default;

absl::Status HttpConnection::Start() {
  if (tls_ != nullptr) {
    RETURN_IF_ERROR(transport_.StartTls(*tls_));
    state_ = State::kHandshake;
    timer_.Set(context_.loop->now() + Nanos(tls_->options().handshake_timeout));
  } else {
    SetIdleTimer();
  }
  return context_.loop->Add(transport_.fd(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, this);
}

void HttpConnection::SetIdleTimer() {
  const auto& idle = context_.limits.idle_timeout;
  if (idle.count() > 0) timer_.Set(context_.loop->now() + Nanos(idle));
}

void HttpConnection::Refuse(std::size_t limit) {
  Fail(503, fmt::format("too many connections: the limit is {}", limit));
  Advance();
}

void HttpConnection::Drain() {
  if (state_ == State::kHandshake || (state_ == State::kHead && in_begin_ == in_end_ && !readable_)) Close();
}

void HttpConnection::OnEvents(std::uint32_t events) {
  if (transport_.MayRead(events)) readable_ = true;
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0 && !hung_up_) {
    hung_up_ = true;
    if (state_ == State::kHandling || streaming_) TellDisconnect();
  }
  turn_bytes_ = 0;
  turn_requests_ = 0;
  Advance();
}

void HttpConnection::Advance() {
  for (;;) {
    Progress progress = Progress::kWait;
    switch (state_) {
      case State::kHandshake:
        progress = AdvanceHandshake();
        break;
      case State::kHead:
        progress = AdvanceHead();
        break;
      case State::kMemory:
        break;
      case State::kBody:
        progress = AdvanceBody();
        break;
      case State::kChunks:
        progress = AdvanceChunks();
        break;
      case State::kHandling:
        break;
      case State::kWriting:
        progress = AdvanceWriting();
        break;
      case State::kLinger:
        progress = AdvanceLinger();
        break;
      case State::kClosed:
        break;
    }
    if (progress == Progress::kWait) return;
  }
}

HttpConnection::Progress HttpConnection::AdvanceHandshake() {
  switch (transport_.DoHandshake()) {
    case Transport::Handshake::kWait:
      return Progress::kWait;
    case Transport::Handshake::kFailed:
      Close();
      return Progress::kWait;
    case Transport::Handshake::kDone:
      break;
  }
  state_ = State::kHead;
  readable_ = true;  // the session may hold bytes that came with the end of the handshake
  timer_.Clear();
  SetIdleTimer();
  return Progress::kGoOn;
}

HttpConnection::Progress HttpConnection::AdvanceHead() {
  if (turn_requests_ >= kTurnRequests && (in_begin_ != in_end_ || readable_)) {
    context_.loop->CallAgain(this);
    return Progress::kWait;
  }
  if (in_begin_ != in_end_) {
    switch (parser_.Parse(input())) {
      case HeadParser::Result::kDone:
        return BeginBody();
      case HeadParser::Result::kError:
        Fail(parser_.error().status, parser_.error().message);
        return Progress::kGoOn;
      case HeadParser::Result::kNeedMore:
        break;
    }
    if (!timing_head_) {
      timing_head_ = true;
      const auto& limit = context_.limits.head_timeout;
      timer_.Set(limit.count() > 0 ? context_.loop->now() + Nanos(limit) : EventLoop::kNever);
    }
  }
  if (!readable_) return Progress::kWait;
  MakeInputRoom();
  const std::size_t got = Receive(nullptr, 0, in_.get() + in_end_, in_capacity_ - in_end_);
  in_end_ += got;
  if (got == 0 && state_ == State::kHead && context_.draining && in_begin_ == in_end_) Close();
  return got > 0 ? Progress::kGoOn : Progress::kWait;
}

// Room for a recv behind the input. The buffer stays below twice the head's limit and some: it grows only while it holds
// nothing but an incomplete head, or a head whose body is received elsewhere.
void HttpConnection::MakeInputRoom() {
  if (in_capacity_ - in_end_ >= kMinReadBytes) return;
  if (in_begin_ > 0) {
    std::memmove(in_.get(), in_.get() + in_begin_, in_end_ - in_begin_);
    in_next_ -= in_begin_;
    in_end_ -= in_begin_;
    in_begin_ = 0;
    if (in_capacity_ - in_end_ >= kMinReadBytes) return;
  }
  const std::size_t capacity = std::max(kInputBytes, in_capacity_ * 2);
  auto larger = std::make_unique_for_overwrite<char[]>(capacity);
  if (in_end_ > 0) std::memcpy(larger.get(), in_.get(), in_end_);
  in_ = std::move(larger);
  in_capacity_ = capacity;
}

std::size_t HttpConnection::Receive(std::byte* first, std::size_t first_size, char* second, std::size_t second_size) {
  std::array<iovec, 2> parts;
  std::size_t count = 0;
  if (first_size > 0) parts[count++] = {first, first_size};
  if (second_size > 0) parts[count++] = {second, second_size};
  const Transport::ReadResult got = transport_.Read({parts.data(), count});
  if (got.bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    readable_ = false;
    return 0;
  }
  if (got.bytes <= 0) {  // end of file or a broken connection: nobody is left to talk to
    Close();
    return 0;
  }
  const std::size_t bytes = static_cast<std::size_t>(got.bytes);
  // What comes after an emptied socket is a new edge. After a hang-up only the end of file tells.
  if (got.drained && !hung_up_) readable_ = false;
  turn_bytes_ += bytes;
  window_bytes_ += bytes;
  return bytes;
}

HttpConnection::Progress HttpConnection::BeginBody() {
  head_nanos_ = context_.loop->now();
  timing_head_ = false;
  timer_.Clear();
  in_next_ = in_begin_ + parser_.head_bytes();
  keep_alive_ = parser_.keep_alive();
  body_size_ = 0;
  body_length_ = parser_.content_length();
  body_offset_ = (kAlignment - parser_.inference_header_length() % kAlignment) % kAlignment;
  if (!parser_.chunked() && body_length_ == 0) {
    Dispatch();
    return Progress::kGoOn;
  }
  if (parser_.chunked()) chunks_.Reset();
  memory_deadline_ = context_.loop->now() + Nanos(context_.limits.memory_wait);
  const auto& limit = context_.limits.body_timeout;
  body_deadline_ = limit.count() > 0 ? context_.loop->now() + Nanos(limit) : EventLoop::kNever;
  return AdvanceMemory();
}

HttpConnection::Progress HttpConnection::AdvanceMemory() {
  const std::size_t bytes = parser_.chunked() ? kFirstChunkedBytes : static_cast<std::size_t>(body_length_);
  if (!AllocateBody(bytes)) {
    if (context_.limits.memory_wait.count() > 0 && context_.loop->now() >= memory_deadline_) {
      Fail(503, fmt::format("no memory for a request body of {} bytes now: too many bytes in flight", bytes));
      return Progress::kGoOn;
    }
    state_ = State::kMemory;
    timer_.Set(context_.loop->now() + kMemoryPollNanos);
    return Progress::kWait;
  }
  if (parser_.chunked()) {
    state_ = State::kChunks;
  } else {
    state_ = State::kBody;
    const std::string_view here = unread().substr(0, bytes);
    std::memcpy(body_.data() + body_offset_, here.data(), here.size());
    body_size_ = here.size();
    in_next_ += here.size();
    if (body_size_ == bytes) {
      Dispatch();
      return Progress::kGoOn;
    }
  }
  if (parser_.expects_continue() && unread().empty() && body_size_ == 0 && !SendContinue()) return Progress::kWait;
  BeginWindow();
  return Progress::kGoOn;
}

bool HttpConnection::AllocateBody(std::size_t bytes) {
  absl::StatusOr<Buffer> buffer = context_.pool->Allocate(body_offset_ + bytes);
  if (!buffer.ok()) return false;
  body_ = *std::move(buffer);
  return true;
}

bool HttpConnection::SendContinue() {
  const iovec text{const_cast<char*>(kContinue.data()), kContinue.size()};
  const ssize_t sent = transport_.Write({&text, 1});
  if (sent == static_cast<ssize_t>(kContinue.size())) return true;
  Close();  // nothing else is unsent, so that a full socket means a client that never reads
  return false;
}

void HttpConnection::BeginWindow() {
  window_bytes_ = 0;
  const auto& window = context_.limits.progress_window;
  std::int64_t deadline = window.count() > 0 ? context_.loop->now() + Nanos(window) : EventLoop::kNever;
  if (state_ == State::kBody || state_ == State::kChunks) deadline = std::min(deadline, body_deadline_);
  timer_.Set(deadline);
}

HttpConnection::Progress HttpConnection::AdvanceBody() {
  while (body_size_ < body_length_) {
    if (!readable_) return Progress::kWait;
    if (turn_bytes_ >= kTurnBytes) {
      context_.loop->CallAgain(this);
      return Progress::kWait;
    }
    // With the end of the body comes what follows it, so that a short read tells that the socket is empty.
    const std::size_t left = static_cast<std::size_t>(body_length_) - body_size_;
    const std::size_t wanted = std::min(left, kReceiveBytes);
    const std::size_t got = Receive(body_.data() + body_offset_ + body_size_, wanted, in_.get() + in_end_,
                                    wanted == left ? in_capacity_ - in_end_ : 0);
    if (got == 0) return Progress::kWait;
    const std::size_t placed = std::min(got, wanted);
    body_size_ += placed;
    in_end_ += got - placed;
  }
  timer_.Clear();
  Dispatch();
  return Progress::kGoOn;
}

HttpConnection::Progress HttpConnection::AdvanceChunks() {
  for (;;) {
    const ChunkedDecoder::Step step = chunks_.Next(unread());
    in_next_ += step.consumed;
    switch (step.result) {
      case ChunkedDecoder::Result::kData:
        if (!GrowChunkedBody(step.data.size())) return Progress::kGoOn;
        std::memcpy(body_.data() + body_offset_ + body_size_, step.data.data(), step.data.size());
        body_size_ += step.data.size();
        continue;
      case ChunkedDecoder::Result::kDone:
        timer_.Clear();
        Dispatch();
        return Progress::kGoOn;
      case ChunkedDecoder::Result::kError:
        Fail(chunks_.error().status, chunks_.error().message);
        return Progress::kGoOn;
      case ChunkedDecoder::Result::kNeedMore:
        break;
    }
    if (body_size_ + chunks_.remaining() > context_.limits.body_bytes) {
      FailTooLarge();
      return Progress::kGoOn;
    }
    if (!readable_) return Progress::kWait;
    if (turn_bytes_ >= kTurnBytes) {
      context_.loop->CallAgain(this);
      return Progress::kWait;
    }
    // All input is used: only the head must stay. The rest of a chunk goes straight to its place, what follows it here.
    in_next_ = in_end_ = in_begin_ + parser_.head_bytes();
    MakeInputRoom();
    const std::size_t direct = static_cast<std::size_t>(std::min<std::uint64_t>(chunks_.remaining(), kReceiveBytes));
    if (!GrowChunkedBody(direct)) return Progress::kGoOn;
    const bool whole = direct == chunks_.remaining();
    const std::size_t got = Receive(body_.data() + body_offset_ + body_size_, direct, in_.get() + in_end_,
                                    whole ? in_capacity_ - in_end_ : 0);
    if (got == 0) return Progress::kWait;
    const std::size_t placed = std::min(got, direct);
    if (placed > 0) chunks_.ConsumeElsewhere(placed);
    body_size_ += placed;
    in_end_ += got - placed;
  }
}

void HttpConnection::FailTooLarge() {
  Fail(413, fmt::format("chunked request body exceeds the maximum of {} bytes", context_.limits.body_bytes));
}

// Room for `more` bytes behind what a chunked body has already. False after Fail.
bool HttpConnection::GrowChunkedBody(std::size_t more) {
  if (body_size_ + more > context_.limits.body_bytes) {
    FailTooLarge();
    return false;
  }
  const std::size_t needed = body_size_ + more;
  if (body_offset_ + needed <= body_.size()) return true;
  Buffer old = std::move(body_);
  if (!AllocateBody(std::max(needed, 2 * old.size()))) {
    Fail(503,
         fmt::format("no memory for a chunked request body beyond {} bytes now: too many bytes in flight", body_size_));
    return false;
  }
  std::memcpy(body_.data() + body_offset_, old.data() + body_offset_, body_size_);
  return true;
}

void HttpConnection::PrepareExchange() {
  // The last request was answered, so that nobody else touches the exchange of old.
  if (exchange_ == nullptr) exchange_ = std::make_shared<HttpExchange>(context_.loop->mailbox(), this);
  absl::MutexLock lock(&exchange_->mutex_);
  exchange_->sent_ = false;
  exchange_->gone_ = hung_up_;
  exchange_->stream_limit_ = context_.limits.stream_bytes;
}

void HttpConnection::Dispatch() {
  PrepareExchange();
  HttpRequest& request = exchange_->request_;
  parser_.Fill(input(), &request);
  request.received_nanos_ = head_nanos_;
  request.pool_ = context_.pool;
  request.body_ = {};
  if (body_size_ > 0) {
    std::byte* body = body_.data() + body_offset_;
    std::memset(body + body_size_, 0, kPadding);
    body_.Truncate(body_offset_ + body_size_);
    request.body_ = {body, body_size_};
    request.buffer_ = std::move(body_);
  }
  body_.Reset();
  head_only_ = request.method_ == HttpMethod::kHead;
  state_ = State::kHandling;
  ++turn_requests_;
  in_handle_ = true;
  context_.handler->Handle(request, ResponseSender(exchange_));
  in_handle_ = false;
  if (has_inline_response_) {
    has_inline_response_ = false;
    BeginWriting();
  } else if (state_ == State::kHandling) {
    SetAwaited(true);
  }
}

void HttpConnection::SetAwaited(bool awaited) {
  if (awaited_ == awaited) return;
  awaited_ = awaited;
  context_.loop->Await(awaited ? 1 : -1);
}

void HttpConnection::OnResponse(HttpResponse&& response) {
  if (state_ != State::kHandling) return;
  response_ = std::move(response);
  if (in_handle_) {
    has_inline_response_ = true;
    return;
  }
  SetAwaited(false);
  BeginWriting();
  turn_bytes_ = 0;
  turn_requests_ = kTurnRequests;  // a pipelined request gets a turn of its own: no handler runs inside another one
  Advance();
}

void HttpConnection::FormatHead() {
  const int status = response_.status_;
  out_head_.clear();
  if (status == 200) {
    out_head_ += "HTTP/1.1 200 OK\r\n";
  } else {
    fmt::format_to(std::back_inserter(out_head_), "HTTP/1.1 {} {}\r\n", status, ReasonPhrase(status));
  }
  out_head_ += response_.header_block();
  if (status != 204) {
    if (!response_.has_content_type_) out_head_ += "Content-Type: text/plain\r\n";
    if (!streaming_) {
      const fmt::format_int bytes(response_.body_bytes());
      out_head_ += "Content-Length: ";
      out_head_.append(bytes.data(), bytes.size());
      out_head_ += "\r\n";
    } else if (parser_.minor_version() > 0) {
      out_head_ += "Transfer-Encoding: chunked\r\n";
    }
  }
  if (!keep_alive_) {
    out_head_ += "Connection: close\r\n";
  } else if (parser_.minor_version() == 0) {
    out_head_ += "Connection: keep-alive\r\n";
  }
  out_head_ += "\r\n";
  if (head_only_ || status == 204) response_.parts_.clear();
}

void HttpConnection::BeginWriting() {
  streaming_ = response_.streamed_;
  if (response_.close_ || context_.draining || (streaming_ && parser_.minor_version() == 0)) keep_alive_ = false;
  FormatHead();
  out_part_ = out_offset_ = 0;
  state_ = State::kWriting;
  timer_.Clear();
  window_bytes_ = 0;
}

HttpConnection::Progress HttpConnection::AdvanceWriting() {
  constexpr std::size_t kParts = 64;
  const auto part_at = [this](std::size_t index) {
    return index == 0 ? std::as_bytes(std::span(out_head_)) : response_.parts_[index - 1].view();
  };
  const std::size_t part_count = response_.parts_.size() + 1;
  while (out_part_ < part_count) {
    if (turn_bytes_ >= kTurnBytes) {
      context_.loop->CallAgain(this);
      return Progress::kWait;
    }
    std::array<iovec, kParts> vectors;
    std::size_t count = 0;
    std::size_t bytes = 0;
    for (std::size_t i = out_part_; i < part_count && count < kParts && bytes < kTurnBytes; ++i) {
      const std::span<const std::byte> part = part_at(i).subspan(i == out_part_ ? out_offset_ : 0);
      const std::size_t size = std::min(part.size(), kTurnBytes);
      vectors[count++] = {const_cast<std::byte*>(part.data()), size};
      bytes += size;
      if (size < part.size()) break;
    }
    const ssize_t sent = transport_.Write({vectors.data(), count});
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (timer_.deadline() == EventLoop::kNever) BeginWindow();
      return Progress::kWait;
    }
    if (sent < 0) {
      Close();
      return Progress::kWait;
    }
    std::size_t left = static_cast<std::size_t>(sent);
    turn_bytes_ += left;
    window_bytes_ += left;
    while (left > 0) {
      const std::size_t size = part_at(out_part_).size() - out_offset_;
      const std::size_t taken = std::min(left, size);
      left -= taken;
      out_offset_ += taken;
      if (taken < size) break;
      ++out_part_;
      out_offset_ = 0;
    }
  }
  if (streaming_) {
    switch (TakeStreamed()) {
      case Streamed::kMore:
        return Progress::kGoOn;
      case Streamed::kNothingNow:
        timer_.Clear();
        return Progress::kWait;
      case Streamed::kCut:
        Close();
        return Progress::kWait;
      case Streamed::kEnded:
        streaming_ = false;
        break;
    }
  }
  FinishResponse();
  return state_ == State::kClosed ? Progress::kWait : Progress::kGoOn;
}

// All that was taken before has been written: the next takes its place.
HttpConnection::Streamed HttpConnection::TakeStreamed() {
  absl::MutexLock lock(&exchange_->mutex_);
  HttpExchange::Stream& stream = exchange_->stream_;
  stream.woken = false;
  if (head_only_) stream.pending.clear();
  stream.unsent = stream.pending.size();
  if (stream.cut) return Streamed::kCut;
  if (stream.pending.empty()) return stream.ended ? Streamed::kEnded : Streamed::kNothingNow;
  response_.parts_.clear();
  response_.Append(std::exchange(stream.pending, {}));
  out_part_ = 1;
  out_offset_ = 0;
  return Streamed::kMore;
}

void HttpConnection::OnStream() {
  if (state_ != State::kWriting || !streaming_) return;  // the head has not come yet, or nobody is there any more
  bool cut = false;
  {
    absl::MutexLock lock(&exchange_->mutex_);
    cut = exchange_->stream_.cut;
  }
  if (cut) return Close();
  turn_bytes_ = 0;
  turn_requests_ = kTurnRequests;
  Advance();
}

void HttpConnection::FinishResponse() {
  timer_.Clear();
  for (HttpResponse::Part& part : response_.parts_) {
    auto* text = std::get_if<std::string>(&part.owner);
    if (text == nullptr || text->capacity() > kSpareBytes || exchange_ == nullptr) continue;
    exchange_->spare_ = std::move(*text);
    break;
  }
  response_.Clear();
  if (exchange_ != nullptr) exchange_->request_.buffer_.Reset();
  const bool all_read = !readable_ && in_next_ == in_end_;
  if (keep_alive_ && context_.draining && all_read) return Close();
  if (!keep_alive_) {
    // With unread input a plain close would reset the connection and might take the answer away from the client.
    if (!linger_ && all_read) return Close();
    transport_.ShutdownWrite();
    state_ = State::kLinger;
    timer_.Set(context_.loop->now() + Nanos(context_.limits.linger));
    return;
  }
  parser_.Reset();
  in_begin_ = in_next_;
  if (in_begin_ == in_end_) {
    in_begin_ = in_next_ = in_end_ = 0;
    if (in_capacity_ > kInputBytes) {
      in_.reset();
      in_capacity_ = 0;
    }
  }
  state_ = State::kHead;
  SetIdleTimer();
}

HttpConnection::Progress HttpConnection::AdvanceLinger() {
  if (!readable_) return Progress::kWait;
  if (turn_bytes_ >= kTurnBytes) {
    context_.loop->CallAgain(this);
    return Progress::kWait;
  }
  const std::size_t got = Receive(nullptr, 0, context_.scratch.data(), context_.scratch.size());
  return got > 0 ? Progress::kGoOn : Progress::kWait;
}

void HttpConnection::OnTimer() {
  const std::int64_t now = context_.loop->now();
  const HttpLimits& limits = context_.limits;
  turn_bytes_ = 0;
  switch (state_) {
    case State::kHandshake:
      return Close();
    case State::kHead:
      if (in_begin_ == in_end_) return Close();  // idle
      Fail(408, fmt::format("the request head was not complete within {} ms", limits.head_timeout.count()));
      return Advance();
    case State::kMemory:
      if (AdvanceMemory() == Progress::kGoOn) Advance();
      return;
    case State::kBody:
    case State::kChunks:
    case State::kWriting:
      if (state_ != State::kWriting && now >= body_deadline_) {
        Fail(408, fmt::format("the request body was not complete within {} ms", limits.body_timeout.count()));
        return Advance();
      }
      if (window_bytes_ >= limits.progress_bytes) return BeginWindow();
      if (state_ == State::kWriting) return Close();
      Fail(408, fmt::format("the request body moved by {} bytes in {} ms, at least {} are expected", window_bytes_,
                            limits.progress_window.count(), limits.progress_bytes));
      return Advance();
    case State::kLinger:
      return Close();
    case State::kHandling:
    case State::kClosed:
      return;
  }
}

void HttpConnection::Fail(int status, std::string_view message) {
  keep_alive_ = false;
  linger_ = true;
  head_only_ = false;
  streaming_ = false;
  body_.Reset();
  response_ = MakeErrorResponse(status, message, "application/json");
  BeginWriting();
}

void HttpConnection::TellDisconnect() {
  absl::AnyInvocable<void()> callback;
  {
    absl::MutexLock lock(&exchange_->mutex_);
    if (exchange_->sent_) return;
    exchange_->gone_ = true;
    callback = std::move(exchange_->on_disconnect_);
    exchange_->on_disconnect_ = nullptr;
  }
  if (callback) callback();
}

void HttpConnection::Close() {
  if (state_ == State::kClosed) return;
  const bool handling = state_ == State::kHandling || streaming_;
  state_ = State::kClosed;
  SetAwaited(false);
  timer_.Clear();
  context_.loop->Remove(transport_.fd(), this);
  transport_.Close();
  body_.Reset();
  response_ = HttpResponse();
  if (exchange_ != nullptr) {
    exchange_->connection_ = nullptr;
    // The handler may still be reading the request, whose views lie in the input.
    if (handling) {
      exchange_->kept_input_ = std::move(in_);
      TellDisconnect();
    }
    exchange_.reset();
  }
  context_.on_closed(this);
}

}  // namespace tidemark
