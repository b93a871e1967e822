#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace tidemark {

// What the trace extension can set. Traces themselves are not written yet; a level other than OFF is refused because
// there is no trace file (SetGlobal, SetModel).
struct TraceValues {
  bool timestamps = false;
  bool tensors = false;
  std::uint32_t rate = 1000;
  std::int32_t count = -1;
  std::uint32_t log_frequency = 0;
  std::string file;  // set at start-up only

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

// The trace settings of the server and of single models. Thread-safe.
class TraceSettings {
 public:
  TraceSettings() : TraceSettings(TraceValues()) {}
  explicit TraceSettings(TraceValues start) : start_(std::move(start)), global_(start_) {}

  TraceValues Global() const;
  TraceValues OfModel(std::string_view model) const;

  // All of `update`, or nothing: INVALID_ARGUMENT "Attempting to set invalid trace setting :<reason>" when the result
  // could not trace.
  absl::Status UpdateGlobal(const TraceUpdate& update);
  absl::Status UpdateModel(std::string_view model, const TraceUpdate& update);

 private:
  // What a model has of its own.
  struct Own {
    std::optional<TraceUpdate::Level> level;
    std::optional<std::uint32_t> rate;
    std::optional<std::int32_t> count;
    std::optional<std::uint32_t> log_frequency;
    bool empty() const { return !level && !rate && !count && !log_frequency; }
  };
  static TraceValues Apply(TraceValues base, const Own& own);

  const TraceValues start_;
  mutable absl::Mutex mutex_;
  TraceValues global_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Own, std::less<>> models_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidemark
