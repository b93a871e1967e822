#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "frontend/grpc/connection.h"

namespace tidemark {
namespace {

constexpr std::uint8_t kDrainPing[8] = {'d', 'r', 'a', 'i', 'n', 0, 0, 0};
constexpr std::uint8_t kAskPing[8] = {'a', 's', 'k', 0, 0, 0, 0, 0};
constexpr std::chrono::milliseconds kDrainRound{1000};  // how long the answer to the draining PING is waited for
constexpr std::chrono::hours kIdlePingInterval{2};      // gRPC's rule for PINGs without any call

std::int64_t Nanos(std::chrono::nanoseconds duration) { return duration.count(); }

}  // namespace

bool IdleFrameMeter::Count(std::int64_t now) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  if (const std::int64_t seconds = (now - filled_at_) / kSecond; seconds > 0) {
    left_ = std::min(burst_, left_ + static_cast<std::uint64_t>(seconds) * per_second_);
    filled_at_ = now;
  }
  if (left_ == 0) return false;
  --left_;
  return true;
}

void GrpcConnection::SetDue(Due due, std::int64_t when) {
  due_[due] = when;
  timer_.Set(*std::min_element(due_.begin(), due_.end()));
}

void GrpcConnection::SetDueIn(Due due, std::chrono::milliseconds delay) {
  constexpr std::chrono::hours kLongest{24 * 365};
  SetDue(due, context_.loop->now() + Nanos(std::min<std::chrono::milliseconds>(delay, kLongest)));
}

void GrpcConnection::OnTimer() {
  const std::int64_t now = context_.loop->now();
  for (std::size_t i = 0; i < kDueCount && !closed_; ++i) {
    if (due_[i] > now) continue;
    due_[i] = EventLoop::kNever;
    OnDue(static_cast<Due>(i));
  }
  if (closed_) return;
  timer_.Set(*std::min_element(due_.begin(), due_.end()));
  turn_bytes_ = 0;
  Flush();
}

void GrpcConnection::OnDue(Due due) {
  switch (due) {
    case kHandshake:
    case kPingAnswer:
    case kGrace:
    case kLinger:
      return Close();
    case kProgress:
      return CheckProgress();
    case kKeepalive:
      return CheckSilence();
    case kAge:
      if (context_.keepalive.connection_age_grace) SetDueIn(kGrace, *context_.keepalive.connection_age_grace);
      return Drain();
    case kDrainEnd:
      if (!last_goaway_sent_) GoAway(NGHTTP2_NO_ERROR, {});
      return;
    case kDueCount:
      return;
  }
}

void GrpcConnection::WatchProgress() {
  if (due_[kProgress] == EventLoop::kNever && context_.limits.progress_window.count() > 0) {
    SetDueIn(kProgress, context_.limits.progress_window);
  }
}

// Resets calls that hold memory and do not move; closes the connection when it takes nothing of what is written.
void GrpcConnection::CheckProgress() {
  const std::size_t enough = context_.limits.progress_bytes;
  const bool blocked = first_piece_ < pieces_.size();
  if (blocked && was_blocked_ && window_written_ < enough) return Close();
  was_blocked_ = blocked;
  window_written_ = 0;
  std::vector<GrpcStream*> slow;
  for (const auto& stream : streams_) {
    const bool receiving =
        !stream->remote_closed && !stream->finished && stream->backlog.empty() && stream->decoder.inside();
    const bool sending = stream->out_bytes > 0 && !blocked;
    if ((receiving && stream->was_receiving && stream->window_in < enough) ||
        (sending && stream->was_sending && stream->window_out < enough)) {
      slow.push_back(stream.get());
    }
    stream->was_receiving = receiving;
    stream->was_sending = sending;
    stream->window_in = stream->window_out = 0;
  }
  for (GrpcStream* stream : slow) {
    if (stream->headers_sent) {
      ResetStream(*stream, NGHTTP2_ENHANCE_YOUR_CALM);
    } else {
      FailCall(*stream, absl::DeadlineExceededError(fmt::format("the message moved by less than {} bytes in {} ms",
                                                                enough, context_.limits.progress_window.count())));
    }
  }
  if (!streams_.empty() || blocked) WatchProgress();
}

// Nothing came for a while: is the client still there?
void GrpcConnection::CheckSilence() {
  const GrpcKeepalive& rules = context_.keepalive;
  const std::int64_t quiet_until = last_read_ + Nanos(rules.time);
  if (context_.loop->now() < quiet_until) return SetDue(kKeepalive, quiet_until);
  SetDueIn(kKeepalive, rules.time);
  if (streams_.empty() && !rules.permit_without_calls) return;
  if (rules.max_pings_without_data > 0 && pings_without_data_ >= rules.max_pings_without_data) return;
  ++pings_without_data_;
  nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, kAskPing);
  SetDueIn(kPingAnswer, rules.timeout);
}

void GrpcConnection::OnPing(bool ack, const std::uint8_t* opaque) {
  if (ack) {
    if (std::memcmp(opaque, kAskPing, sizeof(kAskPing)) == 0) SetDue(kPingAnswer, EventLoop::kNever);
    if (std::memcmp(opaque, kDrainPing, sizeof(kDrainPing)) == 0 && draining_ && !last_goaway_sent_) {
      GoAway(NGHTTP2_NO_ERROR, {});
    }
    return;
  }
  const GrpcKeepalive& rules = context_.keepalive;
  std::int64_t interval = Nanos(rules.min_recv_ping_interval_without_data);
  if (streams_.empty() && !rules.permit_without_calls) interval = Nanos(kIdlePingInterval);
  const std::int64_t now = context_.loop->now();
  if (refused_) return;  // told already
  const bool early = last_client_ping_ != 0 && now - last_client_ping_ < interval;
  last_client_ping_ = now;
  if (early && rules.max_ping_strikes > 0 && ++ping_strikes_ > rules.max_ping_strikes) {
    GoAway(NGHTTP2_ENHANCE_YOUR_CALM, "too_many_pings");
  }
}

// The last GOAWAY; with an error the connection ends after it.
void GrpcConnection::GoAway(std::uint32_t error, std::string_view reason) {
  last_goaway_sent_ = true;
  draining_ = true;
  nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(session_), error,
                        reinterpret_cast<const std::uint8_t*>(reason.data()), reason.size());
  if (error != NGHTTP2_NO_ERROR) refused_ = true;
}

void GrpcConnection::Drain() {
  if (draining_ || closed_) return;
  draining_ = true;
  if (due_[kHandshake] != EventLoop::kNever) {  // the client has not said anything yet
    GoAway(NGHTTP2_NO_ERROR, {});
    return Flush();
  }
  // The client learns that it should go elsewhere, and what it sent before it learnt that is still served.
  nghttp2_submit_shutdown_notice(session_);
  nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, kDrainPing);
  SetDueIn(kDrainEnd, kDrainRound);
  Flush();
}

}  // namespace tidemark
