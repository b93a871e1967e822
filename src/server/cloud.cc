#include "server/cloud.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "frontend/model_queries.h"
#include "lifecycle/load_cause.h"
#include "server/observation.h"

namespace tidemark {
namespace {

bool Serves(const RegistryModel& model) {
  return std::any_of(model.versions.begin(), model.versions.end(),
                     [](const auto& version) { return version.second.state == VersionState::kReady; });
}

}  // namespace

absl::StatusOr<std::string> CloudFrontEnds::Default(const Registry& registry, const std::string& wanted,
                                                    std::string_view setting) {
  if (!wanted.empty()) return wanted;
  std::string only;
  int found = 0;
  const std::shared_ptr<const RegistrySnapshot> snapshot = registry.Snapshot();
  for (const auto& [key, model] : *snapshot) {
    if (!Serves(*model)) continue;
    only = model->name;
    ++found;
  }
  if (found == 1) return only;
  return absl::InvalidArgumentError(
      fmt::format("the request names no model: found {} models that are ready, expected one, or {}", found, setting));
}

CloudFrontEnds::CloudFrontEnds(Private /*only Create*/, const ServerOptions& options, Parts parts)
    : options_(options),
      parts_(std::move(parts)),
      sagemaker_routes_(SageMakerRoutes::Parts{
          .routes = parts_.routes,
          .access = parts_.access,
          .default_model =
              [registry = parts_.registry, wanted = options.sagemaker.default_model] {
                return Default(*registry, wanted, "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME");
              },
          .serving = [lifecycle = parts_.lifecycle] { return CheckServing(*lifecycle); },
          .mount =
              [repository = parts_.repository, explicit_mode = options.lifecycle.mode == ControlMode::kExplicit](
                  const std::string& name, const std::string& root) {
                // Elsewhere the load is refused, and a poll must not meet the model before that.
                return explicit_mode ? repository->Mount(name, root) : absl::OkStatus();
              },
          .unmount = [repository = parts_.repository](const std::string& name) { repository->Unmount(name); },
          .forget =
              [repository = parts_.repository, lifecycle = parts_.lifecycle, traces = parts_.traces](
                  const std::string& name, absl::AnyInvocable<void()> done) {
                repository->Unmount(name);
                lifecycle->Forget(name,
                                  [traces, done = std::move(done)](const std::vector<std::string>& names) mutable {
                                    for (const std::string& gone : names) traces->Forget(gone);
                                    done();
                                  });
              },
          .load =
              [lifecycle = parts_.lifecycle](const std::string& name, SageMakerRoutes::Done done) {
                lifecycle->Load(name, {}, [done = std::move(done)](const absl::Status& answer) mutable {
                  const bool no_room = CauseOf(answer) == absl::StatusCode::kResourceExhausted;
                  done(no_room ? absl::ResourceExhaustedError(answer.message()) : answer);
                });
              },
          .unload =
              [lifecycle = parts_.lifecycle](const std::string& name, SageMakerRoutes::Done done) {
                lifecycle->Unload(name, /*unload_dependents=*/true, std::move(done));
              },
          .is_ready =
              [registry = parts_.registry, lifecycle = parts_.lifecycle](std::string_view name) {
                return IsModelReady(*registry, *lifecycle, name, "").value_or(false);
              },
          .offload = parts_.offload,
          .max_json_bytes = options.http_max_input_size}),
      vertex_routes_(
          VertexRoutes::Options{.health_route = options.vertex.health_route,
                                .predict_route = options.vertex.predict_route},
          VertexRoutes::Parts{.routes = parts_.routes,
                              .metrics = parts_.metrics,
                              .default_model = [registry = parts_.registry, wanted = options.vertex.default_model] {
                                return Default(*registry, wanted, "--vertex-ai-default-model");
                              }}) {}

absl::StatusOr<std::unique_ptr<CloudFrontEnds>> CloudFrontEnds::Create(const ServerOptions& options, Parts parts,
                                                                       const std::vector<EventLoop*>& loops) {
  auto cloud = std::make_unique<CloudFrontEnds>(Private(), options, std::move(parts));
  RETURN_IF_ERROR(cloud->Open(loops));
  return cloud;
}

absl::Status CloudFrontEnds::Open(const std::vector<EventLoop*>& loops) {
  HttpServerOptions http;
  http.address = options_.http_address;
  http.limits = options_.http_limits;
  if (options_.sagemaker.allow) {
    http.port = options_.sagemaker.port;
    http.binary_type = kSageMakerBinary;
    ASSIGN_OR_RETURN(sagemaker_, HttpServer::Create(http, loops, &sagemaker_routes_, parts_.buffers));
  }
  if (options_.vertex.allow.value_or(false)) {
    http.port = options_.vertex.port;
    http.binary_type = kVertexBinary;
    ASSIGN_OR_RETURN(vertex_, HttpServer::Create(http, loops, &vertex_routes_, parts_.buffers));
  }
  return absl::OkStatus();
}

absl::Status CloudFrontEnds::Start() {
  if (sagemaker_ != nullptr) {
    sagemaker_->Start();
    LOG_INFO("Started Sagemaker HTTPService at {}:{}", options_.http_address, sagemaker_->port());
    RETURN_IF_ERROR(WritePortFile(options_.sagemaker.port_file, sagemaker_->port()));
  }
  if (vertex_ != nullptr) {
    vertex_->Start();
    LOG_INFO("Started Vertex AI HTTPService at {}:{}", options_.http_address, vertex_->port());
    RETURN_IF_ERROR(WritePortFile(options_.vertex.port_file, vertex_->port()));
  }
  return absl::OkStatus();
}

void CloudFrontEnds::Stop(std::chrono::milliseconds deadline) {
  if (sagemaker_ != nullptr) sagemaker_->Stop(deadline);
  if (vertex_ != nullptr) vertex_->Stop(deadline);
}

std::size_t CloudFrontEnds::connections() const {
  return (sagemaker_ != nullptr ? sagemaker_->connections() : 0) + (vertex_ != nullptr ? vertex_->connections() : 0);
}

std::size_t CloudFrontEnds::TakePeak() {
  return (sagemaker_ != nullptr ? sagemaker_->TakePeak() : 0) + (vertex_ != nullptr ? vertex_->TakePeak() : 0);
}

}  // namespace tidemark
