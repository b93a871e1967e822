// The gRPC front end.

#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "server/server.h"

namespace tidemark {

absl::Status Server::BuildGrpc(const std::vector<EventLoop*>& loops) {
  const ControlAccess& control = access_->control();
  const bool control_door = control.grpc || !control.grpc_unix_path.empty();
  if (!options_.allow_grpc && options_.grpc.unix_path.empty() && !control_door) return absl::OkStatus();
  RETURN_IF_ERROR(BuildGrpcTls());
  GrpcServiceOptions service;
  service.server_name = options_.id;
  service.server_version = TIDEMARK_VERSION;
  service.header_forward_pattern = options_.grpc_header_forward_pattern;
  service.compression_level = options_.grpc_compression_level;
  ASSIGN_OR_RETURN(grpc_service_,
                   GrpcService::Create(std::move(service), GrpcService::Parts{.registry = registry_.get(),
                                                                              .lifecycle = lifecycle_.get(),
                                                                              .buffers = buffers_.get(),
                                                                              .tracer = tracer_.get(),
                                                                              .shared_memory = shared_memory_.get(),
                                                                              .access = access_.get(),
                                                                              .memory_extension = true,
                                                                              .offload = offload_task_,
                                                                              .decode = decode_task_}));
  GrpcServerOptions grpc = options_.grpc;
  if (!options_.allow_grpc) grpc.port.reset();
  grpc.tls = grpc_tls_.get();
  ASSIGN_OR_RETURN(grpc_, GrpcServer::Create(std::move(grpc), loops, grpc_service_.get()));
  if (!control_door) return absl::OkStatus();
  GrpcServerOptions door = options_.grpc;
  door.port.reset();
  if (control.grpc) {
    door.address = control.grpc->host;
    door.port = control.grpc->port;
  }
  door.unix_path = control.grpc_unix_path;
  door.tls = grpc_tls_.get();
  ASSIGN_OR_RETURN(control_grpc_, GrpcServer::Create(std::move(door), loops, &grpc_service_->control_door()));
  return absl::OkStatus();
}

absl::Status Server::BuildGrpcTls() {
  TlsOptions tls = options_.grpc_tls;
  if (options_.grpc_use_tls || tls.mutual) {
    if (tls.certificate_path.empty() || tls.key_path.empty()) {
      return absl::InvalidArgumentError("--grpc-use-ssl needs --grpc-server-cert and --grpc-server-key");
    }
    if (tls.mutual && tls.root_path.empty()) {
      return absl::InvalidArgumentError("--grpc-use-ssl-mutual needs --grpc-root-cert");
    }
    tls.alpn = {"h2"};
    ASSIGN_OR_RETURN(grpc_tls_, TlsContext::Create(std::move(tls)));
  } else if (!tls.certificate_path.empty() || !tls.key_path.empty() || !tls.root_path.empty()) {
    LOG_WARNING("certificates of --grpc-… have no effect without --grpc-use-ssl");
  }
  return absl::OkStatus();
}

absl::Status Server::StartGrpc() {
  if (grpc_ != nullptr) {
    grpc_->Start();
    if (options_.allow_grpc) LOG_INFO("Started GRPCInferenceService at {}:{}", options_.grpc.address, grpc_->port());
    if (!options_.grpc.unix_path.empty()) LOG_INFO("Started GRPCInferenceService at unix:{}", options_.grpc.unix_path);
    RETURN_IF_ERROR(WritePortFile(options_.grpc_port_file, grpc_->port()));
  }
  if (control_grpc_ != nullptr) {
    control_grpc_->Start();
    const ControlAccess& control = access_->control();
    if (control.grpc)
      LOG_INFO("Started control GRPCInferenceService at {}:{}", control.grpc->host, control_grpc_->port());
    if (!control.grpc_unix_path.empty()) {
      LOG_INFO("Started control GRPCInferenceService at unix:{}", control.grpc_unix_path);
    }
  }
  return absl::OkStatus();
}

void Server::StopGrpc(std::chrono::milliseconds deadline) {
  if (grpc_ != nullptr) grpc_->Stop(deadline);
  if (control_grpc_ != nullptr) control_grpc_->Stop(deadline);
}

}  // namespace tidemark
