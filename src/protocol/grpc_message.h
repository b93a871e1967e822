#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "resource/buffer_pool.h"

namespace tidemark {

// One message on its way out, framed for gRPC: a compression flag, a 4-byte big-endian length, and the message's bytes, of
// which tensors stay where they are. Move-only. Not thread-safe.
class GrpcMessage {
 public:
  static constexpr std::size_t kPrefix = 5;

  GrpcMessage() = default;
  // An uncompressed message, serialised already.
  static GrpcMessage OfText(std::string_view serialized);
  // One whole message that was compressed.
  static GrpcMessage OfCompressed(Buffer compressed);

  // Text written here becomes the message's next bytes. Call Begin first and Finish last.
  std::string& text() { return text_; }
  // Makes room for the prefix and for `wrap` bytes between it and what is written.
  void Begin(std::size_t wrap = 0);
  // A tensor, in its place behind the text that stands so far.
  void Append(Buffer tensor) {
    tensor_bytes_ += tensor.size();
    parts_.push_back({text_.size(), std::move(tensor)});
  }
  // Bytes since Begin, without prefix and wrap.
  std::size_t body_bytes() const { return text_.size() - body_ + tensor_bytes_; }
  // Puts `head` (at most `wrap` bytes) in front of what was written, and the prefix in front of that.
  void Finish(std::string_view head = {});

  // `owner` lives as long as this message, which is until the last of it has been handed to the socket or copied.
  void KeepUntilSent(std::shared_ptr<const void> owner) { kept_ = std::move(owner); }

  // Bytes on the wire, prefix included.
  std::size_t size() const { return text_.size() - begin_ + tensor_bytes_; }
  // The pieces in order: text and tensors by turns; some may be empty.
  std::size_t pieces() const { return 2 * parts_.size() + 1; }
  std::span<const std::byte> piece(std::size_t index) const;

 private:
  struct Part {
    std::size_t text_end;  // the text up to here goes before the tensor
    Buffer tensor;
  };

  std::string text_;
  std::size_t begin_ = 0;  // where the prefix begins in text_
  std::size_t body_ = 0;   // where the body begins in text_
  std::size_t tensor_bytes_ = 0;
  absl::InlinedVector<Part, 2> parts_;
  std::shared_ptr<const void> kept_;  // last owner: this
};

}  // namespace tidemark
