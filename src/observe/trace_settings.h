#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace tidemark {

enum class TraceMode : std::uint8_t { kTriton, kOpenTelemetry };

// What is traced and how. Mode, file and mode options are set at start-up only.
struct TraceValues {
  bool timestamps = false;
  bool tensors = false;
  std::uint32_t rate = 1000;        // every so many requests
  std::int32_t count = -1;          // how many traces are still made; -1: no end
  std::uint32_t log_frequency = 0;  // traces in a file; 0: all in one
  std::string file;                 // of mode triton
  TraceMode mode = TraceMode::kTriton;
  std::vector<std::pair<std::string, std::string>> mode_options;  // shown with the settings, in this order

  bool off() const { return !timestamps && !tensors; }
  friend bool operator==(const TraceValues&, const TraceValues&) = default;
};

// One change: an absent member stays, a member without a value goes back (a model's to the global one, a global one to
// that of the start-up).
struct TraceUpdate {
  struct Level {
    bool timestamps = false;
    bool tensors = false;
  };
  std::optional<std::optional<Level>> level;
  std::optional<std::optional<std::uint32_t>> rate;
  std::optional<std::optional<std::int32_t>> count;
  std::optional<std::optional<std::uint32_t>> log_frequency;
};

// One request that is to be traced.
struct TraceSample {
  std::uint64_t id = 0;      // from 1
  std::uint64_t stream = 0;  // which setting it is of; a change of the setting begins another one
  std::uint32_t log_frequency = 0;
  bool timestamps = false;
  bool tensors = false;
};

// OK, or INVALID_ARGUMENT "Attempting to set invalid trace setting :<reason>" when these values could not trace.
absl::Status CheckTraceValues(const TraceValues& values);

// The trace settings of the server and of single models. Thread-safe.
class TraceSettings {
 public:
  TraceSettings() : TraceSettings(TraceValues()) {}
  explicit TraceSettings(TraceValues start);

  TraceValues Global() const;
  TraceValues OfModel(std::string_view model) const;

  // All of `update`, or nothing: CheckTraceValues' error.
  absl::Status UpdateGlobal(const TraceUpdate& update);
  absl::Status UpdateModel(std::string_view model, const TraceUpdate& update);

  // The model has no settings of its own any more.
  void Forget(std::string_view model);

  // False: nothing is traced now. All that a request pays then.
  bool active() const { return active_.load(std::memory_order_relaxed); }
  // Counts one request of a model; a value when it is its turn. `forced`: the client's own trace goes on with it, so that
  // the rate does not matter.
  std::optional<TraceSample> Sample(std::string_view model, bool forced);
  // An id for what belongs to a traced request.
  std::uint64_t NextId() { return next_id_.fetch_add(1, std::memory_order_relaxed); }

  // `closed` hears of streams that get no further sample. Set once, before requests are served. Must not call back.
  void set_on_closed(std::function<void(std::uint64_t stream)> closed);

 private:
  // What a model has of its own.
  struct Own {
    std::optional<TraceUpdate::Level> level;
    std::optional<std::uint32_t> rate;
    std::optional<std::int32_t> count;
    std::optional<std::uint32_t> log_frequency;
    bool empty() const { return !level && !rate && !count && !log_frequency; }
  };
  struct State {
    TraceValues values;
    std::uint64_t seen = 0;
    std::uint64_t stream = 0;
  };
  struct ModelState {
    Own own;
    State state;
  };
  using Models = std::map<std::string, ModelState, std::less<>>;
  static TraceValues Apply(TraceValues base, const Own& own);
  void Replace(State& state, TraceValues values) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Erase(Models::iterator it) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);  // nothing for the end
  void UpdateActive() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const TraceValues start_;
  std::atomic<bool> active_{false};
  std::atomic<std::uint64_t> next_id_{1};
  mutable absl::Mutex mutex_;
  std::function<void(std::uint64_t)> on_closed_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t next_stream_ ABSL_GUARDED_BY(mutex_) = 1;
  State global_ ABSL_GUARDED_BY(mutex_);
  Models models_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidemark
