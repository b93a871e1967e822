#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "frontend/grpc/call.h"
#include "frontend/http/compression.h"

namespace tidemark {

class MessageInflater;

// Takes the DATA of one call apart into messages, decompresses them, and hands their bytes on as they come. Not
// thread-safe.
class GrpcMessageDecoder {
 public:
  explicit GrpcMessageDecoder(std::uint64_t max_message_bytes);
  ~GrpcMessageDecoder();

  // The coding of compressed messages, by the call's grpc-encoding; none: it named no coding.
  void set_coding(std::optional<ContentCoding> coding) { coding_ = coding; }

  // Takes bytes off the front of `data`; stops after a whole message, or when all are used. RESOURCE_EXHAUSTED for a
  // message beyond the limit, INTERNAL for bad framing, INVALID_ARGUMENT for what cannot be decompressed, or what `call`
  // returned.
  absl::Status Take(std::span<const std::byte>& data, GrpcCall& call);

  // Inside a message?
  bool inside() const { return prefix_bytes_ != 0; }
  std::size_t messages() const { return messages_; }

 private:
  absl::Status BeginMessage(GrpcCall& call);

  const std::uint64_t max_message_bytes_;
  std::optional<ContentCoding> coding_;
  std::size_t prefix_bytes_ = 0;  // received of the prefix of the message in hand; 0: between messages
  std::byte prefix_[5] = {};
  std::uint64_t left_ = 0;  // of the message in hand
  std::size_t messages_ = 0;
  bool compressed_ = false;
  std::unique_ptr<MessageInflater> inflater_;
};

}  // namespace tidemark
