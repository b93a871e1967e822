#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/access_policy.h"
#include "frontend/grpc/call.h"
#include "frontend/grpc/infer_calls.h"
#include "frontend/header_forwarder.h"
#include "frontend/shared_memory.h"
#include "inference/registry.h"
#include "lifecycle/lifecycle.h"
#include "observe/tracer.h"
#include "protocol/grpc_control.h"
#include "resource/buffer_pool.h"

namespace tidemark {

struct GrpcServiceOptions {
  std::string server_name = "triton";
  std::string server_version;
  std::string header_forward_pattern;  // see HeaderForwarder; empty: none
  int compression_level = 0;           // zlib's, of inference answers to clients that accept them; 0: none
};

// Every rpc that is served (docs/compatibility.md lists them): inference.GRPCInferenceService, grpc.health.v1.Health and
// server reflection. Takes calls from the transport and answers them from the registry, or hands them to a model or to the
// lifecycle, whose answers come from other threads. Never blocks.
//
// Thread-safe. Outlives the gRPC server that calls it; calls on their way may outlive it, as long as what is in Parts
// lives.
class GrpcService final : public GrpcHandler {
 private:
  struct Private {};  // only Create can name it

 public:
  // All of them outlive the service and every call.
  struct Parts {
    Registry* registry = nullptr;
    Lifecycle* lifecycle = nullptr;
    BufferPool* buffers = nullptr;
    Tracer* tracer = nullptr;
    SharedMemoryRegions* shared_memory = nullptr;  // may be null: clients may not register any
    const AccessPolicy* access = nullptr;
    bool memory_extension = false;  // HTTP serves it: then it is listed here, too
    // Runs what may block (disk) on another thread.
    std::function<void(absl::AnyInvocable<void()>)> offload;
    // Runs what takes long without blocking (large inference requests); may be empty.
    std::function<void(absl::AnyInvocable<void()>)> decode;
  };

  // INVALID_ARGUMENT for a pattern that is none.
  static absl::StatusOr<std::unique_ptr<GrpcService>> Create(GrpcServiceOptions options, Parts parts);
  GrpcService(Private, GrpcServiceOptions options, Parts parts, HeaderForwarder forwarder);

  Begun Begin(GrpcCallHead& head, GrpcResponder responder) override {
    return BeginAt(Door::kService, head, std::move(responder));
  }
  // The same for connections to a control door (--control-access).
  GrpcHandler& control_door() { return control_door_; }

 private:
  class ControlDoor final : public GrpcHandler {
   public:
    explicit ControlDoor(GrpcService* service) : service_(*service) {}
    Begun Begin(GrpcCallHead& head, GrpcResponder responder) override {
      return service_.BeginAt(Door::kControl, head, std::move(responder));
    }

   private:
    GrpcService& service_;
  };

  struct Rpc;
  static const std::map<std::string_view, Rpc>& Table();

  Begun BeginAt(Door door, GrpcCallHead& head, GrpcResponder responder);
  // A unary call that `method` answers at once, on the loop.
  template <auto method>
  Begun BeginUnary(GrpcCallHead& head, GrpcResponder responder);
  // A unary call that `method` answers when it can, through the responder; called on another thread for a long message.
  template <auto method>
  Begun BeginLater(GrpcCallHead& head, GrpcResponder responder);

  absl::Status ServerLive(const inference::ServerLiveRequest& request, inference::ServerLiveResponse& response) const;
  absl::Status ServerReady(const inference::ServerReadyRequest& request,
                           inference::ServerReadyResponse& response) const;
  absl::Status ModelReady(const inference::ModelReadyRequest& request, inference::ModelReadyResponse& response) const;
  absl::Status ServerMetadata(const inference::ServerMetadataRequest& request,
                              inference::ServerMetadataResponse& response) const;
  absl::Status ModelMetadata(const inference::ModelMetadataRequest& request,
                             inference::ModelMetadataResponse& response) const;
  absl::Status ModelConfig(const inference::ModelConfigRequest& request,
                           inference::ModelConfigResponse& response) const;
  absl::Status ModelStatistics(const inference::ModelStatisticsRequest& request,
                               inference::ModelStatisticsResponse& response) const;
  absl::Status Trace(const inference::TraceSettingRequest& request, inference::TraceSettingResponse& response) const;
  absl::Status Log(const inference::LogSettingsRequest& request, inference::LogSettingsResponse& response) const;
  absl::Status Check(const grpc::health::v1::HealthCheckRequest& request,
                     grpc::health::v1::HealthCheckResponse& response) const;

  void Index(const inference::RepositoryIndexRequest& request, GrpcResponder responder) const;
  void Load(inference::RepositoryModelLoadRequest& request, GrpcResponder responder) const;
  void Unload(const inference::RepositoryModelUnloadRequest& request, GrpcResponder responder) const;

  absl::Status SystemStatus(const inference::SystemSharedMemoryStatusRequest& request,
                            inference::SystemSharedMemoryStatusResponse& response) const;
  absl::Status CudaStatus(const inference::CudaSharedMemoryStatusRequest& request,
                          inference::CudaSharedMemoryStatusResponse& response) const;
  void RegisterSystem(const inference::SystemSharedMemoryRegisterRequest& request, GrpcResponder responder) const;
  void RegisterCuda(const inference::CudaSharedMemoryRegisterRequest& request, GrpcResponder responder) const;
  void UnregisterSystem(const inference::SystemSharedMemoryUnregisterRequest& request, GrpcResponder responder) const;
  void UnregisterCuda(const inference::CudaSharedMemoryUnregisterRequest& request, GrpcResponder responder) const;

  InferCallMetadata ReadInferMetadata(const GrpcCallHead& head) const;
  Begun Infer(GrpcCallHead& head, GrpcResponder responder);
  Begun StreamInfer(GrpcCallHead& head, GrpcResponder responder);
  Begun Watch(GrpcCallHead& head, GrpcResponder responder);
  Begun ReflectV1(GrpcCallHead& head, GrpcResponder responder);
  Begun ReflectV1Alpha(GrpcCallHead& head, GrpcResponder responder);

  ControlDoor control_door_{this};
  const GrpcServiceOptions options_;
  const Parts parts_;
  const HeaderForwarder forwarder_;
  InferContext infer_;
};

}  // namespace tidemark
