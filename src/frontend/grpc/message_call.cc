#include "frontend/grpc/message_call.h"

#include "base/status.h"

namespace tidemark {

absl::Status NotOneMessage(std::string_view found) {
  return absl::InvalidArgumentError(fmt::format("a unary call has exactly one message, this one has {}", found));
}

absl::Status MessageGatherer::Add(std::span<const std::byte> bytes) {
  if (bytes.empty()) return absl::OkStatus();
  const std::size_t needed = size_ + bytes.size();
  if (needed > buffer_.capacity() || buffer_.empty()) {
    ASSIGN_OR_RETURN(Buffer larger, pool_.Allocate(std::min(std::max(needed, 2 * size_), std::max(most_, needed))));
    if (size_ > 0) std::memcpy(larger.data(), buffer_.data(), size_);
    buffer_ = std::move(larger);
  }
  std::memcpy(buffer_.data() + size_, bytes.data(), bytes.size());
  size_ = needed;
  return absl::OkStatus();
}

absl::Status UnaryCall::BeginMessage(std::size_t most) {
  if (std::exchange(begun_, true)) return NotOneMessage("more");
  gatherer_.Begin(most);
  return absl::OkStatus();
}

absl::Status UnaryCall::EndMessage() {
  Handle handle = std::move(handle_);
  handle(gatherer_.Take());
  return absl::OkStatus();
}

absl::Status UnaryCall::HalfClose() { return begun_ ? absl::OkStatus() : NotOneMessage("none"); }

}  // namespace tidemark
