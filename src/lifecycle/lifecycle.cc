#include "lifecycle/lifecycle.h"

#include <utility>

#include "absl/synchronization/notification.h"
#include "base/status.h"
#include "lifecycle/lifecycle_impl.h"

namespace tidemark {
namespace {

absl::Status NotExplicit() {
  return absl::UnavailableError("explicit model load / unload is not allowed if polling is enabled");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Lifecycle>> Lifecycle::Create(Options options, Parts parts) {
  ASSIGN_OR_RETURN(auto pool, LoadPool::Create(*parts.ledger, *parts.platform, options.load_threads));
  auto impl = std::make_unique<Impl>(std::move(options), parts, std::move(pool));
  return std::make_unique<Lifecycle>(Private(), std::move(impl));
}

Lifecycle::Lifecycle(Private /*only Create*/, std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Lifecycle::~Lifecycle() { BeginExit(); }

absl::Status Lifecycle::StartUp() {
  const Options& options = impl_->options();
  std::optional<std::vector<std::string>> names;
  if (options.mode == ControlMode::kExplicit) {
    const auto& wanted = options.startup_models;
    if (!(wanted.size() == 1 && wanted.front() == "*")) names = wanted;
  }
  absl::Status status;
  absl::Notification ended;
  impl_->Sync(std::move(names), [&](const absl::Status& result) {
    status = result;
    ended.Notify();
  });
  ended.WaitForNotification();
  ServerState starting = ServerState::kStarting;
  state_.compare_exchange_strong(starting, ServerState::kReady);
  if (options.mode == ControlMode::kPoll && options.poll_interval > absl::ZeroDuration()) {
    Impl* impl = impl_.get();
    impl->pool().PostAt(absl::Now() + options.poll_interval, [impl] { impl->Poll(); });
  }
  if (status.ok()) return status;
  return absl::Status(status.code(), fmt::format("failed to load all models: {}", MessageOf(status)));
}

void Lifecycle::Load(std::string name, LoadOverrides overrides, Done done) {
  if (absl::Status valid = ValidateLoadName(name); !valid.ok()) return done(std::move(valid));
  if (!accepting()) return done(absl::UnavailableError("Server not ready"));
  if (impl_->options().mode != ControlMode::kExplicit) return done(NotExplicit());
  impl_->Load(impl_->KeyOf(std::move(name)), std::move(overrides), std::move(done));
}

void Lifecycle::Check(std::string name, LoadOverrides overrides, CheckDone done) {
  if (absl::Status valid = ValidateLoadName(name); !valid.ok()) return done(std::move(valid), "[]");
  if (!accepting()) return done(absl::UnavailableError("Server not ready"), "[]");
  impl_->Check(impl_->KeyOf(std::move(name)), std::move(overrides), std::move(done));
}

void Lifecycle::Unload(std::string name, bool unload_dependents, Done done) {
  if (!accepting()) return done(absl::UnavailableError("Server not ready"));
  if (impl_->options().mode != ControlMode::kExplicit) return done(NotExplicit());
  impl_->Unload(impl_->KeyOf(std::move(name)), unload_dependents, std::move(done));
}

void Lifecycle::Forget(std::string name, ForgetDone done) {
  if (!accepting() || impl_->options().mode != ControlMode::kExplicit) return done({});
  impl_->Forget(name, std::move(done));
}

absl::StatusOr<std::vector<IndexEntry>> Lifecycle::Index(bool ready_only) const {
  ASSIGN_OR_RETURN(const std::vector<ModelEntry> entries, impl_->parts().repository->Names());
  const std::shared_ptr<const RegistrySnapshot> snapshot = impl_->parts().registry->Snapshot();
  std::map<std::string, bool> names;  // to "is a duplicate"
  for (const ModelEntry& entry : entries) {
    bool& duplicate = names[ModelKey(entry.model_namespace, entry.name)];
    duplicate = duplicate || entry.duplicate();
  }
  for (const auto& [name, model] : *snapshot)
    names.emplace(name, false);  // loaded from file overrides, or gone from disk
  std::vector<IndexEntry> index;
  for (const auto& [key, duplicate] : names) {
    const std::string name(NameOfKey(key));
    if (duplicate) {
      index.push_back({name, "", "UNAVAILABLE", "model appears in two or more repositories"});
      continue;
    }
    const auto model = snapshot->find(key);
    if (model == snapshot->end() || model->second->versions.empty()) {
      const std::string reason = impl_->PollErrorOf(key);
      if (!ready_only) index.push_back({name, "", reason.empty() ? "" : "UNAVAILABLE", reason});
      continue;
    }
    for (const auto& [number, version] : model->second->versions) {
      if (ready_only && version.state != VersionState::kReady) continue;
      if (const absl::Status health = HealthOf(version); !health.ok()) {  // published, but nothing can be asked of it
        if (!ready_only)
          index.push_back({name, fmt::format("{}", number), "UNAVAILABLE", std::string(MessageOf(health))});
        continue;
      }
      index.push_back({name, fmt::format("{}", number), std::string(VersionStateName(version.state)), version.reason});
    }
  }
  return index;
}

bool Lifecycle::Ready() const {
  if (state() != ServerState::kReady || impl_->parts().ledger->stranded_rows() != 0) return false;
  return !impl_->options().strict_readiness || ModelsReady();
}

bool Lifecycle::ModelsReady() const {
  if (state() != ServerState::kReady) return false;
  const std::shared_ptr<const RegistrySnapshot> snapshot = impl_->parts().registry->Snapshot();
  for (const auto& [name, model] : *snapshot) {
    if (model->versions.empty()) return false;
    for (const auto& [number, version] : model->versions) {
      switch (version.state) {
        case VersionState::kReady:
          if (!HealthOf(version).ok()) return false;
          break;
        case VersionState::kLoading:
        case VersionState::kUnloading:
          break;  // a model on its way in or out says nothing about the others
        default:
          if (version.reason != "unloaded") return false;
      }
    }
  }
  return true;
}

LoadHistory& Lifecycle::history() const { return impl_->history(); }

MemoryEstimate Lifecycle::Learned(std::string_view key, std::int64_t version) const {
  return impl_->LearnedBytes(std::string(key), version);
}

void Lifecycle::BeginExit() {
  state_.store(ServerState::kExiting, std::memory_order_release);
  impl_->RefuseLoads();
}

absl::Status Lifecycle::Stop(absl::Time deadline) {
  BeginExit();
  if (impl_->UnloadAll(deadline)) return absl::OkStatus();
  return absl::DeadlineExceededError("Exit timeout expired. Exiting immediately.");
}

}  // namespace tidemark
