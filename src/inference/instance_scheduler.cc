#include "inference/instance_scheduler.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "inference/output_sink.h"
#include "observe/model_statistics.h"
#include "repository/config_normalize.h"

namespace tidemark {
namespace {

// Executions expected to be shorter than this run on the event loop: two thread hand-offs cost about as much.
constexpr std::int64_t kInlineNanos = 100'000;
constexpr std::uint32_t kEnoughSamples = 3;

void Answer(std::unique_ptr<InferenceRequest> request) {
  auto done = std::move(request->on_complete);
  done(std::move(request));
}

std::size_t InputBytes(const ScheduledRequest& scheduled) {
  std::size_t bytes = 0;
  for (const InputTensor& tensor : scheduled.tensors) bytes += tensor.data.size();
  return bytes;
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
  }
  while (!instances_.empty()) instances_.pop_back();
}

absl::StatusOr<std::unique_ptr<InstanceScheduler>> InstanceScheduler::Create(Scope& scope, BackendModel& model,
                                                                             const ModelInfo& info,
                                                                             BufferPool& buffers) {
  auto scheduler = std::make_unique<InstanceScheduler>(Private(), info, buffers);
  for (const inference::ModelInstanceGroup& group : info.config().instance_group()) {
    const std::vector<std::string> names = InstanceNames(group);
    if (group.kind() == inference::ModelInstanceGroup::KIND_GPU) {
      for (const std::int32_t gpu : group.gpus()) {
        for (const std::string& name : names) RETURN_IF_ERROR(scheduler->AddInstance(scope, model, group, name, gpu));
      }
    } else {
      for (const std::string& name : names) RETURN_IF_ERROR(scheduler->AddInstance(scope, model, group, name, kHost));
    }
  }
  for (const auto& instance : scheduler->instances_) {
    if (instance->passive) continue;
    Instance* self = instance.get();
    InstanceScheduler* owner = scheduler.get();
    RETURN_IF_ERROR(self->thread_scope
                        ->StartThread(
                            "instance", [owner, self] { owner->ThreadMain(*self); },
                            [owner, self] {
                              absl::MutexLock lock(&owner->mutex_);
                              owner->stopping_ = true;
                              self->wake.SignalAll();
                            },
                            "instance thread")
                        .status());
    absl::MutexLock lock(&scheduler->mutex_);
    scheduler->idle_.push_back(self);
    ++scheduler->active_;
  }
  return scheduler;
}

absl::Status InstanceScheduler::AddInstance(Scope& scope, BackendModel& model,
                                            const inference::ModelInstanceGroup& group, std::string_view name,
                                            DeviceId device) {
  auto instance = std::make_unique<Instance>();
  instance->name = std::string(name);
  instance->passive = group.passive();
  instance->scope = std::make_unique<Scope>(scope, fmt::format("instance/{}", name));
  ASSIGN_OR_RETURN(instance->backend, model.CreateInstance(*instance->scope, group, name, device));
  instance->thread_scope = std::make_unique<Scope>(*instance->scope, "thread");
  thread_bound_ = thread_bound_ || instance->backend->thread_bound();
  instances_.push_back(std::move(instance));
  return absl::OkStatus();
}

InstanceScheduler::Instance* InstanceScheduler::TakeIdle() {
  if (idle_.empty()) return nullptr;
  Instance* instance = idle_.back();
  idle_.pop_back();
  return instance;
}

void InstanceScheduler::Release(Instance& instance) {
  if (queue_.empty()) {
    idle_.push_back(&instance);
    return;
  }
  instance.assigned = std::move(queue_.front());
  queue_.pop_front();
  instance.wake.Signal();
}

void InstanceScheduler::Enqueue(ScheduledRequest scheduled, bool may_run_inline) {
  scheduled.request->times.queued = NowNanos();
  const bool run_here =
      may_run_inline && !thread_bound_ && !info_.decoupled() && times_.Expect(InputBytes(scheduled)) < kInlineNanos;
  if (active_ == 0) {
    scheduled.request->response.status = absl::UnavailableError(
        fmt::format("model '{}' version {} has passive instances only", info_.name(), info_.version()));
    return Answer(std::move(scheduled.request));
  }
  Instance* instance = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    instance = TakeIdle();
    if (instance == nullptr) {
      statistics_->AddPending(1);
      queue_.push_back(std::move(scheduled));
      return;
    }
    if (!run_here) {
      statistics_->AddPending(1);
      instance->assigned = std::move(scheduled);
      instance->wake.Signal();
      return;
    }
  }
  Run(*instance, scheduled);
  {
    absl::MutexLock lock(&mutex_);
    Release(*instance);
  }
  // Last: the answer may let the last request out of the gate, and then this scheduler is gone at any moment.
  Answer(std::move(scheduled.request));
}

void InstanceScheduler::ThreadMain(Instance& instance) {
  for (;;) {
    ScheduledRequest scheduled;
    {
      absl::MutexLock lock(&mutex_);
      while (instance.assigned.request == nullptr && !stopping_) instance.wake.Wait(&mutex_);
      if (instance.assigned.request == nullptr) return;
      scheduled = std::move(instance.assigned);
    }
    statistics_->AddPending(-1);
    Run(instance, scheduled);
    {
      absl::MutexLock lock(&mutex_);
      Release(instance);
    }
    Answer(std::move(scheduled.request));
  }
}

absl::Status InstanceScheduler::Execute(Instance& instance, ScheduledRequest& scheduled) {
  InferenceRequest& request = *scheduled.request;
  ResponseSink sink(info_, request, buffers_, statistics_);
  Execution execution;
  execution.inputs = scheduled.tensors;
  execution.outputs = &sink;
  execution.cancel = request.cancel.get();
  execution.parameters = &request.parameters;
  execution.request_id = request.id;
  request.times.compute_start = NowNanos();
  sink.Begin(request.times.compute_start);
  Execution* const batch[] = {&execution};
  instance.backend->Execute(batch);
  request.times.compute_end = NowNanos();
  request.times.infer_start =
      execution.infer_start_nanos != 0 ? execution.infer_start_nanos : request.times.compute_start;
  request.times.infer_end = execution.infer_end_nanos != 0 ? execution.infer_end_nanos : request.times.compute_end;
  return sink.Finish(execution.status);
}

void InstanceScheduler::Run(Instance& instance, ScheduledRequest& scheduled) {
  InferenceRequest& request = *scheduled.request;
  const std::size_t bytes = InputBytes(scheduled);
  if (request.cancel != nullptr && request.cancel->cancelled()) {
    request.response.status = absl::CancelledError("");
  } else {
    request.response.status = Execute(instance, scheduled);
    times_.Record(bytes, request.times.compute_end - request.times.compute_start);
  }
  if (request.response.status.ok()) {
    statistics_->RecordExecution(request.times, static_cast<std::uint64_t>(scheduled.batch));
    statistics_->RecordSuccess(request.times, static_cast<std::uint64_t>(scheduled.batch));
    if (!info_.decoupled()) statistics_->RecordFirstResponse(request.times.compute_end - request.times.received);
  } else {
    request.response.outputs.clear();
    statistics_->RecordFailure(request.times, NowNanos(), ReasonOfExecution(request.response.status));
  }
}

absl::Status InstanceScheduler::WarmUp(CancelFlag* cancel, absl::FunctionRef<absl::StatusOr<ScheduledRequest>()> make) {
  for (const auto& instance : instances_) {
    if (instance->passive) continue;
    if (cancel != nullptr && cancel->cancelled()) return absl::CancelledError("cancelled during the warm-up");
    ASSIGN_OR_RETURN(ScheduledRequest scheduled, make());
    // Lent, not owned: the load's flag outlives the execution.
    scheduled.request->cancel = std::shared_ptr<CancelFlag>(std::shared_ptr<CancelFlag>(), cancel);
    RETURN_IF_ERROR(Execute(*instance, scheduled));
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
