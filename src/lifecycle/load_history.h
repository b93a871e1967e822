#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "resource/ledger.h"

namespace tidemark {

// Why a load failed, coarse enough for a metric's label.
enum class LoadFailure : std::uint8_t {
  kInvalid,    // configuration or model is wrong: INVALID_ARGUMENT, FAILED_PRECONDITION, UNIMPLEMENTED, …
  kNotFound,   // no such model, version or file
  kMemory,     // a budget or the machine has not enough
  kCancelled,  // the server is stopping
  kInternal,   // the engine, or we
};
inline constexpr std::size_t kLoadFailures = 5;
std::string_view LoadFailureName(LoadFailure failure);  // "invalid", "not_found", "memory", "cancelled", "internal"
LoadFailure LoadFailureOf(const absl::Status& status);

// Bytes by device.
using DeviceBytes = std::map<DeviceId, std::int64_t>;

// One load of one version, ended.
struct LoadRecord {
  std::int64_t ended_ms = 0;  // since the Unix epoch
  double seconds = 0;
  bool ok = false;
  std::string reason;   // of a failure, as the index has it
  DeviceBytes taken;    // what its rows hold: when it became READY; after a failure, what is left (nothing)
  DeviceBytes witness;  // how the kernel's and the driver's figures changed meanwhile, by whatever ran at that time
  std::uint64_t rows_left = 0;  // after a failure
};

// What became of a version's memory.
enum class UnloadVerdict : std::uint8_t {
  kReturned,  // every row is closed, and the kernel's (driver's) figure fell with them
  kRetained,  // every row is closed; the figure did not fall as far: an allocator keeps it, or others took memory meanwhile
  kStranded,  // rows are left
};
inline constexpr std::size_t kUnloadVerdicts = 3;
std::string_view UnloadVerdictName(UnloadVerdict verdict);  // "returned", "retained", "stranded"

// One version's way out, ended.
struct UnloadRecord {
  std::int64_t ended_ms = 0;  // since the Unix epoch
  double seconds = 0;         // from the moment when the last request had left
  DeviceBytes held;           // rows before
  DeviceBytes returned;       // of them, what is closed
  DeviceBytes witness;        // how far the figures of kernel and driver fell; negative: they rose
  std::uint64_t rows_left = 0;
  UnloadVerdict verdict = UnloadVerdict::kReturned;
};
// Judges a record whose other members are set. A figure counts as fallen when it fell by the bytes returned, but for
// 1 MiB or 1/20 of them (pages that an allocator shares, and whatever else the process did meanwhile).
UnloadVerdict Judge(const UnloadRecord& record);

// A histogram of seconds with fixed bounds.
struct SecondsHistogram {
  static constexpr std::array<double, 10> kBounds = {0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300};
  std::array<std::uint64_t, kBounds.size() + 1> counts{};  // not cumulative; last: beyond
  double sum = 0;
  void Add(double seconds);
};

// What loads and unloads did since the start: the last of each version, sums, and the latest events. Thread-safe; no call
// waits for more than a short mutex.
class LoadHistory {
 public:
  struct VersionHistory {
    std::optional<LoadRecord> load;
    std::optional<UnloadRecord> unload;
    std::uint64_t cached_at_ready = 0;  // of the last good load's host bytes, what the engine kept for reuse
    DeviceBytes at_ready;               // of the last good load, LoadRecord::taken
  };
  // Load operations, by their result.
  struct Counts {
    std::uint64_t good = 0;
    std::array<std::uint64_t, kLoadFailures> failed{};
    std::array<std::uint64_t, kUnloadVerdicts> unloads{};
  };
  struct ModelHistory {
    std::map<std::int64_t, VersionHistory> versions;
    Counts counts;
  };
  struct Event {
    std::string key;
    std::int64_t version = 0;
    bool load = true;
    bool ok = true;
    std::int64_t ended_ms = 0;
    double seconds = 0;
    std::int64_t bytes = 0;  // taken or returned, all devices
    std::string text;        // reason or verdict
  };
  struct Sums {
    Counts counts;
    DeviceBytes returned;
    std::array<SecondsHistogram, 2> load_seconds;  // of versions: failed, good
    SecondsHistogram unload_seconds;
  };

  // One version's load has ended.
  void LoadEnded(const std::string& key, std::int64_t version, LoadRecord record, std::uint64_t cached_bytes);
  // One load operation, of all its versions, is about to be answered. A model that is not `known` counts in the sums only:
  // its name is whatever a client sent.
  void CountLoad(const std::string& key, bool known, const absl::Status& status);
  void UnloadEnded(const std::string& key, std::int64_t version, UnloadRecord record);

  // Empty when there is none.
  ModelHistory Of(std::string_view key) const;
  Sums Totals() const;
  std::vector<Event> Events() const;  // the newest first, 100 at most
  // Lets go of a model; sums and events stay.
  void Forget(std::string_view key);
  // Counts of every model; forgets those that are not `known` any more.
  std::map<std::string, Counts> Models(absl::FunctionRef<bool(std::string_view key)> known);

 private:
  void AddEvent(Event event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  std::map<std::string, ModelHistory, std::less<>> models_ ABSL_GUARDED_BY(mutex_);
  Sums sums_ ABSL_GUARDED_BY(mutex_);
  std::deque<Event> events_ ABSL_GUARDED_BY(mutex_);  // the newest first
};

}  // namespace tidemark
