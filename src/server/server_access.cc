// Who may reach what: certificates, API keys, the control door.

#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "server/server.h"

namespace tidemark {

absl::Status Server::BuildAccess() {
  ASSIGN_OR_RETURN(access_, AccessPolicy::Create(options_.access));
  TlsOptions tls = options_.http_tls;
  if (options_.http_use_tls || tls.mutual) {
    if (tls.certificate_path.empty() || tls.key_path.empty()) {
      return absl::InvalidArgumentError("--http-use-ssl needs --http-server-cert and --http-server-key");
    }
    if (tls.mutual && tls.root_path.empty()) {
      return absl::InvalidArgumentError("--http-use-ssl-mutual needs --http-root-cert");
    }
    tls.alpn = {"http/1.1"};
    ASSIGN_OR_RETURN(http_tls_, TlsContext::Create(std::move(tls)));
  } else if (!tls.certificate_path.empty() || !tls.key_path.empty() || !tls.root_path.empty()) {
    LOG_WARNING("certificates of --http-… have no effect without --http-use-ssl");
  }
  WarnOfExposure();
  return absl::OkStatus();
}

void Server::WarnOfExposure() const {
  if (!options_.access.control.is_open()) return;
  std::string addresses;
  if (options_.allow_http && !IsLoopback(options_.http_address)) {
    addresses = fmt::format("{}:{}", options_.http_address, options_.http_port);
  }
  const GrpcServerOptions& grpc = options_.grpc;
  if (options_.allow_grpc && !IsLoopback(grpc.address)) {
    addresses += fmt::format("{}{}:{}", addresses.empty() ? "" : " or ", grpc.address, grpc.port.value_or(0));
  }
  if (!IsLoopback(options_.http_address)) {
    const std::pair<bool, std::uint16_t> cloud[] = {
        {options_.sagemaker.allow, options_.sagemaker.port},
        {options_.vertex.allow.value_or(false), options_.vertex.port.value_or(0)}};
    for (const auto& [allowed, port] : cloud) {
      if (!allowed) continue;
      addresses += fmt::format("{}{}:{}", addresses.empty() ? "" : " or ", options_.http_address, port);
    }
  }
  if (addresses.empty()) return;
  LOG_WARNING(
      "control is reachable from other machines: whoever reaches {} may change log and trace settings, and load and "
      "unload models where --model-control-mode allows it; --control-access gives control a door or keys of its own",
      addresses);
}

// The HTTP control door (--control-access), bound but not started.
absl::Status Server::OpenControlDoor(const std::vector<EventLoop*>& loops) {
  const ControlAccess& control = access_->control();
  if (!control.http && control.unix_path.empty()) return absl::OkStatus();
  HttpServerOptions http;
  http.port.reset();
  if (control.http) {
    http.address = control.http->host;
    http.port = control.http->port;
  }
  http.unix_path = control.unix_path;
  http.tls = http_tls_.get();
  http.limits = options_.http_limits;
  ASSIGN_OR_RETURN(control_http_, HttpServer::Create(std::move(http), loops, &routes_->control_door(), buffers_.get()));
  if (control.http) LOG_INFO("Started control HTTPService at {}:{}", control.http->host, control_http_->port());
  if (!control.unix_path.empty()) LOG_INFO("Started control HTTPService at unix:{}", control.unix_path);
  return absl::OkStatus();
}

// The ports of SageMaker and Vertex AI, where they are allowed; bound but not started.
absl::Status Server::OpenCloudFrontEnds(const std::vector<EventLoop*>& loops) {
  ASSIGN_OR_RETURN(cloud_, CloudFrontEnds::Create(options_,
                                                  CloudFrontEnds::Parts{.registry = registry_.get(),
                                                                        .lifecycle = lifecycle_.get(),
                                                                        .repository = repository_.get(),
                                                                        .buffers = buffers_.get(),
                                                                        .access = access_.get(),
                                                                        .traces = &tracer_->settings(),
                                                                        .routes = routes_.get(),
                                                                        .metrics = observation_->metrics_handler(),
                                                                        .offload = offload_task_},
                                                  loops));
  return absl::OkStatus();
}

void Server::ReloadSecrets(bool all) {
  const auto reload = [all](auto* part, std::string_view what) {
    if (part == nullptr || (!all && !part->FilesChanged())) return;
    if (const absl::Status status = part->Reload(); !status.ok()) {
      LOG_ERROR("{} stay as they are: {}", what, MessageOf(status));
    } else {
      LOG_INFO("{} were read again", what);
    }
  };
  reload(http_tls_.get(), "the certificates of HTTPS");
  reload(grpc_tls_.get(), "the certificates of gRPC");
  if (!access_->control().keys_path.empty()) reload(access_.get(), "the API keys");
}

}  // namespace tidemark
