#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace prometheus {
struct ClientMetric;
}

namespace tidemark {

// What `--metrics-config` chooses, with Triton's defaults.
struct LatencyOptions {
  bool counters = true;     // counter_latencies
  bool histograms = false;  // histogram_latencies
  bool summaries = false;   // summary_latencies
  // summary_quantiles: quantile and its allowed error.
  std::vector<std::pair<double, double>> quantiles = {
      {0.5, 0.05}, {0.9, 0.01}, {0.95, 0.001}, {0.99, 0.001}, {0.999, 0.001}};
};

// How the latencies of one model version are spread: prometheus-cpp's histogram and summaries (the last minute), over
// all its loads. Thread-safe. Made only when one of them is asked for: a summary costs a lock for each request.
class LatencyDistributions {
 public:
  // `buckets`: upper bounds of the first-response histogram, in milliseconds, ascending.
  LatencyDistributions(const LatencyOptions& options, const std::vector<double>& buckets);
  ~LatencyDistributions();
  LatencyDistributions(const LatencyDistributions&) = delete;
  LatencyDistributions& operator=(const LatencyDistributions&) = delete;

  static const std::vector<double>& DefaultBuckets();  // 100, 500, 2000, 5000 (protocol digest 7.2)

  // All in nanoseconds.
  void ObserveRequest(std::uint64_t request, std::uint64_t queue, std::uint64_t input, std::uint64_t infer,
                      std::uint64_t output);
  void ObserveFirstResponse(std::uint64_t nanos);
  // A request that the response cache answered: it waited in no queue.
  void ObserveCacheHit(std::uint64_t nanos);
  void ObserveCacheMiss(std::uint64_t nanos);

  // Null when it is not asked for.
  std::unique_ptr<prometheus::ClientMetric> FirstResponse() const;
  enum class Phase { kRequest, kQueue, kInput, kInfer, kOutput, kCacheHit, kCacheMiss };
  std::unique_ptr<prometheus::ClientMetric> Summary(Phase phase) const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace tidemark
