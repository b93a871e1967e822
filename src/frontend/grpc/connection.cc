#include "frontend/grpc/connection.h"

#include <sys/epoll.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "base/status.h"

namespace tidemark {
namespace {

constexpr std::size_t kOutHigh = 512 * 1024;         // frames are made while less than this waits to be written
constexpr std::size_t kTurnBytes = 2 * 1024 * 1024;  // then other connections get a turn
constexpr std::size_t kKeptFrames = 64 * 1024;       // capacity of the frame buffer that is kept

}  // namespace

GrpcConnection::GrpcConnection(GrpcConnectionContext* context, UniqueFd fd, const TlsContext* tls)
    : context_(*context),
      transport_(std::move(fd)),
      tls_(tls),
      timer_(context->loop, [this] { OnTimer(); }),
      idle_frames_(context->limits.idle_frames_burst, context->limits.idle_frames_per_second) {
  due_.fill(EventLoop::kNever);
}

GrpcConnection::~GrpcConnection() { nghttp2_session_del(session_); }

absl::Status GrpcConnection::Start() {
  if (tls_ != nullptr) RETURN_IF_ERROR(transport_.StartTls(*tls_));
  RETURN_IF_ERROR(OpenSession());
  last_read_ = context_.loop->now();
  if (context_.limits.handshake_timeout.count() > 0) SetDueIn(kHandshake, context_.limits.handshake_timeout);
  SetDueIn(kKeepalive, context_.keepalive.time);
  if (context_.keepalive.connection_age) SetDueIn(kAge, *context_.keepalive.connection_age);
  RETURN_IF_ERROR(context_.loop->Add(transport_.fd(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, this));
  if (context_.draining) Drain();
  return absl::OkStatus();
}

void GrpcConnection::Refuse(std::size_t limit) {
  refused_ = true;
  GoAway(NGHTTP2_ENHANCE_YOUR_CALM, fmt::format("too many connections: the limit is {}", limit));
  Flush();
}

void GrpcConnection::OnEvents(std::uint32_t events) {
  if (transport_.MayRead(events)) readable_ = true;
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) hung_up_ = true;
  if ((events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) writable_ = true;
  flush_queued_ = false;
  turn_bytes_ = 0;
  Advance();
}

// True when the way is free.
bool GrpcConnection::AdvanceHandshake() {
  if (!transport_.handshaking()) return true;
  switch (transport_.DoHandshake()) {
    case Transport::Handshake::kWait:
      return false;
    case Transport::Handshake::kFailed:
      Close();
      return false;
    case Transport::Handshake::kDone:
      break;
  }
  readable_ = true;  // the session may hold bytes that came with the end of the handshake
  return true;
}

void GrpcConnection::Advance() {
  if (closed_ || !AdvanceHandshake()) return;
  for (;;) {
    if (closed_) return;
    // A client that does not read what it is sent is not read either.
    if (readable_ && out_bytes_ < kOutHigh && turn_bytes_ < kTurnBytes) ReadInput();
    if (closed_) return;
    Flush();
    if (closed_ || !readable_ || out_bytes_ >= kOutHigh) return;
    if (turn_bytes_ >= kTurnBytes) return FlushSoon();
  }
}

void GrpcConnection::ReadInput() {
  const iovec part{context_.input.data(), context_.input.size()};
  const Transport::ReadResult got = transport_.Read({&part, 1});
  if (got.bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    readable_ = false;
    return;
  }
  if (got.bytes <= 0) return Close();
  // What comes after an emptied socket is a new edge. After a hang-up only the end of file tells.
  if (got.drained && !hung_up_) readable_ = false;
  const auto bytes = static_cast<std::size_t>(got.bytes);
  turn_bytes_ += bytes;
  last_read_ = context_.loop->now();
  if (lingering_ || refused_) return;
  in_session_ = true;
  const ssize_t used =
      nghttp2_session_mem_recv(session_, reinterpret_cast<const std::uint8_t*>(context_.input.data()), bytes);
  in_session_ = false;
  if (used < 0) return Close();  // no HTTP/2 at all, or a flood that nghttp2 counts
}

// Makes frames and writes them until there is nothing to say or the socket is full.
void GrpcConnection::Flush() {
  if (in_session_ || closed_) return;
  for (;;) {
    TakeBacklogs();
    const bool made = PullFrames();
    if (closed_) return;
    if (!WriteOut()) return;
    if (!made && !backlog_due_) break;
    if (turn_bytes_ >= kTurnBytes) return FlushSoon();
  }
  CloseIfDone();
}

// True when there may be more.
bool GrpcConnection::PullFrames() {
  bool made = false;
  in_session_ = true;
  while (out_bytes_ < kOutHigh) {
    const std::uint8_t* data = nullptr;
    const ssize_t size = nghttp2_session_mem_send(session_, &data);
    if (size < 0) {
      in_session_ = false;
      Close();
      return false;
    }
    const std::size_t before = out_bytes_;
    if (size > 0) {
      const auto bytes = static_cast<std::size_t>(size);
      if (!pieces_.empty() && pieces_.back().owner == nullptr && first_piece_ < pieces_.size()) {
        pieces_.back().size += bytes;
      } else {
        pieces_.push_back({nullptr, nullptr, frames_.size(), bytes});
      }
      frames_.append(reinterpret_cast<const char*>(data), bytes);
      out_bytes_ += bytes;
    }
    made = made || out_bytes_ != before;
    if (size == 0) break;
  }
  in_session_ = false;
  return made;
}

// True when everything has left.
bool GrpcConnection::WriteOut() {
  constexpr std::size_t kParts = 128;
  while (first_piece_ < pieces_.size()) {
    if (!writable_) return false;
    std::array<iovec, kParts> parts;
    std::size_t count = 0;
    for (std::size_t i = first_piece_; i < pieces_.size() && count < kParts; ++i) {
      const Piece& piece = pieces_[i];
      const std::size_t skip = i == first_piece_ ? written_ : 0;
      const std::byte* data =
          piece.owner != nullptr ? piece.data : reinterpret_cast<const std::byte*>(frames_.data()) + piece.offset;
      parts[count++] = {const_cast<std::byte*>(data) + skip, piece.size - skip};
    }
    const ssize_t sent = transport_.Write({parts.data(), count});
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      writable_ = false;
      WatchProgress();
      ForgetWritten();
      return false;
    }
    if (sent < 0) {
      Close();
      return false;
    }
    auto left = static_cast<std::size_t>(sent);
    turn_bytes_ += left;
    window_written_ += left;
    out_bytes_ -= left;
    while (left > 0) {
      const std::size_t size = pieces_[first_piece_].size - written_;
      if (left < size) {
        written_ += left;
        break;
      }
      left -= size;
      written_ = 0;
      pieces_[first_piece_++].owner.reset();
    }
  }
  pieces_.clear();
  first_piece_ = 0;
  frames_.clear();
  if (frames_.capacity() > kKeptFrames) frames_.shrink_to_fit();
  return true;
}

// A client that is always a little behind must not make the lists grow.
void GrpcConnection::ForgetWritten() {
  constexpr std::size_t kMany = 1024;
  if (first_piece_ < kMany) return;
  pieces_.erase(pieces_.begin(), pieces_.begin() + static_cast<std::ptrdiff_t>(first_piece_));
  first_piece_ = 0;
  const auto own = std::find_if(pieces_.begin(), pieces_.end(), [](const Piece& p) { return p.owner == nullptr; });
  const std::size_t written = own == pieces_.end() ? frames_.size() : own->offset;
  frames_.erase(0, written);
  for (Piece& piece : pieces_) {
    if (piece.owner == nullptr) piece.offset -= written;
  }
}

void GrpcConnection::Wake() {
  if (in_session_ || closed_) return;
  if (streams_.size() > 1) return FlushSoon();
  turn_bytes_ = 0;
  Flush();
}

// After the other handlers of this round: answers that several threads send together leave in one piece.
void GrpcConnection::FlushSoon() {
  if (in_session_ || closed_ || std::exchange(flush_queued_, true)) return;
  context_.loop->CallAgain(this);
}

// Everything was written: is there a reason to go on?
void GrpcConnection::CloseIfDone() {
  if (lingering_) return;
  const bool drained = draining_ && last_goaway_sent_ && streams_.empty();
  const bool over = nghttp2_session_want_read(session_) == 0 && nghttp2_session_want_write(session_) == 0;
  if (drained || over || refused_) BeginLinger();
}

// The last bytes are written. With unread input a plain close would reset the connection and might take them away.
void GrpcConnection::BeginLinger() {
  if (!refused_ && !readable_) return Close();
  lingering_ = true;
  transport_.ShutdownWrite();
  SetDueIn(kLinger, context_.limits.linger);
}

void GrpcConnection::Close() {
  if (std::exchange(closed_, true)) return;
  timer_.Clear();
  context_.loop->Remove(transport_.fd(), this);
  transport_.Close();
  for (const auto& stream : streams_) {
    stream->exchange->gone.store(true, std::memory_order_relaxed);
    stream->exchange->stream = nullptr;
    if (stream->call != nullptr && !stream->finished) stream->call->Cancel();
  }
  streams_.clear();
  pieces_.clear();
  context_.on_closed(this);
}

}  // namespace tidemark
