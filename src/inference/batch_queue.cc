#include "inference/batch_queue.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace tidemark {
namespace {

constexpr std::int64_t kNanosPerMicro = 1000;

// Microseconds of a configuration or a request in nanoseconds; what is longer than 146 years counts as that.
std::int64_t Nanos(std::uint64_t micros) {
  constexpr std::uint64_t kLongest = static_cast<std::uint64_t>(kNever / kNanosPerMicro / 2);
  return static_cast<std::int64_t>(std::min(micros, kLongest)) * kNanosPerMicro;
}

bool Cancelled(const ScheduledRequest& scheduled) {
  return scheduled.request->cancel != nullptr && scheduled.request->cancel->cancelled();
}

bool PastOwnDeadline(const ScheduledRequest& scheduled, std::int64_t now) {
  return scheduled.request->deadline_nanos != 0 && scheduled.request->deadline_nanos <= now;
}

std::int64_t OwnDeadline(const ScheduledRequest& scheduled) {
  return scheduled.request->deadline_nanos != 0 ? scheduled.request->deadline_nanos : kNever;
}

}  // namespace

BatchQueue::Policy BatchQueue::PolicyOf(const inference::ModelQueuePolicy& policy) {
  Policy result;
  result.delays = policy.timeout_action() == inference::ModelQueuePolicy::DELAY;
  result.timeout_nanos = Nanos(policy.default_timeout_microseconds());
  result.may_override = policy.allow_timeout_override();
  result.max_size = policy.max_queue_size();
  return result;
}

BatchQueue::BatchQueue(const ModelInfo& info)
    : batches_(info.config().has_dynamic_batching()), rules_(BatchRules::Of(info)) {
  if (!batches_) {
    rules_.max_batch = 1;
    levels_[0];
    return;
  }
  const inference::ModelDynamicBatching& config = info.config().dynamic_batching();
  for (const std::int32_t size : config.preferred_batch_size()) rules_.preferred.push_back(size);
  rules_.delay_nanos = rules_.max_batch > 1 ? Nanos(config.max_queue_delay_microseconds()) : 0;
  levels_declared_ = config.priority_levels();
  default_level_ = levels_declared_ == 0 ? 0 : config.default_priority_level();
  default_policy_ = PolicyOf(config.default_queue_policy());
  if (levels_declared_ != 0) {
    for (const auto& [level, policy] : config.priority_queue_policy()) policies_[level] = PolicyOf(policy);
  }
  const auto matters = [](const Policy& policy) { return policy.timeout_nanos != 0 || policy.max_size != 0; };
  has_policies_ = matters(default_policy_) || std::any_of(policies_.begin(), policies_.end(),
                                                          [&](const auto& entry) { return matters(entry.second); });
}

BatchQueue::Level& BatchQueue::LevelOf(const ScheduledRequest& scheduled) {
  std::uint64_t number = 0;
  if (levels_declared_ != 0) {
    number = scheduled.request->priority;
    if (number == 0 || number > levels_declared_) number = default_level_;
  }
  const auto [it, is_new] = levels_.try_emplace(number);
  if (is_new) {
    const auto own = policies_.find(number);
    it->second.policy = own != policies_.end() ? own->second : default_policy_;
  }
  return it->second;
}

absl::Status BatchQueue::Push(ScheduledRequest& scheduled, std::int64_t now) {
  Level& level = LevelOf(scheduled);
  if (level.policy.max_size != 0 && level.size() >= level.policy.max_size) {
    return absl::UnavailableError(fmt::format("{}Exceeds maximum queue size", scheduled.request->Prefix()));
  }
  std::int64_t timeout = level.policy.timeout_nanos;
  if (level.policy.may_override && scheduled.request->timeout_us != 0) {
    timeout = std::min(timeout, Nanos(scheduled.request->timeout_us));
  }
  Entry entry;
  entry.deadline = std::min(OwnDeadline(scheduled), timeout == 0 ? kNever : now + timeout);
  entry.scheduled = std::move(scheduled);
  level.earliest = std::min(level.earliest, entry.deadline);
  level.active.push_back(std::move(entry));
  ++size_;
  return absl::OkStatus();
}

void BatchQueue::Drop(Entry& entry, std::int64_t now, DroppedRequests& dropped) {
  InferenceRequest& request = *entry.scheduled.request;
  FailureReason reason = FailureReason::kRejected;
  if (Cancelled(entry.scheduled)) {
    request.response.status = absl::CancelledError("");
    reason = FailureReason::kCanceled;
  } else if (PastOwnDeadline(entry.scheduled, now)) {
    request.response.status = CheckWanted(request, now);
    reason = FailureReason::kCanceled;
  } else {
    request.response.status = absl::UnavailableError("Request timeout expired");
  }
  dropped.push_back({std::move(entry.scheduled), reason});
  --size_;
}

void BatchQueue::DropCancelled(std::deque<Entry>& entries, std::int64_t now, DroppedRequests& dropped) {
  for (Entry& entry : entries) {
    if (Cancelled(entry.scheduled)) Drop(entry, now, dropped);
  }
  std::erase_if(entries, [](const Entry& entry) { return entry.scheduled.request == nullptr; });
}

void BatchQueue::SweepLevel(Level& level, std::int64_t now, DroppedRequests& dropped) {
  if (level.earliest > now) return;
  level.earliest = kNever;
  for (Entry& entry : level.active) {
    if (entry.deadline > now) {
      level.earliest = std::min(level.earliest, entry.deadline);
    } else if (PastOwnDeadline(entry.scheduled, now) || !level.policy.delays) {
      Drop(entry, now, dropped);
    } else {
      entry.deadline = OwnDeadline(entry.scheduled);
      level.earliest = std::min(level.earliest, entry.deadline);
      level.delayed.push_back(std::move(entry));
    }
  }
  for (Entry& entry : level.delayed) {
    if (entry.deadline <= now)
      Drop(entry, now, dropped);
    else
      level.earliest = std::min(level.earliest, entry.deadline);
  }
  const auto gone = [](const Entry& entry) { return entry.scheduled.request == nullptr; };
  std::erase_if(level.active, gone);
  std::erase_if(level.delayed, gone);
}

void BatchQueue::Sweep(std::int64_t now, DroppedRequests& dropped) {
  for (auto& [number, level] : levels_) {
    SweepLevel(level, now, dropped);
    DropCancelled(level.active, now, dropped);
    DropCancelled(level.delayed, now, dropped);
  }
}

Batch BatchQueue::Take(std::size_t instance, std::int64_t now, DroppedRequests& dropped) {
  Batch batch;
  if (size_ == 0) return batch;
  BatchPlanner planner(rules_, now);
  bool more = true;
  for (auto level = levels_.begin(); more && level != levels_.end(); ++level) {
    SweepLevel(level->second, now, dropped);
    for (std::deque<Entry>* entries : {&level->second.active, &level->second.delayed}) {
      for (auto it = entries->begin(); more && it != entries->end(); ++it) {
        if (Cancelled(it->scheduled)) {  // rare: without it, and from the start
          DropCancelled(*entries, now, dropped);
          return Take(instance, now, dropped);
        }
        more = planner.Add(it->scheduled);
      }
    }
  }
  std::size_t count = planner.Count();
  for (auto level = levels_.begin(); level != levels_.end();) {
    for (std::deque<Entry>* entries : {&level->second.active, &level->second.delayed}) {
      for (; count > 0 && !entries->empty(); --count, --size_) {
        batch.push_back(std::move(entries->front().scheduled));
        entries->pop_front();
      }
    }
    const bool keep = levels_declared_ == 0 || level->second.size() != 0;
    level = keep ? std::next(level) : levels_.erase(level);
  }
  return batch;
}

std::int64_t BatchQueue::NextEvent(bool instance_is_idle) const {
  std::int64_t next = kNever;
  for (const auto& [number, level] : levels_) {
    next = std::min(next, level.earliest);
    if (!instance_is_idle || rules_.delay_nanos == 0) continue;
    for (const std::deque<Entry>* entries : {&level.active, &level.delayed}) {
      if (entries->empty()) continue;
      next = std::min(next, entries->front().scheduled.request->times.queued + rules_.delay_nanos);
    }
  }
  return next;
}

}  // namespace tidemark
