// The part of the lifecycle that knows that ensembles have members.

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "inference/ensemble_plan.h"
#include "lifecycle/lifecycle_impl.h"
#include "lifecycle/load_cause.h"
#include "repository/config_io.h"

namespace tidemark {
namespace {

// Runs `then` when Done has been called as often as asked for, on the thread of the last call. Last owner: the last
// callback.
class Countdown {
 public:
  Countdown(std::size_t count, absl::AnyInvocable<void()> then) : open_(count), then_(std::move(then)) {}
  void Done() {
    {
      absl::MutexLock lock(&mutex_);
      if (--open_ != 0) return;
    }
    then_();
  }

 private:
  absl::Mutex mutex_;
  std::size_t open_ ABSL_GUARDED_BY(mutex_);
  absl::AnyInvocable<void()> then_;
};

}  // namespace

std::string Lifecycle::Impl::MemberKey(const std::string& ensemble, const std::string& member) {
  const std::string beside = ModelKey(NamespaceOfKey(ensemble), member);
  if (beside == member) return KeyOf(member);
  {
    absl::MutexLock lock(&mutex_);
    if (records_.contains(beside)) return beside;
  }
  for (const ModelEntry& entry : parts_.repository->Find(member)) {
    if (ModelKey(entry.model_namespace, entry.name) == beside) return beside;
  }
  return KeyOf(member);
}

std::string Lifecycle::Impl::FindCycle(const std::string& name, const inference::ModelConfig& config,
                                       std::vector<std::string>& path) {
  path.push_back(name);
  for (const std::string& member : MembersOf(config)) {
    const std::string key = MemberKey(name, member);
    const auto known = std::find(path.begin(), path.end(), key);
    if (known != path.end()) {
      std::string text;
      for (auto it = known; it != path.end(); ++it) text += fmt::format("{} -> ", NameOfKey(*it));
      return text + std::string(NameOfKey(key));
    }
    const absl::StatusOr<ModelSource> source = parts_.repository->Resolve(NameOfKey(key), {}, NamespaceOfKey(key));
    if (!source.ok() || !IsEnsemble(source->config)) continue;
    if (std::string cycle = FindCycle(key, source->config, path); !cycle.empty()) return cycle;
  }
  path.pop_back();
  return "";
}

// The ensemble's own operation stays open meanwhile; no thread waits for it.
void Lifecycle::Impl::LoadMembers(const std::shared_ptr<LoadRequest>& request) {
  std::vector<std::string> path;
  const std::string cycle = FindCycle(request->name, request->source->config, path);
  std::vector<std::string> members;
  if (cycle.empty()) {
    for (const std::string& member : MembersOf(request->source->config)) {
      members.push_back(MemberKey(request->name, member));
    }
  }
  {
    absl::MutexLock lock(&mutex_);
    Record& record = records_[request->name];
    record.members = members;
    record.wanted = true;
  }
  if (!cycle.empty()) {
    request->refused = absl::InvalidArgumentError(fmt::format(
        "load failed for model '{}': circular dependency between ensembles: {}\n", NameOfKey(request->name), cycle));
  }
  if (request->refresh || members.empty()) return FinishLoad(request);
  auto open = std::make_shared<Countdown>(members.size(), [this, request] {
    pool_->Post([this, request] { FinishLoad(request); }, LoadPool::Lane::kLoads);
  });
  for (const std::string& member : members) {
    auto load = std::make_shared<LoadRequest>();
    load->name = member;
    load->is_member = true;
    load->since = request->since;
    load->done = [open, request](const absl::Status& answer) {  // the ensemble finds out what is missing, but not why
      if (CauseOf(answer) == absl::StatusCode::kResourceExhausted) request->member_without_room = true;
      open->Done();
    };
    EnqueueLoad(std::move(load));
  }
}

void Lifecycle::Impl::RefreshDependents(const std::string& name, std::uint64_t since, absl::AnyInvocable<void()> done) {
  std::vector<std::string> dependents;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [key, record] : records_) {
      const bool has = std::find(record.members.begin(), record.members.end(), name) != record.members.end();
      if (has && record.wanted && !refusing_) dependents.push_back(key);
    }
  }
  if (dependents.empty()) return done();
  auto open = std::make_shared<Countdown>(dependents.size(), std::move(done));
  for (const std::string& dependent : dependents) {
    auto load = std::make_shared<LoadRequest>();
    load->name = dependent;
    load->refresh = true;
    load->since = since;
    load->done = [open](const absl::Status& /*logged*/) { open->Done(); };
    EnqueueLoad(std::move(load));
  }
}

absl::AnyInvocable<void()> Lifecycle::Impl::AfterRefreshToo(Done& done) {
  auto status = std::make_shared<absl::Status>();  // last owner: the countdown's function, like the answer
  auto answer = std::make_shared<Done>(std::move(done));
  auto open = std::make_shared<Countdown>(2, [status, answer] { (*answer)(*status); });
  done = [status, open](const absl::Status& result) {
    *status = result;
    open->Done();
  };
  return [open] { open->Done(); };
}

void Lifecycle::Impl::WithdrawInvalid(const std::string& name) {
  std::vector<Drain> drains;
  {
    absl::MutexLock lock(&mutex_);
    for (auto& [number, version] : records_[name].versions) {
      if (version.state == VersionState::kReady) WithdrawLocked(name, number, version, drains);
    }
    if (!drains.empty()) PublishLocked(name);
  }
  StartDrains(std::move(drains));
}

void Lifecycle::Impl::UnloadMembers(std::vector<std::string> members, absl::Status status, Done done) {
  std::vector<std::string> unneeded;
  {
    absl::MutexLock lock(&mutex_);
    for (const std::string& member : members) {
      const auto it = records_.find(member);
      if (it == records_.end() || it->second.asked_for) continue;
      const bool needed = std::any_of(records_.begin(), records_.end(), [&](const auto& entry) {
        const auto& others = entry.second.members;
        return entry.second.wanted && std::find(others.begin(), others.end(), member) != others.end();
      });
      if (!needed) unneeded.push_back(member);
    }
  }
  if (unneeded.empty()) return done(status);
  auto answer = std::make_shared<Done>(std::move(done));  // last owner: the countdown's function
  auto open = std::make_shared<Countdown>(unneeded.size(), [answer, status] { (*answer)(status); });
  for (const std::string& member : unneeded) {
    Unload(member, true, [open](const absl::Status& /*late: the log says so*/) { open->Done(); });
  }
}

}  // namespace tidemark
