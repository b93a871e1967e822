#include <utility>

#include "base/status.h"
#include "frontend/grpc/message_call.h"
#include "frontend/grpc/service.h"
#include "protocol/reflection.h"

namespace tidemark {
namespace {

// Any number of messages, each answered at once.
class ReflectionCall final : public GrpcCall {
 public:
  ReflectionCall(BufferPool& pool, GrpcResponder responder, ReflectionVersion version)
      : gatherer_(pool), responder_(std::move(responder)), version_(version) {}

  absl::Status BeginMessage(std::size_t most) override {
    constexpr std::size_t kLongest = 64 << 10;  // names are short
    if (most > kLongest) return absl::ResourceExhaustedError("a reflection request is too long");
    gatherer_.Begin(most);
    return absl::OkStatus();
  }
  absl::Status Add(std::span<const std::byte> bytes) override { return gatherer_.Add(bytes); }
  absl::Status EndMessage() override {
    const Buffer message = gatherer_.Take();
    ASSIGN_OR_RETURN(const std::string answer, AnswerReflection(version_, message.bytes()));
    responder_.Send(GrpcMessage::OfText(answer));
    return absl::OkStatus();
  }
  absl::Status HalfClose() override {
    responder_.Finish(absl::OkStatus());
    return absl::OkStatus();
  }
  void Cancel() override {}

 private:
  MessageGatherer gatherer_;
  const GrpcResponder responder_;
  const ReflectionVersion version_;
};

}  // namespace

GrpcHandler::Begun GrpcService::ReflectV1(GrpcCallHead& /*head*/, GrpcResponder responder) {
  Begun begun;
  begun.call = std::make_unique<ReflectionCall>(*parts_.buffers, std::move(responder), ReflectionVersion::kV1);
  return begun;
}

GrpcHandler::Begun GrpcService::ReflectV1Alpha(GrpcCallHead& /*head*/, GrpcResponder responder) {
  Begun begun;
  begun.call = std::make_unique<ReflectionCall>(*parts_.buffers, std::move(responder), ReflectionVersion::kV1Alpha);
  return begun;
}

}  // namespace tidemark
