// The part of the lifecycle that lets go of names.

#include <algorithm>
#include <limits>
#include <utility>

#include "lifecycle/lifecycle_impl.h"

namespace tidemark {

void Lifecycle::Impl::Forget(const std::string& name, ForgetDone done) {
  auto all = std::make_shared<Forgetting>();
  all->done = std::move(done);
  std::vector<std::string> keys = {name};
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [key, record] : records_) {
      if (NameOfKey(key) == name) keys.push_back(key);
    }
    for (const auto& [key, error] : poll_errors_) {
      if (NameOfKey(key) == name) keys.push_back(key);
    }
  }
  for (const std::string& key : keys) EnqueueForget(all, key);
  EndForget(*all);
}

bool Lifecycle::Impl::Serves(const Record& record) {
  return std::any_of(record.versions.begin(), record.versions.end(),
                     [](const auto& version) { return version.second.state == VersionState::kReady; });
}

void Lifecycle::Impl::EnqueueForget(const std::shared_ptr<Forgetting>& all, const std::string& key) {
  {
    absl::MutexLock lock(&all->mutex);
    if (!all->seen.insert(key).second) return;
    ++all->open;
  }
  Enqueue(key, Queued{LoadPool::Lane::kUnloads, [this, all, key] { RunForget(all, key); }});
}

void Lifecycle::Impl::RunForget(const std::shared_ptr<Forgetting>& all, const std::string& key) {
  const std::vector<ModelEntry> entries = parts_.repository->Find(NameOfKey(key));
  const bool found = std::any_of(entries.begin(), entries.end(), [&](const ModelEntry& entry) {
    return ModelKey(entry.model_namespace, entry.name) == key;
  });
  if (!found) {
    std::vector<std::string> members;
    {
      absl::MutexLock lock(&mutex_);
      Record& record = records_[key];
      record.gone = true;
      members = record.members;
    }
    {
      absl::MutexLock lock(&all->mutex);
      all->names.emplace(NameOfKey(key));
    }
    for (const std::string& member : members) EnqueueForget(all, member);
  }
  EndOperation(key);
  EndForget(*all);
}

void Lifecycle::Impl::EndForget(Forgetting& all) {
  std::set<std::string, std::less<>> names;
  {
    absl::MutexLock lock(&all.mutex);
    if (--all.open != 0) return;
    names.swap(all.names);
  }
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [key, record] : records_) {  // another namespace may have the name, too
      const auto it = names.find(NameOfKey(key));
      if (it != names.end() && Serves(record)) names.erase(it);
    }
  }
  all.done({names.begin(), names.end()});
}

void Lifecycle::Impl::EraseIfForgottenLocked(std::map<std::string, Record>::iterator it) {
  const std::string key = it->first;
  Record& record = it->second;
  if (record.busy || record.draining != 0 || !record.waiters.empty()) return;
  if (record.gone) {
    if (Serves(record)) return;
    poll_errors_.erase(key);
    if (std::exchange(record.known, false)) PublishLocked(key);
  }
  if (record.known) return;
  learned_.erase(learned_.lower_bound({key, std::numeric_limits<std::int64_t>::min()}),
                 learned_.upper_bound({key, std::numeric_limits<std::int64_t>::max()}));
  history_.Forget(key);
  if (parts_.statistics != nullptr) parts_.statistics->Forget(key);
  records_.erase(it);
}

}  // namespace tidemark
