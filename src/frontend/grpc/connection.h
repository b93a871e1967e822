#pragma once

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "frontend/connection_server.h"
#include "frontend/event_loop.h"
#include "frontend/grpc/call.h"
#include "frontend/grpc/limits.h"
#include "frontend/grpc/stream.h"
#include "frontend/socket.h"
#include "frontend/tls.h"

namespace tidemark {

// nghttp2's callbacks and options, the same for all connections of a loop.
class Http2Setup {
 public:
  Http2Setup();
  ~Http2Setup();
  Http2Setup(const Http2Setup&) = delete;
  Http2Setup& operator=(const Http2Setup&) = delete;

  const nghttp2_session_callbacks* callbacks() const { return callbacks_; }
  const nghttp2_option* option() const { return option_; }

 private:
  nghttp2_session_callbacks* callbacks_ = nullptr;
  nghttp2_option* option_ = nullptr;
};

// What the connections of one loop share. Outlives them.
struct GrpcConnectionContext {
  EventLoop* loop = nullptr;
  GrpcHandler* handler = nullptr;
  GrpcLimits limits;
  GrpcKeepalive keepalive;
  bool draining = false;
  ConnectionServer::OnClosed on_closed;
  Http2Setup http2;
  std::vector<std::byte> input = std::vector<std::byte>(256 * 1024);
};

// Counts frames that make work and carry nothing; refuses when a client sends too many of them.
class IdleFrameMeter {
 public:
  IdleFrameMeter(std::uint32_t burst, std::uint32_t per_second)
      : burst_(burst), per_second_(per_second), left_(burst) {}
  // One such frame at `now` (nanoseconds). False: too many.
  bool Count(std::int64_t now);
  // Frames that go with data.
  void Credit(std::uint32_t frames) { left_ = std::min<std::uint64_t>(left_ + frames, burst_); }

 private:
  const std::uint64_t burst_;
  const std::uint64_t per_second_;
  std::uint64_t left_;
  std::int64_t filled_at_ = 0;
};

// One HTTP/2 connection that carries gRPC calls. nghttp2 does frames, HPACK and flow control; this moves bytes between
// it and the socket, calls between it and the handler, and answers' tensors past it: they go from their buffers to the
// socket. Belongs to its loop's thread. In the steady state a call costs one recv and one sendmsg, or less when
// several arrive together.
class GrpcConnection final : public EventLoop::Handler, public ServedConnection {
 public:
  // `tls`: null for a plain connection.
  GrpcConnection(GrpcConnectionContext* context, UniqueFd fd, const TlsContext* tls = nullptr);
  ~GrpcConnection() override;

  absl::Status Start() override;
  // GOAWAY without having read anything.
  void Refuse(std::size_t limit) override;
  // GOAWAY; calls that the client has begun are answered, then the connection is closed.
  void Drain() override;
  void Cut() override { Close(); }

  void OnEvents(std::uint32_t events) override;

  // From responders, on the loop's thread.
  void Send(GrpcStream& stream, GrpcMessage message);
  void Finish(GrpcStream& stream, absl::Status status);
  void Resume(GrpcStream& stream);
  // After one of these what they queued leaves: soon, or at once if that is likely to be all. Wake may end the stream.
  void FlushSoon();
  void Wake();

 private:
  friend class Http2Setup;

  // Things that happen at a time.
  enum Due : std::size_t {
    kHandshake,
    kProgress,
    kKeepalive,
    kPingAnswer,
    kAge,
    kGrace,
    kDrainEnd,
    kLinger,
    kDueCount
  };

  // A piece of what is to be written: bytes of frames_, or of a message that it keeps alive.
  struct Piece {
    std::shared_ptr<GrpcMessage> owner;  // null: frames_
    const std::byte* data = nullptr;     // of the owner
    std::size_t offset = 0;              // in frames_
    std::size_t size = 0;
  };

  // connection.cc: the socket.
  void Advance();
  bool AdvanceHandshake();
  void ReadInput();
  void Flush();
  bool PullFrames();
  bool WriteOut();
  void ForgetWritten();
  void Close();
  void BeginLinger();
  void CloseIfDone();

  // connection_timers.cc: what is done by the clock.
  void SetDue(Due due, std::int64_t when);
  void SetDueIn(Due due, std::chrono::milliseconds delay);
  void OnTimer();
  void OnDue(Due due);
  void WatchProgress();
  void CheckProgress();
  void CheckSilence();
  void OnPing(bool ack, const std::uint8_t* opaque);
  void GoAway(std::uint32_t error, std::string_view reason);

  // connection_session.cc: the session.
  absl::Status OpenSession();
  int OnBeginHeaders(const nghttp2_frame& frame);
  int OnHeader(const nghttp2_frame& frame, std::string_view name, std::string_view value);
  int OnFrame(const nghttp2_frame& frame);
  int OnData(std::int32_t stream_id, std::span<const std::byte> data);
  int OnFrameSent(const nghttp2_frame& frame);
  int OnStreamClosed(std::int32_t stream_id);
  ssize_t ReadAnswer(GrpcStream& stream, std::size_t most, std::uint32_t* flags);
  int WriteAnswer(GrpcStream& stream, const std::uint8_t* frame_head, std::size_t size);
  GrpcStream* FindStream(std::int32_t stream_id) const;
  void BeginCall(GrpcStream& stream);
  void RefuseCall(GrpcStream& stream, absl::Status status);
  void TakeData(GrpcStream& stream, std::span<const std::byte> data);
  void TakeHalfClose(GrpcStream& stream);
  void TakeBacklog(GrpcStream& stream);
  void TakeBacklogs();
  bool CanTake(const GrpcStream& stream) const;
  void FailCall(GrpcStream& stream, absl::Status status);
  void SubmitHeaders(GrpcStream& stream, bool trailers_only);
  void SubmitTrailers(GrpcStream& stream);
  void ResetStream(GrpcStream& stream, std::uint32_t error);
  void CountIdleFrame();

  GrpcConnectionContext& context_;
  Transport transport_;
  const TlsContext* const tls_;
  EventLoop::Timer timer_;
  nghttp2_session* session_ = nullptr;
  std::vector<std::unique_ptr<GrpcStream>> streams_;

  bool readable_ = false;
  bool writable_ = true;
  bool hung_up_ = false;     // the client sends no more; what it sent may still be unread
  bool in_session_ = false;  // inside nghttp2: nothing may be flushed
  bool flush_queued_ = false;
  bool backlog_due_ = false;  // a paused call may be able to go on
  bool refused_ = false;      // nothing of what the client sends is looked at
  bool draining_ = false;
  bool last_goaway_sent_ = false;
  bool lingering_ = false;
  bool closed_ = false;
  std::size_t turn_bytes_ = 0;

  // Output: pieces from the first on, `written_` bytes of which have left.
  std::string frames_;
  std::vector<Piece> pieces_;
  std::size_t first_piece_ = 0;
  std::size_t written_ = 0;
  std::size_t out_bytes_ = 0;
  std::size_t window_written_ = 0;
  bool was_blocked_ = false;

  std::array<std::int64_t, kDueCount> due_;
  std::int64_t last_read_ = 0;
  int pings_without_data_ = 0;
  std::int64_t last_client_ping_ = 0;
  int ping_strikes_ = 0;
  IdleFrameMeter idle_frames_;
};

}  // namespace tidemark
