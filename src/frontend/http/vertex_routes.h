#pragma once

#include <string>

#include "frontend/http/cloud_request.h"
#include "frontend/http/message.h"

namespace tidemark {

// Vertex AI's prediction container: a health route and a prediction route of the platform's choice, in front of the ordinary
// routes, whose rules (access, limits, traces) hold. Thread-safe; outlives the HTTP server that calls it.
class VertexRoutes final : public HttpHandler {
 public:
  struct Options {
    std::string health_route;   // AIP_HEALTH_ROUTE
    std::string predict_route;  // AIP_PREDICT_ROUTE
  };
  // All of them outlive the routes.
  struct Parts {
    HttpHandler* routes = nullptr;   // the ordinary ones
    HttpHandler* metrics = nullptr;  // for a redirect to "metrics"; may be null
    DefaultModel default_model;
  };
  VertexRoutes(Options options, Parts parts) : options_(std::move(options)), parts_(std::move(parts)) {}

  void Handle(HttpRequest& request, ResponseSender sender) override;

 private:
  void Redirect(HttpRequest& request, std::string_view redirect, ResponseSender sender) const;

  const Options options_;
  const Parts parts_;
};

}  // namespace tidemark
