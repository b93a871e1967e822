#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backend/backend_registry.h"
#include "frontend/access_policy.h"
#include "frontend/event_loop.h"
#include "frontend/gpu_shared_memory.h"
#include "frontend/grpc/server.h"
#include "frontend/grpc/service.h"
#include "frontend/http/routes.h"
#include "frontend/http/server.h"
#include "frontend/shared_memory.h"
#include "frontend/tls.h"
#include "frontend/worker_pool.h"
#include "inference/registry.h"
#include "inference/response_cache.h"
#include "lifecycle/lifecycle.h"
#include "lifecycle/load_pool.h"
#include "observe/tracer.h"
#include "platform/platform.h"
#include "repository/model_repository.h"
#include "resource/buffer_pool.h"
#include "resource/gpu.h"
#include "resource/ledger.h"
#include "resource/scope.h"
#include "server/cloud.h"
#include "server/observation.h"
#include "server/options.h"

namespace tidemark {

// The composition root: builds everything in order, owns it, and stops it in reverse. The only place where concrete
// classes meet. Used by one thread, except port().
class Server {
 private:
  struct Private {};

 public:
  // Opens the sockets and starts the threads; health answers from now on, models are not loaded yet.
  // `more_backends`: those beside the product's own. `platform`, for tests, outlives the server; null: the machine's own.
  static absl::StatusOr<std::unique_ptr<Server>> Create(ServerOptions options,
                                                        std::span<const NamedBackendFactory> more_backends = {},
                                                        Platform* platform = nullptr);
  Server(Private, ServerOptions options, Platform* platform);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Loads the start-up models and goes ready. An error only with exit_on_error.
  absl::Status LoadModels();

  // Not ready at once; waits for requests in flight up to the exit time-out; unloads; closes. DEADLINE_EXCEEDED when
  // requests were still running: then RemoveTraces and leave.
  absl::Status Stop();

  // Removes what would outlive the process. For an exit that does not wait.
  void RemoveTraces() noexcept { platform_->RemoveTempDirectories(); }

  // Reads certificates and API keys again; `all`: also those whose files look unchanged. A file that is wrong is logged and
  // changes nothing.
  void ReloadSecrets(bool all);

  // Gives back what a crowd of connections left in the heap, once it is gone, and the request memory that nobody has used
  // for half a minute. Called every two seconds by the thread that owns the server, which serves nobody.
  void TidyAfterCrowd();

  std::uint16_t grpc_port() const { return grpc_ != nullptr ? grpc_->port() : 0; }
  std::uint16_t http_port() const { return http_ != nullptr ? http_->port() : 0; }

 private:
  absl::Status Build(std::span<const NamedBackendFactory> more_backends);
  void OpenGpus();
  absl::Status StartHttp();
  absl::Status BuildAccess();
  absl::Status StartTracer();
  absl::Status OpenControlDoor(const std::vector<EventLoop*>& loops);
  absl::Status OpenCloudFrontEnds(const std::vector<EventLoop*>& loops);
  void TidyIdleBuffers();
  void WarnOfExposure() const;
  absl::Status BuildGrpc(const std::vector<EventLoop*>& loops);
  absl::Status BuildGrpcTls();
  absl::Status StartGrpc();
  void StopGrpc(std::chrono::milliseconds deadline);

  const ServerOptions options_;
  std::unique_ptr<Platform> own_platform_;  // null: it was given
  Platform* const platform_;
  std::unique_ptr<Ledger> ledger_;
  std::unique_ptr<BufferPool> buffers_;
  std::unique_ptr<Gpus> gpus_;
  std::unique_ptr<Scope> gpu_scope_;  // its releases need gpus_
  std::unique_ptr<BackendRegistry> backends_;
  std::unique_ptr<ModelRepository> repository_;
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<ResponseCache> cache_;       // null: none
  std::unique_ptr<RateLimiter> rate_limiter_;  // null: off
  std::unique_ptr<Observation> observation_;
  std::unique_ptr<LoadPool> offload_;     // blocking look-ups of the front end
  std::unique_ptr<WorkerPool> decoders_;  // of large requests
  std::unique_ptr<Lifecycle> lifecycle_;
  std::vector<std::unique_ptr<EventLoop>> loops_;
  std::unique_ptr<AccessPolicy> access_;
  std::unique_ptr<Tracer> tracer_;
  std::unique_ptr<Scope> tracer_thread_;
  std::unique_ptr<TlsContext> http_tls_;
  std::unique_ptr<Scope> shared_memory_scope_;
  std::unique_ptr<GpuSharedMemory> cuda_shared_memory_;
  std::unique_ptr<SharedMemoryRegions> shared_memory_;
  std::function<void(absl::AnyInvocable<void()>)> offload_task_;  // runs it on offload_
  std::function<void(absl::AnyInvocable<void()>)> decode_task_;   // runs it on decoders_
  std::unique_ptr<HttpRoutes> routes_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<HttpServer> control_http_;
  std::unique_ptr<CloudFrontEnds> cloud_;
  std::size_t crowd_ = 0;           // most connections since the heap was trimmed
  std::size_t lingering_ = 0;       // connections at the last look
  std::uint64_t large_before_ = 0;  // large blocks that had been asked for at the last look
  int idle_looks_ = 0;              // looks in a row that found no further one, and much cached
  std::unique_ptr<TlsContext> grpc_tls_;
  std::unique_ptr<GrpcService> grpc_service_;
  std::unique_ptr<GrpcServer> grpc_;
  std::unique_ptr<GrpcServer> control_grpc_;
  std::unique_ptr<Scope> loop_threads_;
};

}  // namespace tidemark
