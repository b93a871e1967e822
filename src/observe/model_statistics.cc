#include "observe/model_statistics.h"

#include <algorithm>

#include "base/clock.h"

namespace tidemark {
namespace {

std::uint64_t Between(std::int64_t from, std::int64_t to) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(to - from, 0));
}

}  // namespace

void ModelStatistics::RecordSuccess(const RequestTimes& times, std::uint64_t batch) {
  const auto now = static_cast<std::uint64_t>(UnixMillis());
  absl::MutexLock lock(&mutex_);
  stats_.last_inference_ms = now;
  stats_.inference_count += batch;
  stats_.success.Add(Between(times.received, times.compute_end));
  stats_.queue.Add(Between(times.queued, times.compute_start));
  stats_.compute_input.Add(Between(times.compute_start, times.infer_start));
  stats_.compute_infer.Add(Between(times.infer_start, times.infer_end));
  stats_.compute_output.Add(Between(times.infer_end, times.compute_end));
}

void ModelStatistics::RecordFailure(const RequestTimes& times, std::int64_t end_nanos) {
  absl::MutexLock lock(&mutex_);
  stats_.fail.Add(Between(times.received, end_nanos));
}

void ModelStatistics::RecordExecution(const RequestTimes& times, std::uint64_t batch) {
  absl::MutexLock lock(&mutex_);
  ++stats_.execution_count;
  ModelStatisticsSnapshot::Batch& row = stats_.batch_stats[batch];
  row.compute_input.Add(Between(times.compute_start, times.infer_start));
  row.compute_infer.Add(Between(times.infer_start, times.infer_end));
  row.compute_output.Add(Between(times.infer_end, times.compute_end));
}

ModelStatisticsSnapshot ModelStatistics::Snapshot() const {
  absl::MutexLock lock(&mutex_);
  return stats_;
}

}  // namespace tidemark
