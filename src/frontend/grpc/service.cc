#include "frontend/grpc/service.h"

#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "frontend/grpc/message_call.h"
#include "frontend/model_queries.h"
#include "protocol/documents.h"

namespace tidemark {
namespace {

// Messages above this are read off the event loop.
constexpr std::size_t kLongMessage = 64 << 10;

template <typename Request>
absl::Status Parse(const Buffer& message, Request& request) {
  if (request.ParseFromArray(message.data(), static_cast<int>(message.size()))) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("the request is no {}", Request::descriptor()->full_name()));
}

// The types of a method's arguments.
template <typename Method>
struct ArgumentsOf;
template <typename Request, typename Response>
struct ArgumentsOf<absl::Status (GrpcService::*)(const Request&, Response&) const> {
  using RequestType = Request;
  using ResponseType = Response;
};
template <typename Request>
struct ArgumentsOf<void (GrpcService::*)(Request&, GrpcResponder) const> {
  using RequestType = std::remove_const_t<Request>;
};

}  // namespace

struct GrpcService::Rpc {
  ApiCategory category;
  Begun (GrpcService::*begin)(GrpcCallHead&, GrpcResponder);
};

const std::map<std::string_view, GrpcService::Rpc>& GrpcService::Table() {
  using S = GrpcService;
  static const std::map<std::string_view, Rpc> kTable = {
      {"/inference.GRPCInferenceService/ServerLive", {ApiCategory::kHealth, &S::BeginUnary<&S::ServerLive>}},
      {"/inference.GRPCInferenceService/ServerReady", {ApiCategory::kHealth, &S::BeginUnary<&S::ServerReady>}},
      {"/inference.GRPCInferenceService/ModelReady", {ApiCategory::kHealth, &S::BeginUnary<&S::ModelReady>}},
      {"/inference.GRPCInferenceService/ServerMetadata", {ApiCategory::kMetadata, &S::BeginUnary<&S::ServerMetadata>}},
      {"/inference.GRPCInferenceService/ModelMetadata", {ApiCategory::kMetadata, &S::BeginUnary<&S::ModelMetadata>}},
      {"/inference.GRPCInferenceService/ModelInfer", {ApiCategory::kInference, &S::Infer}},
      {"/inference.GRPCInferenceService/ModelStreamInfer", {ApiCategory::kInference, &S::StreamInfer}},
      {"/inference.GRPCInferenceService/ModelConfig", {ApiCategory::kModelConfig, &S::BeginUnary<&S::ModelConfig>}},
      {"/inference.GRPCInferenceService/ModelStatistics",
       {ApiCategory::kStatistics, &S::BeginUnary<&S::ModelStatistics>}},
      {"/inference.GRPCInferenceService/RepositoryIndex", {ApiCategory::kModelRepository, &S::BeginLater<&S::Index>}},
      {"/inference.GRPCInferenceService/RepositoryModelLoad",
       {ApiCategory::kModelRepository, &S::BeginLater<&S::Load>}},
      {"/inference.GRPCInferenceService/RepositoryModelUnload",
       {ApiCategory::kModelRepository, &S::BeginLater<&S::Unload>}},
      {"/inference.GRPCInferenceService/SystemSharedMemoryStatus",
       {ApiCategory::kSharedMemory, &S::BeginUnary<&S::SystemStatus>}},
      {"/inference.GRPCInferenceService/SystemSharedMemoryRegister",
       {ApiCategory::kSharedMemory, &S::BeginLater<&S::RegisterSystem>}},
      {"/inference.GRPCInferenceService/SystemSharedMemoryUnregister",
       {ApiCategory::kSharedMemory, &S::BeginLater<&S::UnregisterSystem>}},
      {"/inference.GRPCInferenceService/CudaSharedMemoryStatus",
       {ApiCategory::kSharedMemory, &S::BeginUnary<&S::CudaStatus>}},
      {"/inference.GRPCInferenceService/CudaSharedMemoryRegister",
       {ApiCategory::kSharedMemory, &S::BeginLater<&S::RegisterCuda>}},
      {"/inference.GRPCInferenceService/CudaSharedMemoryUnregister",
       {ApiCategory::kSharedMemory, &S::BeginLater<&S::UnregisterCuda>}},
      {"/inference.GRPCInferenceService/TraceSetting", {ApiCategory::kTrace, &S::BeginUnary<&S::Trace>}},
      {"/inference.GRPCInferenceService/LogSettings", {ApiCategory::kLogging, &S::BeginUnary<&S::Log>}},
      {"/grpc.health.v1.Health/Check", {ApiCategory::kHealth, &S::BeginUnary<&S::Check>}},
      {"/grpc.health.v1.Health/Watch", {ApiCategory::kHealth, &S::Watch}},
      {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", {ApiCategory::kMetadata, &S::ReflectV1}},
      {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", {ApiCategory::kMetadata, &S::ReflectV1Alpha}},
  };
  return kTable;
}

absl::StatusOr<std::unique_ptr<GrpcService>> GrpcService::Create(GrpcServiceOptions options, Parts parts) {
  ASSIGN_OR_RETURN(HeaderForwarder forwarder,
                   HeaderForwarder::Create(options.header_forward_pattern, "grpc-header-forward-pattern"));
  return std::make_unique<GrpcService>(Private(), std::move(options), std::move(parts), std::move(forwarder));
}

GrpcService::GrpcService(Private /*only Create*/, GrpcServiceOptions options, Parts parts, HeaderForwarder forwarder)
    : options_(std::move(options)), parts_(std::move(parts)), forwarder_(std::move(forwarder)) {
  infer_.registry = parts_.registry;
  infer_.lifecycle = parts_.lifecycle;
  infer_.buffers = parts_.buffers;
  infer_.regions = parts_.shared_memory;
  infer_.tracer = parts_.tracer;
  infer_.compression_level = options_.compression_level;
  infer_.decode = parts_.decode;
  infer_.requests = std::make_shared<InferRequestPool>();
}

GrpcHandler::Begun GrpcService::BeginAt(Door door, GrpcCallHead& head, GrpcResponder responder) {
  const auto rpc = Table().find(head.path);
  if (rpc == Table().end()) {
    responder.Finish(absl::UnimplementedError(fmt::format("there is no method '{}'", head.path)));
    return {};
  }
  const ApiCategory category = rpc->second.category;
  const AccessDecision access = parts_.access->Check(Protocol::kGrpc, door, category,
                                                     [&](std::string_view name) { return head.metadata.Find(name); });
  if (!access.allowed()) {
    responder.Finish(access.status());
    return {};
  }
  if (!access.caller.empty() && parts_.access->IsControl(category)) {
    LOG_INFO("API key '{}': {}", access.caller, head.path);
  }
  return (this->*rpc->second.begin)(head, std::move(responder));
}

template <auto method>
GrpcHandler::Begun GrpcService::BeginUnary(GrpcCallHead& /*head*/, GrpcResponder responder) {
  Begun begun;
  begun.call = std::make_unique<UnaryCall>(*parts_.buffers, [this, responder = std::move(responder)](Buffer message) {
    typename ArgumentsOf<decltype(method)>::RequestType request;
    typename ArgumentsOf<decltype(method)>::ResponseType response;
    absl::Status status = Parse(message, request);
    if (status.ok()) status = (this->*method)(request, response);
    if (!status.ok()) return responder.Finish(std::move(status));
    responder.Answer(GrpcMessage::OfText(response.SerializeAsString()));
  });
  return begun;
}

template <auto method>
GrpcHandler::Begun GrpcService::BeginLater(GrpcCallHead& /*head*/, GrpcResponder responder) {
  Begun begun;
  begun.call = std::make_unique<UnaryCall>(*parts_.buffers, [this, responder = std::move(responder)](Buffer message) {
    const auto run = [this, responder](const Buffer& bytes) {
      typename ArgumentsOf<decltype(method)>::RequestType request;
      if (absl::Status status = Parse(bytes, request); !status.ok()) return responder.Finish(std::move(status));
      (this->*method)(request, responder);
    };
    if (message.size() <= kLongMessage) return run(message);
    parts_.offload([run, bytes = std::move(message)] { run(bytes); });
  });
  return begun;
}

absl::Status GrpcService::ServerLive(const inference::ServerLiveRequest& /*request*/,
                                     inference::ServerLiveResponse& response) const {
  RETURN_IF_ERROR(CheckNotExiting(*parts_.lifecycle));
  response.set_live(true);
  return absl::OkStatus();
}

absl::Status GrpcService::ServerReady(const inference::ServerReadyRequest& /*request*/,
                                      inference::ServerReadyResponse& response) const {
  RETURN_IF_ERROR(CheckNotExiting(*parts_.lifecycle));
  response.set_ready(parts_.lifecycle->Ready());
  return absl::OkStatus();
}

absl::Status GrpcService::ModelReady(const inference::ModelReadyRequest& request,
                                     inference::ModelReadyResponse& response) const {
  ASSIGN_OR_RETURN(const bool ready,
                   IsModelReady(*parts_.registry, *parts_.lifecycle, request.name(), request.version()));
  response.set_ready(ready);
  return absl::OkStatus();
}

absl::Status GrpcService::ServerMetadata(const inference::ServerMetadataRequest& /*request*/,
                                         inference::ServerMetadataResponse& response) const {
  response.set_name(options_.server_name);
  response.set_version(options_.server_version);
  for (const std::string_view extension : ServedExtensions(parts_.memory_extension)) {
    response.add_extensions(std::string(extension));
  }
  return absl::OkStatus();
}

absl::Status GrpcService::ModelMetadata(const inference::ModelMetadataRequest& request,
                                        inference::ModelMetadataResponse& response) const {
  ASSIGN_OR_RETURN(const ModelHandle handle,
                   FindModel(*parts_.registry, *parts_.lifecycle, request.name(), request.version()));
  FillModelMetadata(handle->info(), ListedVersions(*parts_.registry, handle->info(), request.version()), response);
  return absl::OkStatus();
}

absl::Status GrpcService::ModelConfig(const inference::ModelConfigRequest& request,
                                      inference::ModelConfigResponse& response) const {
  ASSIGN_OR_RETURN(const ModelHandle handle,
                   FindModel(*parts_.registry, *parts_.lifecycle, request.name(), request.version()));
  *response.mutable_config() = handle->info().config();
  return absl::OkStatus();
}

absl::Status GrpcService::ModelStatistics(const inference::ModelStatisticsRequest& request,
                                          inference::ModelStatisticsResponse& response) const {
  return VisitStatistics(*parts_.registry, *parts_.lifecycle, request.name(), request.version(),
                         [&](std::string_view name, std::int64_t version, Model& model) {
                           FillModelStatistics(name, version, model.statistics().Snapshot(), MemoryUsageOf(model),
                                               *response.add_model_stats());
                         });
}

absl::Status GrpcService::Check(const grpc::health::v1::HealthCheckRequest& /*request*/,
                                grpc::health::v1::HealthCheckResponse& response) const {
  RETURN_IF_ERROR(CheckNotExiting(*parts_.lifecycle));
  response.set_status(parts_.lifecycle->Ready() ? grpc::health::v1::HealthCheckResponse::SERVING
                                                : grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  return absl::OkStatus();
}

GrpcHandler::Begun GrpcService::Infer(GrpcCallHead& head, GrpcResponder responder) {
  Begun begun;
  InferCallMetadata metadata = ReadInferMetadata(head);
  begun.response_coding = metadata.coding;
  begun.call = MakeInferCall(infer_, std::move(metadata), std::move(responder));
  return begun;
}

GrpcHandler::Begun GrpcService::StreamInfer(GrpcCallHead& head, GrpcResponder responder) {
  Begun begun;
  InferCallMetadata metadata = ReadInferMetadata(head);
  begun.response_coding = metadata.coding;
  begun.call = MakeStreamInferCall(infer_, std::move(metadata), std::move(responder));
  return begun;
}

InferCallMetadata GrpcService::ReadInferMetadata(const GrpcCallHead& head) const {
  const GrpcMetadata& metadata = head.metadata;
  InferCallMetadata read;
  read.deadline_nanos = head.deadline_nanos;
  if (options_.compression_level != 0) {
    read.coding = ChooseMessageCoding(metadata.Find("grpc-accept-encoding").value_or(""));
  }
  if (forwarder_.enabled()) {
    for (const auto& [name, value] : metadata.entries()) {
      read.forward_status.Update(forwarder_.Forward(name, value, read.forwarded));
    }
  }
  read.traceparent = metadata.Find("traceparent").value_or("");
  read.tracestate = metadata.Find("tracestate").value_or("");
  read.errors_end_stream = metadata.Find("triton_grpc_error").value_or("") == "true";
  return read;
}

}  // namespace tidemark
