#include <algorithm>
#include <cstring>
#include <utility>

#include "base/status.h"
#include "protocol/grpc_infer.h"
#include "protocol/protobuf_wire.h"

namespace tidemark {
namespace {

constexpr std::uint64_t kRawContents = 7;

absl::Status Malformed(std::string_view why) {
  return absl::InvalidArgumentError(fmt::format("the request is no ModelInferRequest: {}", why));
}

}  // namespace

void InferMessageReader::Begin(std::size_t most) {
  stage_ = Stage::kTag;
  most_ = most;
  left_ = 0;
  varint_ = 0;
  varint_bytes_ = 0;
  envelope_size_ = 0;
  raw_.clear();
  raw_filled_ = 0;
}

void InferMessageReader::Clear() {
  Begin(0);
  envelope_.Reset();
}

absl::Status InferMessageReader::Reserve(std::size_t more) {
  const std::size_t needed = envelope_size_ + more;
  if (needed <= envelope_.capacity()) return absl::OkStatus();
  ASSIGN_OR_RETURN(Buffer larger, pool_.Allocate(std::max(needed, 2 * envelope_size_)));
  if (envelope_size_ > 0) std::memcpy(larger.data(), envelope_.data(), envelope_size_);
  envelope_ = std::move(larger);
  return absl::OkStatus();
}

absl::Status InferMessageReader::Keep(std::span<const std::byte> bytes) {
  RETURN_IF_ERROR(Reserve(bytes.size()));
  if (!bytes.empty()) std::memcpy(envelope_.data() + envelope_size_, bytes.data(), bytes.size());
  envelope_size_ += bytes.size();
  return absl::OkStatus();
}

// A tag or a length is complete in varint_.
absl::Status InferMessageReader::HeadDone() {
  const std::uint64_t value = std::exchange(varint_, 0);
  varint_bytes_ = 0;
  if (stage_ == Stage::kLength) {
    if (value > most_) return Malformed("a field is longer than the message");
    left_ = static_cast<std::size_t>(value);
    return LengthDone();
  }
  tag_ = value;
  if (tag_ >> 3 == 0 || tag_ >> 32 != 0) return Malformed("a field has no valid number");
  const bool is_raw = tag_ >> 3 == kRawContents && (tag_ & 7) == 2;
  if (!is_raw) {
    std::byte head[5];
    std::size_t size = 0;
    for (std::uint64_t rest = tag_; size < sizeof(head); rest >>= 7) {
      head[size++] = static_cast<std::byte>((rest & 0x7F) | (rest >= 0x80 ? 0x80 : 0));
      if (rest < 0x80) break;
    }
    RETURN_IF_ERROR(Keep({head, size}));
  }
  switch (tag_ & 7) {
    case 0:
      stage_ = Stage::kVarint;
      return absl::OkStatus();
    case 1:
    case 5:
      stage_ = Stage::kEnvelope;
      left_ = (tag_ & 7) == 1 ? 8 : 4;
      return absl::OkStatus();
    case 2:
      stage_ = Stage::kLength;
      return absl::OkStatus();
    default:
      return Malformed("a field has an unknown type");
  }
}

absl::Status InferMessageReader::LengthDone() {
  if (tag_ >> 3 == kRawContents) {
    if (raw_.size() == kMaxRaw) {
      stage_ = left_ == 0 ? Stage::kTag : Stage::kSkip;
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(Buffer buffer, pool_.Allocate(left_));
    raw_.push_back(std::move(buffer));
    raw_filled_ = 0;
    stage_ = left_ == 0 ? Stage::kTag : Stage::kRaw;
    return absl::OkStatus();
  }
  std::byte head[10];
  std::size_t size = 0;
  for (std::size_t rest = left_; size < sizeof(head); rest >>= 7) {
    head[size++] = static_cast<std::byte>((rest & 0x7F) | (rest >= 0x80 ? 0x80 : 0));
    if (rest < 0x80) break;
  }
  RETURN_IF_ERROR(Keep({head, size}));
  RETURN_IF_ERROR(Reserve(left_));
  stage_ = left_ == 0 ? Stage::kTag : Stage::kEnvelope;
  return absl::OkStatus();
}

absl::Status InferMessageReader::Add(std::span<const std::byte> bytes) {
  if (bytes.size() > most_) return Malformed("it is longer than announced");
  while (!bytes.empty()) {
    if (left_ > 0) {
      const std::size_t size = std::min(left_, bytes.size());
      if (stage_ == Stage::kEnvelope) {
        RETURN_IF_ERROR(Keep(bytes.first(size)));
      } else if (stage_ == Stage::kRaw) {
        std::memcpy(raw_.back().data() + raw_filled_, bytes.data(), size);
        raw_filled_ += size;
      }
      left_ -= size;
      most_ -= size;
      bytes = bytes.subspan(size);
      if (left_ == 0) stage_ = Stage::kTag;
      continue;
    }
    const auto byte = static_cast<std::uint64_t>(bytes[0]);
    if (stage_ == Stage::kVarint) {
      RETURN_IF_ERROR(Keep(bytes.first(1)));
      ++varint_bytes_;
    } else {
      varint_ |= (byte & 0x7F) << (7 * varint_bytes_++);
    }
    --most_;
    bytes = bytes.subspan(1);
    const bool last = (byte & 0x80) == 0;
    if (varint_bytes_ == 10 && (!last || byte > 1)) return Malformed("a number is too long");
    if (!last) continue;
    if (stage_ == Stage::kVarint) {
      stage_ = Stage::kTag;
      varint_bytes_ = 0;
      continue;
    }
    RETURN_IF_ERROR(HeadDone());
  }
  return absl::OkStatus();
}

absl::Status InferMessageReader::Finish() const {
  if (stage_ == Stage::kTag && left_ == 0 && varint_bytes_ == 0) return absl::OkStatus();
  return Malformed("it ends inside a field");
}

absl::Status ReadInferEnvelope(std::span<const std::byte> bytes, InferEnvelope& envelope) {
  envelope.model_name = envelope.model_version = envelope.id = {};
  envelope.parameters.clear();
  envelope.inputs.clear();
  envelope.outputs.clear();
  WireReader reader(bytes);
  while (reader.Next()) {
    if (reader.type() != WireType::kLength) continue;
    switch (reader.field()) {
      case 1:
        envelope.model_name = reader.text();
        break;
      case 2:
        envelope.model_version = reader.text();
        break;
      case 3:
        envelope.id = reader.text();
        break;
      case 4:
        envelope.parameters.push_back(reader.bytes());
        break;
      case 5:
        envelope.inputs.push_back(reader.bytes());
        break;
      case 6:
        envelope.outputs.push_back(reader.bytes());
        break;
      default:
        break;
    }
  }
  if (!reader.ok()) return Malformed("a field is malformed");
  for (const auto& [name, text] : {std::pair<std::string_view, std::string_view>{"model_name", envelope.model_name},
                                   {"model_version", envelope.model_version},
                                   {"id", envelope.id}}) {
    if (!IsUtf8(text)) return Malformed(fmt::format("'{}' is no UTF-8", name));
  }
  return absl::OkStatus();
}

}  // namespace tidemark
