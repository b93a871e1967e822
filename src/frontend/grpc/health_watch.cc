#include <optional>
#include <utility>

#include "frontend/grpc/message_call.h"
#include "frontend/grpc/service.h"

namespace tidemark {
namespace {

using grpc::health::v1::HealthCheckResponse;

// Tells the state of the server now and whenever it has changed; looks twice a second.
class WatchCall final : public GrpcCall {
 public:
  WatchCall(EventLoop* loop, const Lifecycle& lifecycle, GrpcResponder responder)
      : loop_(loop), lifecycle_(lifecycle), responder_(std::move(responder)), timer_(loop, [this] { Look(); }) {}

  absl::Status BeginMessage(std::size_t most) override {
    constexpr std::size_t kLongest = 64 << 10;
    if (most > kLongest) return absl::ResourceExhaustedError("a health request is too long");
    return std::exchange(begun_, true) ? NotOneMessage("more") : absl::OkStatus();
  }
  absl::Status Add(std::span<const std::byte> /*service*/) override { return absl::OkStatus(); }
  absl::Status EndMessage() override {
    Look();
    return absl::OkStatus();
  }
  absl::Status HalfClose() override { return begun_ ? absl::OkStatus() : NotOneMessage("none"); }
  void Cancel() override { timer_.Clear(); }

 private:
  void Look() {
    constexpr std::int64_t kInterval = 500'000'000;
    const auto status = lifecycle_.Ready() ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
    if (told_ != status) {
      told_ = status;
      HealthCheckResponse response;
      response.set_status(status);
      responder_.Send(GrpcMessage::OfText(response.SerializeAsString()));
    }
    if (lifecycle_.state() == ServerState::kExiting) return responder_.Finish(absl::UnavailableError("Server exiting"));
    timer_.Set(loop_->now() + kInterval);
  }

  EventLoop* const loop_;
  const Lifecycle& lifecycle_;
  const GrpcResponder responder_;
  EventLoop::Timer timer_;
  bool begun_ = false;
  std::optional<HealthCheckResponse::ServingStatus> told_;
};

}  // namespace

GrpcHandler::Begun GrpcService::Watch(GrpcCallHead& head, GrpcResponder responder) {
  Begun begun;
  begun.call = std::make_unique<WatchCall>(head.loop, *parts_.lifecycle, std::move(responder));
  return begun;
}

}  // namespace tidemark
