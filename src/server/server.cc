#include "server/server.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "lifecycle/load_pool.h"
#include "server/engines.h"

namespace tidemark {
namespace {

// A loop for each core of a small machine. On a large one most of them would sleep at any moment, and waking one costs more
// than what it is woken for: see docs/gpu-results.md for 16 cores with 4, 8 and 16 loops.
constexpr unsigned kSmall = 4;  // cores

int DefaultLoops() {
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  return static_cast<int>(std::max(std::min(cores, kSmall), cores / 4));
}

// Where cores are few, a loop that looks for an answer may keep from its core the thread that makes it.
std::int64_t PollNanos(int option_us) {
  constexpr std::int64_t kMicro = 1000;
  constexpr std::int64_t kLarge = 50;
  if (option_us >= 0) return option_us * kMicro;
  return std::thread::hardware_concurrency() > kSmall ? kLarge * kMicro : 0;
}

}  // namespace

Server::Server(Private /*only Create*/, ServerOptions options, Platform* platform)
    : options_(std::move(options)),
      own_platform_(platform == nullptr ? CreateLinuxPlatform() : nullptr),
      platform_(platform == nullptr ? own_platform_.get() : platform) {}

absl::StatusOr<std::unique_ptr<Server>> Server::Create(ServerOptions options,
                                                       std::span<const NamedBackendFactory> more_backends,
                                                       Platform* platform) {
  auto server = std::make_unique<Server>(Private(), std::move(options), platform);
  RETURN_IF_ERROR(server->Build(more_backends));
  RETURN_IF_ERROR(server->StartHttp());
  return server;
}

absl::Status Server::Build(std::span<const NamedBackendFactory> more_backends) {
  for (const std::string& line : options_.without_effect) LOG_WARNING("{}", line);
  RaiseDescriptorLimit();
  if (const int stale = platform_->RemoveStaleTempDirectories("tidemark-"); stale > 0) {
    LOG_INFO("removed {} temporary directories of processes that are gone", stale);
  }
  ledger_ = std::make_unique<Ledger>();
  if (options_.host_memory_limit != 0) ledger_->SetBudget(kHost, options_.host_memory_limit);
  for (const auto& [device, bytes] : options_.memory_limits) ledger_->SetBudget(device, bytes);
  BufferPool::Options pool;
  pool.limit_bytes = options_.request_memory_limit;
  // Several requests of 64 MiB and their answers: without this each of them faults its pages in anew.
  pool.cached_large_bytes = std::clamp<std::size_t>(pool.limit_bytes / 16, std::size_t{64} << 20, std::size_t{1} << 30);
  buffers_ = std::make_unique<BufferPool>(*platform_, pool);
  backends_ = std::make_unique<BackendRegistry>(
      *ledger_, *platform_, options_.engine_directory.empty() ? DefaultEngineDirectory() : options_.engine_directory,
      options_.backend_settings);
  OpenGpus();
  backends_->SetGpus(gpus_.get());
  AddEngines(*backends_);
  for (const NamedBackendFactory& more : more_backends) backends_->Add(std::string(more.name), more.factory);
  RepositoryOptions repository;
  repository.roots = options_.model_repositories;
  repository.config_name = options_.model_config_name;
  repository.namespacing = options_.model_namespacing;
  repository.auto_complete = options_.auto_complete;
  ASSIGN_OR_RETURN(repository_, ModelRepository::Create(std::move(repository)));
  registry_ = std::make_unique<Registry>();
  if (options_.response_cache_bytes != 0) {
    cache_ = std::make_unique<ResponseCache>(options_.response_cache_bytes);
    LOG_INFO("response cache 'local' of {} bytes", options_.response_cache_bytes);
  }
  if (options_.rate_limit) rate_limiter_ = std::make_unique<RateLimiter>(options_.rate_limits);
  observation_ = std::make_unique<Observation>(options_);
  if (gpus_ != nullptr) {
    std::vector<std::string> order;
    for (const GpuFacts& gpu : gpus_->devices()) order.push_back(gpu.uuid);
    observation_->witness().SetGpuOrder(std::move(order));
  }
  ASSIGN_OR_RETURN(offload_, LoadPool::Create(*ledger_, *platform_, 2));
  ASSIGN_OR_RETURN(lifecycle_,
                   Lifecycle::Create(options_.lifecycle, Lifecycle::Parts{.platform = platform_,
                                                                          .ledger = ledger_.get(),
                                                                          .registry = registry_.get(),
                                                                          .repository = repository_.get(),
                                                                          .backends = backends_.get(),
                                                                          .buffers = buffers_.get(),
                                                                          .statistics = &observation_->statistics(),
                                                                          .cache = cache_.get(),
                                                                          .rate_limiter = rate_limiter_.get(),
                                                                          .witness = &observation_->witness()}));
  shared_memory_scope_ = std::make_unique<Scope>(*ledger_, *platform_, "shared-memory");
  cuda_shared_memory_ = std::make_unique<GpuSharedMemory>(gpus_.get());
  shared_memory_ = std::make_unique<SharedMemoryRegions>(
      *shared_memory_scope_, SharedMemoryRegions::Options{.allowed = options_.allow_client_shm,
                                                          .cuda = cuda_shared_memory_.get(),
                                                          .max_regions = options_.max_shm_regions});
  return absl::OkStatus();
}

void Server::OpenGpus() {
  if (options_.cuda_library == "none") return;
  gpu_scope_ = std::make_unique<Scope>(*ledger_, *platform_, "server/gpus",
                                       Scope::Options{.cancel = nullptr, .reservations = nullptr, .resident = true});
  absl::StatusOr<std::unique_ptr<Gpus>> gpus = Gpus::Open(*gpu_scope_, options_.cuda_library);
  if (gpus.ok()) {
    gpus_ = *std::move(gpus);
    gpus_->SetPolicy(options_.gpu_policy);
    LOG_INFO("{} GPUs, CUDA {}.{}", gpus_->devices().size(), gpus_->driver_version() / 1000,
             gpus_->driver_version() % 1000 / 10);
    return;
  }
  // A machine without a driver is an ordinary one; a driver that does not start is not.
  gpu_scope_->ReleaseAll();
  if (absl::IsNotFound(gpus.status())) {
    LOG_VERBOSE(1, "no GPU: {}", MessageOf(gpus.status()));
  } else {
    LOG_WARNING("no GPU: {}", MessageOf(gpus.status()));
  }
}

absl::Status Server::StartHttp() {
  const int wanted = options_.http_threads > 0 ? options_.http_threads : DefaultLoops();
  std::vector<EventLoop*> loops;
  for (int i = 0; i < wanted; ++i) {
    ASSIGN_OR_RETURN(auto loop, EventLoop::Create(nullptr, PollNanos(options_.http_poll_us)));
    loops.push_back(loop.get());
    loops_.push_back(std::move(loop));
  }
  RETURN_IF_ERROR(BuildAccess());
  RETURN_IF_ERROR(StartTracer());
  ASSIGN_OR_RETURN(decoders_, WorkerPool::Create(*ledger_, *platform_, wanted));
  decode_task_ = [pool = decoders_.get()](absl::AnyInvocable<void()> task) { pool->Post(std::move(task)); };
  offload_task_ = [pool = offload_.get()](absl::AnyInvocable<void()> task) { pool->Post(std::move(task)); };
  observation_->Connect(Observation::Parts{
      .registry = registry_.get(),
      .lifecycle = lifecycle_.get(),
      .ledger = ledger_.get(),
      .buffers = buffers_.get(),
      .cache = cache_.get(),
      .offload = offload_task_,
      .connections = [this] { return http_->connections() + (cloud_ != nullptr ? cloud_->connections() : 0); }});
  HttpRoutesOptions routes;
  routes.allow_dashboard = options_.allow_dashboard;
  routes.server_name = options_.id;
  routes.server_version = TIDEMARK_VERSION;
  routes.max_input_bytes = options_.http_max_input_size;
  routes.json = options_.http_json;
  routes.json.bytes = options_.http_max_input_size;
  routes.header_forward_pattern = options_.http_header_forward_pattern;
  ASSIGN_OR_RETURN(routes_,
                   HttpRoutes::Create(std::move(routes), HttpRoutes::Parts{.registry = registry_.get(),
                                                                           .lifecycle = lifecycle_.get(),
                                                                           .buffers = buffers_.get(),
                                                                           .access = access_.get(),
                                                                           .tracer = tracer_.get(),
                                                                           .shared_memory = shared_memory_.get(),
                                                                           .memory = observation_->report(),
                                                                           .offload = offload_task_,
                                                                           .decode = decode_task_}));
  HttpServerOptions http;
  http.address = options_.http_address;
  http.port.reset();
  if (options_.allow_http) http.port = options_.http_port;
  http.reuse_port = options_.reuse_http_port;
  http.unix_path = options_.http_unix_socket;
  RETURN_IF_ERROR(observation_->OpenMetrics(loops));
  http.tls = http_tls_.get();
  http.limits = options_.http_limits;
  ASSIGN_OR_RETURN(http_, HttpServer::Create(std::move(http), loops, routes_.get(), buffers_.get()));
  RETURN_IF_ERROR(OpenControlDoor(loops));
  RETURN_IF_ERROR(OpenCloudFrontEnds(loops));
  RETURN_IF_ERROR(BuildGrpc(loops));
  loop_threads_ = std::make_unique<Scope>(*ledger_, *platform_, "server/event loops",
                                          Scope::Options{.cancel = nullptr, .reservations = nullptr, .resident = true});
  for (const auto& loop : loops_) {
    EventLoop* self = loop.get();
    RETURN_IF_ERROR(loop_threads_
                        ->StartThread(
                            "event loop", [self] { self->Run(); }, [self] { self->Stop(); }, "event loop")
                        .status());
  }
  http_->Start();
  if (control_http_ != nullptr) control_http_->Start();
  if (options_.allow_http) LOG_INFO("Started HTTPService at {}:{}", options_.http_address, http_->port());
  if (!options_.http_unix_socket.empty()) LOG_INFO("Started HTTPService at unix:{}", options_.http_unix_socket);
  RETURN_IF_ERROR(StartGrpc());
  RETURN_IF_ERROR(observation_->StartMetrics());
  RETURN_IF_ERROR(cloud_->Start());
  return WritePortFile(options_.http_port_file, http_->port());
}

absl::Status Server::StartTracer() {
  tracer_ = std::make_unique<Tracer>(options_.trace);
  if (!tracer_->usable()) return absl::OkStatus();
  tracer_thread_ =
      std::make_unique<Scope>(*ledger_, *platform_, "server/tracer",
                              Scope::Options{.cancel = nullptr, .reservations = nullptr, .resident = true});
  Tracer* const tracer = tracer_.get();
  return tracer_thread_
      ->StartThread(
          "tracer", [tracer] { tracer->Run(); }, [tracer] { tracer->Stop(); }, "tracer")
      .status();
}

absl::Status Server::LoadModels() {
  const absl::Status status = lifecycle_->StartUp();
  if (status.ok() || !options_.lifecycle.exit_on_error) return absl::OkStatus();
  return absl::InternalError(std::string(MessageOf(status)));
}

void Server::TidyAfterCrowd() {
  TidyIdleBuffers();
  constexpr std::size_t kCrowd = 200;  // fewer leave half a MiB at most
  std::size_t now = 0;
  std::size_t most = 0;
  const auto count = [&](auto& server) {
    if (server == nullptr) return;
    now += server->connections();
    most += server->TakePeak();
  };
  count(http_);
  count(control_http_);
  count(cloud_);
  count(grpc_);
  count(control_grpc_);
  crowd_ = std::max(crowd_, most);
  const std::size_t before = std::exchange(lingering_, now);
  if (crowd_ < kCrowd || now > crowd_ / 4) return;
  platform_->TrimHeap();
  // Those that were still on their way out have left holes behind them: once more at the next look.
  if (before <= now + kCrowd / 4) crowd_ = now;
}

// Large blocks are kept for the next large request; when none came for a while, nobody needs them.
void Server::TidyIdleBuffers() {
  constexpr std::uint64_t kKept = std::uint64_t{64} << 20;
  constexpr int kLooks = 15;
  const std::uint64_t large = buffers_->large_requests();
  const bool idle = buffers_->cached_bytes() > kKept && large == large_before_;
  idle_looks_ = idle ? idle_looks_ + 1 : 0;
  large_before_ = large;
  if (idle_looks_ < kLooks) return;
  buffers_->Trim();
  idle_looks_ = 0;
}

absl::Status Server::Stop() {
  LOG_INFO("Waiting for in-flight requests to complete.");
  const absl::Time deadline = absl::Now() + absl::Seconds(options_.exit_timeout_secs);
  if (http_ == nullptr) return lifecycle_->Stop(deadline);
  // Connections are still served meanwhile: those in flight to their end, new requests with 503.
  RETURN_IF_ERROR(lifecycle_->Stop(deadline));
  const absl::Duration left = std::max(deadline - absl::Now(), absl::Seconds(1));
  http_->Stop(std::chrono::milliseconds(absl::ToInt64Milliseconds(left)));
  if (control_http_ != nullptr) control_http_->Stop(std::chrono::seconds(1));
  cloud_->Stop(std::chrono::seconds(1));
  StopGrpc(std::chrono::seconds(1));
  observation_->StopMetrics();
  return absl::OkStatus();
}

Server::~Server() {
  if (observation_ != nullptr) observation_->StopMetrics();
  if (http_ != nullptr) http_->Stop(std::chrono::milliseconds(0));
  if (control_http_ != nullptr) control_http_->Stop(std::chrono::milliseconds(0));
  if (cloud_ != nullptr) cloud_->Stop(std::chrono::milliseconds(0));
  StopGrpc(std::chrono::milliseconds(0));
  loop_threads_.reset();
  for (const auto& loop : loops_) loop->Close();  // an answer that nobody sends any more holds its model
  decoders_.reset();                              // its tasks are the routes'
  offload_.reset();                               // its tasks ask the front ends and the lifecycle
  control_grpc_.reset();
  grpc_.reset();
  grpc_service_.reset();
  grpc_tls_.reset();
  cloud_.reset();
  control_http_.reset();
  http_.reset();
  routes_.reset();
  http_tls_.reset();
  access_.reset();
  lifecycle_.reset();
  observation_.reset();  // models count in it, and its port is in the loops
  loops_.clear();
  if (tracer_ != nullptr) tracer_->Stop();
  tracer_thread_.reset();
  tracer_.reset();
  shared_memory_.reset();
  shared_memory_scope_.reset();
  registry_.reset();
  cache_.reset();
  rate_limiter_.reset();
  repository_.reset();
  backends_.reset();
  gpu_scope_.reset();
  gpus_.reset();
  buffers_.reset();
  ledger_.reset();
}

}  // namespace tidemark
