#include "frontend/http/cloud_request.h"

#include <fmt/format.h>

#include "base/status.h"
#include "frontend/http/route_match.h"
#include "frontend/http/routes.h"

namespace tidemark {

absl::Status ReadBinaryType(HttpRequest& request, std::string_view binary) {
  request.set_binary_type(binary);
  const std::string_view type = request.Find("Content-Type").value_or("");
  // The parameter belongs to the type, not to this program alone: any case, as in every media type.
  if (type.size() < binary.size() || !EqualsIgnoreCase(type.substr(0, binary.size()), binary)) return absl::OkStatus();
  const std::string_view json_bytes = type.substr(binary.size());
  if (!ParseDecimal(json_bytes)) {
    return absl::InvalidArgumentError(
        fmt::format("Content-Type: found json-header-size '{}', expected the number of JSON bytes", json_bytes));
  }
  request.PutHeader("Inference-Header-Content-Length", json_bytes);
  return absl::OkStatus();
}

void ForwardInference(HttpRequest& request, ResponseSender sender, std::string_view binary,
                      const absl::StatusOr<std::string>& model, HttpHandler& routes) {
  if (!model.ok()) return http::SendError(std::move(sender), model.status());
  if (const absl::Status status = ReadBinaryType(request, binary); !status.ok()) {
    return http::SendError(std::move(sender), status);
  }
  // Paths are read as they are, so that a name needs no escapes, but a '?' in it begins no query.
  request.RedirectToPath(request.method(), fmt::format("/v2/models/{}/infer", *model));
  routes.Handle(request, std::move(sender));
}

SageMakerMatch MatchSageMaker(std::string_view path) {
  constexpr std::string_view kModels = "/models";
  if (path == "/ping") return {SageMakerRoute::kPing, {}};
  if (path == "/invocations") return {SageMakerRoute::kInvocations, {}};
  if (!path.starts_with(kModels)) return {};
  path.remove_prefix(kModels.size());
  if (path.empty()) return {SageMakerRoute::kModels, {}};
  if (!path.starts_with('/')) return {};
  path.remove_prefix(1);
  const std::string_view model = path.substr(0, path.find('/'));
  if (model.empty()) return {};
  path.remove_prefix(model.size());
  if (path.empty()) return {SageMakerRoute::kModel, model};
  if (path == "/invoke") return {SageMakerRoute::kInvoke, model};
  return {};
}

absl::StatusOr<std::pair<HttpMethod, std::string>> VertexTarget(std::string_view redirect, bool has_body) {
  std::string target = redirect.starts_with('/') ? std::string(redirect) : fmt::format("/{}", redirect);
  const RouteRule rule = RuleOf(MatchRoute(std::string_view(target).substr(0, target.find('?'))).route);
  if (!rule.get && !rule.post) {
    return absl::InvalidArgumentError(fmt::format(
        "X-Vertex-Ai-Triton-Redirect: found '{}', expected a path of this server, as in v2/models/M/infer", redirect));
  }
  const bool post = rule.post && (has_body || !rule.get);
  return std::pair(post ? HttpMethod::kPost : HttpMethod::kGet, std::move(target));
}

}  // namespace tidemark
