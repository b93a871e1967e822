#include "inference/ensemble_scheduler.h"

#include <utility>

#include "base/clock.h"
#include "inference/ensemble_run.h"

namespace tidemark {

EnsembleScheduler::EnsembleScheduler(const ModelInfo& info, EnsemblePlan plan, const Registry& registry,
                                     BufferPool& buffers)
    : info_(info),
      plan_(std::move(plan)),
      registry_(registry),
      buffers_(buffers),
      max_inflight_(info.config().ensemble_scheduling().max_inflight_requests()),
      limits_(plan_.steps().size()) {}

EnsembleScheduler::~EnsembleScheduler() = default;

void EnsembleScheduler::Enqueue(ScheduledRequest scheduled, bool may_run_inline) {
  scheduled.request->times.queued = NowNanos();
  const auto run = std::make_shared<EnsembleRun>(*this, std::move(scheduled.request), scheduled.batch);
  if (absl::Status status = run->Begin(); !status.ok()) return run->Fail(status);
  run->Advance(may_run_inline);
}

bool EnsembleScheduler::EnterStep(std::size_t step, const std::shared_ptr<EnsembleRun>& run) {
  if (max_inflight_ == 0) return true;
  absl::MutexLock lock(&mutex_);
  Limit& limit = limits_[step];
  if (limit.inside < max_inflight_) {
    ++limit.inside;
    return true;
  }
  limit.waiting.push_back(run);
  return false;
}

std::shared_ptr<EnsembleRun> EnsembleScheduler::LeaveStep(std::size_t step) {
  if (max_inflight_ == 0) return nullptr;
  absl::MutexLock lock(&mutex_);
  Limit& limit = limits_[step];
  if (limit.waiting.empty()) {
    --limit.inside;
    return nullptr;
  }
  std::shared_ptr<EnsembleRun> next = std::move(limit.waiting.front());
  limit.waiting.pop_front();
  return next;
}

}  // namespace tidemark
