#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "inference/ensemble_plan.h"
#include "inference/model_info.h"
#include "inference/registry.h"
#include "inference/scheduler.h"
#include "resource/buffer_pool.h"

namespace tidemark {

class EnsembleRun;

// Runs a request through the members of an ensemble: a step begins when all of its inputs are there, steps that do not
// depend on each other run side by side, and each is an ordinary request to its member, batched there with whatever else
// comes. No threads and no copies of its own: outputs are the next step's inputs. Members are entered when the request
// begins, so that it ends even if they are unloaded meanwhile. Thread-safe.
class EnsembleScheduler final : public Scheduler {
 public:
  // `info`, `registry` and `buffers` outlive the scheduler.
  EnsembleScheduler(const ModelInfo& info, EnsemblePlan plan, const Registry& registry, BufferPool& buffers);
  ~EnsembleScheduler() override;

  void Enqueue(ScheduledRequest scheduled, bool may_run_inline) override;
  absl::Status Health() const override { return absl::OkStatus(); }  // the members answer for themselves
  void Start(ModelStatistics& statistics) override { statistics_ = &statistics; }

 private:
  friend class EnsembleRun;

  // max_inflight_requests: may one more request of this step begin? If not, `run` is told when it may be tried again.
  bool EnterStep(std::size_t step, const std::shared_ptr<EnsembleRun>& run);
  // A request of the step has ended; the answer is who has waited longest for its place and has it now.
  std::shared_ptr<EnsembleRun> LeaveStep(std::size_t step);

  struct Limit {
    std::uint32_t inside = 0;
    std::deque<std::shared_ptr<EnsembleRun>> waiting;  // last owner: the request's own callbacks
  };

  const ModelInfo& info_;
  const EnsemblePlan plan_;
  const Registry& registry_;
  BufferPool& buffers_;
  ModelStatistics* statistics_ = nullptr;
  const std::uint32_t max_inflight_;  // 0: no limit

  absl::Mutex mutex_;
  std::vector<Limit> limits_ ABSL_GUARDED_BY(mutex_);  // by step
};

}  // namespace tidemark
