#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace tidemark {

// A number that only grows. Thread-safe; an addition costs an atomic operation.
class MetricCounter {
 public:
  // Negative and not-a-number steps do nothing.
  void Increment(double by = 1) {
    if (by > 0) value_.fetch_add(by, std::memory_order_relaxed);
  }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

// A number that comes and goes. Thread-safe.
class MetricGauge {
 public:
  void Set(double value) { value_.store(value, std::memory_order_relaxed); }
  void Add(double by) { value_.fetch_add(by, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

// How values are spread over buckets. Thread-safe, approximate between its parts while it is being read.
class MetricHistogram {
 public:
  // `bounds`: the buckets' upper bounds, ascending; the last bucket, without a bound, comes by itself.
  explicit MetricHistogram(std::vector<double> bounds);
  void Observe(double value);

  const std::vector<double>& bounds() const { return bounds_; }
  std::vector<std::uint64_t> counts() const;  // of each bucket alone, one more than there are bounds
  double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  const std::vector<double> bounds_;
  std::vector<std::atomic<std::uint64_t>> counts_;
  std::atomic<double> sum_{0};
};

// The metrics that a backend adds to /metrics for one loaded version, beside those of the server. Series are made at load,
// mostly; they are shown with the labels `model` and `version` from the version's publication until it is withdrawn, and
// die with it. Thread-safe: instances may ask at once. Whoever asks again for the same series
// gets the one that is there, so that instances may share it.
class ModelMetrics {
 public:
  using Labels = std::map<std::string, std::string>;

  ModelMetrics() = default;
  ModelMetrics(const ModelMetrics&) = delete;
  ModelMetrics& operator=(const ModelMetrics&) = delete;

  // The series of `family` with these labels. It lives as long as this object, which outlives the BackendModel.
  // INVALID_ARGUMENT for a name that Prometheus does not take, a label of the server's, `tidemark_…`, or a family that has
  // another kind, help or buckets already. The page leaves out a family whose name the server, or another kind of another
  // model, has.
  absl::StatusOr<MetricCounter*> Counter(std::string_view family, std::string_view help, Labels labels = {});
  absl::StatusOr<MetricGauge*> Gauge(std::string_view family, std::string_view help, Labels labels = {});
  absl::StatusOr<MetricHistogram*> Histogram(std::string_view family, std::string_view help,
                                             const std::vector<double>& bounds, Labels labels = {});

  enum class Kind : std::uint8_t { kCounter, kGauge, kHistogram };
  struct Sample {
    std::string family;
    std::string help;
    Kind kind = Kind::kCounter;
    Labels labels;
    double value = 0;  // counter, gauge; of a histogram the sum
    std::vector<double> bounds;
    std::vector<std::uint64_t> counts;
  };
  // By family, then labels.
  std::vector<Sample> Collect() const;

 private:
  struct Series {
    std::unique_ptr<MetricCounter> counter;
    std::unique_ptr<MetricGauge> gauge;
    std::unique_ptr<MetricHistogram> histogram;
  };
  struct Family {
    std::string help;
    Kind kind = Kind::kCounter;
    std::vector<double> bounds;
    std::map<Labels, Series> series;
  };
  absl::StatusOr<Series*> Find(std::string_view family, std::string_view help, Kind kind,
                               const std::vector<double>& bounds, Labels labels) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  std::map<std::string, Family, std::less<>> families_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidemark
