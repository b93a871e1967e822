#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "backend/backend.h"
#include "inference/model_info.h"
#include "inference/rate_limiter.h"
#include "inference/request_queue.h"
#include "inference/response_order.h"
#include "inference/scheduler.h"
#include "inference/sequence_tensors.h"
#include "resource/buffer_pool.h"
#include "resource/scope.h"

namespace tidemark {

class ResponseSink;

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

// Runs the requests of a queue on the instances of a model. A request that an idle instance may run at once and that is
// known to be short runs on the submitting thread; everything else is run by the instance's own thread. An instance that
// becomes idle takes what the queue gives it next: batches form while instances are busy, without anybody waiting for
// them, unless the configuration asks for a delay. Only models whose queue changes with time have a thread for that.
class InstanceScheduler final : public Scheduler {
 private:
  struct Private {};

 public:
  // Makes the instances of `config` on child scopes of `scope`; one that fails takes all before it with it. `info`,
  // `model` and `buffers` outlive the scheduler. `sequences`: for a model with sequence_batching, null for others.
  // `limiter` (null: instances run whenever they are idle) outlives the scheduler.
  static absl::StatusOr<std::unique_ptr<InstanceScheduler>> Create(Scope& scope, BackendModel& model,
                                                                   const ModelInfo& info, BufferPool& buffers,
                                                                   std::unique_ptr<SequenceTensors> sequences = nullptr,
                                                                   RateLimiter* limiter = nullptr);
  InstanceScheduler(Private, const ModelInfo& info, BufferPool& buffers);
  ~InstanceScheduler() override;

  void Enqueue(ScheduledRequest scheduled, bool may_run_inline) override;
  void AnswerUnexecuted(std::unique_ptr<InferenceRequest> request) override;
  absl::Status Health() const override;
  void Start(ModelStatistics& statistics) override { statistics_ = &statistics; }

  // Runs `count` requests together on every instance that takes requests, one instance after the other, and answers with
  // the first error; CANCELLED once `cancel` (may be null) is set. Before Start only. `make` builds each request anew.
  absl::Status WarmUp(CancelFlag* cancel, std::size_t count,
                      absl::FunctionRef<absl::StatusOr<ScheduledRequest>()> make);

  std::size_t instances() const { return instances_.size(); }

 private:
  struct Instance {
    std::string name;
    std::size_t number = 0;
    bool passive = false;
    DeviceId device = kHost;
    std::unique_ptr<Scope> scope;
    std::unique_ptr<RateLimiter::Member> turn;  // null: it never waits for others
    std::unique_ptr<BackendInstance> backend;
    Batch assigned;                       // for its thread; guarded by the scheduler's mutex
    absl::CondVar wake;                   // signalled when there is something assigned, or nothing more will be
    std::unique_ptr<Scope> thread_scope;  // dies first: the thread is joined before the engine's instance goes
  };

  absl::Status AddInstance(Scope& scope, BackendModel& model, RateLimiter* limiter,
                           const inference::ModelInstanceGroup& group, std::string_view name, DeviceId device);
  absl::Status StartThreads(Scope& scope);
  void ThreadMain(Instance& instance);
  void TimerMain();

  // Takes a request that no idle instance takes at once. Something to run on this thread, where that is allowed, goes to
  // `here` with its instance.
  absl::Status PutInQueue(ScheduledRequest& scheduled, bool run_here, Instance*& instance, Batch& here,
                          DroppedRequests& dropped);
  // Gives idle instances what the queue has for them; the first one's to `here` unless that is null.
  void Dispatch(std::int64_t now, DroppedRequests& dropped, Instance** instance, Batch* here)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The instance has run the batch: what is to run again goes back into the queue, and out of the batch. The instance
  // takes what comes next, or becomes idle.
  void Release(Instance& instance, Batch& batch, DroppedRequests& dropped) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void UpdateTimer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Instance* TakeIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Copies inputs that lie on another GPU than the instance's to the host.
  absl::Status FetchInputs(const Instance& instance, ScheduledRequest& scheduled);
  // Executes, fills the responses and counts them; the instance is held by the caller. What has asked for another
  // execution is marked and watched as what waits in the queue is.
  void Run(Instance& instance, Batch& batch);
  // Whether the request runs again after an execution that asked for it; an error when it may or need not.
  absl::Status CheckAgain(const InferenceRequest& request, std::int64_t now) const;
  // The inferences that were executed; 0 when all requests had been cancelled.
  std::int64_t Execute(Instance& instance, Batch& batch);
  // What an execution from `start` to `end` has made of one of its requests.
  void Conclude(ScheduledRequest& scheduled, ResponseSink& sink, const Execution& execution, std::int64_t start,
                std::int64_t end) const;
  void RunHere(Instance& instance, Batch batch);

  // So that a cancelled request leaves the queue before its turn comes.
  void WatchCancel(ScheduledRequest& scheduled);
  static void UnwatchCancel(ScheduledRequest& scheduled);

  // After these the scheduler may be gone if nothing else holds the model.
  void Answer(ScheduledRequest& scheduled);
  void AnswerAll(Batch& batch);
  void AnswerDropped(DroppedRequests& dropped);

  const ModelInfo& info_;
  BufferPool& buffers_;
  ModelStatistics* statistics_ = nullptr;
  ExecutionTimes times_;
  bool thread_bound_ = false;  // executions are for the instances' threads alone
  bool immediate_ = true;      // an idle instance takes any request at once
  std::size_t active_ = 0;     // instances that take requests
  std::unique_ptr<SequenceTensors> sequences_;
  std::shared_ptr<ResponseOrder> order_;
  std::vector<std::unique_ptr<Instance>> instances_;
  bool timed_ = false;  // time changes the queue: there is a thread that looks
  std::unique_ptr<Scope> timer_scope_;

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Instance*> idle_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<RequestQueue> queue_ ABSL_GUARDED_BY(mutex_);
  absl::CondVar timer_wake_;
  bool sweep_asked_ ABSL_GUARDED_BY(mutex_) = false;  // something was cancelled
  std::int64_t next_event_ ABSL_GUARDED_BY(mutex_) = kNever;
};

}  // namespace tidemark
