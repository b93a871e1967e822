#pragma once

#include <cstdint>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tidemark {

// A count and the nanoseconds they took together.
struct DurationStat {
  std::uint64_t count = 0;
  std::uint64_t ns = 0;
  void Add(std::uint64_t nanos) {
    ++count;
    ns += nanos;
  }
};

// Times of one answered request, NowNanos() clock, in the order in which they happen; 0 = did not happen.
struct RequestTimes {
  std::int64_t received = 0;       // the request is complete and decoded
  std::int64_t queued = 0;         // it was handed to the scheduler
  std::int64_t compute_start = 0;  // an instance took it
  std::int64_t infer_start = 0;    // the engine starts
  std::int64_t infer_end = 0;      // the engine has ended
  std::int64_t compute_end = 0;    // outputs are in place
};

// Statistics of one model version as the v2 statistics extension reports them (member names are its names).
struct ModelStatisticsSnapshot {
  struct Batch {
    DurationStat compute_input, compute_infer, compute_output;
  };
  std::uint64_t last_inference_ms = 0;  // ms since the Unix epoch; 0 = never
  std::uint64_t inference_count = 0;
  std::uint64_t execution_count = 0;
  DurationStat success, fail, queue, compute_input, compute_infer, compute_output, cache_hit, cache_miss;
  std::map<std::uint64_t, Batch> batch_stats;  // by executed batch size
};

// Thread-safe; a reload makes a new one.
class ModelStatistics {
 public:
  // One request was answered. `batch` counts inferences in it (1 for a model that does not batch).
  void RecordSuccess(const RequestTimes& times, std::uint64_t batch);
  void RecordFailure(const RequestTimes& times, std::int64_t end_nanos);
  // One execution of an instance over `batch` inferences in all, timed by any of its requests.
  void RecordExecution(const RequestTimes& times, std::uint64_t batch);

  ModelStatisticsSnapshot Snapshot() const;

 private:
  mutable absl::Mutex mutex_;
  ModelStatisticsSnapshot stats_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidemark
