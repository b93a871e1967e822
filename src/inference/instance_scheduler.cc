#include "inference/instance_scheduler.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "inference/batch_queue.h"
#include "inference/output_sink.h"
#include "inference/sequence_queue.h"
#include "observe/model_statistics.h"
#include "repository/config_normalize.h"

namespace tidemark {
namespace {

// Executions expected to be shorter than this run on the event loop: two thread hand-offs cost about as much.
constexpr std::int64_t kInlineNanos = 100'000;
constexpr std::uint32_t kEnoughSamples = 3;

void AnswerNow(std::unique_ptr<InferenceRequest> request) {
  auto done = std::move(request->on_complete);
  done(std::move(request));
}

bool Cancelled(const InferenceRequest& request) { return request.cancel != nullptr && request.cancel->cancelled(); }

// The requests of the batch that somebody waits for.
std::int64_t Waiting(const Batch& batch) {
  return std::count_if(batch.begin(), batch.end(),
                       [](const ScheduledRequest& scheduled) { return !scheduled.is_null; });
}

std::size_t InputBytes(const ScheduledRequest& scheduled) {
  std::size_t bytes = 0;
  for (const InputTensor& tensor : scheduled.tensors) bytes += tensor.data.size();
  return bytes;
}

// The request goes back into the queue: what this execution took is remembered.
void PutBy(RequestTimes& times, PhaseTimes& spent) {
  spent.queue += times.compute_start - times.queued;
  spent.input += times.infer_start - times.compute_start;
  spent.infer += times.infer_end - times.infer_start;
  spent.output += times.compute_end - times.infer_end;
  times.queued = times.compute_end;
}

// After the last execution of several: the phases of all of them, as if they had been one that ended when the last did.
void AddSpent(const PhaseTimes& spent, RequestTimes& times) {
  times.infer_end -= spent.output;
  times.infer_start -= spent.output + spent.infer;
  times.compute_start -= spent.output + spent.infer + spent.input;
  times.queued -= spent.output + spent.infer + spent.input + spent.queue;
}

}  // namespace

std::size_t ExecutionTimes::BucketOf(std::size_t bytes) {
  return std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(bytes)), 40);
}

void ExecutionTimes::Record(std::size_t input_bytes, std::int64_t nanos) {
  Bucket& bucket = buckets_[BucketOf(input_bytes)];
  const std::int64_t average = bucket.average.load(std::memory_order_relaxed);
  // One long run counts at once; the way back takes several short ones.
  bucket.average.store(nanos > 4 * average ? nanos : average + (nanos - average) / 8, std::memory_order_relaxed);
  if (bucket.samples.load(std::memory_order_relaxed) < kEnoughSamples) {
    bucket.samples.fetch_add(1, std::memory_order_relaxed);
  }
}

std::int64_t ExecutionTimes::Expect(std::size_t input_bytes) const {
  const Bucket& bucket = buckets_[BucketOf(input_bytes)];
  if (bucket.samples.load(std::memory_order_relaxed) < kEnoughSamples) {
    return std::numeric_limits<std::int64_t>::max();
  }
  return bucket.average.load(std::memory_order_relaxed);
}

InstanceScheduler::InstanceScheduler(Private /*only Create*/, const ModelInfo& info, BufferPool& buffers)
    : info_(info), buffers_(buffers) {}

InstanceScheduler::~InstanceScheduler() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    for (const auto& instance : instances_)
      instance->wake.SignalAll();  // all at once, so that none is waited for alone
  }
  timer_scope_.reset();
  while (!instances_.empty()) instances_.pop_back();
}

absl::StatusOr<std::unique_ptr<InstanceScheduler>> InstanceScheduler::Create(Scope& scope, BackendModel& model,
                                                                             const ModelInfo& info, BufferPool& buffers,
                                                                             std::unique_ptr<SequenceTensors> sequences,
                                                                             RateLimiter* limiter) {
  auto scheduler = std::make_unique<InstanceScheduler>(Private(), info, buffers);
  scheduler->sequences_ = std::move(sequences);
  if (info.config().dynamic_batching().preserve_ordering()) scheduler->order_ = std::make_shared<ResponseOrder>();
  for (const inference::ModelInstanceGroup& group : info.config().instance_group()) {
    const std::vector<std::string> names = InstanceNames(group);
    if (group.kind() == inference::ModelInstanceGroup::KIND_GPU) {
      for (const std::int32_t gpu : group.gpus()) {
        for (const std::string& name : names) {
          RETURN_IF_ERROR(scheduler->AddInstance(scope, model, limiter, group, name, gpu));
        }
      }
    } else {
      for (const std::string& name : names) {
        RETURN_IF_ERROR(scheduler->AddInstance(scope, model, limiter, group, name, kHost));
      }
    }
  }
  RETURN_IF_ERROR(scheduler->StartThreads(scope));
  return scheduler;
}

absl::Status InstanceScheduler::AddInstance(Scope& scope, BackendModel& model, RateLimiter* limiter,
                                            const inference::ModelInstanceGroup& group, std::string_view name,
                                            DeviceId device) {
  auto instance = std::make_unique<Instance>();
  instance->name = std::string(name);
  instance->passive = group.passive();
  instance->device = device;
  instance->scope = std::make_unique<Scope>(scope, fmt::format("instance/{}", name));
  if (limiter != nullptr && !instance->passive) {
    ASSIGN_OR_RETURN(instance->turn, limiter->Add(group.rate_limiter(), device));
  }
  ASSIGN_OR_RETURN(instance->backend, model.CreateInstance(*instance->scope, group, name, device));
  instance->thread_scope = std::make_unique<Scope>(*instance->scope, "thread");
  thread_bound_ = thread_bound_ || instance->backend->thread_bound() || instance->turn != nullptr;
  if (!instance->passive) instance->number = active_++;
  instances_.push_back(std::move(instance));
  return absl::OkStatus();
}

absl::Status InstanceScheduler::StartThreads(Scope& scope) {
  {
    absl::MutexLock lock(&mutex_);
    if (sequences_ != nullptr) {
      queue_ = std::make_unique<SequenceQueue>(info_, *sequences_, active_);
      immediate_ = false;
      timed_ = true;
    } else {
      auto queue = std::make_unique<BatchQueue>(info_);
      immediate_ = queue->immediate();
      timed_ = queue->timed();
      queue_ = std::move(queue);
    }
  }
  for (const auto& instance : instances_) {
    if (instance->passive) continue;
    Instance* self = instance.get();
    RETURN_IF_ERROR(self->thread_scope
                        ->StartThread(
                            "instance", [this, self] { ThreadMain(*self); },
                            [this, self] {
                              absl::MutexLock lock(&mutex_);
                              stopping_ = true;
                              self->wake.SignalAll();
                            },
                            "instance thread")
                        .status());
    absl::MutexLock lock(&mutex_);
    idle_.push_back(self);
  }
  if (!timed_) return absl::OkStatus();
  timer_scope_ = std::make_unique<Scope>(scope, "scheduler");
  return timer_scope_
      ->StartThread(
          "scheduler", [this] { TimerMain(); },
          [this] {
            absl::MutexLock lock(&mutex_);
            stopping_ = true;
            timer_wake_.SignalAll();
          },
          "scheduler's timer")
      .status();
}

InstanceScheduler::Instance* InstanceScheduler::TakeIdle() {
  if (idle_.empty()) return nullptr;
  Instance* instance = idle_.back();
  idle_.pop_back();
  return instance;
}

void InstanceScheduler::Release(Instance& instance, Batch& batch, DroppedRequests& dropped) {
  for (ScheduledRequest& scheduled : batch) {
    if (!std::exchange(scheduled.again, false)) continue;
    sweep_asked_ = sweep_asked_ || Cancelled(*scheduled.request);  // its callback came too early to find it
    statistics_->AddPending(1);
    queue_->Requeue(instance.number, scheduled);
  }
  if (sequences_ != nullptr) queue_->Done(instance.number, NowNanos());
  if (!queue_->empty()) instance.assigned = queue_->Take(instance.number, NowNanos(), dropped);
  if (instance.assigned.empty()) {
    idle_.push_back(&instance);
  } else {
    instance.wake.Signal();
  }
  UpdateTimer();
}

void InstanceScheduler::UpdateTimer() {
  if (!timed_) return;
  const std::int64_t next = sweep_asked_ ? 0 : queue_->NextEvent(!idle_.empty());
  if (next < next_event_) timer_wake_.Signal();
  next_event_ = next;
}

void InstanceScheduler::Dispatch(std::int64_t now, DroppedRequests& dropped, Instance** instance, Batch* here) {
  for (std::size_t i = idle_.size(); i > 0 && !queue_->empty(); --i) {
    Instance* candidate = idle_[i - 1];
    Batch batch = queue_->Take(candidate->number, now, dropped);
    if (batch.empty()) continue;
    idle_.erase(idle_.begin() + static_cast<std::ptrdiff_t>(i - 1));
    if (here != nullptr) {
      *instance = candidate;
      *std::exchange(here, nullptr) = std::move(batch);
    } else {
      candidate->assigned = std::move(batch);
      candidate->wake.Signal();
    }
  }
  UpdateTimer();
}

void InstanceScheduler::WatchCancel(ScheduledRequest& scheduled) {
  CancelFlag* cancel = scheduled.request->cancel.get();
  if (cancel == nullptr || !timed_) return;  // without a timer it is dropped when its turn comes
  scheduled.cancel_id = cancel->OnCancel([this] {
    absl::MutexLock lock(&mutex_);
    sweep_asked_ = true;
    UpdateTimer();
  });
}

void InstanceScheduler::UnwatchCancel(ScheduledRequest& scheduled) {
  if (const std::uint64_t id = std::exchange(scheduled.cancel_id, 0); id != 0) scheduled.request->cancel->Remove(id);
}

void InstanceScheduler::Enqueue(ScheduledRequest scheduled, bool may_run_inline) {
  scheduled.request->times.queued = NowNanos();
  const bool run_here =
      may_run_inline && !thread_bound_ && !info_.decoupled() && times_.Expect(InputBytes(scheduled)) < kInlineNanos;
  if (active_ == 0) {
    scheduled.request->response.status = absl::UnavailableError(
        fmt::format("model '{}' version {} has passive instances only", info_.name(), info_.version()));
    return AnswerNow(std::move(scheduled.request));
  }
  Instance* instance = nullptr;
  Batch batch;
  if (immediate_) {
    absl::MutexLock lock(&mutex_);
    instance = TakeIdle();
    if (instance != nullptr) {
      if (order_ != nullptr) scheduled.place = ResponseOrder::Add(order_, *scheduled.request);
      if (!run_here) {
        statistics_->AddPending(1);
        instance->assigned.push_back(std::move(scheduled));
        instance->wake.Signal();
        return;
      }
    }
  }
  if (instance != nullptr) {
    batch.push_back(std::move(scheduled));
    return RunHere(*instance, std::move(batch));
  }
  DroppedRequests dropped;
  if (absl::Status status = PutInQueue(scheduled, run_here, instance, batch, dropped); !status.ok()) {
    scheduled.request->times.queued = 0;  // it never was in the queue
    scheduled.request->response.status = std::move(status);
    return AnswerNow(std::move(scheduled.request));
  }
  // What was queued may have been answered by now: only those requests that are here hold the scheduler.
  if (instance != nullptr) statistics_->AddPending(-Waiting(batch));
  if (!dropped.empty()) AnswerDropped(dropped);
  if (instance != nullptr) RunHere(*instance, std::move(batch));
}

absl::Status InstanceScheduler::PutInQueue(ScheduledRequest& scheduled, bool run_here, Instance*& instance, Batch& here,
                                           DroppedRequests& dropped) {
  WatchCancel(scheduled);
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    InferenceRequest& request = *scheduled.request;
    const std::int64_t now = NowNanos();
    if (order_ != nullptr) scheduled.place = ResponseOrder::Add(order_, request);
    status = queue_->Push(scheduled, now);
    if (status.ok()) {
      statistics_->AddPending(1);
      sweep_asked_ = sweep_asked_ || (timed_ && Cancelled(request));  // its callback came too early to find it
      Dispatch(now, dropped, &instance, run_here ? &here : nullptr);
    } else if (order_ != nullptr) {
      ResponseOrder::Withdraw(order_, request);
    }
  }
  if (!status.ok()) UnwatchCancel(scheduled);
  return status;
}

void InstanceScheduler::RunHere(Instance& instance, Batch batch) {
  DroppedRequests dropped;
  Run(instance, batch);
  {
    absl::MutexLock lock(&mutex_);
    Release(instance, batch, dropped);
  }
  AnswerDropped(dropped);
  // Last: the answer may let the last request out of the gate, and then this scheduler is gone at any moment. Without one,
  // because all requests run again, it may be gone already.
  AnswerAll(batch);
}

void InstanceScheduler::ThreadMain(Instance& instance) {
  for (;;) {
    Batch batch;
    DroppedRequests dropped;
    {
      absl::MutexLock lock(&mutex_);
      while (instance.assigned.empty() && !stopping_) instance.wake.Wait(&mutex_);
      if (instance.assigned.empty()) return;
      batch.swap(instance.assigned);
    }
    if (instance.turn != nullptr) static_cast<void>(instance.turn->Begin(nullptr));  // fails when cancelled only
    statistics_->AddPending(-Waiting(batch));
    Run(instance, batch);
    bool more = false;
    {
      absl::MutexLock lock(&mutex_);
      Release(instance, batch, dropped);
      more = !instance.assigned.empty();
    }
    if (instance.turn != nullptr) instance.turn->End(more);
    AnswerDropped(dropped);
    AnswerAll(batch);
  }
}

void InstanceScheduler::TimerMain() {
  for (;;) {
    DroppedRequests dropped;
    {
      absl::MutexLock lock(&mutex_);
      std::int64_t now = NowNanos();
      while (next_event_ > now) {
        if (stopping_) return;
        if (next_event_ == kNever) {
          timer_wake_.Wait(&mutex_);
        } else {
          timer_wake_.WaitWithTimeout(&mutex_, absl::Nanoseconds(next_event_ - now));
        }
        now = NowNanos();
      }
      if (stopping_) return;
      sweep_asked_ = false;
      queue_->Sweep(now, dropped);
      next_event_ = kNever;
      Dispatch(now, dropped, nullptr, nullptr);
    }
    AnswerDropped(dropped);
  }
}

absl::Status InstanceScheduler::FetchInputs(const Instance& instance, ScheduledRequest& scheduled) {
  for (InputTensor& tensor : scheduled.tensors) {
    if (tensor.device == kHost || tensor.device == instance.device) continue;
    std::vector<RequestInput>& inputs = scheduled.request->inputs;
    const auto input = std::find_if(inputs.begin(), inputs.end(),
                                    [&](const RequestInput& candidate) { return candidate.name == tensor.name; });
    RETURN_IF_ERROR(BringToHost(buffers_, *input));
    tensor.data = input->data;
    tensor.device = kHost;
  }
  return absl::OkStatus();
}

std::int64_t InstanceScheduler::Execute(Instance& instance, Batch& batch) {
  struct Part {
    ScheduledRequest* scheduled;
    ResponseSink sink;
    Execution execution;
  };
  absl::InlinedVector<Part, 1> parts;
  parts.reserve(batch.size());  // the executions point into it
  absl::InlinedVector<Execution*, 1> executions;
  const std::int64_t start = NowNanos();
  std::int64_t inferences = 0;
  // With the direct strategy a place in the batch is a sequence's row: leaving one out would move those of others.
  const bool rows = sequences_ != nullptr && batch.size() > 1 && !info_.config().sequence_batching().has_oldest();
  for (ScheduledRequest& scheduled : batch) {
    InferenceRequest& request = *scheduled.request;
    if (absl::Status wanted = rows ? absl::OkStatus() : CheckWanted(request, start); !wanted.ok()) {
      request.response.status = std::move(wanted);
      continue;
    }
    if (absl::Status fetched = FetchInputs(instance, scheduled); !fetched.ok()) {
      request.response.status = std::move(fetched);
      continue;
    }
    request.times.compute_start = start;
    Part& part = parts.emplace_back(
        Part{&scheduled, ResponseSink(info_, request, buffers_, scheduled.is_null ? nullptr : statistics_), {}});
    part.sink.Begin(start, scheduled.responses);
    if (scheduled.state != nullptr) part.sink.KeepStates(sequences_.get(), scheduled.state.get());
    part.execution.inputs = scheduled.tensors;
    part.execution.outputs = &part.sink;
    part.execution.cancel = rows ? nullptr : request.cancel.get();
    part.execution.deadline_nanos = rows ? 0 : request.deadline_nanos;
    part.execution.buffers = &buffers_;
    part.execution.parameters = &request.parameters;
    part.execution.request_id = request.id;
    executions.push_back(&part.execution);
    inferences += scheduled.batch;
  }
  if (executions.empty()) return 0;
  instance.backend->Execute({executions.data(), executions.size()});
  const std::int64_t end = NowNanos();
  for (Part& part : parts) Conclude(*part.scheduled, part.sink, part.execution, start, end);
  return inferences;
}

void InstanceScheduler::Conclude(ScheduledRequest& scheduled, ResponseSink& sink, const Execution& execution,
                                 std::int64_t start, std::int64_t end) const {
  InferenceRequest& request = *scheduled.request;
  request.times.compute_end = end;
  request.times.infer_start = execution.infer_start_nanos != 0 ? execution.infer_start_nanos : start;
  request.times.infer_end = execution.infer_end_nanos != 0 ? execution.infer_end_nanos : end;
  absl::Status status = execution.status;
  const bool again = execution.reschedule && status.ok() && !scheduled.is_null;
  if (again) status = CheckAgain(request, end);
  request.response.status = sink.Finish(status, again);
  scheduled.again = again && request.response.status.ok();
  scheduled.responses = sink.responses();
}

absl::Status InstanceScheduler::CheckAgain(const InferenceRequest& request, std::int64_t now) const {
  if (info_.config().sequence_batching().iterative_sequence()) return CheckWanted(request, now);
  return absl::InternalError(
      fmt::format("Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, but the model '{}' does not set "
                  "'iterative_sequence' in its 'sequence_batching'",
                  info_.name()));
}

void InstanceScheduler::Run(Instance& instance, Batch& batch) {
  std::size_t bytes = 0;
  for (ScheduledRequest& scheduled : batch) {
    UnwatchCancel(scheduled);
    bytes += InputBytes(scheduled);
  }
  const std::int64_t inferences = Execute(instance, batch);
  const RequestTimes* executed = nullptr;  // of a request that went well
  for (ScheduledRequest& scheduled : batch) {
    InferenceRequest& request = *scheduled.request;
    if (scheduled.is_null) continue;
    if (!request.response.status.ok()) {
      request.response.outputs.clear();
      statistics_->RecordFailure(request.times, NowNanos(), ReasonOfExecution(request.response.status));
      continue;
    }
    if (executed == nullptr) {
      executed = &request.times;
      statistics_->RecordExecution(request.times, static_cast<std::uint64_t>(inferences));
      times_.Record(bytes, request.times.compute_end - request.times.compute_start);
    }
    if (scheduled.again) {
      PutBy(request.times, scheduled.spent);
      WatchCancel(scheduled);
      continue;
    }
    AddSpent(scheduled.spent, request.times);
    statistics_->RecordSuccess(request.times, static_cast<std::uint64_t>(scheduled.batch));
    if (!info_.decoupled()) statistics_->RecordFirstResponse(request.times.compute_end - request.times.received);
  }
}

void InstanceScheduler::Answer(ScheduledRequest& scheduled) {
  if (order_ == nullptr) return AnswerNow(std::move(scheduled.request));
  const std::shared_ptr<ResponseOrder> order = order_;  // outlives the scheduler where this lets it go
  ResponseOrder::Complete(order, scheduled.place, std::move(scheduled.request));
}

void InstanceScheduler::AnswerUnexecuted(std::unique_ptr<InferenceRequest> request) {
  ScheduledRequest scheduled;
  if (order_ != nullptr) scheduled.place = ResponseOrder::Add(order_, *request);
  scheduled.request = std::move(request);
  Answer(scheduled);
}

void InstanceScheduler::AnswerAll(Batch& batch) {
  for (ScheduledRequest& scheduled : batch) scheduled.state.reset();  // what a client has heard of holds no memory
  for (ScheduledRequest& scheduled : batch) {
    if (!scheduled.is_null && scheduled.request != nullptr) Answer(scheduled);
  }
}

void InstanceScheduler::AnswerDropped(DroppedRequests& dropped) {
  const std::int64_t now = dropped.empty() ? 0 : NowNanos();
  for (DroppedRequest& request : dropped) {
    UnwatchCancel(request.scheduled);
    statistics_->AddPending(-1);
    statistics_->RecordFailure(request.scheduled.request->times, now, request.reason);
  }
  for (DroppedRequest& request : dropped) Answer(request.scheduled);
}

absl::Status InstanceScheduler::WarmUp(CancelFlag* cancel, std::size_t count,
                                       absl::FunctionRef<absl::StatusOr<ScheduledRequest>()> make) {
  for (const auto& instance : instances_) {
    if (instance->passive) continue;
    if (cancel != nullptr && cancel->cancelled()) return absl::CancelledError("cancelled during the warm-up");
    Batch batch;
    for (std::size_t i = 0; i < count; ++i) {
      ASSIGN_OR_RETURN(ScheduledRequest scheduled, make());
      // Lent, not owned: the load's flag outlives the execution.
      scheduled.request->cancel = std::shared_ptr<CancelFlag>(std::shared_ptr<CancelFlag>(), cancel);
      if (sequences_ != nullptr) {
        ASSIGN_OR_RETURN(std::shared_ptr<SequenceState> state, sequences_->NewState());
        sequences_->Append(scheduled, std::move(state), true);
      }
      batch.push_back(std::move(scheduled));
    }
    if (instance->turn != nullptr) RETURN_IF_ERROR(instance->turn->Begin(cancel));
    Execute(*instance, batch);
    if (instance->turn != nullptr) instance->turn->End(false);
    for (const ScheduledRequest& scheduled : batch) RETURN_IF_ERROR(scheduled.request->response.status);
  }
  return absl::OkStatus();
}

absl::Status InstanceScheduler::Health() const {
  for (const auto& instance : instances_) {
    if (absl::Status status = instance->backend->Health(); !status.ok()) {
      return WithContext(status, fmt::format("instance '{}'", instance->name));
    }
  }
  return absl::OkStatus();
}

}  // namespace tidemark
