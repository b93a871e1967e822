#include "lifecycle/lifecycle_impl.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "lifecycle/load_cause.h"
#include "repository/config_io.h"

namespace tidemark {
namespace {

// Triton's text for whatever keeps a load from starting comes first, what is wrong comes behind it.
absl::Status PollError(std::string_view name, const absl::Status& status) {
  const absl::StatusCode code = absl::IsInternal(status) || absl::IsFailedPrecondition(status)
                                    ? absl::StatusCode::kInvalidArgument
                                    : status.code();
  return absl::Status(
      code, fmt::format("failed to load '{}', failed to poll from model repository: {}", name, MessageOf(status)));
}

}  // namespace

Lifecycle::Impl::Impl(Options options, Parts parts, std::unique_ptr<LoadPool> pool)
    : options_(std::move(options)),
      parts_(parts),
      admission_(*parts.ledger, options_.memory_patience),
      pool_(std::move(pool)) {}

Lifecycle::Impl::~Impl() {
  RefuseLoads();
  UnloadAll(absl::InfiniteFuture());
  pool_->Shutdown();  // not reset(): a poll that is just looking at the repository still posts to it
}

void Lifecycle::Impl::Enqueue(const std::string& name, Queued operation) {
  absl::MutexLock lock(&mutex_);
  Record& record = records_[name];
  if (record.busy) {
    record.waiting.push_back(std::move(operation));
    return;
  }
  record.busy = true;
  pool_->Post(std::move(operation.run), operation.lane);
}

void Lifecycle::Impl::EndOperation(const std::string& name) {
  absl::MutexLock lock(&mutex_);
  const auto it = records_.find(name);
  Record& record = it->second;
  if (!record.waiting.empty()) {
    Queued next = std::move(record.waiting.front());
    record.waiting.pop_front();
    pool_->Post(std::move(next.run), next.lane);
    return;
  }
  record.busy = false;
  EraseIfForgottenLocked(it);
}

void Lifecycle::Impl::Load(std::string name, LoadOverrides overrides, Done done) {
  auto request = std::make_shared<LoadRequest>();
  request->name = std::move(name);
  request->overrides = std::move(overrides);
  request->done = std::move(done);
  EnqueueLoad(std::move(request));
}

void Lifecycle::Impl::EnqueueLoad(std::shared_ptr<LoadRequest> request) {
  {
    absl::MutexLock lock(&mutex_);
    if (request->since == 0) request->since = ++counter_;
  }
  const std::string name = request->name;
  Enqueue(name, Queued{LoadPool::Lane::kLoads, [this, request = std::move(request)] { BeginLoad(request); }});
}

void Lifecycle::Impl::BeginLoad(const std::shared_ptr<LoadRequest>& request) {
  {
    absl::MutexLock lock(&mutex_);
    Record& record = records_[request->name];
    // Somebody else has tried since then.
    const bool tried = (request->is_member || request->refresh) && record.attempted > request->since;
    if (tried || (request->refresh && !record.wanted)) {
      request->source = absl::CancelledError("");
    } else if (!request->is_member && !request->refresh) {
      record.asked_for = true;
    }
  }
  if (absl::IsCancelled(request->source.status())) {
    EndOperation(request->name);
    return request->done(absl::OkStatus());
  }
  try {
    request->source = ResolveSource(request->name, request->overrides, request->files);
  } catch (const std::exception& error) {  // before the first transaction: those let nothing out
    request->source = absl::ResourceExhaustedError(fmt::format("exception: {}", error.what()));
  }
  if (request->source.ok()) {
    request->source->key = request->name;  // also for file overrides, which lie in no namespace's folder
    if (IsEnsemble(request->source->config)) return LoadMembers(request);
  }
  FinishLoad(request);
}

void Lifecycle::Impl::FinishLoad(const std::shared_ptr<LoadRequest>& request) {
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    records_[request->name].attempted = ++counter_;
  }
  if (!request->refused.ok()) {
    status = request->refused;
    LOG_ERROR("{}", MessageOf(status));
  } else if (!request->source.ok()) {
    const absl::Status& cause = request->source.status();
    status = PollError(request->name, cause);
    LOG_ERROR("{}", MessageOf(status));
    // The index shows those that are there; any other name is whatever a client sent.
    const bool exists = !parts_.repository->Find(NameOfKey(request->name)).empty();
    absl::MutexLock lock(&mutex_);
    if (exists) poll_errors_[request->name] = TritonStatusText(absl::Status(status.code(), cause.message()));
  } else {
    try {
      status = RunLoad(*request);
    } catch (const std::exception& error) {
      status = PollError(request->name, absl::ResourceExhaustedError(fmt::format("exception: {}", error.what())));
      LOG_ERROR("{}", MessageOf(status));
    }
  }
  if (!status.ok() && request->member_without_room) status = WithCause(status, absl::StatusCode::kResourceExhausted);
  if (!status.ok() && request->refresh) WithdrawInvalid(request->name);
  request->files.reset();
  CountLoad(request->name, status);
  std::uint64_t now = 0;
  {
    absl::MutexLock lock(&mutex_);
    now = ++counter_;
  }
  EndOperation(request->name);
  if (!request->changed) return request->done(status);
  if (request->is_member) {  // the ensemble that waits for it looks for itself
    request->done(status);
    return RefreshDependents(request->name, now, [] {});
  }
  RefreshDependents(request->name, now, [request, status] { request->done(status); });
}

absl::StatusOr<ModelSource> Lifecycle::Impl::ResolveSource(const std::string& name, const LoadOverrides& overrides,
                                                           std::shared_ptr<Scope>& files) {
  if (overrides.files.empty()) {
    return parts_.repository->Resolve(NameOfKey(name), overrides, NamespaceOfKey(name));
  }
  ASSIGN_OR_RETURN(const std::filesystem::path directory, WriteFiles(name, overrides, files));
  return parts_.repository->ResolveIn(NameOfKey(name), "", directory, overrides);
}

absl::StatusOr<std::filesystem::path> Lifecycle::Impl::WriteFiles(const std::string& name,
                                                                  const LoadOverrides& overrides,
                                                                  std::shared_ptr<Scope>& files) {
  RETURN_IF_ERROR(ValidateOverridePaths(overrides));
  std::uint64_t number = 0;
  {
    absl::MutexLock lock(&mutex_);
    number = ++counter_;
  }
  files = std::make_shared<Scope>(*parts_.ledger, *parts_.platform, fmt::format("model/{}/files-{}", name, number));
  ASSIGN_OR_RETURN(std::filesystem::path directory, files->MakeTempDirectory("tidemark-", "file overrides"));
  RETURN_IF_ERROR(WriteOverrideFiles(overrides, directory));
  return directory;
}

absl::Status Lifecycle::Impl::RunLoad(LoadRequest& request) {
  const std::string& name = request.name;
  const LoadOverrides& overrides = request.overrides;
  ModelSource* source = &*request.source;
  {
    absl::MutexLock lock(&mutex_);
    if (refusing_) return absl::UnavailableError("Server not ready");
    poll_errors_.erase(name);
    Record& record = records_[name];
    record.gone = false;  // it was found
    const bool unchanged = overrides.empty() && record.stamp.has_value() && *record.stamp == source->stamp;
    if (unchanged && !request.refresh) return absl::OkStatus();
    request.changed = true;
    record.known = true;
    if (source->versions.empty()) record.stamp.reset();
    for (const std::int64_t version : source->versions) {
      Version& entry = record.versions[version];
      if (entry.state == VersionState::kReady) continue;
      entry.state = VersionState::kLoading;
      entry.reason.clear();
      entry.generation = ++counter_;
    }
    PublishLocked(name);
  }
  if (source->versions.empty()) {
    LOG_ERROR("failed to load model '{}': {}", name, MessageOf(NoVersionError(name)));
    return absl::InvalidArgumentError(
        fmt::format("load failed for model '{}': {}\n", name, MessageOf(NoVersionError(name))));
  }
  Running running(admission_);
  std::vector<absl::StatusOr<std::unique_ptr<Model>>> results =
      RunTransactions(*source, request.files, !overrides.empty(), running);
  request.files.reset();
  if (std::any_of(results.begin(), results.end(), [](const auto& result) { return !result.ok(); })) {
    return FailLoad(*source, std::move(results));
  }
  return Commit(*source, overrides.files.empty(), std::move(results));
}

std::vector<absl::StatusOr<std::unique_ptr<Model>>> Lifecycle::Impl::RunTransactions(
    const ModelSource& source, const std::shared_ptr<Scope>& files, bool overridden, Running& running) {
  {
    absl::MutexLock lock(&mutex_);
    running_.insert(&running.cancel);
    if (refusing_) running.cancel.Cancel();
  }
  std::vector<absl::StatusOr<std::unique_ptr<Model>>> results;
  for (std::size_t i = 0; i < source.versions.size(); ++i) results.emplace_back(absl::UnknownError("not run"));
  std::vector<std::function<void()>> tasks;
  for (std::size_t i = 0; i < source.versions.size(); ++i) {
    tasks.push_back([&, i] { results[i] = RunVersion(source, source.versions[i], files, overridden, running); });
  }
  pool_->RunAll(std::move(tasks));
  absl::MutexLock lock(&mutex_);
  running_.erase(&running.cancel);
  return results;
}

absl::StatusOr<std::unique_ptr<Model>> Lifecycle::Impl::RunVersion(const ModelSource& source, std::int64_t version,
                                                                   const std::shared_ptr<Scope>& files, bool overridden,
                                                                   Running& running) {
  LOG_INFO("loading: {}:{}", source.name, version);
  const std::int64_t start = NowNanos();
  const DeviceBytes before = Witnessed({});
  absl::Status status;
  std::string owner;
  bool alone = false;
  for (int attempt = 0; attempt <= std::max(options_.retry_count, 0);) {
    std::uint64_t number = 0;
    {
      absl::MutexLock lock(&mutex_);
      number = ++counter_;
    }
    owner = fmt::format("model/{}/{}/load-{}", source.key, version, number);
    LoadTransaction transaction(
        LoadTransaction::Parts{.platform = parts_.platform,
                               .ledger = parts_.ledger,
                               .backends = parts_.backends,
                               .buffers = parts_.buffers,
                               .registry = parts_.registry,
                               .statistics = parts_.statistics,
                               .cache = parts_.cache,
                               .rate_limiter = parts_.rate_limiter,
                               .admission = &admission_,
                               .operation = &running.operation,
                               .cancel = &running.cancel,
                               .auto_complete = parts_.repository->options().auto_complete,
                               .measured = overridden ? std::nullopt : Measured(source, version),
                               .alone = alone},
        source, version, owner, files);
    absl::StatusOr<std::unique_ptr<Model>> model = transaction.Run();
    if (model.ok()) {
      Learn(source.key, version, (*model)->scope(), overridden ? nullptr : &source.stamp);
      RememberLoad(source.key, version, owner, model, start, before);
      return model;
    }
    status = parts_.repository->WithPlaces(source, model.status());
    if (transaction.worth_another_try() && !alone) {
      LOG_INFO("'{}' version {} did not fit beside other loads, waiting for them: {}", source.name, version,
               MessageOf(status));
      alone = true;  // not one of the retries that were asked for
      continue;
    }
    LOG_ERROR("failed to load '{}' version {}: {}", source.name, version, TritonStatusText(status));
    if (running.cancel.cancelled()) break;
    ++attempt;
  }
  RememberLoad(source.key, version, owner, status, start, before);
  return status;
}

std::optional<MemoryEstimate> Lifecycle::Impl::Measured(const ModelSource& source, std::int64_t version) {
  absl::MutexLock lock(&mutex_);
  const auto it = learned_.find({source.key, version});
  if (it == learned_.end() || it->second.stamp != source.stamp) return std::nullopt;
  return it->second.high_water;
}

void Lifecycle::Impl::Learn(const std::string& name, std::int64_t version, const Scope& scope,
                            const ModelStamp* stamp) {
  MemoryEstimate high_water;
  for (const auto& [device, figures] : scope.MemoryUse()) high_water[device] = figures.high_water;
  absl::MutexLock lock(&mutex_);
  if (stamp != nullptr) {
    learned_[{name, version}] = Learned{*stamp, std::move(high_water)};
  } else if (const auto it = learned_.find({name, version}); it != learned_.end()) {
    for (const auto& [device, bytes] : high_water) {
      std::uint64_t& known = it->second.high_water[device];
      known = std::max(known, bytes);
    }
  }
}

MemoryEstimate Lifecycle::Impl::LearnedBytes(const std::string& name, std::int64_t version) {
  absl::MutexLock lock(&mutex_);
  const auto it = learned_.find({name, version});
  return it == learned_.end() ? MemoryEstimate() : it->second.high_water;
}

DeviceBytes Lifecycle::Impl::Witnessed(const DeviceBytes& devices) const {
  return parts_.witness == nullptr ? DeviceBytes() : parts_.witness->Bytes(devices);
}

void Lifecycle::Impl::RememberLoad(const std::string& name, std::int64_t version, const std::string& owner,
                                   const absl::StatusOr<std::unique_ptr<Model>>& result, std::int64_t start,
                                   const DeviceBytes& before) {
  LoadRecord record;
  record.ok = result.ok();
  std::uint64_t cached = 0;
  if (result.ok()) {
    for (const auto& [device, figures] : (*result)->scope().MemoryUse()) {
      record.taken[device] = static_cast<std::int64_t>(figures.now);
    }
    cached = (*result)->cached_bytes(kHost);
  } else {
    record.reason = TritonStatusText(result.status());
    for (const LedgerRow& row : parts_.ledger->RowsOf(owner)) {
      ++record.rows_left;
      if (CountsAgainstBudget(row.kind)) record.taken[row.device] += static_cast<std::int64_t>(row.bytes);
    }
  }
  record.seconds = static_cast<double>(NowNanos() - start) / 1e9;
  // Of the devices that were asked at the start: a GPU is not, before it is known that it is used.
  for (const auto& [device, bytes] : Witnessed(before)) {
    const auto at_start = before.find(device);
    if (at_start != before.end()) record.witness[device] = bytes - at_start->second;
  }
  record.ended_ms = UnixMillis();
  history_.LoadEnded(name, version, std::move(record), cached);
}

void Lifecycle::Impl::CountLoad(const std::string& name, const absl::Status& answer) {
  absl::Status cause = answer;
  bool known = false;
  {
    absl::MutexLock lock(&mutex_);
    if (const auto it = records_.find(name); it != records_.end()) {
      known = it->second.known;
      if (!answer.ok() && !it->second.cause.ok()) cause = it->second.cause;
      it->second.cause = absl::OkStatus();
    }
  }
  history_.CountLoad(name, known, cause);
}

absl::Status Lifecycle::Impl::FailLoad(const ModelSource& source,
                                       std::vector<absl::StatusOr<std::unique_ptr<Model>>> results) {
  std::string text;     // Triton's
  std::string details;  // ours, behind it
  bool cancelled = false;
  absl::Status cause;
  std::map<std::int64_t, std::string> reasons;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::int64_t version = source.versions[i];
    if (results[i].ok()) {
      reasons[version] = "Unavailable: another version of this load failed";
      continue;
    }
    const absl::Status& status = results[i].status();
    cancelled = cancelled || absl::IsCancelled(status);
    if (cause.ok()) cause = status;
    reasons[version] = TritonStatusText(status);
    if (IsEnsemble(source.config)) {
      text = HeadOf(status);
    } else {
      text += fmt::format("version {} is at UNAVAILABLE state: {}: {};\n", version, TritonCodeName(status.code()),
                          HeadOf(status));
    }
    details += DetailsOf(status);
  }
  while (!results.empty()) results.pop_back();  // what did load goes, too, newest first
  parts_.buffers->Trim();                       // the warm-up's buffers
  parts_.platform->TrimHeap();
  absl::MutexLock lock(&mutex_);
  Record& record = records_[source.key];
  record.stamp.reset();
  record.cause = cause;
  for (const auto& [number, reason] : reasons) {
    Version& version = record.versions[number];
    if (version.state == VersionState::kReady) continue;  // the old one serves on
    version.state = VersionState::kUnavailable;
    version.reason = reason;
    version.generation = ++counter_;
  }
  PublishLocked(source.key);
  LOG_INFO("failed to load '{}'", source.name);
  std::string message = fmt::format("load failed for model '{}': {}\n", source.name, text);
  if (!details.empty()) message += details.substr(1);
  return cancelled ? absl::UnavailableError(message) : WithCause(absl::InvalidArgumentError(message), cause.code());
}

Lifecycle::Impl::Staged Lifecycle::Impl::StageLocked(
    const ModelSource& source, bool keep_stamp, const std::vector<absl::StatusOr<std::unique_ptr<Model>>>& results) {
  Staged staged;
  const Record& record = records_.at(source.key);
  auto model = std::make_shared<RegistryModel>();
  model->name = source.name;
  model->key = source.key;
  for (const auto& [number, version] : record.versions) {
    VersionEntry entry{number, version.state, version.reason, nullptr};
    if (version.state == VersionState::kReady) {
      entry.state = VersionState::kUnloading;
      staged.drains.push_back(Drain{source.key, number, 0, nullptr, version.published});
    } else if (version.state == VersionState::kUnavailable) {
      entry.reason = "unloaded";  // no longer wanted
    }
    model->versions[number] = std::move(entry);
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    staged.published.push_back(std::make_shared<PublishedVersion>(results[i]->get()));
    const std::int64_t number = source.versions[i];
    model->versions[number] = VersionEntry{number, VersionState::kReady, "", staged.published.back()};
  }
  auto picture = std::make_shared<RegistrySnapshot>(*parts_.registry->Snapshot());
  (*picture)[source.key] = std::move(model);
  staged.picture = std::move(picture);
  if (keep_stamp) staged.stamp = source.stamp;
  return staged;
}

void Lifecycle::Impl::ApplyLocked(const ModelSource& source, Staged& staged,
                                  std::vector<absl::StatusOr<std::unique_ptr<Model>>>& results) noexcept {
  Record& record = records_.find(source.key)->second;
  for (Drain& drain : staged.drains) {
    Version& version = record.versions.find(drain.version)->second;
    version.state = VersionState::kUnloading;
    version.generation = drain.generation = ++counter_;
    drain.model = std::move(version.model);
    version.published.reset();
    ++record.draining;
    admission_.DrainStarted();
  }
  for (auto& [number, version] : record.versions) {
    if (version.state == VersionState::kUnavailable) version.reason = "unloaded";
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    Version& version = record.versions.find(source.versions[i])->second;  // made when the load began
    version.state = VersionState::kReady;
    version.reason.clear();
    version.generation = ++counter_;
    version.model = *std::move(results[i]);
    version.published = std::move(staged.published[i]);
  }
  record.stamp = std::move(staged.stamp);
  record.known = true;
  parts_.registry->Publish(std::move(staged.picture));
}

absl::Status Lifecycle::Impl::Commit(const ModelSource& source, bool keep_stamp,
                                     std::vector<absl::StatusOr<std::unique_ptr<Model>>> results) {
  Staged staged;
  bool done = false;
  {
    absl::MutexLock lock(&mutex_);
    try {
      staged = StageLocked(source, keep_stamp, results);
      done = true;
    } catch (const std::bad_alloc&) {
      // Nothing has changed yet.
    }
    if (done) ApplyLocked(source, staged, results);
  }
  if (!done) {
    for (auto& result : results) result = absl::ResourceExhaustedError("out of host memory at the commit");
    return FailLoad(source, std::move(results));
  }
  StartDrains(std::move(staged.drains));
  LOG_INFO("successfully loaded '{}'", source.name);
  return absl::OkStatus();
}

void Lifecycle::Impl::WithdrawLocked(const std::string& name, std::int64_t number, Version& version,
                                     std::vector<Drain>& drains) {
  version.state = VersionState::kUnloading;
  version.reason.clear();
  version.generation = ++counter_;
  drains.push_back(Drain{name, number, version.generation, std::move(version.model), std::move(version.published)});
  ++records_[name].draining;
  admission_.DrainStarted();
}

std::shared_ptr<Lifecycle::Impl::Drain> Lifecycle::Impl::StartDrains(std::vector<Drain> drains, bool keep_one) {
  struct Here {
    std::thread::id thread = std::this_thread::get_id();
    bool may_keep = false;  // these two are for that thread alone
    std::shared_ptr<Drain> kept;
  };
  const auto here = std::make_shared<Here>();  // last owner: the last gate that is told of
  here->may_keep = keep_one;
  for (Drain& drain : drains) {
    const auto going = std::make_shared<Drain>(std::move(drain));  // last owner: who finishes it
    const std::shared_ptr<PublishedVersion> published = going->published;
    published->gate.Close([this, going, here] {
      if (std::this_thread::get_id() == here->thread && std::exchange(here->may_keep, false)) {
        here->kept = going;
      } else {
        pool_->Post([this, going] { FinishDrain(std::move(*going)); }, LoadPool::Lane::kUnloads);
      }
    });
  }
  here->may_keep = false;
  return std::move(here->kept);
}

UnloadRecord Lifecycle::Impl::TakeDown(Drain& drain) {
  const std::string owner = drain.model->scope().owner();
  Learn(drain.name, drain.version, drain.model->scope(), nullptr);
  const std::int64_t start = NowNanos();
  UnloadRecord record;
  for (const auto& [device, figures] : drain.model->scope().MemoryUse()) {
    record.held[device] = static_cast<std::int64_t>(figures.now);
  }
  if (const std::uint64_t answers = drain.model->answer_memory().now; answers != 0) {
    record.held[kHost] += static_cast<std::int64_t>(answers);
  }
  const DeviceBytes before = Witnessed(record.held);
  const std::int64_t witnessed = NowNanos();
  drain.model.reset();
  const std::int64_t gone = NowNanos();
  parts_.buffers->Trim();  // buffers of its size may never be asked for again
  parts_.platform->TrimHeap();
  LOG_VERBOSE(1, "timing of an unload: witness {} us, release {} us, trim {} us", (witnessed - start) / 1000,
              (gone - witnessed) / 1000, (NowNanos() - gone) / 1000);
  admission_.DrainEnded();
  record.returned = record.held;
  for (const LedgerRow& row : parts_.ledger->RowsOf(owner)) {
    ++record.rows_left;
    if (CountsAgainstBudget(row.kind)) record.returned[row.device] -= static_cast<std::int64_t>(row.bytes);
  }
  if (record.rows_left != 0) {
    LOG_ERROR("'{}' version {} left {} ledger rows behind", drain.name, drain.version, record.rows_left);
  }
  for (const auto& [device, bytes] : Witnessed(record.held)) {
    const auto at_start = before.find(device);
    if (at_start != before.end()) record.witness[device] = at_start->second - bytes;
  }
  record.seconds = static_cast<double>(NowNanos() - start) / 1e9;
  record.ended_ms = UnixMillis();
  record.verdict = Judge(record);
  return record;
}

void Lifecycle::Impl::FinishDrain(Drain drain) {
  history_.UnloadEnded(drain.name, drain.version, TakeDown(drain));
  LOG_INFO("successfully unloaded '{}' version {}", drain.name, drain.version);
  std::vector<Waiter> waiters;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = records_.find(drain.name);
    Record& record = it->second;
    const auto version = record.versions.find(drain.version);
    if (version != record.versions.end() && version->second.generation == drain.generation) {
      version->second.state = VersionState::kUnavailable;
      version->second.reason = "unloaded";
      PublishLocked(drain.name);
    }
    if (--record.draining == 0) {
      waiters.swap(record.waiters);
      EraseIfForgottenLocked(it);
    }
  }
  for (Waiter& waiter : waiters) {
    pool_->Revoke(waiter.deadline);
    waiter.done(absl::OkStatus());
  }
}

std::string Lifecycle::Impl::KeyOf(std::string name) {
  if (!parts_.repository->options().namespacing) return name;
  {
    absl::MutexLock lock(&mutex_);
    std::string found;
    std::size_t count = 0;
    for (const auto& [key, record] : records_) {
      if (!record.known || NameOfKey(key) != name) continue;
      found = key;
      ++count;
    }
    if (count == 1) return found;
  }
  const std::vector<ModelEntry> entries = parts_.repository->Find(name);
  return entries.size() == 1 ? ModelKey(entries.front().model_namespace, name) : name;
}

void Lifecycle::Impl::Unload(std::string name, bool members, Done done) {
  const std::string key = name;
  auto run = [this, name = std::move(name), members, done = std::move(done)]() mutable {
    RunUnload(name, members, std::move(done));
  };
  Enqueue(key, Queued{LoadPool::Lane::kUnloads, std::move(run)});
}

void Lifecycle::Impl::RunUnload(const std::string& name, bool members, Done done) {
  std::vector<Drain> drains;
  std::uint64_t waiter = 0;
  std::uint64_t since = 0;
  absl::AnyInvocable<void()> refreshed = AfterRefreshToo(done);
  {
    absl::MutexLock lock(&mutex_);
    Record& record = records_[name];
    record.stamp.reset();
    poll_errors_.erase(name);
    record.wanted = record.asked_for = false;
    since = ++counter_;
    if (members && !record.members.empty()) {
      done = [this, gone = record.members, done = std::move(done)](const absl::Status& status) mutable {
        UnloadMembers(std::move(gone), status, std::move(done));
      };
    }
    for (auto& [number, version] : record.versions) {
      if (version.state == VersionState::kReady) {
        WithdrawLocked(name, number, version, drains);
      } else if (version.state == VersionState::kUnavailable) {
        version.reason = "unloaded";
      }
    }
    if (record.versions.empty()) record.known = false;
    PublishLocked(name);
    if (record.draining != 0) {
      waiter = ++counter_;
      const LoadPool::Ticket deadline =
          pool_->PostAt(absl::Now() + options_.unload_deadline, [this, name, waiter] { AnswerLate(name, waiter); });
      record.waiters.push_back(Waiter{waiter, deadline, std::move(done)});
    }
  }
  const std::shared_ptr<Drain> here = StartDrains(std::move(drains), true);
  EndOperation(name);
  RefreshDependents(name, since, std::move(refreshed));
  if (waiter == 0) done(absl::OkStatus());
  if (here != nullptr) FinishDrain(std::move(*here));  // another thread would only have to be woken for it
}

void Lifecycle::Impl::AnswerLate(const std::string& name, std::uint64_t waiter) {
  Done late;
  std::int64_t draining = 0;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = records_.find(name);
    if (it == records_.end()) return;
    std::vector<Waiter>& waiters = it->second.waiters;
    const auto found =
        std::find_if(waiters.begin(), waiters.end(), [&](const Waiter& other) { return other.id == waiter; });
    if (found == waiters.end()) return;
    late = std::move(found->done);
    waiters.erase(found);
    draining = it->second.draining;
  }
  late(absl::DeadlineExceededError(
      fmt::format("unload of '{}' is not finished: requests are still running in {} of its versions; they are "
                  "withdrawn and go as soon as the requests end",
                  name, draining)));
}

void Lifecycle::Impl::PublishLocked(const std::string& name) {
  auto next = std::make_shared<RegistrySnapshot>(*parts_.registry->Snapshot());
  const Record& record = records_[name];
  if (!record.known) {
    next->erase(name);
  } else {
    auto model = std::make_shared<RegistryModel>();
    model->name = std::string(NameOfKey(name));
    model->key = name;
    for (const auto& [number, version] : record.versions) {
      model->versions[number] = VersionEntry{number, version.state, version.reason, version.published};
    }
    (*next)[name] = std::move(model);
  }
  parts_.registry->Publish(std::move(next));
}

void Lifecycle::Impl::RefuseLoads() {
  absl::MutexLock lock(&mutex_);
  refusing_ = true;
  for (CancelFlag* cancel : running_) cancel->Cancel();
  admission_.Wake();
}

bool Lifecycle::Impl::IdleLocked() {
  return std::all_of(records_.begin(), records_.end(),
                     [](const auto& entry) { return !entry.second.busy && entry.second.draining == 0; });
}

bool Lifecycle::Impl::UnloadAll(absl::Time deadline) {
  std::vector<std::string> names;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [name, record] : records_) names.push_back(name);
  }
  for (const std::string& name : names) Unload(name, false, [](const absl::Status& /*reported by the log*/) {});
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithDeadline(absl::Condition(this, &Impl::IdleLocked), deadline);
}

void Lifecycle::Impl::Sync(std::optional<std::vector<std::string>> names, Done done) {
  // Last owner: the callback of the operation that ends last.
  struct Progress {
    absl::Mutex mutex;
    std::size_t open ABSL_GUARDED_BY(mutex) = 1;
    absl::Status status ABSL_GUARDED_BY(mutex);
    Done done;
    void End(const absl::Status& result) {
      Done finished;
      absl::Status final_status;
      {
        absl::MutexLock lock(&mutex);
        if (!result.ok() && status.ok()) status = result;
        if (--open != 0) return;
        finished = std::move(done);
        final_status = status;
      }
      finished(final_status);
    }
  };
  auto progress = std::make_shared<Progress>();
  progress->done = std::move(done);
  const auto add = [&progress] {
    absl::MutexLock lock(&progress->mutex);
    ++progress->open;
  };
  std::set<std::string> wanted;
  std::vector<std::string> gone;
  absl::Status duplicates;
  if (names.has_value()) {
    for (const std::string& name : *names) wanted.insert(KeyOf(name));  // what nobody asked for is not looked at
  } else {
    const absl::StatusOr<std::vector<ModelEntry>> entries = parts_.repository->Names();
    if (!entries.ok()) {
      LOG_ERROR("the model repository cannot be listed: {}", MessageOf(entries.status()));
      progress->End(entries.status());
      return;
    }
    for (const ModelEntry& entry : *entries) {
      if (!entry.duplicate()) {
        wanted.insert(ModelKey(entry.model_namespace, entry.name));
        continue;
      }
      duplicates = absl::FailedPreconditionError(
          fmt::format("failed to poll model '{}': not unique across all model repositories", entry.name));
      LOG_ERROR("{}", MessageOf(duplicates));
    }
    absl::MutexLock lock(&mutex_);
    for (const auto& [name, record] : records_) {
      if (record.known && !wanted.contains(name)) gone.push_back(name);
    }
  }
  for (const std::string& name : gone) {
    add();
    Unload(name, false, [this, name, progress](const absl::Status& status) {
      {
        absl::MutexLock lock(&mutex_);
        const auto it = records_.find(name);
        if (it != records_.end() && !it->second.busy && it->second.draining == 0 && it->second.waiters.empty()) {
          it->second.known = false;
          PublishLocked(name);
          EraseIfForgottenLocked(it);
        }
      }
      progress->End(status);
    });
  }
  for (const std::string& name : wanted) {
    add();
    Load(name, {}, [progress](const absl::Status& status) { progress->End(status); });
  }
  progress->End(duplicates);
}

void Lifecycle::Impl::Poll() {
  Sync(std::nullopt, [this](const absl::Status& /*logged where it happened*/) {
    pool_->PostAt(absl::Now() + options_.poll_interval, [this] { Poll(); });
  });
}

}  // namespace tidemark
