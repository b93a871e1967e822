#include "observe/model_statistics.h"

#include <algorithm>

#include "base/clock.h"
#include "observe/latency_distributions.h"

namespace tidemark {
namespace {

std::uint64_t Between(std::int64_t from, std::int64_t to) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(to - from, 0));
}

}  // namespace

std::string_view FailureReasonName(FailureReason reason) {
  constexpr std::array<std::string_view, kFailureReasons> kNames = {"REJECTED", "CANCELED", "BACKEND", "OTHER"};
  return kNames.at(static_cast<std::size_t>(reason));
}

FailureReason ReasonOfExecution(const absl::Status& status) {
  return absl::IsCancelled(status) || absl::IsDeadlineExceeded(status) ? FailureReason::kCanceled
                                                                       : FailureReason::kBackend;
}

void StatisticsTotals::Add(const StatisticsTotals& other) {
  inference_count += other.inference_count;
  execution_count += other.execution_count;
  success.Add(other.success);
  fail.Add(other.fail);
  queue.Add(other.queue);
  compute_input.Add(other.compute_input);
  compute_infer.Add(other.compute_infer);
  compute_output.Add(other.compute_output);
  cache_hit.Add(other.cache_hit);
  cache_miss.Add(other.cache_miss);
  for (std::size_t i = 0; i < kFailureReasons; ++i) failures[i] += other.failures[i];
}

void ModelStatistics::RecordSuccess(const RequestTimes& times, std::uint64_t batch) {
  const auto now = static_cast<std::uint64_t>(UnixMillis());
  const std::uint64_t request = Between(times.received, times.compute_end);
  const std::uint64_t queue = Between(times.queued, times.compute_start);
  const std::uint64_t input = Between(times.compute_start, times.infer_start);
  const std::uint64_t infer = Between(times.infer_start, times.infer_end);
  const std::uint64_t output = Between(times.infer_end, times.compute_end);
  {
    absl::MutexLock lock(&mutex_);
    stats_.last_inference_ms = now;
    stats_.inference_count += batch;
    stats_.success.Add(request);
    stats_.queue.Add(queue);
    stats_.compute_input.Add(input);
    stats_.compute_infer.Add(infer);
    stats_.compute_output.Add(output);
  }
  if (distributions_ != nullptr) distributions_->ObserveRequest(request, queue, input, infer, output);
}

void ModelStatistics::RecordFailure(const RequestTimes& times, std::int64_t end_nanos, FailureReason reason) {
  absl::MutexLock lock(&mutex_);
  stats_.fail.Add(Between(times.received, end_nanos));
  ++stats_.failures[static_cast<std::size_t>(reason)];
}

void ModelStatistics::RecordCacheHit(const RequestTimes& times, std::int64_t lookup_nanos, std::int64_t end_nanos) {
  const std::uint64_t lookup = Between(0, lookup_nanos);
  const std::int64_t whole = end_nanos - times.received;
  {
    absl::MutexLock lock(&mutex_);
    stats_.success.Add(Between(0, whole));
    stats_.queue.Add(0);
    stats_.cache_hit.Add(lookup);
  }
  if (distributions_ != nullptr) distributions_->ObserveCacheHit(lookup);
  RecordFirstResponse(whole);
}

void ModelStatistics::RecordCacheMiss(std::int64_t nanos) {
  const std::uint64_t miss = Between(0, nanos);
  {
    absl::MutexLock lock(&mutex_);
    stats_.cache_miss.Add(miss);
  }
  if (distributions_ != nullptr) distributions_->ObserveCacheMiss(miss);
}

void ModelStatistics::RecordExecution(const RequestTimes& times, std::uint64_t batch) {
  absl::MutexLock lock(&mutex_);
  ++stats_.execution_count;
  ModelStatisticsSnapshot::Batch& row = stats_.batch_stats[batch];
  row.compute_input.Add(Between(times.compute_start, times.infer_start));
  row.compute_infer.Add(Between(times.infer_start, times.infer_end));
  row.compute_output.Add(Between(times.infer_end, times.compute_end));
}

void ModelStatistics::RecordFirstResponse(std::int64_t nanos) {
  if (distributions_ != nullptr) distributions_->ObserveFirstResponse(Between(0, nanos));
}

void ModelStatistics::RecordResponse(std::uint64_t index, ResponseOutcome outcome, std::int64_t start,
                                     std::int64_t output_start, std::int64_t end) {
  absl::MutexLock lock(&mutex_);
  ModelStatisticsSnapshot::Response& row = stats_.response_stats[index];
  const std::uint64_t whole = Between(start, end);
  switch (outcome) {
    case ResponseOutcome::kSuccess:
      row.compute_infer.Add(Between(start, output_start));
      row.compute_output.Add(Between(output_start, end));
      row.success.Add(whole);
      break;
    case ResponseOutcome::kFail:
      row.compute_infer.Add(Between(start, output_start));
      row.compute_output.Add(Between(output_start, end));
      row.fail.Add(whole);
      break;
    case ResponseOutcome::kEmpty:
      row.compute_infer.Add(whole);
      row.empty_response.Add(whole);
      break;
    case ResponseOutcome::kCancel:
      row.cancel.Add(whole);
      break;
  }
}

ModelStatisticsSnapshot ModelStatistics::Snapshot() const {
  absl::MutexLock lock(&mutex_);
  return stats_;
}

StatisticsTotals ModelStatistics::Totals() const {
  absl::MutexLock lock(&mutex_);
  return stats_;
}

}  // namespace tidemark
