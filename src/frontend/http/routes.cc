#include "frontend/http/routes.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "frontend/model_queries.h"
#include "protocol/documents.h"
#include "protocol/http_status.h"

namespace tidemark {
namespace http {

void SendEmpty(ResponseSender sender, std::string_view content_type) {
  HttpResponse response(200);
  if (!content_type.empty()) response.SetContentType(content_type);
  sender.Send(std::move(response));
}

void SendJson(ResponseSender sender, std::string body) {
  HttpResponse response(200);
  response.SetContentType(kJson);
  response.Append(std::move(body));
  sender.Send(std::move(response));
}

void SendError(ResponseSender sender, const absl::Status& status, std::string_view content_type) {
  sender.Send(MakeErrorResponse(HttpStatusOf(status.code()), MessageOf(status), content_type));
}

void SendDenial(ResponseSender sender, const AccessDecision& decision) {
  HttpResponse response = MakeErrorResponse(decision.http_status(), decision.message);
  if (decision.http_status() == 401) response.AddHeader("WWW-Authenticate", "Bearer");
  sender.Send(std::move(response));
}

}  // namespace http

absl::StatusOr<std::unique_ptr<HttpRoutes>> HttpRoutes::Create(HttpRoutesOptions options, Parts parts) {
  ASSIGN_OR_RETURN(HeaderForwarder forward,
                   HeaderForwarder::Create(options.header_forward_pattern, "http-header-forward-pattern"));
  auto routes = std::make_unique<HttpRoutes>(Private(), std::move(options), std::move(parts));
  routes->forward_ = std::move(forward);
  return routes;
}

HttpRoutes::HttpRoutes(Private /*only Create*/, HttpRoutesOptions options, Parts parts)
    : options_(std::move(options)),
      parts_(std::move(parts)),
      server_metadata_(ServerMetadataJson(options_.server_name, options_.server_version,
                                          ServedExtensions(parts_.memory != nullptr))),
      calls_(std::make_shared<InferCallPool>()) {}

void HttpRoutes::HandleAt(Door door, HttpRequest& request, ResponseSender sender) {
  const RouteMatch match = MatchRoute(request.path());
  if (match.route == Route::kNotFound) return sender.Send(MakeErrorResponse(404, "Not Found"));
  const RouteRule rule = RuleOf(match.route);
  const AccessDecision access = parts_.access->Check(Protocol::kHttp, door, rule.category,
                                                     [&request](std::string_view name) { return request.Find(name); });
  if (!access.allowed()) return http::SendDenial(std::move(sender), access);
  const bool allowed =
      (request.method() == HttpMethod::kGet && rule.get) || (request.method() == HttpMethod::kPost && rule.post);
  if (!allowed) {
    const bool plain = rule.category == ApiCategory::kHealth || rule.category == ApiCategory::kInference;
    HttpResponse response = MakeErrorResponse(405, "Method Not Allowed", plain ? std::string_view() : http::kJson);
    response.AddHeader("Allow", rule.get && rule.post ? "GET, POST" : rule.get ? "GET" : "POST");
    return sender.Send(std::move(response));
  }
  if (!access.caller.empty() && request.method() == HttpMethod::kPost) {
    LOG_INFO("API key '{}': {} {}", access.caller, request.method_name(), request.path());
  }
  Dispatch(match, request, std::move(sender));
}

void HttpRoutes::Dispatch(const RouteMatch& match, HttpRequest& request, ResponseSender sender) {
  switch (match.route) {
    case Route::kServerMetadata:
      return http::SendJson(std::move(sender), server_metadata_);
    case Route::kLive:
      return Live(std::move(sender));
    case Route::kReady:
      return Ready(request, std::move(sender));
    case Route::kModelMetadata:
      return ModelMetadata(match, std::move(sender));
    case Route::kModelReady:
      return ModelReady(match, std::move(sender));
    case Route::kModelConfig:
      return ModelConfig(match, std::move(sender));
    case Route::kModelStatistics:
    case Route::kAllStatistics:
      return Statistics(match, std::move(sender));
    case Route::kMemory:
      return Memory(std::move(sender));
    case Route::kModelMemory:
      return ModelMemory(match, std::move(sender));
    case Route::kDashboard:
      return Dashboard(std::move(sender));
    case Route::kInfer:
      return Infer(match, request, std::move(sender));
    case Route::kGenerate:
    case Route::kGenerateStream:
      return Generate(match, request, std::move(sender));
    case Route::kIndex:
      return Index(request, std::move(sender));
    case Route::kLoad:
      return Load(match, request, std::move(sender));
    case Route::kUnload:
      return Unload(match, request, std::move(sender));
    case Route::kLogging:
      return Logging(request, std::move(sender));
    case Route::kTrace:
    case Route::kModelTrace:
      return Trace(match, request, std::move(sender));
    case Route::kSystemMemoryStatus:
    case Route::kCudaMemoryStatus:
      return SharedMemoryStatus(match, std::move(sender));
    case Route::kSystemMemoryRegister:
    case Route::kCudaMemoryRegister:
      return RegisterSharedMemory(match, request, std::move(sender));
    case Route::kSystemMemoryUnregister:
    case Route::kCudaMemoryUnregister:
      return UnregisterSharedMemory(match, std::move(sender));
    case Route::kNotFound:
      break;
  }
  sender.Send(MakeErrorResponse(404, "Not Found"));
}

absl::Status HttpRoutes::Serving() const { return CheckServing(*parts_.lifecycle); }

absl::StatusOr<ModelHandle> HttpRoutes::FindModel(const RouteMatch& match) const {
  return tidemark::FindModel(*parts_.registry, *parts_.lifecycle, match.model, match.version);
}

void HttpRoutes::Live(ResponseSender sender) const {
  if (const absl::Status status = CheckNotExiting(*parts_.lifecycle); !status.ok()) {
    return http::SendError(std::move(sender), status, {});
  }
  http::SendEmpty(std::move(sender));
}

void HttpRoutes::ModelReady(const RouteMatch& match, ResponseSender sender) const {
  const absl::StatusOr<bool> ready = IsModelReady(*parts_.registry, *parts_.lifecycle, match.model, match.version);
  if (!ready.ok()) return http::SendError(std::move(sender), ready.status(), {});
  if (*ready) return http::SendEmpty(std::move(sender));
  sender.Send(MakeErrorResponse(400, "Model version not ready"));
}

void HttpRoutes::ModelMetadata(const RouteMatch& match, ResponseSender sender) const {
  const absl::StatusOr<ModelHandle> handle = FindModel(match);
  if (!handle.ok()) return http::SendError(std::move(sender), handle.status());
  const ModelInfo& info = (*handle)->info();
  http::SendJson(std::move(sender), ModelMetadataJson(info, ListedVersions(*parts_.registry, info, match.version)));
}

void HttpRoutes::ModelConfig(const RouteMatch& match, ResponseSender sender) const {
  const absl::StatusOr<ModelHandle> handle = FindModel(match);
  if (!handle.ok()) return http::SendError(std::move(sender), handle.status());
  http::SendJson(std::move(sender), (*handle)->info().config_json());
}

void HttpRoutes::Statistics(const RouteMatch& match, ResponseSender sender) const {
  const std::string_view wanted = match.route == Route::kAllStatistics ? std::string_view() : match.model;
  std::string body = "{\"model_stats\":[";
  bool first = true;
  const absl::Status status =
      VisitStatistics(*parts_.registry, *parts_.lifecycle, wanted, match.version,
                      [&](std::string_view name, std::int64_t version, Model& model) {
                        if (!std::exchange(first, false)) body += ',';
                        AppendModelStatistics(body, name, version, model.statistics().Snapshot(), MemoryUsageOf(model));
                      });
  if (!status.ok()) return http::SendError(std::move(sender), status);
  body += "]}";
  http::SendJson(std::move(sender), std::move(body));
}

}  // namespace tidemark
