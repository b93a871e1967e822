#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "frontend/http/message.h"
#include "frontend/memory_report.h"
#include "inference/registry.h"
#include "inference/response_cache.h"
#include "lifecycle/lifecycle.h"
#include "observe/statistics_book.h"
#include "resource/buffer_pool.h"
#include "resource/ledger.h"
#include "resource/witness.h"

namespace tidemark {

// The text of GET /metrics: `nv_*` as Triton has them (protocol digest 7) and `tidemark_*` of our own (docs/operations.md).
// Everything is read when it is asked for; requests pay nothing. Thread-safe; reads the proc file system and the driver:
// never on an event loop.
class MetricsPage {
 public:
  struct Options {
    std::string server_version;
    bool cpu = true;  // --allow-cpu-metrics
    bool gpu = true;  // --allow-gpu-metrics
    bool namespaces = false;
    absl::Duration interval = absl::Seconds(2);  // --metrics-interval-ms: figures of CPU and GPU are at least this old
    std::uint64_t request_memory_limit = 0;
  };
  // All of them outlive the page.
  struct Parts {
    Registry* registry = nullptr;
    Lifecycle* lifecycle = nullptr;
    Ledger* ledger = nullptr;
    BufferPool* buffers = nullptr;
    MemoryWitness* witness = nullptr;
    StatisticsBook* statistics = nullptr;
    const ResponseCache* cache = nullptr;  // null: there is none
    MemoryReport* report = nullptr;
    std::function<std::size_t()> connections;  // open ones; may be empty
  };

  MetricsPage(Options options, Parts parts);

  std::string Render();

 private:
  class Writer;

  void AddInference(Writer& writer, const std::vector<StatisticsBook::Entry>& entries) const;
  void AddDistributions(Writer& writer, const std::vector<StatisticsBook::Entry>& entries) const;
  void AddCache(Writer& writer) const;
  void AddGpus(Writer& writer);
  void AddCpu(Writer& writer);
  void AddServer(Writer& writer) const;
  void AddMemory(Writer& writer, const LedgerTotals& totals) const;
  void AddLoads(Writer& writer) const;
  void AddModels(Writer& writer, const RegistrySnapshot& snapshot) const;
  // What backends add, last: a name that the server has is the server's.
  void AddCustom(Writer& writer, const RegistrySnapshot& snapshot) const;
  // Takes new samples when the last ones are older than the interval.
  void Poll();

  const Options options_;
  const Parts parts_;
  const double start_seconds_;
  absl::Mutex mutex_;
  absl::Time polled_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::optional<ProcessorTime> processor_ ABSL_GUARDED_BY(mutex_);
  double utilization_ ABSL_GUARDED_BY(mutex_) = 0;
  MachineMemory machine_ ABSL_GUARDED_BY(mutex_);
  std::vector<GpuWitness> gpus_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::uint64_t> first_energy_ ABSL_GUARDED_BY(mutex_);  // by UUID, in millijoules
};

// What the metrics port answers (protocol digest 1.16). Thread-safe.
class MetricsHandler final : public HttpHandler {
 public:
  // `offload` runs the work on a thread that may block. Page and thread outlive the handler's requests.
  MetricsHandler(MetricsPage* page, std::function<void(absl::AnyInvocable<void()>)> offload)
      : page_(page), offload_(std::move(offload)) {}
  void Handle(HttpRequest& request, ResponseSender sender) override;

 private:
  MetricsPage* const page_;
  const std::function<void(absl::AnyInvocable<void()>)> offload_;
};

}  // namespace tidemark
