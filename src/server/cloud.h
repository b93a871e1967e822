#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "frontend/access_policy.h"
#include "frontend/event_loop.h"
#include "frontend/http/routes.h"
#include "frontend/http/sagemaker_routes.h"
#include "frontend/http/server.h"
#include "frontend/http/vertex_routes.h"
#include "inference/registry.h"
#include "lifecycle/lifecycle.h"
#include "observe/trace_settings.h"
#include "repository/model_repository.h"
#include "resource/buffer_pool.h"
#include "server/options.h"

namespace tidemark {

// The front ends of SageMaker and Vertex AI, each on a port of its own, both in front of the ordinary routes. Used by one
// thread.
class CloudFrontEnds {
 private:
  struct Private {};  // only Create can name it

 public:
  // All of them outlive the front ends and every load that came through them.
  struct Parts {
    Registry* registry = nullptr;
    Lifecycle* lifecycle = nullptr;
    ModelRepository* repository = nullptr;
    BufferPool* buffers = nullptr;
    const AccessPolicy* access = nullptr;
    TraceSettings* traces = nullptr;
    HttpRoutes* routes = nullptr;
    HttpHandler* metrics = nullptr;  // may be null
    std::function<void(absl::AnyInvocable<void()>)> offload;
  };
  // Binds what `options` allow, which outlive the front ends. An error names the port that cannot be had.
  static absl::StatusOr<std::unique_ptr<CloudFrontEnds>> Create(const ServerOptions& options, Parts parts,
                                                                const std::vector<EventLoop*>& loops);
  CloudFrontEnds(Private, const ServerOptions& options, Parts parts);

  absl::Status Start();
  void Stop(std::chrono::milliseconds deadline);
  std::size_t connections() const;
  std::size_t TakePeak();

 private:
  // The configured model, or the only one that serves.
  static absl::StatusOr<std::string> Default(const Registry& registry, const std::string& wanted,
                                             std::string_view setting);
  absl::Status Open(const std::vector<EventLoop*>& loops);

  const ServerOptions& options_;
  const Parts parts_;
  SageMakerRoutes sagemaker_routes_;
  VertexRoutes vertex_routes_;
  std::unique_ptr<HttpServer> sagemaker_;  // null: not allowed
  std::unique_ptr<HttpServer> vertex_;     // null: not allowed
};

}  // namespace tidemark
