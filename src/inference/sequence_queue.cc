#include "inference/sequence_queue.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/status.h"

namespace tidemark {
namespace {

constexpr std::int64_t kNanosPerMicro = 1000;
constexpr std::uint64_t kLongestMicros = static_cast<std::uint64_t>(kNever / kNanosPerMicro / 2);

std::int64_t Nanos(std::uint64_t micros) {
  return static_cast<std::int64_t>(std::min(micros, kLongestMicros)) * kNanosPerMicro;
}

bool Cancelled(const ScheduledRequest& scheduled) {
  return scheduled.request->cancel != nullptr && scheduled.request->cancel->cancelled();
}

std::string IdText(const CorrelationId& id) {
  const auto* number = std::get_if<std::uint64_t>(&id);
  return number != nullptr ? fmt::format("{}", *number) : std::get<std::string>(id);
}

bool NoSequence(const CorrelationId& id) {
  const auto* number = std::get_if<std::uint64_t>(&id);
  return number != nullptr ? *number == 0 : std::get<std::string>(id).empty();
}

}  // namespace

SequenceQueue::SequenceQueue(const ModelInfo& info, const SequenceTensors& tensors, std::size_t instances)
    : info_(info), tensors_(tensors), rules_(BatchRules::Of(info)), workers_(instances) {
  const inference::ModelSequenceBatching& config = info.config().sequence_batching();
  oldest_ = config.has_oldest();
  iterative_ = config.iterative_sequence();
  auto slots = static_cast<std::size_t>(rules_.max_batch);
  if (oldest_) {
    const auto& strategy = config.oldest();
    if (strategy.max_candidate_sequences() > 0) slots = static_cast<std::size_t>(strategy.max_candidate_sequences());
    for (const std::int32_t size : strategy.preferred_batch_size()) rules_.preferred.push_back(size);
    rules_.delay_nanos = rules_.max_batch > 1 ? Nanos(strategy.max_queue_delay_microseconds()) : 0;
  } else {
    rules_.delay_nanos = Nanos(config.direct().max_queue_delay_microseconds());
    minimum_utilization_ = config.direct().minimum_slot_utilization();
  }
  const std::uint64_t idle = config.max_sequence_idle_microseconds();
  max_idle_nanos_ = Nanos(idle == 0 ? 1'000'000 : idle);
  for (Worker& worker : workers_) worker.slots.resize(slots);
}

SequenceQueue::~SequenceQueue() = default;

absl::Status SequenceQueue::Check(const ScheduledRequest& scheduled) const {
  const InferenceRequest& request = *scheduled.request;
  RETURN_IF_ERROR(tensors_.CheckId(request));
  if (scheduled.batch > 1) {
    return absl::InvalidArgumentError(
        fmt::format("inference request to model '{}' must specify batch-size 1 due to requirements of sequence batcher",
                    info_.name()));
  }
  if (NoSequence(request.sequence_id)) {
    return absl::InvalidArgumentError(fmt::format(
        "inference request to model '{}' must specify a non-zero or non-empty correlation ID", info_.name()));
  }
  if (!request.sequence_start && !active_.contains(request.sequence_id)) {
    return absl::InvalidArgumentError(
        fmt::format("inference request for sequence {} to model '{}' must specify the START flag on the first request "
                    "of the sequence",
                    IdText(request.sequence_id), info_.name()));
  }
  return absl::OkStatus();
}

SequenceQueue::Sequence& SequenceQueue::Begin(const CorrelationId& id) {
  auto made = std::make_unique<Sequence>();
  made->id = id;
  Sequence& sequence = *made;
  const std::size_t slots = workers_.empty() ? 0 : workers_.front().slots.size();
  for (std::size_t slot = 0; slot < slots; ++slot) {
    for (Worker& worker : workers_) {
      if (worker.slots[slot] != nullptr) continue;
      worker.slots[slot] = std::move(made);
      return sequence;
    }
  }
  backlog_.push_back(std::move(made));
  return sequence;
}

SequenceQueue::Sequence& SequenceQueue::SequenceOf(const InferenceRequest& request) {
  const auto known = active_.find(request.sequence_id);
  if (known == active_.end()) {
    Sequence& begun = Begin(request.sequence_id);
    active_[request.sequence_id] = &begun;
    return begun;
  }
  if (request.sequence_start) {
    LOG_WARNING(
        "sequence {} for model '{}' has a conflict. The previous sequence did not end before this sequence start. "
        "Previous sequence will be terminated early.",
        IdText(request.sequence_id), info_.name());
  }
  return *known->second;
}

absl::Status SequenceQueue::Push(ScheduledRequest& scheduled, std::int64_t now) {
  InferenceRequest& request = *scheduled.request;
  const bool alone = iterative_ && NoSequence(request.sequence_id);
  if (alone) {
    request.sequence_id = tensors_.MakeId(++generated_);
    request.sequence_start = true;
    request.sequence_end = false;
  }
  RETURN_IF_ERROR(Check(scheduled));
  Sequence& sequence = alone ? Begin(request.sequence_id) : SequenceOf(request);
  sequence.last_used = now;
  if (request.timeout_us != 0) sequence.deadline = std::min(sequence.deadline, now + Nanos(request.timeout_us));
  if (alone) sequence.ended = true;
  if (request.sequence_end) Forget(sequence);
  sequence.queue.push_back(std::move(scheduled));
  ++size_;
  return absl::OkStatus();
}

void SequenceQueue::Forget(Sequence& sequence) {
  sequence.ended = true;
  const auto it = active_.find(sequence.id);
  if (it != active_.end() && it->second == &sequence) active_.erase(it);
}

void SequenceQueue::Cancel(Sequence& sequence, DroppedRequests& dropped) {
  Forget(sequence);
  size_ -= sequence.queue.size();
  for (ScheduledRequest& scheduled : sequence.queue) {
    scheduled.request->response.status = absl::CancelledError("");
    dropped.push_back({std::move(scheduled), FailureReason::kCanceled});
  }
  sequence.queue.clear();
}

void SequenceQueue::Refill(std::unique_ptr<Sequence>& slot) {
  slot.reset();
  if (backlog_.empty()) return;
  slot = std::move(backlog_.front());
  backlog_.pop_front();
}

void SequenceQueue::CleanUp(Worker& worker, DroppedRequests& dropped) {
  for (std::unique_ptr<Sequence>& slot : worker.slots) {
    while (slot != nullptr) {
      if (!slot->queue.empty() && Cancelled(slot->queue.front())) Cancel(*slot, dropped);
      if (!slot->ended || !slot->queue.empty() || slot->running) break;
      Refill(slot);
    }
  }
}

bool SequenceQueue::Pop(std::unique_ptr<Sequence>& slot, Batch& batch, DroppedRequests& dropped) {
  Sequence& sequence = *slot;
  ScheduledRequest scheduled = std::move(sequence.queue.front());
  sequence.queue.pop_front();
  --size_;
  if (scheduled.request->sequence_start || sequence.state == nullptr) {
    absl::StatusOr<std::shared_ptr<SequenceState>> state = tensors_.NewState();
    if (!state.ok()) {
      scheduled.request->response.status = state.status();
      dropped.push_back({std::move(scheduled), FailureReason::kOther});
      return false;
    }
    sequence.state = *std::move(state);
  }
  tensors_.Append(scheduled, sequence.state, true);
  const bool last = scheduled.request->sequence_end;
  batch.push_back(std::move(scheduled));
  sequence.running = true;
  // The row is free as soon as its last request is on its way, unless that may come back.
  if (last && !iterative_ && sequence.queue.empty() && sequence.ended) Refill(slot);
  return true;
}

Batch SequenceQueue::Take(std::size_t instance, std::int64_t now, DroppedRequests& dropped) {
  Worker& worker = workers_[instance];
  CleanUp(worker, dropped);
  worker.wait_until = kNever;
  Batch batch = oldest_ ? TakeOldest(worker, now, dropped) : TakeDirect(worker, now, dropped);
  worker.busy = !batch.empty();
  return batch;
}

// Enough rows have something to do, or one has waited long enough (direct strategy).
bool SequenceQueue::WorthRunning(Worker& worker, std::int64_t now) const {
  if (rules_.delay_nanos == 0 || minimum_utilization_ <= 0) return true;
  std::size_t ready = 0;
  std::int64_t oldest = kNever;
  for (const std::unique_ptr<Sequence>& slot : worker.slots) {
    if (slot == nullptr || slot->queue.empty()) continue;
    ++ready;
    oldest = std::min(oldest, slot->queue.front().request->times.queued);
  }
  if (static_cast<float>(ready) / static_cast<float>(rules_.max_batch) >= minimum_utilization_) return true;
  if (ready == 0 || now >= oldest + rules_.delay_nanos) return true;
  worker.wait_until = oldest + rules_.delay_nanos;
  return false;
}

Batch SequenceQueue::TakeDirect(Worker& worker, std::int64_t now, DroppedRequests& dropped) {
  Batch batch;
  if (!WorthRunning(worker, now)) return batch;
  std::optional<std::size_t> first;  // the row that the others are compared with
  for (std::size_t row = 0; row < worker.slots.size() && !first.has_value(); ++row) {
    if (worker.slots[row] != nullptr && !worker.slots[row]->queue.empty()) first = row;
  }
  if (!first.has_value()) return batch;
  std::vector<bool> runs(worker.slots.size(), false);
  std::size_t rows = 0;
  const ScheduledRequest& like = worker.slots[*first]->queue.front();
  for (std::size_t row = 0; row < worker.slots.size(); ++row) {
    const std::unique_ptr<Sequence>& slot = worker.slots[row];
    if (slot == nullptr || slot->queue.empty()) continue;
    if (!rules_.Compatible(like, slot->queue.front())) continue;
    runs[row] = true;
    rows = row + 1;
  }
  // Before `like` leaves the queue.
  Batch nulls;
  const auto count = static_cast<std::size_t>(std::count(runs.begin(), runs.begin() + static_cast<long>(rows), false));
  for (std::size_t i = 0; i < count; ++i) {
    absl::StatusOr<ScheduledRequest> null = tensors_.MakeNull(like);
    if (!null.ok()) return batch;  // no memory: the next look may find some
    nulls.push_back(*std::move(null));
  }
  std::size_t used = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    if (!runs[row]) {
      batch.push_back(std::move(nulls[used++]));
    } else {
      Pop(worker.slots[row], batch, dropped);
    }
  }
  const bool any = std::any_of(batch.begin(), batch.end(), [](const ScheduledRequest& s) { return !s.is_null; });
  if (!any) batch.clear();
  return batch;
}

Batch SequenceQueue::TakeOldest(Worker& worker, std::int64_t now, DroppedRequests& dropped) {
  std::vector<std::size_t> ready;
  for (std::size_t i = 0; i < worker.slots.size(); ++i) {
    if (worker.slots[i] != nullptr && !worker.slots[i]->queue.empty()) ready.push_back(i);
  }
  const auto queued = [&](std::size_t i) { return worker.slots[i]->queue.front().request->times.queued; };
  std::stable_sort(ready.begin(), ready.end(), [&](std::size_t a, std::size_t b) { return queued(a) < queued(b); });
  BatchPlanner planner(rules_, now);
  for (const std::size_t i : ready) {
    if (!planner.Add(worker.slots[i]->queue.front())) break;
  }
  Batch batch;
  const std::size_t count = planner.Count();
  if (count == 0) worker.wait_until = planner.WaitUntil();
  for (std::size_t i = 0; i < count; ++i) Pop(worker.slots[ready[i]], batch, dropped);
  return batch;
}

void SequenceQueue::Requeue(std::size_t instance, ScheduledRequest& scheduled) {
  for (const std::unique_ptr<Sequence>& slot : workers_[instance].slots) {
    if (slot == nullptr || !slot->running || slot->state != scheduled.state) continue;
    tensors_.Strip(scheduled);
    scheduled.request->sequence_start = false;
    scheduled.request->sequence_end = false;
    slot->queue.push_front(std::move(scheduled));
    slot->again = true;
    ++size_;
    return;
  }
}

void SequenceQueue::Done(std::size_t instance, std::int64_t now) {
  Worker& worker = workers_[instance];
  worker.busy = false;
  for (std::unique_ptr<Sequence>& slot : worker.slots) {
    if (slot == nullptr || !slot->running) continue;
    slot->running = false;
    slot->last_used = now;
    const bool again = std::exchange(slot->again, false);
    if (iterative_ && !again) Forget(*slot);
    if (slot->ended && slot->queue.empty()) Refill(slot);
  }
}

void SequenceQueue::Sweep(std::int64_t now, DroppedRequests& dropped) {
  for (auto it = backlog_.begin(); it != backlog_.end();) {
    Sequence& sequence = **it;
    if (std::any_of(sequence.queue.begin(), sequence.queue.end(), &Cancelled)) {
      Cancel(sequence, dropped);
    } else if (sequence.deadline <= now) {
      Forget(sequence);
      size_ -= sequence.queue.size();
      for (ScheduledRequest& scheduled : sequence.queue) {
        scheduled.request->response.status =
            absl::UnavailableError("timeout of the corresponding sequence has been expired");
        dropped.push_back({std::move(scheduled), FailureReason::kRejected});
      }
      sequence.queue.clear();
    }
    it = sequence.ended && sequence.queue.empty() ? backlog_.erase(it) : std::next(it);
  }
  for (Worker& worker : workers_) {
    if (worker.wait_until <= now) worker.wait_until = kNever;  // an idle instance is about to look again
    for (const std::unique_ptr<Sequence>& slot : worker.slots) {
      if (slot == nullptr || slot->ended || slot->running || !slot->queue.empty()) continue;
      if (slot->last_used + max_idle_nanos_ > now) continue;
      LOG_VERBOSE(1, "sequence {} of model '{}' was idle for too long and has ended", IdText(slot->id), info_.name());
      Forget(*slot);
    }
    CleanUp(worker, dropped);
  }
}

std::int64_t SequenceQueue::NextEvent(bool /*the workers know*/) const {
  std::int64_t next = kNever;
  for (const std::unique_ptr<Sequence>& sequence : backlog_) next = std::min(next, sequence->deadline);
  for (const Worker& worker : workers_) {
    if (!worker.busy) next = std::min(next, worker.wait_until);
    for (const std::unique_ptr<Sequence>& slot : worker.slots) {
      if (slot == nullptr || slot->ended || slot->running || !slot->queue.empty()) continue;
      next = std::min(next, slot->last_used + max_idle_nanos_);
    }
  }
  return next;
}

}  // namespace tidemark
