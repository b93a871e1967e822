#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "observe/latency_distributions.h"
#include "observe/model_statistics.h"

namespace tidemark {

// Keeps what the metrics of a model version count over its reloads: counters never go back while the version is known.
// The statistics of each load are its own; when a load's statistics die their totals are added to the version's.
// Thread-safe. Outlives every ModelStatistics that it made.
class StatisticsBook {
 public:
  StatisticsBook() : StatisticsBook(LatencyOptions()) {}
  explicit StatisticsBook(LatencyOptions options) : options_(std::move(options)) {}

  const LatencyOptions& options() const { return options_; }

  // Labels of a version's series besides model and version: "_<key>" of its `metric_tags`.
  using Tags = std::map<std::string, std::string>;

  // Statistics for a load of the version. `key` is the registry's. `buckets` as LatencyDistributions takes them (those of
  // the version's first load stay; tags, and whether its answers are cached, are those of the last).
  std::shared_ptr<ModelStatistics> Open(std::string_view key, std::int64_t version,
                                        const std::vector<double>& buckets = LatencyDistributions::DefaultBuckets(),
                                        Tags tags = {}, bool cached = false);

  struct Entry {
    std::string key;
    std::int64_t version = 0;
    Tags tags;
    bool cached = false;      // it has a response cache
    StatisticsTotals totals;  // all loads
    std::int64_t pending = 0;
    std::shared_ptr<const LatencyDistributions> distributions;  // may be null
  };
  // Every version that has a living load, by key and version. Versions without one are kept, and counted on when they
  // are loaded again, for as long as `known(key)` says so.
  std::vector<Entry> Collect(absl::FunctionRef<bool(std::string_view key)> known);
  // Lets go of all versions of a model; of one with a living load when that ends, unless it is opened again before.
  void Forget(std::string_view key);

 private:
  struct Record {
    StatisticsTotals past;  // of loads that have ended
    std::vector<const ModelStatistics*> living;
    std::shared_ptr<LatencyDistributions> distributions;
    Tags tags;
    bool cached = false;
    bool forgotten = false;
  };
  using Id = std::pair<std::string, std::int64_t>;

  void Close(const Id& id, const ModelStatistics* statistics) noexcept;

  const LatencyOptions options_;
  absl::Mutex mutex_;
  std::map<Id, Record> records_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidemark
