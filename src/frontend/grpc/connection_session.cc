#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "base/status.h"
#include "frontend/grpc/connection.h"

namespace tidemark {
namespace {

constexpr std::size_t kSmallPiece = 4 * 1024;  // shorter ones are copied: that costs less than a vector of their own
constexpr std::size_t kLongestFrame = 1 << 20;

nghttp2_nv Field(std::string_view name, std::string_view value, bool static_value) {
  nghttp2_nv field{};
  field.name = reinterpret_cast<std::uint8_t*>(const_cast<char*>(name.data()));
  field.namelen = name.size();
  field.value = reinterpret_cast<std::uint8_t*>(const_cast<char*>(value.data()));
  field.valuelen = value.size();
  field.flags = NGHTTP2_NV_FLAG_NO_COPY_NAME;
  if (static_value) field.flags |= NGHTTP2_NV_FLAG_NO_COPY_VALUE;
  return field;
}

// The names of grpc-status, as static text.
std::string_view CodeText(absl::StatusCode code) {
  static constexpr std::array<std::string_view, 17> kTexts = {"0", "1",  "2",  "3",  "4",  "5",  "6",  "7", "8",
                                                              "9", "10", "11", "12", "13", "14", "15", "16"};
  const auto number = static_cast<std::size_t>(GrpcCodeOf(code));
  return kTexts[number < kTexts.size() ? number : 2];
}

constexpr std::size_t kLongestMessage = 4096;  // bytes of a status message, encoded, that fit where metadata fits

std::string StatusMessage(const absl::Status& status) {
  std::string encoded = EncodeGrpcMessage(MessageOf(status));
  if (encoded.size() > kLongestMessage) {
    std::size_t end = kLongestMessage;
    while (encoded[end - 1] == '%' || encoded[end - 2] == '%') --end;
    encoded.resize(end);
  }
  return encoded;
}

}  // namespace

Http2Setup::Http2Setup() {
  nghttp2_session_callbacks_new(&callbacks_);
  nghttp2_session_callbacks_set_on_begin_headers_callback(
      callbacks_, [](nghttp2_session*, const nghttp2_frame* frame, void* self) {
        return static_cast<GrpcConnection*>(self)->OnBeginHeaders(*frame);
      });
  nghttp2_session_callbacks_set_on_header_callback(
      callbacks_, [](nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name, std::size_t name_size,
                     const std::uint8_t* value, std::size_t value_size, std::uint8_t, void* self) {
        return static_cast<GrpcConnection*>(self)->OnHeader(*frame, {reinterpret_cast<const char*>(name), name_size},
                                                            {reinterpret_cast<const char*>(value), value_size});
      });
  nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks_,
                                                       [](nghttp2_session*, const nghttp2_frame* frame, void* self) {
                                                         return static_cast<GrpcConnection*>(self)->OnFrame(*frame);
                                                       });
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
      callbacks_,
      [](nghttp2_session*, std::uint8_t, std::int32_t stream, const std::uint8_t* data, std::size_t size, void* self) {
        return static_cast<GrpcConnection*>(self)->OnData(stream, {reinterpret_cast<const std::byte*>(data), size});
      });
  nghttp2_session_callbacks_set_on_frame_send_callback(callbacks_,
                                                       [](nghttp2_session*, const nghttp2_frame* frame, void* self) {
                                                         return static_cast<GrpcConnection*>(self)->OnFrameSent(*frame);
                                                       });
  nghttp2_session_callbacks_set_on_stream_close_callback(
      callbacks_, [](nghttp2_session*, std::int32_t stream, std::uint32_t, void* self) {
        return static_cast<GrpcConnection*>(self)->OnStreamClosed(stream);
      });
  nghttp2_session_callbacks_set_send_data_callback(
      callbacks_, [](nghttp2_session*, nghttp2_frame*, const std::uint8_t* head, std::size_t size,
                     nghttp2_data_source* source, void* self) {
        return static_cast<GrpcConnection*>(self)->WriteAnswer(*static_cast<GrpcStream*>(source->ptr), head, size);
      });
  nghttp2_session_callbacks_set_data_source_read_length_callback(
      callbacks_,
      [](nghttp2_session*, std::uint8_t, std::int32_t, std::int32_t, std::int32_t, std::uint32_t remote_max_frame_size,
         void*) -> ssize_t {
        return static_cast<ssize_t>(std::min<std::size_t>(remote_max_frame_size, kLongestFrame));
      });
  nghttp2_option_new(&option_);
  nghttp2_option_set_no_auto_window_update(option_, 1);
  nghttp2_option_set_no_closed_streams(option_, 1);
}

Http2Setup::~Http2Setup() {
  nghttp2_session_callbacks_del(callbacks_);
  nghttp2_option_del(option_);
}

absl::Status GrpcConnection::OpenSession() {
  if (nghttp2_session_server_new2(&session_, context_.http2.callbacks(), this, context_.http2.option()) != 0) {
    return absl::ResourceExhaustedError("no memory for an HTTP/2 session");
  }
  const GrpcLimits& limits = context_.limits;
  const nghttp2_settings_entry settings[] = {
      {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, limits.streams},
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, static_cast<std::uint32_t>(limits.stream_window)},
      {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, static_cast<std::uint32_t>(kLongestFrame)},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, static_cast<std::uint32_t>(limits.metadata_bytes)},
      {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1}};
  nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings, std::size(settings));
  nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, limits.connection_window);
  return absl::OkStatus();
}

GrpcStream* GrpcConnection::FindStream(std::int32_t stream_id) const {
  return static_cast<GrpcStream*>(nghttp2_session_get_stream_user_data(session_, stream_id));
}

int GrpcConnection::OnBeginHeaders(const nghttp2_frame& frame) {
  if (frame.hd.type != NGHTTP2_HEADERS || frame.headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
  auto stream = std::make_unique<GrpcStream>(this, frame.hd.stream_id, context_.limits.message_bytes);
  stream->exchange = std::make_shared<GrpcExchange>(context_.loop->mailbox(), stream.get());
  stream->slot = streams_.size();
  nghttp2_session_set_stream_user_data(session_, stream->id, stream.get());
  streams_.push_back(std::move(stream));
  WatchProgress();
  return 0;
}

int GrpcConnection::OnHeader(const nghttp2_frame& frame, std::string_view name, std::string_view value) {
  GrpcStream* stream = FindStream(frame.hd.stream_id);
  if (stream == nullptr || stream->begun) return 0;  // trailers say nothing that gRPC knows
  stream->metadata_bytes += name.size() + value.size() + 32;
  if (stream->metadata_bytes > 2 * context_.limits.metadata_bytes) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  if (stream->metadata_bytes > context_.limits.metadata_bytes) return 0;  // refused when it is complete
  if (name == ":path") {
    stream->head.path = value;
  } else if (name == ":method") {
    stream->method = value;
  } else if (name.starts_with(':') || name == "te") {
  } else if (name == "content-type") {
    stream->content_type = value;
  } else if (name == "grpc-encoding") {
    stream->encoding = value;
  } else if (name == "grpc-accept-encoding") {
    stream->accept_encoding = value;
    stream->head.metadata.Add(name, value);
  } else if (name == "grpc-timeout") {
    stream->timeout = value;
  } else {
    stream->head.metadata.Add(name, value);
  }
  return 0;
}

int GrpcConnection::OnFrame(const nghttp2_frame& frame) {
  switch (frame.hd.type) {
    case NGHTTP2_PING:
      CountIdleFrame();
      OnPing((frame.hd.flags & NGHTTP2_FLAG_ACK) != 0, frame.ping.opaque_data);
      return 0;
    case NGHTTP2_SETTINGS:
      if ((frame.hd.flags & NGHTTP2_FLAG_ACK) == 0) SetDue(kHandshake, EventLoop::kNever);
      CountIdleFrame();
      return 0;
    case NGHTTP2_RST_STREAM:
    case NGHTTP2_PRIORITY:
    case NGHTTP2_WINDOW_UPDATE:
      CountIdleFrame();
      return 0;
    case NGHTTP2_HEADERS:
    case NGHTTP2_DATA:
      break;
    default:
      return 0;
  }
  GrpcStream* stream = FindStream(frame.hd.stream_id);
  const bool end = (frame.hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
  if (frame.hd.type == NGHTTP2_DATA && frame.hd.length == 0 && !end) CountIdleFrame();
  if (stream == nullptr) return 0;
  if (frame.hd.type == NGHTTP2_HEADERS && frame.headers.cat == NGHTTP2_HCAT_REQUEST) BeginCall(*stream);
  if (end && !stream->remote_closed) {
    stream->remote_closed = true;
    TakeHalfClose(*stream);
  }
  return 0;
}

void GrpcConnection::CountIdleFrame() {
  if (!refused_ && !idle_frames_.Count(context_.loop->now())) {
    GoAway(NGHTTP2_ENHANCE_YOUR_CALM, "too many frames that carry nothing");
  }
}

void GrpcConnection::BeginCall(GrpcStream& stream) {
  stream.begun = true;
  const GrpcLimits& limits = context_.limits;
  if (stream.metadata_bytes > limits.metadata_bytes) {
    return FailCall(stream, absl::ResourceExhaustedError(fmt::format(
                                "received metadata size exceeds the limit of {} bytes", limits.metadata_bytes)));
  }
  if (stream.method != "POST" || !IsGrpcContentType(stream.content_type)) {
    const nghttp2_nv answer[] = {Field(":status", stream.method != "POST" ? "405" : "415", true)};
    stream.finished = stream.headers_sent = stream.ended = true;
    nghttp2_submit_response(session_, stream.id, answer, std::size(answer), nullptr);
    return;
  }
  std::optional<ContentCoding> coding = ParseContentCoding(stream.encoding);
  if (!coding) {
    return FailCall(stream,
                    absl::UnimplementedError(fmt::format("Compression algorithm '{}' is unknown.", stream.encoding)));
  }
  stream.decoder.set_coding(coding);
  if (!stream.timeout.empty()) {
    const std::optional<std::int64_t> nanos = ParseGrpcTimeout(stream.timeout);
    if (!nanos) {
      return FailCall(stream,
                      absl::InvalidArgumentError(fmt::format("grpc-timeout '{}' is no time-out", stream.timeout)));
    }
    GrpcStream* const self = &stream;
    stream.deadline.emplace(context_.loop, [this, self] {
      // Clients take a reset for DEADLINE_EXCEEDED only once their own clock says so: for what they have not read alone.
      if (!self->out.empty()) {
        ResetStream(*self, NGHTTP2_CANCEL);
      } else {
        FailCall(*self, absl::DeadlineExceededError("Deadline Exceeded"));
      }
      FlushSoon();
    });
    std::int64_t when = 0;
    if (!__builtin_add_overflow(context_.loop->now(), *nanos, &when)) {
      stream.deadline->Set(when);
      stream.head.deadline_nanos = when;
    }
  }
  stream.head.loop = context_.loop;
  GrpcHandler::Begun begun = context_.handler->Begin(stream.head, GrpcResponder(stream.exchange));
  stream.call = std::move(begun.call);
  stream.response_coding = begun.response_coding;
  stream.head = {};
}

bool GrpcConnection::CanTake(const GrpcStream& stream) const {
  return stream.out_bytes <= context_.limits.unsent_bytes && stream.call->Ready();
}

int GrpcConnection::OnData(std::int32_t stream_id, std::span<const std::byte> data) {
  GrpcStream* stream = FindStream(stream_id);
  if (stream == nullptr || stream->finished || stream->call == nullptr) {
    nghttp2_session_consume(session_, stream_id, data.size());
    return 0;
  }
  stream->window_in += data.size();
  if (stream->paused) {
    stream->backlog.append(reinterpret_cast<const char*>(data.data()), data.size());
    return 0;
  }
  TakeData(*stream, data);
  return 0;
}

// Hands data on, message by message, until the call has had enough.
void GrpcConnection::TakeData(GrpcStream& stream, std::span<const std::byte> data) {
  const std::size_t size = data.size();
  while (!data.empty()) {
    if (!stream.decoder.inside() && !CanTake(stream)) {
      stream.paused = true;
      stream.backlog.append(reinterpret_cast<const char*>(data.data()), data.size());
      break;
    }
    const std::size_t messages = stream.decoder.messages();
    absl::Status status = stream.decoder.Take(data, *stream.call);
    if (stream.decoder.messages() != messages) idle_frames_.Credit(4);
    if (!status.ok()) FailCall(stream, std::move(status));
    if (stream.finished) {
      data = {};
      break;
    }
  }
  if (const std::size_t used = size - data.size(); used > 0) nghttp2_session_consume(session_, stream.id, used);
}

void GrpcConnection::TakeHalfClose(GrpcStream& stream) {
  if (stream.finished || stream.call == nullptr) return;
  if (stream.paused) {
    stream.half_close_due = true;
    return;
  }
  absl::Status status = stream.decoder.inside() ? absl::InternalError("the client ended the call inside a message")
                                                : stream.call->HalfClose();
  if (!status.ok()) FailCall(stream, std::move(status));
}

void GrpcConnection::TakeBacklog(GrpcStream& stream) {
  if (!stream.paused || stream.finished || !CanTake(stream)) return;
  stream.paused = false;
  const std::string backlog = std::exchange(stream.backlog, {});
  TakeData(stream, std::as_bytes(std::span(backlog)));
  if (!stream.paused && std::exchange(stream.half_close_due, false)) TakeHalfClose(stream);
}

// Calls that were paused may go on: asked here and not where it became possible, which may be inside the call.
void GrpcConnection::TakeBacklogs() {
  if (!std::exchange(backlog_due_, false)) return;
  in_session_ = true;
  for (std::size_t i = 0; i < streams_.size(); ++i) TakeBacklog(*streams_[i]);
  in_session_ = false;
}

// Ends a call with an error before its handler does.
void GrpcConnection::FailCall(GrpcStream& stream, absl::Status status) {
  if (stream.finished) return;
  if (stream.call != nullptr) stream.call->Cancel();
  stream.exchange->gone.store(true, std::memory_order_relaxed);
  Finish(stream, std::move(status));
}

void GrpcConnection::ResetStream(GrpcStream& stream, std::uint32_t error) {
  nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream.id, error);
}

void GrpcConnection::SubmitHeaders(GrpcStream& stream, bool trailers_only) {
  stream.headers_sent = true;
  std::array<nghttp2_nv, 6> fields;
  std::size_t count = 0;
  fields[count++] = Field(":status", "200", true);
  fields[count++] = Field("content-type", "application/grpc", true);
  std::string message;
  if (trailers_only) {
    stream.ended = true;
    if (stream.status.code() == absl::StatusCode::kUnimplemented) {
      fields[count++] = Field("grpc-accept-encoding", "identity,deflate,gzip", true);
    }
    fields[count++] = Field("grpc-status", CodeText(stream.status.code()), true);
    message = StatusMessage(stream.status);
    if (!message.empty()) fields[count++] = Field("grpc-message", message, false);
    nghttp2_submit_response(session_, stream.id, fields.data(), count, nullptr);
    return;
  }
  if (stream.response_coding != ContentCoding::kIdentity) {
    fields[count++] = Field("grpc-encoding", ContentCodingName(stream.response_coding), true);
  }
  fields[count++] = Field("grpc-accept-encoding", "identity,deflate,gzip", true);
  nghttp2_data_provider provider{};
  provider.source.ptr = &stream;
  provider.read_callback = [](nghttp2_session*, std::int32_t, std::uint8_t*, std::size_t most, std::uint32_t* flags,
                              nghttp2_data_source* source, void* self) {
    return static_cast<GrpcConnection*>(self)->ReadAnswer(*static_cast<GrpcStream*>(source->ptr), most, flags);
  };
  nghttp2_submit_response(session_, stream.id, fields.data(), count, &provider);
}

void GrpcConnection::SubmitTrailers(GrpcStream& stream) {
  stream.ended = true;
  std::array<nghttp2_nv, 2> fields;
  std::size_t count = 0;
  fields[count++] = Field("grpc-status", CodeText(stream.status.code()), true);
  const std::string message = StatusMessage(stream.status);
  if (!message.empty()) fields[count++] = Field("grpc-message", message, false);
  nghttp2_submit_trailer(session_, stream.id, fields.data(), count);
}

void GrpcConnection::Send(GrpcStream& stream, GrpcMessage message) {
  if (stream.finished) return;
  stream.out_bytes += message.size();
  stream.out.push_back(std::make_shared<GrpcMessage>(std::move(message)));
  if (!stream.headers_sent) {
    SubmitHeaders(stream, false);
  } else if (std::exchange(stream.deferred, false)) {
    nghttp2_session_resume_data(session_, stream.id);
  }
  backlog_due_ = backlog_due_ || stream.paused;
}

void GrpcConnection::Finish(GrpcStream& stream, absl::Status status) {
  if (stream.finished) return;
  stream.finished = true;
  stream.status = std::move(status);
  if (!stream.backlog.empty()) {
    nghttp2_session_consume(session_, stream.id, stream.backlog.size());
    stream.backlog.clear();
  }
  if (stream.deadline) stream.deadline->Clear();
  if (!stream.headers_sent) {
    // A good unary answer has a message, so that this is an error or a stream without answers.
    SubmitHeaders(stream, true);
  } else if (std::exchange(stream.deferred, false)) {
    nghttp2_session_resume_data(session_, stream.id);
  }
}

void GrpcConnection::Resume(GrpcStream& stream) { backlog_due_ = backlog_due_ || stream.paused; }

// How much of the answer goes into the next frame.
ssize_t GrpcConnection::ReadAnswer(GrpcStream& stream, std::size_t most, std::uint32_t* flags) {
  if (stream.out_bytes == 0 && !stream.finished) {
    stream.deferred = true;
    return NGHTTP2_ERR_DEFERRED;
  }
  const std::size_t size = std::min(most, stream.out_bytes);
  *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
  if (size == stream.out_bytes && stream.finished) {
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    SubmitTrailers(stream);
  }
  return static_cast<ssize_t>(size);
}

// Queues one DATA frame: its head, and pieces of the messages where they are.
int GrpcConnection::WriteAnswer(GrpcStream& stream, const std::uint8_t* frame_head, std::size_t size) {
  constexpr std::size_t kHead = 9;
  const auto copy = [this](const void* data, std::size_t bytes) {
    if (first_piece_ < pieces_.size() && pieces_.back().owner == nullptr) {
      pieces_.back().size += bytes;
    } else {
      pieces_.push_back({nullptr, nullptr, frames_.size(), bytes});
    }
    frames_.append(static_cast<const char*>(data), bytes);
  };
  copy(frame_head, kHead);
  out_bytes_ += kHead + size;
  stream.out_bytes -= size;
  stream.window_out += size;
  while (size > 0) {
    const std::shared_ptr<GrpcMessage>& message = stream.out.front();
    const std::span<const std::byte> piece = message->piece(stream.out_piece).subspan(stream.out_offset);
    const std::size_t taken = std::min(size, piece.size());
    if (taken > kSmallPiece) {
      pieces_.push_back({message, piece.data(), 0, taken});
    } else if (taken > 0) {
      copy(piece.data(), taken);
    }
    size -= taken;
    stream.out_offset += taken;
    if (taken < piece.size()) break;
    stream.out_offset = 0;
    if (++stream.out_piece == message->pieces()) {
      stream.out_piece = 0;
      stream.out.pop_front();
    }
  }
  if (stream.out_bytes == 0) {
    stream.out.clear();  // pieces of no bytes may be left
    stream.out_piece = stream.out_offset = 0;
  }
  backlog_due_ = backlog_due_ || stream.paused;
  return 0;
}

int GrpcConnection::OnFrameSent(const nghttp2_frame& frame) {
  if (frame.hd.type != NGHTTP2_HEADERS && frame.hd.type != NGHTTP2_DATA) return 0;
  // What gRPC counts as data: it makes the client's PINGs welcome again.
  pings_without_data_ = 0;
  ping_strikes_ = 0;
  last_client_ping_ = 0;
  idle_frames_.Credit(2);
  if (frame.hd.type != NGHTTP2_HEADERS || (frame.hd.flags & NGHTTP2_FLAG_END_STREAM) == 0) return 0;
  const GrpcStream* stream = FindStream(frame.hd.stream_id);
  // The client need not send the rest of a request that has its answer.
  if (stream != nullptr && !stream->remote_closed) {
    nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, frame.hd.stream_id, NGHTTP2_NO_ERROR);
  }
  return 0;
}

int GrpcConnection::OnStreamClosed(std::int32_t stream_id) {
  GrpcStream* stream = FindStream(stream_id);
  if (stream == nullptr) return 0;
  nghttp2_session_set_stream_user_data(session_, stream_id, nullptr);
  stream->exchange->gone.store(true, std::memory_order_relaxed);
  stream->exchange->stream = nullptr;
  if (stream->call != nullptr && !stream->finished) stream->call->Cancel();
  // Bytes that were never looked at give their room back to the connection.
  if (!stream->backlog.empty()) nghttp2_session_consume_connection(session_, stream->backlog.size());
  const std::size_t slot = stream->slot;
  if (slot + 1 != streams_.size()) {
    streams_[slot] = std::move(streams_.back());
    streams_[slot]->slot = slot;
  }
  streams_.pop_back();
  return 0;
}

}  // namespace tidemark
