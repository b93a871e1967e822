#include "inference/ensemble_run.h"

#include <algorithm>
#include <cstring>
#include <deque>

#include "base/clock.h"
#include "base/status.h"
#include "inference/model.h"
#include "inference/output_sink.h"

namespace tidemark {
namespace {

bool Fits(std::span<const std::int64_t> declared, std::span<const std::int64_t> given) {
  return std::equal(declared.begin(), declared.end(), given.begin(), given.end(),
                    [](std::int64_t want, std::int64_t have) { return want < 0 || want == have; });
}

// The shape for a model that declares `dims` (batch dimension included, if `batches`): a batch dimension of one is put
// in front or taken away where that makes it fit.
Shape Adjusted(const Shape& shape, const Shape& dims, bool batches) {
  const std::span<const std::int64_t> own = AsSpan(dims).subspan(batches && !dims.empty() ? 1 : 0);
  Shape result = shape;
  if (batches) {
    if (Fits(own, AsSpan(shape))) result.insert(result.begin(), 1);
  } else if (!Fits(own, AsSpan(shape)) && !shape.empty() && shape[0] == 1) {
    result.erase(result.begin());
  }
  return result;
}

// Nobody waits for the answer any more: no further step begins.
bool Abandoned(const InferenceRequest& request) { return !CheckWanted(request, NowNanos()).ok(); }

std::int64_t Between(std::int64_t from, std::int64_t to) { return from != 0 && to > from ? to - from : 0; }

}  // namespace

EnsembleRun::EnsembleRun(EnsembleScheduler& scheduler, std::unique_ptr<InferenceRequest> request, std::int64_t batch)
    : scheduler_(scheduler),
      plan_(scheduler.plan_),
      batch_(batch),
      request_(std::move(request)),
      handles_(plan_.steps().size()),
      first_open_(plan_.steps().size(), 0),
      made_(plan_.steps().size(), 0) {}

absl::Status EnsembleRun::Begin() {
  const ModelInfo& info = scheduler_.info_;
  last_sent_nanos_ = request_->times.queued;
  for (std::size_t i = 0; i < info.outputs().size() && request_->outputs.empty(); ++i) outputs_.push_back(i);
  for (const RequestedOutput& output : request_->outputs) {
    outputs_.push_back(static_cast<std::size_t>(info.FindOutput(output.name) - info.outputs().data()));
  }
  // Backwards from the wanted outputs: the steps that are needed.
  std::deque<std::size_t> tensors;
  for (const std::size_t output : outputs_) {
    const std::size_t tensor = plan_.FindTensor(info.outputs()[output].name);
    tensors.push_back(tensor);
    if (plan_.OriginOf(tensor) != EnsemblePlan::kNone) output_origin_ = plan_.OriginOf(tensor);
  }
  for (; !tensors.empty(); tensors.pop_front()) {
    const std::size_t producer = plan_.tensors()[tensors.front()].producer;
    if (producer == EnsemblePlan::kNone || handles_[producer]) continue;
    const EnsemblePlan::Step& step = plan_.steps()[producer];
    absl::StatusOr<ModelHandle> handle = scheduler_.registry_.Find(step.key, step.version);
    if (!handle.ok()) return handle.status();
    handles_[producer] = *std::move(handle);
    for (const auto& [input, tensor] : step.inputs) tensors.push_back(tensor);
  }
  absl::MutexLock lock(&mutex_);
  for (const TensorInfo& input : info.inputs()) {
    const std::size_t tensor = plan_.FindTensor(input.name);
    if (tensor == EnsemblePlan::kNone) continue;
    Value& value = values_[{tensor, 0}];
    const auto given = std::find_if(request_->inputs.begin(), request_->inputs.end(),
                                    [&](const RequestInput& candidate) { return candidate.name == input.name; });
    value.absent = given == request_->inputs.end();
    if (value.absent) continue;
    value.data_type = given->data_type;
    value.shape = given->shape;
    value.data = given->data;
    value.region = given->region;
  }
  return absl::OkStatus();
}

void EnsembleRun::Fail(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    NoteError(status);
    finished_ = true;
  }
  Finish();
}

void EnsembleRun::NoteError(const absl::Status& status) {
  if (!error_.ok()) return;
  error_ = absl::IsCancelled(status)
               ? status
               : absl::Status(status.code(),
                              fmt::format("in ensemble '{}', {}", scheduler_.info_.name(), MessageOf(status)));
}

EnsembleRun::Value* EnsembleRun::Find(std::size_t tensor, std::uint64_t iteration) {
  const auto it = values_.find({tensor, plan_.OriginOf(tensor) == EnsemblePlan::kNone ? 0 : iteration});
  return it == values_.end() ? nullptr : &it->second;
}

bool EnsembleRun::IsReady(std::size_t step, std::uint64_t iteration) {
  for (const auto& [input, tensor] : plan_.steps()[step].inputs) {
    if (Find(tensor, iteration) == nullptr) return false;
  }
  return true;
}

std::vector<EnsembleRun::Call> EnsembleRun::ReadyCalls() {
  std::vector<Call> calls;
  if (!error_.ok() || Abandoned(*request_)) return calls;
  for (std::size_t step = 0; step < handles_.size(); ++step) {
    if (!handles_[step]) continue;
    const std::size_t origin = plan_.steps()[step].origin;
    const std::uint64_t iterations = origin == EnsemblePlan::kNone ? 1 : made_[origin];
    std::uint64_t& open = first_open_[step];
    for (std::uint64_t iteration = open; iteration < iterations; ++iteration) {
      if (started_.contains({step, iteration}) || !IsReady(step, iteration)) continue;
      if (granted_.erase(step) == 0) {
        if (waiting_.contains(step)) break;
        if (!scheduler_.EnterStep(step, shared_from_this())) {
          waiting_.insert(step);
          break;
        }
      }
      started_.insert({step, iteration});
      ++inflight_;
      calls.push_back(MakeCall(step, iteration));
    }
    while (started_.erase({step, open}) != 0) ++open;
  }
  return calls;
}

EnsembleRun::Call EnsembleRun::MakeCall(std::size_t number, std::uint64_t iteration) {
  const EnsemblePlan::Step& step = plan_.steps()[number];
  Call call;
  call.step = number;
  call.iteration = iteration;
  call.handle = handles_[number].Another();
  call.request = std::make_unique<InferenceRequest>();
  InferenceRequest& request = *call.request;
  request.id = request_->id;
  request.sequence_id = request_->sequence_id;
  request.sequence_start = request_->sequence_start;
  request.sequence_end = request_->sequence_end;
  request.priority = request_->priority;
  request.timeout_us = request_->timeout_us;
  request.deadline_nanos = request_->deadline_nanos;
  request.parameters = request_->parameters;
  request.cancel = request_->cancel;
  const ModelInfo& member = call.handle->info();
  std::vector<std::shared_ptr<Buffer>> memory;
  for (const auto& [name, tensor] : step.inputs) {
    const Value& value = *Find(tensor, iteration);
    if (value.absent) continue;  // fine where the member's input is optional, and its error otherwise
    RequestInput& input = request.inputs.emplace_back();
    input.name = name;
    input.data_type = value.data_type;
    input.shape = value.shape;
    if (const TensorInfo* declared = member.FindInput(name); declared != nullptr) {
      input.shape = Adjusted(value.shape, declared->dims, member.max_batch_size() > 0);
    }
    input.data = value.data;
    input.region = value.region;
    if (value.memory != nullptr) memory.push_back(value.memory);
  }
  if (request_->trace != nullptr) {
    request.trace = request_->trace->MakeChild(member.name(), member.version());
    TraceStart(request);
  }
  for (const auto& [name, tensor] : step.outputs) request.outputs.emplace_back().name = name;
  const auto self = shared_from_this();
  if (step.decoupled) {
    request.on_response = [self, number](InferenceResponse response) { self->OnResponse(number, std::move(response)); };
  }
  request.on_complete = [self, number, iteration,
                         memory = std::move(memory)](std::unique_ptr<InferenceRequest> done) mutable {
    memory.clear();
    self->OnComplete(number, iteration, std::move(done));
  };
  return call;
}

void EnsembleRun::Submit(Call call, bool may_run_inline) {
  Model& member = *call.handle;
  call.request->set_model(std::move(call.handle));
  member.Submit(std::move(call.request), may_run_inline);
}

void EnsembleRun::TakeOutputs(std::size_t number, std::uint64_t iteration, std::vector<ResponseOutput>& outputs) {
  const EnsemblePlan::Step& step = plan_.steps()[number];
  const std::uint64_t to = step.decoupled ? made_[number]++ : iteration;
  for (const auto& output_map : step.outputs) {
    const std::string& name = output_map.first;
    const std::size_t tensor = output_map.second;
    Value& value = values_[{tensor, step.output_origin() == EnsemblePlan::kNone ? 0 : to}];
    const auto made =
        std::find_if(outputs.begin(), outputs.end(), [&](const ResponseOutput& output) { return output.name == name; });
    value.absent = made == outputs.end();
    if (value.absent) continue;
    value.data_type = made->data_type;
    value.shape = made->shape;
    value.memory = std::make_shared<Buffer>(std::move(made->data));
    value.data = value.memory->bytes();
  }
}

void EnsembleRun::OnResponse(std::size_t step, InferenceResponse response) {
  {
    absl::MutexLock lock(&mutex_);
    TakeOutputs(step, 0, response.outputs);
  }
  Advance(false);
}

void EnsembleRun::OnComplete(std::size_t step, std::uint64_t iteration, std::unique_ptr<InferenceRequest> request) {
  const auto self = shared_from_this();
  TraceEnd(*request);
  {
    absl::MutexLock lock(&mutex_);
    const RequestTimes& times = request->times;
    queue_ += Between(times.queued, times.compute_start);
    input_ += Between(times.compute_start, times.infer_start);
    infer_ += Between(times.infer_start, times.infer_end);
    output_ += Between(times.infer_end, times.compute_end);
    if (!request->response.status.ok()) {
      NoteError(request->response.status);
    } else if (!plan_.steps()[step].decoupled) {
      TakeOutputs(step, iteration, request->response.outputs);
    }
  }
  request.reset();  // leaves the member
  LeaveStep(step);  // before the last step is counted as ended: the scheduler is there
  {
    absl::MutexLock lock(&mutex_);
    --inflight_;
  }
  Advance(false);
}

void EnsembleRun::LeaveStep(std::size_t step) {
  if (const std::shared_ptr<EnsembleRun> next = scheduler_.LeaveStep(step); next != nullptr) next->Grant(step);
}

void EnsembleRun::Grant(std::size_t step) {
  bool unused = false;
  {
    absl::MutexLock lock(&mutex_);
    waiting_.erase(step);
    unused = finished_;
    if (!unused) granted_.insert(step);
  }
  if (unused) return LeaveStep(step);
  Advance(false);
}

void EnsembleRun::Advance(bool may_run_inline) {
  const auto self = shared_from_this();
  {
    absl::MutexLock lock(&mutex_);
    again_ = true;
    if (driving_ || finished_) return;
    driving_ = true;
  }
  for (;;) {
    std::vector<Call> calls;
    std::vector<InferenceResponse> responses;
    std::set<std::size_t> unused;
    {
      absl::MutexLock lock(&mutex_);
      if (!again_) {
        driving_ = false;
        return;
      }
      again_ = false;
      responses = ReadyResponses();
      calls = ReadyCalls();
      const bool stopped = !error_.ok() || Abandoned(*request_);
      if (stopped) unused.swap(granted_);
      finished_ = calls.empty() && inflight_ == 0 && (stopped || waiting_.empty());
    }
    SendResponses(std::move(responses));
    for (const std::size_t step : unused) LeaveStep(step);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      Submit(std::move(calls[i]), may_run_inline && i + 1 == calls.size());  // the others run meanwhile
    }
    {
      absl::MutexLock lock(&mutex_);
      if (!finished_) continue;
    }
    return Finish();
  }
}

absl::StatusOr<ResponseOutput> EnsembleRun::MakeOutput(std::size_t index, Value& value, bool last) {
  const ModelInfo& info = scheduler_.info_;
  const TensorInfo& declared = info.outputs()[index];
  const Shape shape = Adjusted(value.shape, declared.dims, info.max_batch_size() > 0);
  const auto wanted = std::find_if(request_->outputs.begin(), request_->outputs.end(),
                                   [&](const RequestedOutput& output) { return output.name == declared.name; });
  const bool elsewhere = wanted != request_->outputs.end() && wanted->destination;
  if (last && value.memory != nullptr && value.memory.use_count() == 1 && !elsewhere) {
    ResponseOutput output;
    output.index = index;
    output.name = declared.name;
    output.data_type = value.data_type;
    output.shape = shape;
    output.data = std::move(*value.memory);
    value.data = {};
    return output;
  }
  ResponseSink sink(info, *request_, scheduler_.buffers_);
  ASSIGN_OR_RETURN(const std::span<std::byte> target,
                   sink.Allocate(index, value.data_type, AsSpan(shape), value.data.size()));
  if (!target.empty()) std::memcpy(target.data(), value.data.data(), target.size());
  ResponseOutput output = std::move(request_->response.outputs.back());
  request_->response.outputs.pop_back();
  output.shape = shape;
  if (output.shared && !output.data.empty()) {  // the region's memory is not the host's, or not where engines may write
    const SharedMemoryLease& destination = wanted->destination;
    RETURN_IF_ERROR(
        destination.region->Write(output.data.bytes(), destination.bytes.first(output.data.bytes().size())));
    output.data.Reset();
  }
  return output;
}

absl::StatusOr<std::optional<std::vector<ResponseOutput>>> EnsembleRun::MakeOutputs(std::uint64_t iteration) {
  const ModelInfo& info = scheduler_.info_;
  std::vector<ResponseOutput> outputs;
  for (const std::size_t index : outputs_) {
    if (Find(plan_.FindTensor(info.outputs()[index].name), iteration) == nullptr) return std::nullopt;
  }
  for (const std::size_t index : outputs_) {
    const std::size_t tensor = plan_.FindTensor(info.outputs()[index].name);
    Value& value = *Find(tensor, iteration);
    if (value.absent) continue;
    const bool last = plan_.OriginOf(tensor) == output_origin_;  // a plain tensor comes again with every response
    ASSIGN_OR_RETURN(ResponseOutput output, MakeOutput(index, value, last));
    outputs.push_back(std::move(output));
  }
  return outputs;
}

std::vector<InferenceResponse> EnsembleRun::ReadyResponses() {
  std::vector<InferenceResponse> responses;
  if (!plan_.decoupled()) return responses;
  while (error_.ok() && !Abandoned(*request_)) {
    const std::uint64_t made = output_origin_ == EnsemblePlan::kNone ? 1 : made_[output_origin_];
    if (sent_ >= made) break;
    absl::StatusOr<std::optional<std::vector<ResponseOutput>>> outputs = MakeOutputs(sent_);
    if (!outputs.ok()) NoteError(outputs.status());
    if (!outputs.ok() || !outputs->has_value()) break;
    responses.emplace_back().outputs = **std::move(outputs);
    for (std::size_t tensor = 0; tensor < plan_.tensors().size(); ++tensor) {
      if (output_origin_ != EnsemblePlan::kNone && plan_.OriginOf(tensor) == output_origin_) {
        values_.erase({tensor, sent_});
      }
    }
    ++sent_;
  }
  return responses;
}

void EnsembleRun::SendResponses(std::vector<InferenceResponse> responses) {
  for (InferenceResponse& response : responses) {
    const std::int64_t now = NowNanos();
    std::uint64_t index = 0;
    {
      absl::MutexLock lock(&mutex_);
      index = sent_ - static_cast<std::uint64_t>(responses.data() + responses.size() - &response);
    }
    scheduler_.statistics_->RecordResponse(index, ResponseOutcome::kSuccess, last_sent_nanos_, now, now);
    last_sent_nanos_ = now;
    if (request_->on_response) request_->on_response(std::move(response));
  }
}

// As a request whose phases took as long as those of its steps together.
void EnsembleRun::Count(const absl::Status& status) {
  RequestTimes& times = request_->times;
  const std::int64_t now = NowNanos();
  if (!status.ok()) {
    const bool left = absl::IsCancelled(status) || absl::IsDeadlineExceeded(status);
    const FailureReason reason = left ? FailureReason::kCanceled : FailureReason::kOther;
    return scheduler_.statistics_->RecordFailure(times, now, reason);
  }
  times.compute_end = now;
  times.infer_end = times.compute_end - output_;
  times.infer_start = times.infer_end - infer_;
  times.compute_start = times.infer_start - input_;
  times.queued = times.compute_start - queue_;
  const auto inferences = static_cast<std::uint64_t>(batch_);
  scheduler_.statistics_->RecordExecution(times, inferences);
  scheduler_.statistics_->RecordSuccess(times, inferences);
  if (!plan_.decoupled()) scheduler_.statistics_->RecordFirstResponse(now - times.received);
}

void EnsembleRun::Finish() {
  std::unique_ptr<InferenceRequest> request;
  {
    absl::MutexLock lock(&mutex_);
    absl::Status status = error_;
    status.Update(CheckWanted(*request_, NowNanos()));
    if (status.ok() && !plan_.decoupled()) {
      absl::StatusOr<std::optional<std::vector<ResponseOutput>>> outputs = MakeOutputs(0);
      if (!outputs.ok()) {
        status = outputs.status();
      } else if (!outputs->has_value() || (*outputs)->size() != outputs_.size()) {
        status = absl::InvalidArgumentError(fmt::format(
            "in ensemble '{}', {}unexpected deadlock, at least one output is not set while no more ensemble "
            "steps can be made",
            scheduler_.info_.name(), request_->Prefix()));
      } else {
        request_->response.outputs = **std::move(outputs);
      }
    }
    if (status.ok()) status = CheckRegions(*request_);
    if (!status.ok()) request_->response.outputs.clear();
    Count(status);
    request_->response.status = std::move(status);
    values_.clear();
    handles_.clear();
    request = std::move(request_);
  }
  auto done = std::move(request->on_complete);
  done(std::move(request));
}

}  // namespace tidemark
