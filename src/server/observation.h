#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "frontend/event_loop.h"
#include "frontend/http/server.h"
#include "frontend/memory_report.h"
#include "frontend/metrics_page.h"
#include "observe/statistics_book.h"
#include "resource/witness.h"
#include "server/options.h"

namespace tidemark {

// What shows the server to operators: the witnesses of its memory, the counters of its models, and the metrics port.
// Built in two steps, since the lifecycle counts in it and is shown by it. Used by one thread.
class Observation {
 public:
  explicit Observation(const ServerOptions& options);

  MemoryWitness& witness() { return *witness_; }
  StatisticsBook& statistics() { return statistics_; }
  MemoryReport* report() { return report_.get(); }

  struct Parts {
    Registry* registry = nullptr;
    Lifecycle* lifecycle = nullptr;
    Ledger* ledger = nullptr;
    BufferPool* buffers = nullptr;
    ResponseCache* cache = nullptr;  // may be null
    std::function<void(absl::AnyInvocable<void()>)> offload;
    std::function<std::size_t()> connections;
  };
  // From now on there is a report. All parts outlive this object, but `connections`, which StopMetrics lets go.
  void Connect(Parts parts);
  // Opens the metrics port on these loops, if it is wanted. Legal order: Connect, OpenMetrics, StartMetrics (the loops
  // may run by then), StopMetrics, destruction.
  absl::Status OpenMetrics(const std::vector<EventLoop*>& loops);
  absl::Status StartMetrics();
  void StopMetrics();
  // What the metrics port serves; null when there is none. Set by OpenMetrics.
  HttpHandler* metrics_handler() { return handler_.get(); }

 private:
  const ServerOptions& options_;
  const std::unique_ptr<MemoryWitness> witness_;
  StatisticsBook statistics_;
  Parts parts_;
  std::unique_ptr<MemoryReport> report_;
  std::unique_ptr<MetricsPage> page_;
  std::unique_ptr<MetricsHandler> handler_;
  std::unique_ptr<HttpServer> server_;
};

// Writes a bound port for whoever asked for port 0, in one step. Empty path: nothing to do.
absl::Status WritePortFile(const std::string& path, std::uint16_t port);

}  // namespace tidemark
