#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/http/message.h"

// What the cloud front ends share: how their requests become those of the ordinary routes. Thread-safe.

namespace tidemark {

// Content types of bodies with binary tensors; the number of JSON bytes follows.
inline constexpr std::string_view kSageMakerBinary = "application/vnd.sagemaker-triton.binary+json;json-header-size=";
inline constexpr std::string_view kVertexBinary = "application/vnd.vertex-ai-triton.binary+json;json-header-size=";

// A body of the content type `binary` is one with Inference-Header-Content-Length, and so is the answer; all others stay as
// they are. INVALID_ARGUMENT when what follows the type is no number. `binary` is a literal.
absl::Status ReadBinaryType(HttpRequest& request, std::string_view binary);

// A model by name, for a port whose requests name none.
using DefaultModel = std::function<absl::StatusOr<std::string>()>;
// Makes the request an inference with `model` and hands it on; what is wrong is answered with 400.
void ForwardInference(HttpRequest& request, ResponseSender sender, std::string_view binary,
                      const absl::StatusOr<std::string>& model, HttpHandler& routes);

enum class SageMakerRoute : std::uint8_t { kNotFound, kPing, kInvocations, kModels, kModel, kInvoke };
// The route of a raw path; `model` is a part of it.
struct SageMakerMatch {
  SageMakerRoute route = SageMakerRoute::kNotFound;
  std::string_view model;
};
SageMakerMatch MatchSageMaker(std::string_view path);

// The method and target of a request with X-Vertex-Ai-Triton-Redirect: Vertex AI knows POST alone, so that routes that
// do not take it get GET, and routes that take both get POST when there is a body. INVALID_ARGUMENT when there is no such
// route.
absl::StatusOr<std::pair<HttpMethod, std::string>> VertexTarget(std::string_view redirect, bool has_body);

}  // namespace tidemark
