#include <utility>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "frontend/grpc/service.h"
#include "frontend/model_queries.h"
#include "protocol/grpc_control.h"

namespace tidemark {
namespace {

absl::Status NoRepositoryName(const std::string& name) {
  if (name.empty()) return absl::OkStatus();
  return absl::UnimplementedError("'repository_name' specification is not supported");
}

// Answers with an empty message of that type, or the error.
template <typename Response>
void AnswerEmpty(const GrpcResponder& responder, const absl::Status& status) {
  if (!status.ok()) return responder.Finish(status);
  responder.Answer(GrpcMessage::OfText(Response().SerializeAsString()));
}

absl::Status NoSharedMemory() {
  return absl::UnimplementedError(
      "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.");
}

}  // namespace

void GrpcService::Index(const inference::RepositoryIndexRequest& request, GrpcResponder responder) const {
  absl::Status status = NoRepositoryName(request.repository_name());
  status.Update(CheckServing(*parts_.lifecycle));
  if (!status.ok()) return responder.Finish(std::move(status));
  parts_.offload([lifecycle = parts_.lifecycle, ready = request.ready(), responder = std::move(responder)] {
    const absl::StatusOr<std::vector<IndexEntry>> entries = lifecycle->Index(ready);
    if (!entries.ok()) return responder.Finish(entries.status());
    inference::RepositoryIndexResponse response;
    for (const IndexEntry& entry : *entries) {
      inference::RepositoryIndexResponse::ModelIndex& model = *response.add_models();
      model.set_name(entry.name);
      model.set_version(entry.version);
      model.set_state(entry.state);
      model.set_reason(entry.reason);
    }
    responder.Answer(GrpcMessage::OfText(response.SerializeAsString()));
  });
}

void GrpcService::Load(inference::RepositoryModelLoadRequest& request, GrpcResponder responder) const {
  absl::Status status = NoRepositoryName(request.repository_name());
  status.Update(CheckServing(*parts_.lifecycle));
  if (!status.ok()) return responder.Finish(std::move(status));
  absl::StatusOr<LoadParameters> parameters = ReadLoadRequest(request);
  if (!parameters.ok()) return responder.Finish(parameters.status());
  LoadOverrides overrides;
  overrides.config_json = std::move(parameters->config);
  overrides.files = std::move(parameters->files);
  parts_.lifecycle->Load(request.model_name(), std::move(overrides),
                         [responder = std::move(responder)](absl::Status done) {
                           AnswerEmpty<inference::RepositoryModelLoadResponse>(responder, done);
                         });
}

void GrpcService::Unload(const inference::RepositoryModelUnloadRequest& request, GrpcResponder responder) const {
  absl::Status status = NoRepositoryName(request.repository_name());
  status.Update(CheckServing(*parts_.lifecycle));
  if (!status.ok()) return responder.Finish(std::move(status));
  const absl::StatusOr<bool> dependents = ReadUnloadRequest(request);
  if (!dependents.ok()) return responder.Finish(dependents.status());
  parts_.lifecycle->Unload(request.model_name(), *dependents, [responder = std::move(responder)](absl::Status done) {
    AnswerEmpty<inference::RepositoryModelUnloadResponse>(responder, done);
  });
}

absl::Status GrpcService::Log(const inference::LogSettingsRequest& request,
                              inference::LogSettingsResponse& response) const {
  if (!request.settings().empty()) {
    ASSIGN_OR_RETURN(const LogSettings settings, ReadLogSettings(request, GetLogSettings()));
    RETURN_IF_ERROR(SetLogSettings(settings));
  }
  FillLogSettings(GetLogSettings(), response);
  return absl::OkStatus();
}

absl::Status GrpcService::SystemStatus(const inference::SystemSharedMemoryStatusRequest& request,
                                       inference::SystemSharedMemoryStatusResponse& response) const {
  if (parts_.shared_memory == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<SharedMemoryInfo> regions, parts_.shared_memory->SystemStatus(request.name()));
  for (const SharedMemoryInfo& region : regions) {
    inference::SystemSharedMemoryStatusResponse::RegionStatus& out = (*response.mutable_regions())[region.name];
    out.set_name(region.name);
    out.set_key(region.key);
    out.set_offset(region.offset);
    out.set_byte_size(region.byte_size);
  }
  return absl::OkStatus();
}

absl::Status GrpcService::CudaStatus(const inference::CudaSharedMemoryStatusRequest& request,
                                     inference::CudaSharedMemoryStatusResponse& response) const {
  if (parts_.shared_memory == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<SharedMemoryInfo> regions, parts_.shared_memory->CudaStatus(request.name()));
  for (const SharedMemoryInfo& region : regions) {
    inference::CudaSharedMemoryStatusResponse::RegionStatus& out = (*response.mutable_regions())[region.name];
    out.set_name(region.name);
    out.set_device_id(static_cast<std::uint64_t>(region.device));
    out.set_byte_size(region.byte_size);
  }
  return absl::OkStatus();
}

// Opening and mapping may wait for the kernel or a driver: never on an event loop.
void GrpcService::RegisterSystem(const inference::SystemSharedMemoryRegisterRequest& request,
                                 GrpcResponder responder) const {
  const absl::Status allowed = parts_.shared_memory == nullptr ? NoSharedMemory() : parts_.shared_memory->Allowed();
  if (!allowed.ok()) return responder.Finish(allowed);
  parts_.offload([regions = parts_.shared_memory, request, responder = std::move(responder)] {
    AnswerEmpty<inference::SystemSharedMemoryRegisterResponse>(
        responder, regions->RegisterSystem(request.name(), request.key(), request.offset(), request.byte_size()));
  });
}

void GrpcService::RegisterCuda(const inference::CudaSharedMemoryRegisterRequest& request,
                               GrpcResponder responder) const {
  const absl::Status allowed = parts_.shared_memory == nullptr ? NoSharedMemory() : parts_.shared_memory->Allowed();
  if (!allowed.ok()) return responder.Finish(allowed);
  parts_.offload([regions = parts_.shared_memory, request, responder = std::move(responder)] {
    AnswerEmpty<inference::CudaSharedMemoryRegisterResponse>(
        responder, regions->RegisterCuda(request.name(), std::as_bytes(std::span(request.raw_handle())),
                                         static_cast<int>(std::min<std::int64_t>(request.device_id(), 1 << 20)),
                                         request.byte_size()));
  });
}

void GrpcService::UnregisterSystem(const inference::SystemSharedMemoryUnregisterRequest& request,
                                   GrpcResponder responder) const {
  const absl::Status allowed = parts_.shared_memory == nullptr ? NoSharedMemory() : parts_.shared_memory->Allowed();
  if (!allowed.ok()) return responder.Finish(allowed);
  parts_.offload([regions = parts_.shared_memory, name = request.name(), responder = std::move(responder)] {
    AnswerEmpty<inference::SystemSharedMemoryUnregisterResponse>(responder, regions->UnregisterSystem(name));
  });
}

void GrpcService::UnregisterCuda(const inference::CudaSharedMemoryUnregisterRequest& request,
                                 GrpcResponder responder) const {
  const absl::Status allowed = parts_.shared_memory == nullptr ? NoSharedMemory() : parts_.shared_memory->Allowed();
  if (!allowed.ok()) return responder.Finish(allowed);
  parts_.offload([regions = parts_.shared_memory, name = request.name(), responder = std::move(responder)] {
    AnswerEmpty<inference::CudaSharedMemoryUnregisterResponse>(responder, regions->UnregisterCuda(name));
  });
}

absl::Status GrpcService::Trace(const inference::TraceSettingRequest& request,
                                inference::TraceSettingResponse& response) const {
  const std::string& model = request.model_name();
  if (!model.empty()) {
    const absl::Status found = parts_.registry->Find(model, -1).status();
    if (!found.ok()) {
      if (!parts_.registry->Snapshot()->contains(model)) return found;
      return absl::InvalidArgumentError(fmt::format("Request for unknown model : {}", model));
    }
  }
  if (!request.settings().empty()) {
    ASSIGN_OR_RETURN(const TraceUpdate update, ReadTraceUpdate(request));
    RETURN_IF_ERROR(model.empty() ? parts_.tracer->settings().UpdateGlobal(update)
                                  : parts_.tracer->settings().UpdateModel(model, update));
  }
  FillTraceSettings(model.empty() ? parts_.tracer->settings().Global() : parts_.tracer->settings().OfModel(model),
                    response);
  return absl::OkStatus();
}

}  // namespace tidemark
