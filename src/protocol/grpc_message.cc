#include "protocol/grpc_message.h"

namespace tidemark {

GrpcMessage GrpcMessage::OfText(std::string_view serialized) {
  GrpcMessage message;
  message.text_.reserve(kPrefix + serialized.size());
  message.Begin();
  message.text_ += serialized;
  message.Finish();
  return message;
}

GrpcMessage GrpcMessage::OfCompressed(Buffer compressed) {
  GrpcMessage message;
  message.Begin();
  message.Append(std::move(compressed));
  message.Finish();
  message.text_[message.begin_] = 1;
  return message;
}

void GrpcMessage::Begin(std::size_t wrap) {
  body_ = kPrefix + wrap;
  begin_ = 0;
  tensor_bytes_ = 0;
  parts_.clear();
  text_.assign(body_, '\0');
}

void GrpcMessage::Finish(std::string_view head) {
  begin_ = body_ - head.size() - kPrefix;
  text_.replace(begin_ + kPrefix, head.size(), head);
  const std::size_t length = size() - kPrefix;
  text_[begin_] = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    text_[begin_ + 1 + i] = static_cast<char>(static_cast<unsigned char>(length >> (24 - 8 * i)));
  }
}

std::span<const std::byte> GrpcMessage::piece(std::size_t index) const {
  if (index % 2 == 1) return parts_[index / 2].tensor.bytes();
  const std::size_t from = index == 0 ? begin_ : parts_[index / 2 - 1].text_end;
  const std::size_t to = index / 2 < parts_.size() ? parts_[index / 2].text_end : text_.size();
  return std::as_bytes(std::span(text_)).subspan(from, to - from);
}

}  // namespace tidemark
