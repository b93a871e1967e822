#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "backend/backend.h"
#include "inference/registry.h"
#include "lifecycle/load_history.h"
#include "observe/statistics_book.h"
#include "repository/model_repository.h"
#include "resource/buffer_pool.h"
#include "resource/ledger.h"
#include "resource/scope.h"
#include "resource/witness.h"

namespace tidemark {

enum class ControlMode : std::uint8_t { kNone, kPoll, kExplicit };

// One line of the repository index.
struct IndexEntry {
  std::string name;
  std::string version;  // empty for a model that was never loaded, and for a duplicate
  std::string state;    // empty for a model that was never loaded
  std::string reason;
};

class BackendRegistry;
class LoadPool;
class RateLimiter;
class ResponseCache;

// What the whole server is doing.
enum class ServerState : std::uint8_t { kStarting, kReady, kExiting };

// The control plane: which versions are wanted, in which state they are, and who may change that. Decisions are made one
// at a time under one mutex and take microseconds; loads, drains and unloads run on the load pool, those of one model one
// after the other, those of different models side by side. Requests never wait for any of this: they read the registry.
//
// Thread-safe. `Done` callbacks run on a load thread (or on the caller's, for what is refused at once) and must not block.
class Lifecycle {
 private:
  class Impl;
  struct Private {};

 public:
  using Done = absl::AnyInvocable<void(absl::Status)>;
  // The first error with all of them behind it, or OK, and every finding as JSON (repository/config_finding.h).
  using CheckDone = absl::AnyInvocable<void(absl::Status, std::string findings_json)>;

  struct Options {
    ControlMode mode = ControlMode::kNone;
    std::vector<std::string> startup_models;  // explicit mode; "*" alone = all
    bool exit_on_error = true;
    bool strict_readiness = true;
    int load_threads = 4;
    int retry_count = 0;
    absl::Duration unload_deadline = absl::Seconds(30);  // how long an unload's answer waits for requests
    absl::Duration memory_patience = absl::Seconds(30);  // how long a load waits for others when a limit is full
    absl::Duration poll_interval = absl::Seconds(15);    // zero: never again after the start
  };
  // All of them outlive the lifecycle.
  struct Parts {
    Platform* platform = nullptr;
    Ledger* ledger = nullptr;
    Registry* registry = nullptr;
    ModelRepository* repository = nullptr;
    BackendRegistry* backends = nullptr;
    BufferPool* buffers = nullptr;
    StatisticsBook* statistics = nullptr;  // may be null: then each load counts for itself
    ResponseCache* cache = nullptr;        // may be null: then no answers are cached
    RateLimiter* rate_limiter = nullptr;   // may be null: then instances execute whenever they are idle
    MemoryWitness* witness = nullptr;      // may be null: then the history knows the ledger's figures only
  };

  static absl::StatusOr<std::unique_ptr<Lifecycle>> Create(Options options, Parts parts);
  Lifecycle(Private, std::unique_ptr<Impl> impl);
  ~Lifecycle();
  Lifecycle(const Lifecycle&) = delete;
  Lifecycle& operator=(const Lifecycle&) = delete;

  // Loads what the control mode asks for and waits for it. An error, "failed to load all models", when a model failed
  // (the caller decides by exit_on_error). Afterwards the state is kReady, and polling has begun in poll mode.
  absl::Status StartUp();

  // POST /v2/repository/models/{name}/load: answers when every version is READY or has failed.
  void Load(std::string name, LoadOverrides overrides, Done done);
  // POST …/load?dry_run=true: what a load would find wrong, without loading (lifecycle/check_model.h); in every control mode.
  // Waits its turn behind operations of the same model. Whatever is wrong with the model is INVALID_ARGUMENT or
  // NOT_FOUND; UNAVAILABLE when the server stops, RESOURCE_EXHAUSTED when there is no room to open it.
  void Check(std::string name, LoadOverrides overrides, CheckDone done);
  // POST …/unload: answers when the memory is back, or DEADLINE_EXCEEDED when requests are still inside at the deadline
  // (the unload goes on).
  void Unload(std::string name, bool unload_dependents, Done done);

  using ForgetDone = absl::AnyInvocable<void(std::vector<std::string> names)>;
  // For a model whose repository may be gone (ModelRepository::Unmount). Where it is, the name leaves the registry, the
  // statistics, the history and what was learned of it, and so do those members of an ensemble that the repository does not
  // find any more: now, or when the last of its versions has gone by itself or by an unload; never while one is READY or an
  // operation waits. A load that finds the name again makes it an ordinary one. `done` gets the names whose repository is
  // gone and of which nothing is READY. Nothing happens outside explicit mode and when the server stops.
  void Forget(std::string name, ForgetDone done);

  // POST /v2/repository/index, by name, then version.
  absl::StatusOr<std::vector<IndexEntry>> Index(bool ready_only) const;

  ServerState state() const { return state_.load(std::memory_order_acquire); }
  // May traffic be sent here? kReady, no stranded device rows and, with strict readiness, every known version READY or
  // unloaded on purpose.
  bool Ready() const;
  // Is every known version READY or unloaded on purpose, or on its way in or out? False before kReady.
  bool ModelsReady() const;
  // Takes new requests? False from the first signal on.
  bool accepting() const { return state() == ServerState::kReady; }

  // What loads and unloads did.
  LoadHistory& history() const;
  // What the version with these files took at most until now, for the admission of its next load; empty when it never
  // was loaded.
  MemoryEstimate Learned(std::string_view key, std::int64_t version) const;

  // From now on not ready; nothing new is loaded. Returns at once.
  void BeginExit();
  // Unloads everything. DEADLINE_EXCEEDED when requests are still inside at `deadline`.
  absl::Status Stop(absl::Time deadline);

 private:
  std::atomic<ServerState> state_{ServerState::kStarting};
  const std::unique_ptr<Impl> impl_;
};

}  // namespace tidemark
