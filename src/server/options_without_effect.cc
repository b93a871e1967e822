// Options of Triton that this server takes for the sake of existing command lines, each with the reason why it does
// nothing here. A row here gives way to a row of the same name in another list.

#include <utility>

#include "server/options_table.h"

namespace tidemark {

std::vector<OptionRow> OptionsWithoutEffect() {
  constexpr std::string_view kPool = "requests come from pools that grow and shrink with their number";
  constexpr std::string_view kGpuPool = "GPU memory is taken by the engines as they need it, through the ledger";
  const std::pair<std::string_view, std::string_view> rows[] = {
      {"grpc-infer-thread-count", "gRPC is served by the event loops of HTTP: see --http-thread-count"},
      {"sagemaker-thread-count", "SageMaker is served by the event loops of HTTP: see --http-thread-count"},
      {"vertex-ai-thread-count", "Vertex AI is served by the event loops of HTTP: see --http-thread-count"},
      {"grpc-infer-allocation-pool-size", kPool},
      {"grpc-max-response-pool-size", kPool},
      {"enable-peer-access", "tensors do not travel between GPUs"},
      {"pinned-memory-pool-byte-size", "pinned memory is taken by the engines as they need it, through the ledger"},
      {"cuda-memory-pool-byte-size", kGpuPool},
      {"cuda-virtual-address-size", kGpuPool},
      {"buffer-manager-thread-count", "tensors are copied where they are used, by the thread that uses them"},
      {"host-policy", "threads and memory are placed by the kernel"},
      {"backend-directory", "backends are part of this server; their engines' libraries: see --engine-directory"},
      {"repoagent-directory", "there are no repository agents"},
  };
  std::vector<OptionRow> options;
  for (const auto& [name, reason] : rows) options.push_back({name, "VALUE", reason, WithoutEffect(name, reason)});
  return options;
}

}  // namespace tidemark
