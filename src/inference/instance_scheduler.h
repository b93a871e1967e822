#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "backend/backend.h"
#include "inference/model_info.h"
#include "inference/scheduler.h"
#include "resource/buffer_pool.h"
#include "resource/scope.h"

namespace tidemark {

// What the scheduler expects an execution to take, learned from those before it, apart for each order of magnitude of
// input bytes. Lock-free; approximate under races.
class ExecutionTimes {
 public:
  void Record(std::size_t input_bytes, std::int64_t nanos);
  // Nanoseconds; a huge number while too little is known.
  std::int64_t Expect(std::size_t input_bytes) const;

 private:
  struct Bucket {
    std::atomic<std::int64_t> average{0};
    std::atomic<std::uint32_t> samples{0};
  };
  static std::size_t BucketOf(std::size_t bytes);
  std::array<Bucket, 41> buckets_;
};

// Hands each request to one idle instance, first come, first served. An execution that is known to be short runs on the
// submitting thread when an instance is idle; everything else is run by the instance's own thread, or waits in one queue
// for the next instance that becomes idle. While requests wait no instance is idle.
class InstanceScheduler final : public Scheduler {
 private:
  struct Private {};

 public:
  // Makes the instances of `config` on child scopes of `scope`; one that fails takes all before it with it. `info`,
  // `model` and `buffers` outlive the scheduler.
  static absl::StatusOr<std::unique_ptr<InstanceScheduler>> Create(Scope& scope, BackendModel& model,
                                                                   const ModelInfo& info, BufferPool& buffers);
  InstanceScheduler(Private, const ModelInfo& info, BufferPool& buffers);
  ~InstanceScheduler() override;

  void Enqueue(ScheduledRequest scheduled, bool may_run_inline) override;
  absl::Status Health() const override;
  void Start(ModelStatistics& statistics) override { statistics_ = &statistics; }

  // Runs one request on every instance that takes requests, one after the other, and answers with the first error;
  // CANCELLED once `cancel` (may be null) is set. Before Start only. `make` builds the request anew for each instance.
  absl::Status WarmUp(CancelFlag* cancel, absl::FunctionRef<absl::StatusOr<ScheduledRequest>()> make);

  std::size_t instances() const { return instances_.size(); }

 private:
  struct Instance {
    std::string name;
    bool passive = false;
    std::unique_ptr<Scope> scope;
    std::unique_ptr<BackendInstance> backend;
    ScheduledRequest assigned;            // for its thread; guarded by the scheduler's mutex
    absl::CondVar wake;                   // signalled when there is something assigned, or nothing more will be
    std::unique_ptr<Scope> thread_scope;  // dies first: the thread is joined before the engine's instance goes
  };

  absl::Status AddInstance(Scope& scope, BackendModel& model, const inference::ModelInstanceGroup& group,
                           std::string_view name, DeviceId device);
  void ThreadMain(Instance& instance);
  // Executes, fills the response and counts it; the instance is held by the caller.
  void Run(Instance& instance, ScheduledRequest& scheduled);
  // The instance takes the request that has waited longest, or becomes idle.
  void Release(Instance& instance) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Execute(Instance& instance, ScheduledRequest& scheduled);
  Instance* TakeIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ModelInfo& info_;
  BufferPool& buffers_;
  ModelStatistics* statistics_ = nullptr;
  ExecutionTimes times_;
  bool thread_bound_ = false;
  std::size_t active_ = 0;  // instances that take requests
  std::vector<std::unique_ptr<Instance>> instances_;

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Instance*> idle_ ABSL_GUARDED_BY(mutex_);
  std::deque<ScheduledRequest> queue_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidemark
