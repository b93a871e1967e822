#include "frontend/http/vertex_routes.h"

#include <utility>

#include "base/status.h"
#include "frontend/http/routes.h"

namespace tidemark {

void VertexRoutes::Handle(HttpRequest& request, ResponseSender sender) {
  if (request.path() == options_.health_route) {
    request.Redirect(request.method(), "/v2/health/ready");
    return parts_.routes->Handle(request, std::move(sender));
  }
  if (request.path() != options_.predict_route) {
    return sender.Send(MakeErrorResponse(400,
                                         fmt::format("Vertex AI: found path '{}', expected '{}' or '{}'",
                                                     request.path(), options_.predict_route, options_.health_route),
                                         http::kJson));
  }
  if (request.method() != HttpMethod::kPost) {
    HttpResponse response = MakeErrorResponse(405, "Method Not Allowed", http::kJson);
    response.AddHeader("Allow", "POST");
    return sender.Send(std::move(response));
  }
  if (const auto redirect = request.Find("X-Vertex-Ai-Triton-Redirect")) {
    return Redirect(request, *redirect, std::move(sender));
  }
  ForwardInference(request, std::move(sender), kVertexBinary, parts_.default_model(), *parts_.routes);
}

void VertexRoutes::Redirect(HttpRequest& request, std::string_view redirect, ResponseSender sender) const {
  if (parts_.metrics != nullptr && (redirect == "metrics" || redirect == "/metrics")) {
    request.Redirect(HttpMethod::kGet, "/metrics");
    return parts_.metrics->Handle(request, std::move(sender));
  }
  auto target = VertexTarget(redirect, !request.body().empty());
  absl::Status status = target.status();
  status.Update(ReadBinaryType(request, kVertexBinary));
  if (!status.ok()) return http::SendError(std::move(sender), status);
  request.Redirect(target->first, std::move(target->second));
  parts_.routes->Handle(request, std::move(sender));
}

}  // namespace tidemark
