#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/access_policy.h"
#include "frontend/header_forwarder.h"
#include "frontend/http/infer_call.h"
#include "frontend/http/message.h"
#include "frontend/http/route_match.h"
#include "frontend/memory_report.h"
#include "frontend/shared_memory.h"
#include "frontend/worker_pool.h"
#include "inference/registry.h"
#include "lifecycle/lifecycle.h"
#include "observe/tracer.h"
#include "resource/buffer_pool.h"

namespace tidemark {

struct HttpRoutesOptions {
  std::string server_name = "triton";
  std::string server_version;
  std::size_t max_input_bytes = std::size_t{64} << 20;  // --http-max-input-size
  JsonLimits json = std::size_t{64} << 20;              // of tensors in JSON; its bytes are the same number
  bool allow_dashboard = true;                          // --allow-dashboard
  std::string header_forward_pattern;  // found in a header's name in any case: it becomes a parameter; empty: none
};

// Every HTTP route of the protocol (docs/compatibility.md lists them): takes requests from the transport, answers them
// from the registry, or hands them to a model or to the lifecycle, whose answers come from other threads. Never blocks.
//
// Thread-safe. Outlives the HTTP server that calls it; requests on their way may outlive it, as long as what is in
// Parts lives.
class HttpRoutes final : public HttpHandler {
 private:
  struct Private {};  // only Create can name it

 public:
  // All of them outlive the routes and every request.
  struct Parts {
    Registry* registry = nullptr;
    Lifecycle* lifecycle = nullptr;
    BufferPool* buffers = nullptr;
    const AccessPolicy* access = nullptr;
    Tracer* tracer = nullptr;
    SharedMemoryRegions* shared_memory = nullptr;
    MemoryReport* memory = nullptr;  // may be null: then there is no memory extension and no dashboard
    // Runs what may block (disk) on another thread.
    std::function<void(absl::AnyInvocable<void()>)> offload;
    // Runs what takes long but never blocks on another thread; nothing that was given to it is left when the routes die.
    // Null: on the caller's.
    std::function<void(absl::AnyInvocable<void()>)> decode;
  };

  HttpRoutes(Private, HttpRoutesOptions options, Parts parts);
  // INVALID_ARGUMENT for a pattern that is none.
  static absl::StatusOr<std::unique_ptr<HttpRoutes>> Create(HttpRoutesOptions options, Parts parts);

  void Handle(HttpRequest& request, ResponseSender sender) override {
    HandleAt(Door::kService, request, std::move(sender));
  }
  // The same for connections to a control door (--control-access).
  HttpHandler& control_door() { return control_door_; }

 private:
  class ControlDoor final : public HttpHandler {
   public:
    explicit ControlDoor(HttpRoutes* routes) : routes_(*routes) {}
    void Handle(HttpRequest& request, ResponseSender sender) override {
      routes_.HandleAt(Door::kControl, request, std::move(sender));
    }

   private:
    HttpRoutes& routes_;
  };

  void HandleAt(Door door, HttpRequest& request, ResponseSender sender);
  void Dispatch(const RouteMatch& match, HttpRequest& request, ResponseSender sender);

  void Live(ResponseSender sender) const;
  void Ready(const HttpRequest& request, ResponseSender sender) const;
  void ModelReady(const RouteMatch& match, ResponseSender sender) const;
  void ModelMetadata(const RouteMatch& match, ResponseSender sender) const;
  void ModelConfig(const RouteMatch& match, ResponseSender sender) const;
  void Statistics(const RouteMatch& match, ResponseSender sender) const;

  void Memory(ResponseSender sender) const;
  void ModelMemory(const RouteMatch& match, ResponseSender sender) const;
  void Dashboard(ResponseSender sender) const;

  void Index(HttpRequest& request, ResponseSender sender) const;
  void Load(const RouteMatch& match, HttpRequest& request, ResponseSender sender) const;
  void Unload(const RouteMatch& match, HttpRequest& request, ResponseSender sender) const;

  void Logging(HttpRequest& request, ResponseSender sender) const;
  void Trace(const RouteMatch& match, HttpRequest& request, ResponseSender sender);
  void SharedMemoryStatus(const RouteMatch& match, ResponseSender sender) const;
  void RegisterSharedMemory(const RouteMatch& match, HttpRequest& request, ResponseSender sender) const;
  void UnregisterSharedMemory(const RouteMatch& match, ResponseSender sender) const;

  void Infer(const RouteMatch& match, HttpRequest& request, ResponseSender sender);
  // The part of Infer that grows with the body; on a decoder for large ones. `call` has its model.
  void DecodeAndSubmit(HttpRequest& request, std::unique_ptr<InferCall> call, ResponseSender sender,
                       bool on_loop) const;
  void Generate(const RouteMatch& match, HttpRequest& request, ResponseSender sender);
  // The same for Generate; `events`: of generate_stream.
  void DecodeAndGenerate(HttpRequest& request, std::unique_ptr<InferenceRequest> inference, ResponseSender sender,
                         bool events, bool on_loop) const;
  // Makes a decoded request a traced one when it is its turn.
  void StartTrace(const HttpRequest& request, const ModelInfo& info, InferenceRequest& inference) const;
  absl::Status ForwardHeaders(const HttpRequest& request, InferenceRequest& inference) const;

  // UNAVAILABLE "Server not ready" unless the server serves.
  absl::Status Serving() const;
  absl::StatusOr<ModelHandle> FindModel(const RouteMatch& match) const;

  ControlDoor control_door_{this};
  const HttpRoutesOptions options_;
  const Parts parts_;
  const std::string server_metadata_;
  HeaderForwarder forward_;
  const std::shared_ptr<InferCallPool> calls_;  // last owner: the routes, or the last request on its way
};

// Shared by the routes' files.
namespace http {

// JSON beyond this is decoded by Parts::decode: it takes some 0.2 ms, in which a loop would serve nobody else.
inline constexpr std::size_t kLongJsonBytes = kLongDecodeBytes;
inline constexpr std::string_view kJson = "application/json";

void SendEmpty(ResponseSender sender, std::string_view content_type = {});
void SendJson(ResponseSender sender, std::string body);
void SendError(ResponseSender sender, const absl::Status& status, std::string_view content_type = kJson);
// For a decision that does not allow.
void SendDenial(ResponseSender sender, const AccessDecision& decision);

}  // namespace http
}  // namespace tidemark
