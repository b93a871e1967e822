#include "frontend/http/cloud_request.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "base/status.h"
#include "frontend/http/head_parser.h"
#include "frontend/http/route_match.h"
#include "frontend/http/sagemaker_routes.h"
#include "frontend/http/vertex_routes.h"

namespace tidemark {
namespace {

// A request without a body; `head` outlives it.
class Received {
 public:
  explicit Received(std::string head) : head_(std::move(head) + "\r\n\r\n"), parser_(limits_) {
    EXPECT_EQ(parser_.Parse(head_), HeadParser::Result::kDone);
    parser_.Fill(head_, &request);
  }
  HttpRequest request;

 private:
  const HttpLimits limits_;
  const std::string head_;
  HeadParser parser_;
};

// What reached the ordinary routes.
class Routes final : public HttpHandler {
 public:
  void Handle(HttpRequest& request, ResponseSender /*none*/) override {
    seen = std::string(request.method_name()) + ' ' + std::string(request.path());
    if (!request.query().empty()) seen += '?' + std::string(request.query());
    json_bytes = request.Find("inference-header-content-length");
    binary_type = request.binary_type();
  }
  std::string seen;
  std::optional<std::string_view> json_bytes;
  std::string_view binary_type;
};

// What the ordinary routes would make of it.
class RoutedModel final : public HttpHandler {
 public:
  void Handle(HttpRequest& request, ResponseSender /*none*/) override {
    const RouteMatch match = MatchRoute(request.path());
    route = match.route;
    model = match.model;
    query = request.query();
  }
  Route route = Route::kNotFound;
  std::string model, query;
};

TEST(CloudRequestTest, PathsOfSageMaker) {
  EXPECT_EQ(MatchSageMaker("/ping").route, SageMakerRoute::kPing);
  EXPECT_EQ(MatchSageMaker("/invocations").route, SageMakerRoute::kInvocations);
  EXPECT_EQ(MatchSageMaker("/models").route, SageMakerRoute::kModels);
  EXPECT_EQ(MatchSageMaker("/models/m").route, SageMakerRoute::kModel);
  EXPECT_EQ(MatchSageMaker("/models/m").model, "m");
  EXPECT_EQ(MatchSageMaker("/models/m/invoke").route, SageMakerRoute::kInvoke);
  EXPECT_EQ(MatchSageMaker("/models/m/invoke").model, "m");
  for (const char* path : {"/", "", "/ping/", "/models/", "/models//invoke", "/modelsx", "/models/m/", "/models/m/x",
                           "/models/m/invoke/", "/v2/health/ready"}) {
    EXPECT_EQ(MatchSageMaker(path).route, SageMakerRoute::kNotFound) << path;
  }
}

TEST(CloudRequestTest, RedirectsGetTheMethodThatTheirRouteTakes) {
  const auto target = [](std::string_view redirect, bool body = false) {
    const auto found = VertexTarget(redirect, body);
    if (!found.ok()) return std::string(MessageOf(found.status()));
    return (found->first == HttpMethod::kGet ? "GET " : "POST ") + found->second;
  };
  EXPECT_EQ(target("v2"), "GET /v2");
  EXPECT_EQ(target("/v2/models/m"), "GET /v2/models/m");
  EXPECT_EQ(target("v2/models/m/config", true), "GET /v2/models/m/config");
  EXPECT_EQ(target("v2/models/m/infer"), "POST /v2/models/m/infer");
  EXPECT_EQ(target("v2/logging"), "GET /v2/logging");
  EXPECT_EQ(target("v2/logging", true), "POST /v2/logging");
  EXPECT_EQ(target("v2/repository/models/m/load?dry_run=true"), "POST /v2/repository/models/m/load?dry_run=true");
  EXPECT_EQ(target("elsewhere"),
            "X-Vertex-Ai-Triton-Redirect: found 'elsewhere', expected a path of this server, as in v2/models/M/infer");
}

TEST(CloudRequestTest, TheContentTypeSaysWhereBinaryTensorsBegin) {
  Received binary("POST /x HTTP/1.1\r\nInference-Header-Content-Length: 9\r\nContent-Type: " +
                  std::string(kSageMakerBinary) + "123");
  EXPECT_TRUE(ReadBinaryType(binary.request, kSageMakerBinary).ok());
  EXPECT_EQ(binary.request.Find("Inference-Header-Content-Length"), "123") << "the content type has the word";
  EXPECT_EQ(binary.request.binary_type(), kSageMakerBinary);

  Received json("POST /x HTTP/1.1\r\nContent-Type: application/json");
  EXPECT_TRUE(ReadBinaryType(json.request, kVertexBinary).ok());
  EXPECT_EQ(json.request.Find("Inference-Header-Content-Length"), std::nullopt);
  EXPECT_EQ(json.request.binary_type(), kVertexBinary) << "the answer may be binary";

  for (const char* number : {"", "-1", "1x", "99999999999999999999"}) {
    Received wrong("POST /x HTTP/1.1\r\nContent-Type: " + std::string(kVertexBinary) + number);
    EXPECT_EQ(ReadBinaryType(wrong.request, kVertexBinary).code(), absl::StatusCode::kInvalidArgument) << number;
  }
}

TEST(CloudRequestTest, SageMakersRequestsReachTheOrdinaryRoutes) {
  Routes routes;
  SageMakerRoutes::Parts parts;
  parts.routes = &routes;
  parts.default_model = [] { return "only"; };
  SageMakerRoutes sagemaker(std::move(parts));
  Received ping("GET /ping HTTP/1.1");
  sagemaker.Handle(ping.request, {});
  EXPECT_EQ(routes.seen, "GET /v2/health/ready");
  Received infer("POST /invocations?x=1 HTTP/1.1\r\nContent-Type: " + std::string(kSageMakerBinary) + "7");
  sagemaker.Handle(infer.request, {});
  EXPECT_EQ(routes.seen, "POST /v2/models/only/infer");
  EXPECT_EQ(routes.json_bytes, "7");
  EXPECT_EQ(routes.binary_type, kSageMakerBinary);
}

TEST(CloudRequestTest, TheNameOfADefaultModelIsReadWhole) {
  for (const std::string_view name : {"what?", "what?x=1", "a%20b", "a b", "a#b"}) {
    Received request("POST /invocations?y=2 HTTP/1.1");
    RoutedModel routes;
    ForwardInference(request.request, {}, kSageMakerBinary, std::string(name), routes);
    EXPECT_EQ(routes.route, Route::kInfer) << name;
    EXPECT_EQ(routes.model, name);
    EXPECT_EQ(routes.query, "");
  }
}

TEST(CloudRequestTest, VertexRequestsReachTheOrdinaryRoutes) {
  Routes routes;
  VertexRoutes vertex(VertexRoutes::Options{.health_route = "/h", .predict_route = "/p"},
                      VertexRoutes::Parts{.routes = &routes, .metrics = nullptr, .default_model = [] { return "m"; }});
  Received health("GET /h HTTP/1.1");
  vertex.Handle(health.request, {});
  EXPECT_EQ(routes.seen, "GET /v2/health/ready");
  Received predict("POST /p HTTP/1.1");
  vertex.Handle(predict.request, {});
  EXPECT_EQ(routes.seen, "POST /v2/models/m/infer");
  Received redirect("POST /p HTTP/1.1\r\nx-vertex-ai-triton-redirect: v2/health/ready?meaning=models");
  vertex.Handle(redirect.request, {});
  EXPECT_EQ(routes.seen, "GET /v2/health/ready?meaning=models");
  EXPECT_EQ(routes.binary_type, kVertexBinary);
}

}  // namespace
}  // namespace tidemark
