#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "frontend/grpc/call.h"
#include "resource/buffer_pool.h"

namespace tidemark {

// Gathers whole messages. Of the loop's thread.
class MessageGatherer {
 public:
  explicit MessageGatherer(BufferPool& pool) : pool_(pool) {}

  void Begin(std::size_t most) {
    most_ = most;
    size_ = 0;
    buffer_.Reset();
  }
  // RESOURCE_EXHAUSTED when the pool is empty.
  absl::Status Add(std::span<const std::byte> bytes);
  // The message; empty for one without bytes.
  Buffer Take() {
    if (!buffer_.empty()) buffer_.Truncate(size_);
    return std::move(buffer_);
  }

 private:
  BufferPool& pool_;
  Buffer buffer_;
  std::size_t most_ = 0;
  std::size_t size_ = 0;
};

// A unary call whose message is small or rare enough to be gathered first: everything but inference.
class UnaryCall final : public GrpcCall {
 public:
  using Handle = absl::AnyInvocable<void(Buffer message)>;

  // `handle` is called once, with the whole message.
  UnaryCall(BufferPool& pool, Handle handle) : gatherer_(pool), handle_(std::move(handle)) {}

  absl::Status BeginMessage(std::size_t most) override;
  absl::Status Add(std::span<const std::byte> bytes) override { return gatherer_.Add(bytes); }
  absl::Status EndMessage() override;
  absl::Status HalfClose() override;
  void Cancel() override {}

 private:
  MessageGatherer gatherer_;
  Handle handle_;
  bool begun_ = false;
};

// The error of a unary call with another number of messages than one.
absl::Status NotOneMessage(std::string_view found);

}  // namespace tidemark
