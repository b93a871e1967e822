#include "lifecycle/load_history.h"

#include <algorithm>

namespace tidemark {
namespace {

constexpr std::size_t kEvents = 100;

std::int64_t SumOf(const DeviceBytes& bytes) {
  std::int64_t sum = 0;
  for (const auto& [device, count] : bytes) sum += count;
  return sum;
}

}  // namespace

std::string_view LoadFailureName(LoadFailure failure) {
  constexpr std::array<std::string_view, kLoadFailures> kNames = {"invalid", "not_found", "memory", "cancelled",
                                                                  "internal"};
  return kNames.at(static_cast<std::size_t>(failure));
}

LoadFailure LoadFailureOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      return LoadFailure::kNotFound;
    case absl::StatusCode::kResourceExhausted:
      return LoadFailure::kMemory;
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnavailable:
      return LoadFailure::kCancelled;
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDataLoss:
      return LoadFailure::kInternal;
    default:
      return LoadFailure::kInvalid;
  }
}

std::string_view UnloadVerdictName(UnloadVerdict verdict) {
  constexpr std::array<std::string_view, kUnloadVerdicts> kNames = {"returned", "retained", "stranded"};
  return kNames.at(static_cast<std::size_t>(verdict));
}

UnloadVerdict Judge(const UnloadRecord& record) {
  if (record.rows_left != 0) return UnloadVerdict::kStranded;
  for (const auto& [device, bytes] : record.returned) {
    const auto fell = record.witness.find(device);
    if (fell == record.witness.end()) continue;  // nobody to ask
    const std::int64_t tolerance = std::max<std::int64_t>(std::int64_t{1} << 20, bytes / 20);
    if (fell->second < bytes - tolerance) return UnloadVerdict::kRetained;
  }
  return UnloadVerdict::kReturned;
}

void SecondsHistogram::Add(double seconds) {
  const auto at = std::lower_bound(kBounds.begin(), kBounds.end(), seconds) - kBounds.begin();
  ++counts.at(static_cast<std::size_t>(at));
  sum += seconds;
}

void LoadHistory::AddEvent(Event event) {
  events_.push_front(std::move(event));
  if (events_.size() > kEvents) events_.pop_back();
}

void LoadHistory::LoadEnded(const std::string& key, std::int64_t version, LoadRecord record,
                            std::uint64_t cached_bytes) {
  absl::MutexLock lock(&mutex_);
  sums_.load_seconds[record.ok ? 1 : 0].Add(record.seconds);
  AddEvent({key, version, true, record.ok, record.ended_ms, record.seconds, SumOf(record.taken), record.reason});
  VersionHistory& history = models_[key].versions[version];
  if (record.ok) {
    history.cached_at_ready = cached_bytes;
    history.at_ready = record.taken;
  }
  history.load = std::move(record);
}

void LoadHistory::CountLoad(const std::string& key, bool known, const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  for (Counts* counts : {&sums_.counts, known ? &models_[key].counts : nullptr}) {
    if (counts == nullptr) continue;
    if (status.ok()) {
      ++counts->good;
    } else {
      ++counts->failed[static_cast<std::size_t>(LoadFailureOf(status))];
    }
  }
}

void LoadHistory::UnloadEnded(const std::string& key, std::int64_t version, UnloadRecord record) {
  absl::MutexLock lock(&mutex_);
  sums_.unload_seconds.Add(record.seconds);
  for (const auto& [device, bytes] : record.returned) sums_.returned[device] += bytes;
  ModelHistory& model = models_[key];
  for (Counts* counts : {&sums_.counts, &model.counts}) ++counts->unloads[static_cast<std::size_t>(record.verdict)];
  AddEvent({key, version, false, record.verdict != UnloadVerdict::kStranded, record.ended_ms, record.seconds,
            SumOf(record.returned), std::string(UnloadVerdictName(record.verdict))});
  model.versions[version].unload = std::move(record);
}

LoadHistory::ModelHistory LoadHistory::Of(std::string_view key) const {
  absl::MutexLock lock(&mutex_);
  const auto it = models_.find(key);
  return it == models_.end() ? ModelHistory() : it->second;
}

LoadHistory::Sums LoadHistory::Totals() const {
  absl::MutexLock lock(&mutex_);
  return sums_;
}

std::vector<LoadHistory::Event> LoadHistory::Events() const {
  absl::MutexLock lock(&mutex_);
  return {events_.begin(), events_.end()};
}

void LoadHistory::Forget(std::string_view key) {
  absl::MutexLock lock(&mutex_);
  if (const auto it = models_.find(key); it != models_.end()) models_.erase(it);
}

std::map<std::string, LoadHistory::Counts> LoadHistory::Models(absl::FunctionRef<bool(std::string_view key)> known) {
  std::map<std::string, Counts> models;
  absl::MutexLock lock(&mutex_);
  for (auto it = models_.begin(); it != models_.end();) {
    if (!known(it->first)) {
      it = models_.erase(it);
      continue;
    }
    models.emplace(it->first, it->second.counts);
    ++it;
  }
  return models;
}

}  // namespace tidemark
