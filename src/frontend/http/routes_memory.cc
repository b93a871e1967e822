#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "frontend/dashboard.h"
#include "frontend/http/routes.h"
#include "frontend/model_queries.h"

// What operators look at: readiness with a selectable meaning, memory, the dashboard.

namespace tidemark {
namespace {

// The value of "key=" in a query, nothing decoded; empty when it is not there.
std::string_view QueryValue(std::string_view query, std::string_view key) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    if (pair.starts_with(key) && pair.size() > key.size() && pair[key.size()] == '=') {
      return pair.substr(key.size() + 1);
    }
  }
  return {};
}

}  // namespace

void HttpRoutes::Ready(const HttpRequest& request, ResponseSender sender) const {
  const Lifecycle& lifecycle = *parts_.lifecycle;
  const std::string_view meaning = QueryValue(request.query(), "meaning");
  bool yes = false;
  if (meaning == "draining") {
    yes = lifecycle.state() == ServerState::kExiting;
  } else if (lifecycle.state() == ServerState::kExiting) {
    return http::SendError(std::move(sender), absl::UnavailableError("Server exiting"), {});
  } else if (meaning.empty()) {
    yes = lifecycle.Ready();
  } else if (meaning == "server") {
    yes = lifecycle.accepting();
  } else if (meaning == "models") {
    yes = lifecycle.ModelsReady();
  } else {
    return sender.Send(MakeErrorResponse(
        400, fmt::format("unknown meaning '{}', expected server, models or draining", meaning), http::kJson));
  }
  if (yes) return http::SendEmpty(std::move(sender));
  sender.Send(HttpResponse(400));
}

void HttpRoutes::Memory(ResponseSender sender) const {
  if (parts_.memory == nullptr) return sender.Send(MakeErrorResponse(404, "Not Found"));
  parts_.offload([report = parts_.memory, answer = std::move(sender)]() mutable {
    http::SendJson(std::move(answer), report->ServerJson());
  });
}

void HttpRoutes::ModelMemory(const RouteMatch& match, ResponseSender sender) const {
  if (parts_.memory == nullptr) return sender.Send(MakeErrorResponse(404, "Not Found"));
  const absl::StatusOr<std::int64_t> version = ParseModelVersion(match.version);
  if (!version.ok()) return http::SendError(std::move(sender), version.status());
  parts_.offload([report = parts_.memory, name = std::string(match.model), number = *version,
                  answer = std::move(sender)]() mutable {
    absl::StatusOr<std::string> document = report->ModelJson(name, number);
    if (!document.ok()) return http::SendError(std::move(answer), document.status());
    http::SendJson(std::move(answer), *std::move(document));
  });
}

void HttpRoutes::Dashboard(ResponseSender sender) const {
  if (parts_.memory == nullptr || !options_.allow_dashboard) return sender.Send(MakeErrorResponse(404, "Not Found"));
  HttpResponse response(200);
  response.SetContentType("text/html; charset=utf-8");
  // Nothing from elsewhere is loaded or asked, and no other site shows it in a frame.
  response.AddHeader("Content-Security-Policy",
                     "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; "
                     "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
  response.AddHeader("X-Content-Type-Options", "nosniff");
  response.AddHeader("Cache-Control", "no-cache");
  response.AppendStatic(DashboardHtml());
  sender.Send(std::move(response));
}

}  // namespace tidemark
