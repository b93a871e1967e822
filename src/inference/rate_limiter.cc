#include "inference/rate_limiter.h"

#include <algorithm>
#include <limits>
#include <set>

#include "base/status.h"

namespace tidemark {
namespace {

std::uint64_t Rank(std::uint64_t executions, std::uint64_t priority) { return executions * priority; }

}  // namespace

std::uint64_t RateLimiter::Capacity(const Key& key) {
  if (limits_.empty()) {
    const auto pool = pools_.find(key);
    return pool == pools_.end() || pool->second.demands.empty() ? 0 : pool->second.demands.rbegin()->first;
  }
  std::uint64_t of_device = 0;
  std::uint64_t everywhere = 0;
  bool named = false;
  for (const Limit& limit : limits_) {
    if (limit.name != key.first) continue;
    if (key.second == kEverywhere || !limit.device.has_value()) {
      everywhere = std::max(everywhere, limit.count);
    } else if (*limit.device == key.second) {
      of_device = std::max(of_device, limit.count);
      named = true;
    }
  }
  return named ? of_device : everywhere;
}

absl::Status RateLimiter::Check(const Key& key, std::uint64_t count) {
  const bool global = key.second == kEverywhere;
  for (auto pool = pools_.lower_bound({key.first, std::numeric_limits<DeviceId>::min()});
       pool != pools_.end() && pool->first.first == key.first; ++pool) {
    if ((pool->first.second == kEverywhere) != global && !pool->second.demands.empty()) {
      return absl::InvalidArgumentError(
          fmt::format("Resource \"{}\" is present as both global and device-specific resource in the model "
                      "configuration.",
                      key.first));
    }
  }
  if (limits_.empty()) return absl::OkStatus();
  if (const std::uint64_t limit = Capacity(key); limit < count) {
    return absl::InvalidArgumentError(
        fmt::format("Resource count for \"{}\" is limited to {} which will prevent scheduling of one or more model "
                    "instances, the minimum required count is {}",
                    key.first, limit, count));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RateLimiter::Member>> RateLimiter::Add(const inference::ModelRateLimiter& config,
                                                                      DeviceId device) {
  std::map<Key, std::uint64_t> demands;
  for (const auto& resource : config.resources()) {
    if (resource.count() == 0) continue;
    std::uint64_t& count = demands[{resource.name(), resource.global() ? kEverywhere : device}];
    count = std::max<std::uint64_t>(count, resource.count());
  }
  if (demands.empty()) return nullptr;
  const std::uint64_t priority = std::max<std::uint64_t>(config.priority(), 1);
  absl::MutexLock lock(&mutex_);
  for (const auto& [key, count] : demands) RETURN_IF_ERROR(Check(key, count));
  auto member = std::make_unique<Member>(Member::Private(), *this, std::move(demands), priority);
  // It begins as if it had executed as often as whoever is behind most: those that are here are not to wait until it has
  // caught up with their whole past.
  std::optional<std::uint64_t> least;
  for (const Member* other : members_) {
    const std::uint64_t rank = Rank(other->executions_, other->priority_);
    least = std::min(least.value_or(rank), rank);
  }
  member->executions_ = least.value_or(0) / priority;
  members_.push_back(member.get());
  for (const auto& [key, count] : member->demands_) ++pools_[key].demands[count];
  return member;
}

void RateLimiter::Remove(Member& member) {
  if (std::erase(members_, &member) == 0) return;
  std::erase(waiting_, &member);
  for (const auto& [key, count] : member.demands_) {
    Pool& pool = pools_[key];
    if (--pool.demands[count] == 0) pool.demands.erase(count);
    if (pool.demands.empty() && pool.in_use == 0) pools_.erase(key);
  }
  Grant();
}

std::size_t RateLimiter::waiting() const {
  absl::MutexLock lock(&mutex_);
  return waiting_.size();
}

RateLimiter::Member::~Member() {
  absl::MutexLock lock(&limiter_.mutex_);
  if (granted_) {  // an exception came between Begin and End
    for (const auto& [key, count] : demands_) limiter_.pools_[key].in_use -= count;
  }
  limiter_.Remove(*this);
}

void RateLimiter::Wait(Member& member) {
  if (member.waits_ || member.granted_) return;
  member.waits_ = true;
  waiting_.push_back(&member);
}

void RateLimiter::Grant() {
  std::stable_sort(waiting_.begin(), waiting_.end(), [](const Member* a, const Member* b) {
    return Rank(a->executions_, a->priority_) < Rank(b->executions_, b->priority_);
  });
  std::set<Key> held_back;  // what somebody who comes first is waiting for
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    Member& member = **it;
    bool free = true;
    for (const auto& [key, count] : member.demands_) {
      free = free && !held_back.contains(key) && pools_[key].in_use + count <= Capacity(key);
    }
    if (!free) {
      for (const auto& [key, count] : member.demands_) held_back.insert(key);
      ++it;
      continue;
    }
    for (const auto& [key, count] : member.demands_) pools_[key].in_use += count;
    ++member.executions_;
    member.waits_ = false;
    member.granted_ = true;
    member.turn_.Signal();
    it = waiting_.erase(it);
  }
}

absl::Status RateLimiter::Member::Begin(CancelFlag* cancel) {
  bool cancelled = false;  // guarded by the mutex
  const ScopedOnCancel watch(cancel, [&] {
    absl::MutexLock lock(&limiter_.mutex_);
    cancelled = true;
    turn_.Signal();
  });
  absl::MutexLock lock(&limiter_.mutex_);
  limiter_.Wait(*this);
  limiter_.Grant();
  while (!granted_ && !cancelled) turn_.Wait(&limiter_.mutex_);
  if (granted_) return absl::OkStatus();
  waits_ = false;
  std::erase(limiter_.waiting_, this);
  limiter_.Grant();
  return absl::CancelledError("cancelled while waiting for the rate limiter's resources");
}

void RateLimiter::Member::End(bool more) {
  absl::MutexLock lock(&limiter_.mutex_);
  granted_ = false;
  for (const auto& [key, count] : demands_) limiter_.pools_[key].in_use -= count;
  if (more) limiter_.Wait(*this);
  limiter_.Grant();
}

}  // namespace tidemark
