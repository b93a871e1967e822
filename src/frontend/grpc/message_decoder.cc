#include "frontend/grpc/message_decoder.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/status.h"

namespace tidemark {

// One gzip or zlib stream at a time; the memory is used again.
class MessageInflater {
 public:
  MessageInflater() = default;
  ~MessageInflater() {
    if (open_) inflateEnd(&stream_);
  }
  MessageInflater(const MessageInflater&) = delete;
  MessageInflater& operator=(const MessageInflater&) = delete;

  absl::Status Begin(ContentCoding coding, std::uint64_t most) {
    most_ = most;
    made_ = 0;
    ended_ = false;
    const int window = coding == ContentCoding::kGzip ? 15 + 16 : 15;
    const int result = open_ ? inflateReset2(&stream_, window) : inflateInit2(&stream_, window);
    open_ = open_ || result == Z_OK;
    return result == Z_OK ? absl::OkStatus() : absl::ResourceExhaustedError("no memory to decompress a message");
  }

  absl::Status Add(std::span<const std::byte> data, GrpcCall& call) {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(data.data()));
    stream_.avail_in = static_cast<uInt>(data.size());
    for (;;) {
      if (ended_) return stream_.avail_in == 0 ? absl::OkStatus() : Bad("bytes follow its end");
      std::array<std::byte, 32 * 1024> out;
      stream_.next_out = reinterpret_cast<Bytef*>(out.data());
      stream_.avail_out = static_cast<uInt>(out.size());
      const int result = inflate(&stream_, Z_NO_FLUSH);
      const std::size_t made = out.size() - stream_.avail_out;
      made_ += made;
      if (made_ > most_) {  // before a fault behind it, so that the answer does not depend on how the bytes arrived
        return absl::ResourceExhaustedError(
            fmt::format("Received message larger than max (more than {} when decompressed vs. {})", most_, most_));
      }
      if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) return Bad("it is no such stream");
      RETURN_IF_ERROR(call.Add(std::span(out).first(made)));
      ended_ = result == Z_STREAM_END;
      if (!ended_ && stream_.avail_out != 0) return absl::OkStatus();  // wants more input
    }
  }

  absl::Status End() const { return ended_ ? absl::OkStatus() : Bad("it is cut short"); }

 private:
  static absl::Status Bad(std::string_view why) {
    return absl::InvalidArgumentError(fmt::format("a message cannot be decompressed: {}", why));
  }

  z_stream stream_{};
  bool open_ = false;
  bool ended_ = false;
  std::uint64_t most_ = 0;
  std::uint64_t made_ = 0;
};

GrpcMessageDecoder::GrpcMessageDecoder(std::uint64_t max_message_bytes) : max_message_bytes_(max_message_bytes) {}
GrpcMessageDecoder::~GrpcMessageDecoder() = default;

absl::Status GrpcMessageDecoder::BeginMessage(GrpcCall& call) {
  const auto flag = static_cast<unsigned>(prefix_[0]);
  left_ = 0;
  for (std::size_t i = 1; i < sizeof(prefix_); ++i) left_ = left_ << 8 | static_cast<std::uint64_t>(prefix_[i]);
  if (flag > 1) return absl::InternalError(fmt::format("invalid compression flag {} in front of a message", flag));
  if (left_ > max_message_bytes_) {
    return absl::ResourceExhaustedError(
        fmt::format("Received message larger than max ({} vs. {})", left_, max_message_bytes_));
  }
  compressed_ = flag == 1;
  if (!compressed_) return call.BeginMessage(static_cast<std::size_t>(left_));
  if (!coding_ || *coding_ == ContentCoding::kIdentity) {
    return absl::InternalError("a message is compressed, but grpc-encoding names no compression");
  }
  // zlib makes at most 1032 bytes of one.
  const std::uint64_t most = std::min(max_message_bytes_, left_ * 1032);
  if (inflater_ == nullptr) inflater_ = std::make_unique<MessageInflater>();
  RETURN_IF_ERROR(inflater_->Begin(*coding_, most));
  return call.BeginMessage(static_cast<std::size_t>(most));
}

absl::Status GrpcMessageDecoder::Take(std::span<const std::byte>& data, GrpcCall& call) {
  if (prefix_bytes_ < sizeof(prefix_)) {
    const std::size_t size = std::min(sizeof(prefix_) - prefix_bytes_, data.size());
    std::copy_n(data.begin(), size, prefix_ + prefix_bytes_);
    prefix_bytes_ += size;
    data = data.subspan(size);
    if (prefix_bytes_ < sizeof(prefix_)) return absl::OkStatus();
    RETURN_IF_ERROR(BeginMessage(call));
  }
  const std::size_t size = static_cast<std::size_t>(std::min<std::uint64_t>(left_, data.size()));
  if (size > 0) {
    RETURN_IF_ERROR(compressed_ ? inflater_->Add(data.first(size), call) : call.Add(data.first(size)));
    data = data.subspan(size);
    left_ -= size;
  }
  if (left_ > 0) return absl::OkStatus();
  prefix_bytes_ = 0;
  ++messages_;
  if (compressed_) RETURN_IF_ERROR(inflater_->End());
  return call.EndMessage();
}

}  // namespace tidemark
