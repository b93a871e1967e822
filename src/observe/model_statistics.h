#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace tidemark {

class LatencyDistributions;

// A count and the time they took together: in nanoseconds, and in microseconds cut for each of them (as the metrics of
// Triton are).
struct DurationStat {
  std::uint64_t count = 0;
  std::uint64_t ns = 0;
  std::uint64_t us = 0;
  void Add(std::uint64_t nanos) {
    ++count;
    ns += nanos;
    us += nanos / 1000;
  }
  void Add(const DurationStat& other) {
    count += other.count;
    ns += other.ns;
    us += other.us;
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

// Why a request that a scheduler had taken failed: the `reason` of nv_inference_request_failure.
enum class FailureReason : std::uint8_t {
  kRejected,  // waited in a queue for longer than it may
  kCanceled,  // the client went away or cancelled
  kBackend,   // the execution failed
  kOther,     // anything else: a step of an ensemble
};
inline constexpr std::size_t kFailureReasons = 4;
std::string_view FailureReasonName(FailureReason reason);  // "REJECTED", "CANCELED", "BACKEND", "OTHER"
// Of a request that an instance answered: CANCELLED and DEADLINE_EXCEEDED are kCanceled, everything else kBackend.
FailureReason ReasonOfExecution(const absl::Status& status);

// How one response of a decoupled model ended.
enum class ResponseOutcome : std::uint8_t { kSuccess, kFail, kEmpty, kCancel };

// The sums of which metrics are made. Plain numbers, so that adding them up takes nothing.
struct StatisticsTotals {
  std::uint64_t inference_count = 0;
  std::uint64_t execution_count = 0;
  DurationStat success, fail, queue, compute_input, compute_infer, compute_output, cache_hit, cache_miss;
  std::array<std::uint64_t, kFailureReasons> failures{};  // by FailureReason; their sum is fail.count
  void Add(const StatisticsTotals& other);
};

// Statistics of one model version as the v2 statistics extension reports them (member names are its names).
struct ModelStatisticsSnapshot : StatisticsTotals {
  struct Batch {
    DurationStat compute_input, compute_infer, compute_output;
  };
  struct Response {
    DurationStat compute_infer, compute_output, success, fail, empty_response, cancel;
  };
  std::uint64_t last_inference_ms = 0;               // ms since the Unix epoch; 0 = never
  std::map<std::uint64_t, Batch> batch_stats;        // by executed batch size
  std::map<std::uint64_t, Response> response_stats;  // by index of the response; decoupled models only
};

// Thread-safe; a reload makes a new one. What a metric must keep over a reload is kept by the StatisticsBook.
class ModelStatistics {
 public:
  ModelStatistics() = default;
  // `distributions` (may be null) sees every latency as well. Last owner: whichever of book and statistics ends later.
  explicit ModelStatistics(std::shared_ptr<LatencyDistributions> distributions)
      : distributions_(std::move(distributions)) {}

  // One request was answered. `batch` counts inferences in it (1 for a model that does not batch).
  void RecordSuccess(const RequestTimes& times, std::uint64_t batch);
  void RecordFailure(const RequestTimes& times, std::int64_t end_nanos, FailureReason reason = FailureReason::kBackend);
  // One request was answered from the response cache, found in `lookup_nanos`. `times`: up to `queued`.
  void RecordCacheHit(const RequestTimes& times, std::int64_t lookup_nanos, std::int64_t end_nanos);
  // A request was executed well that the cache did not have: so long it took to look it up and to keep its answer.
  void RecordCacheMiss(std::int64_t nanos);
  // One execution of an instance over `batch` inferences in all, timed by any of its requests.
  void RecordExecution(const RequestTimes& times, std::uint64_t batch);
  // The first response of any request is there, `nanos` after it was received. RecordSuccess does not imply it.
  void RecordFirstResponse(std::int64_t nanos);
  // Response `index` (from 0) of a request to a decoupled model: computed from `start` on, written from `output_start`
  // to `end`; NowNanos() clock.
  void RecordResponse(std::uint64_t index, ResponseOutcome outcome, std::int64_t start, std::int64_t output_start,
                      std::int64_t end);

  // Requests that wait for an execution: +1 when one is queued or handed to another thread, -1 when it leaves.
  void AddPending(std::int64_t change) { pending_.fetch_add(change, std::memory_order_relaxed); }
  std::int64_t pending() const { return pending_.load(std::memory_order_relaxed); }

  ModelStatisticsSnapshot Snapshot() const;
  // Takes nothing.
  StatisticsTotals Totals() const;

 private:
  std::atomic<std::int64_t> pending_{0};
  const std::shared_ptr<LatencyDistributions> distributions_;
  mutable absl::Mutex mutex_;
  ModelStatisticsSnapshot stats_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidemark
