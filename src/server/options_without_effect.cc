#include <utility>

#include "server/options_table.h"

namespace tidemark {

// Options of Triton that this server takes for the sake of existing command lines.
std::vector<OptionRow> OptionsWithoutEffect() {
  constexpr std::string_view kGrpc = "this version serves HTTP only";
  constexpr std::string_view kMetrics = "this version has no metrics port";
  constexpr std::string_view kTrace = "this version writes no traces";
  constexpr std::string_view kGpu = "memory of GPUs is taken by the engines as they need it";
  constexpr std::string_view kCloud = "this version has no cloud front ends";
  constexpr std::string_view kCache = "this version has no response cache";
  constexpr std::string_view kParts = "engines are part of this server";
  static constexpr std::pair<std::string_view, int> kNames[] = {{"allow-grpc", 0},
                                                                {"grpc-address", 0},
                                                                {"grpc-port", 0},
                                                                {"reuse-grpc-port", 0},
                                                                {"grpc-header-forward-pattern", 0},
                                                                {"grpc-infer-thread-count", 0},
                                                                {"grpc-infer-allocation-pool-size", 0},
                                                                {"grpc-max-response-pool-size", 0},
                                                                {"grpc-use-ssl", 0},
                                                                {"grpc-use-ssl-mutual", 0},
                                                                {"grpc-server-cert", 0},
                                                                {"grpc-server-key", 0},
                                                                {"grpc-root-cert", 0},
                                                                {"grpc-infer-response-compression-level", 0},
                                                                {"grpc-keepalive-time", 0},
                                                                {"grpc-keepalive-timeout", 0},
                                                                {"grpc-keepalive-permit-without-calls", 0},
                                                                {"grpc-http2-max-pings-without-data", 0},
                                                                {"grpc-http2-min-recv-ping-interval-without-data", 0},
                                                                {"grpc-http2-max-ping-strikes", 0},
                                                                {"grpc-max-connection-age", 0},
                                                                {"grpc-max-connection-age-grace", 0},
                                                                {"allow-metrics", 1},
                                                                {"allow-gpu-metrics", 1},
                                                                {"allow-cpu-metrics", 1},
                                                                {"metrics-address", 1},
                                                                {"metrics-port", 1},
                                                                {"metrics-interval-ms", 1},
                                                                {"metrics-config", 1},
                                                                {"trace-config", 2},
                                                                {"trace-file", 2},
                                                                {"trace-level", 2},
                                                                {"trace-rate", 2},
                                                                {"trace-count", 2},
                                                                {"trace-log-frequency", 2},
                                                                {"enable-peer-access", 3},
                                                                {"pinned-memory-pool-byte-size", 3},
                                                                {"cuda-memory-pool-byte-size", 3},
                                                                {"cuda-virtual-address-size", 3},
                                                                {"min-supported-compute-capability", 3},
                                                                {"model-load-gpu-limit", 3},
                                                                {"allow-sagemaker", 4},
                                                                {"sagemaker-port", 4},
                                                                {"sagemaker-safe-port-range", 4},
                                                                {"sagemaker-thread-count", 4},
                                                                {"allow-vertex-ai", 4},
                                                                {"vertex-ai-port", 4},
                                                                {"vertex-ai-thread-count", 4},
                                                                {"vertex-ai-default-model", 4},
                                                                {"cache-config", 5},
                                                                {"cache-directory", 5},
                                                                {"response-cache-byte-size", 5},
                                                                {"rate-limit", 6},
                                                                {"rate-limit-resource", 6},
                                                                {"backend-directory", 6},
                                                                {"repoagent-directory", 6},
                                                                {"host-policy", 6},
                                                                {"buffer-manager-thread-count", 6}};
  const std::string_view reasons[] = {kGrpc, kMetrics, kTrace, kGpu, kCloud, kCache, kParts};
  std::vector<OptionRow> rows;
  for (const auto& [name, reason] : kNames) {
    rows.push_back({name, "VALUE", reasons[reason], WithoutEffect(name, reasons[reason])});
  }
  return rows;
}

}  // namespace tidemark
