#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "backend/backend.h"
#include "base/log.h"
#include "frontend/access_policy.h"
#include "frontend/grpc/server.h"
#include "frontend/http/limits.h"
#include "frontend/tls.h"
#include "inference/rate_limiter.h"
#include "lifecycle/lifecycle.h"
#include "observe/latency_distributions.h"
#include "observe/tracer.h"
#include "protocol/json_reader.h"
#include "resource/gpu.h"
#include "resource/ledger.h"

namespace tidemark {

// Options of the metrics port.
struct MetricsOptions {
  bool allow = true;
  bool cpu = true;
  bool gpu = true;
  std::string address;        // empty: as for HTTP
  std::uint16_t port = 8002;  // 0: any free port
  bool port_given = false;
  double interval_ms = 2000;
  LatencyOptions latencies;  // --metrics-config
  std::string port_file;     // ours: the bound port is written here
};

// Options of the cloud front ends, and what their platforms say through the environment.
struct SageMakerOptions {
  bool allow = false;
  std::uint16_t port = 8080;                                          // 0: any free port
  std::optional<std::pair<std::uint16_t, std::uint16_t>> safe_ports;  // --sagemaker-safe-port-range: of all other ports
  std::string default_model;                                          // SAGEMAKER_TRITON_DEFAULT_MODEL_NAME
  std::string port_file;                                              // ours
};
struct VertexOptions {
  std::optional<bool> allow;          // set by ParseServerOptions: else AIP_MODE=PREDICTION
  std::optional<std::uint16_t> port;  // the same: else AIP_HTTP_PORT or 8080; 0: any free port
  std::string default_model;
  std::string health_route;   // AIP_HEALTH_ROUTE
  std::string predict_route;  // AIP_PREDICT_ROUTE
  std::string port_file;      // ours
};

// What `tidemark serve` was told: Triton's options by their names and defaults, and a few of our own.
struct ServerOptions {
  std::string id = "triton";
  std::vector<std::filesystem::path> model_repositories;
  std::string model_config_name;
  bool model_namespacing = false;
  bool auto_complete = true;
  Lifecycle::Options lifecycle;
  int exit_timeout_secs = 30;

  bool allow_http = true;
  bool allow_http_given = false;
  bool allow_grpc_given = false;
  std::string http_address = "0.0.0.0";
  std::uint16_t http_port = 8000;  // 0: any free port
  bool reuse_http_port = false;
  int http_threads = 0;   // 0: by the number of cores, see Server
  int http_poll_us = -1;  // ours: EventLoop::Create's poll_nanos, in microseconds; -1: by the number of cores
  std::uint64_t http_max_input_size = 67108864;
  std::string http_unix_socket;  // ours; empty: none
  std::string http_port_file;    // ours: the bound port is written here, for those who asked for port 0
  bool allow_client_shm = false;
  std::size_t max_shm_regions = 1024;            // ours
  HttpLimits http_limits;                        // ours
  JsonLimits http_json = std::size_t{67108864};  // ours, but for its bytes: those are http_max_input_size
  std::string http_header_forward_pattern;
  bool http_use_tls = false;  // ours, with the next
  TlsOptions http_tls;

  bool allow_grpc = true;
  GrpcServerOptions grpc;      // address, port, limits; `port` is set always
  std::string grpc_port_file;  // ours: as http_port_file
  std::string grpc_header_forward_pattern;
  int grpc_compression_level = 0;  // zlib's; 0: none
  bool grpc_use_tls = false;
  TlsOptions grpc_tls;

  AccessPolicy::Options access;
  Tracer::Options trace;

  std::uint64_t host_memory_limit = 0;                  // ours; 0: none
  GpuPolicy gpu_policy;                                 // --min-supported-compute-capability, --model-load-gpu-limit
  std::map<DeviceId, std::uint64_t> memory_limits;      // ours: budgets of devices (kHost, too)
  std::filesystem::path cuda_library = "libcuda.so.1";  // ours; "none": no GPU is looked for
  std::uint64_t request_memory_limit = 8ULL << 30;      // ours: bytes of requests and answers at one time

  std::filesystem::path engine_directory;  // ours; empty: beside the executable
  std::map<std::string, BackendSettings> backend_settings;

  std::map<std::string, std::map<std::string, std::string>> caches;  // --cache-config: settings by cache
  std::string cache_directory = "/opt/tritonserver/caches";
  std::optional<std::uint64_t> response_cache_byte_size;
  std::uint64_t response_cache_bytes = 0;  // what these come to; 0: no cache

  bool rate_limit = false;  // --rate-limit=execution_count
  std::vector<RateLimiter::Limit> rate_limits;

  MetricsOptions metrics;
  bool allow_dashboard = true;  // ours: /dashboard

  SageMakerOptions sagemaker;
  VertexOptions vertex;

  LogSettings log;

  // Options that were given and do nothing in this server, with the reason; logged at start-up.
  std::vector<std::string> without_effect;
};

// Reads the command line without the program's name. Both `--opt=value` and `--opt value`, unambiguous prefixes too.
// INVALID_ARGUMENT with the text to show; for `--help` CANCELLED with the usage text.
absl::StatusOr<ServerOptions> ParseServerOptions(std::span<char* const> args);

}  // namespace tidemark
