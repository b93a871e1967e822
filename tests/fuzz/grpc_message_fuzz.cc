// The DATA of a call: the messages that come out are the same for every split of the bytes, and none passes its limit.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "frontend/grpc/message_decoder.h"

namespace {

constexpr std::uint64_t kMost = 4096;

void Require(bool condition) {
  if (!condition) std::abort();
}

struct Gatherer : tidemark::GrpcCall {
  std::vector<std::string> messages;
  std::string message;
  std::size_t most = 0;
  bool inside = false;

  absl::Status BeginMessage(std::size_t announced) override {
    Require(!inside && announced <= kMost);
    inside = true;
    most = announced;
    message.clear();
    return absl::OkStatus();
  }
  absl::Status Add(std::span<const std::byte> bytes) override {
    message.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    Require(inside && message.size() <= most);
    return absl::OkStatus();
  }
  absl::Status EndMessage() override {
    Require(inside);
    inside = false;
    messages.push_back(message);
    return absl::OkStatus();
  }
  absl::Status HalfClose() override { return absl::OkStatus(); }
  void Cancel() override {}
};

struct Decoded {
  std::vector<std::string> messages;
  std::string error;
  bool inside = false;
  bool operator==(const Decoded&) const = default;
};

Decoded Decode(std::string_view wire, std::size_t step, std::optional<tidemark::ContentCoding> coding) {
  tidemark::GrpcMessageDecoder decoder(kMost);
  decoder.set_coding(coding);
  Gatherer call;
  Decoded decoded;
  for (std::size_t at = 0; at < wire.size() && decoded.error.empty(); at += step) {
    const std::string_view piece = wire.substr(at, step);
    std::span<const std::byte> bytes = std::as_bytes(std::span(piece));
    while (!bytes.empty() && decoded.error.empty()) {
      const std::size_t before = bytes.size();
      const absl::Status status = decoder.Take(bytes, call);
      Require(!status.ok() || bytes.size() < before);
      if (!status.ok()) decoded.error = tidemark::MessageOf(status);
    }
  }
  Require(call.messages.size() == decoder.messages() || !decoded.error.empty());
  decoded.messages = std::move(call.messages);
  decoded.inside = decoder.inside();
  return decoded;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || size > 16384) return 0;
  const std::optional<tidemark::ContentCoding> codings[] = {std::nullopt, tidemark::ContentCoding::kIdentity,
                                                            tidemark::ContentCoding::kGzip,
                                                            tidemark::ContentCoding::kDeflate};
  const auto coding = codings[data[0] % 4];
  const std::size_t step = data[0] / 4 + 1u;
  const std::string_view wire(reinterpret_cast<const char*>(data + 1), size - 1);
  const Decoded whole = Decode(wire, wire.size(), coding);
  Require(whole == Decode(wire, step, coding));
  Require(whole == Decode(wire, 1, coding));
  return 0;
}
