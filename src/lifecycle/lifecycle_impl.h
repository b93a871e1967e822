#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "lifecycle/admission.h"
#include "lifecycle/lifecycle.h"
#include "lifecycle/load_history.h"
#include "lifecycle/load_pool.h"
#include "lifecycle/load_transaction.h"

namespace tidemark {

// The lifecycle's state and its operations; see lifecycle.h for what callers may expect.
class Lifecycle::Impl {
 public:
  Impl(Options options, Parts parts, std::unique_ptr<LoadPool> pool);
  ~Impl();

  const Options& options() const { return options_; }
  Parts& parts() { return parts_; }
  LoadPool& pool() { return *pool_; }
  LoadHistory& history() { return history_; }
  MemoryEstimate LearnedBytes(const std::string& name, std::int64_t version);

  // The key (repository/model_repository.h) of the model that a client means by `name`: the one that is known under it,
  // else the one that the repository has; the name itself where that is ambiguous, so that the operation says so.
  std::string KeyOf(std::string name);

  // Queues the operation behind those of the same model. `name` is a key here and below.
  // A load brings the members of an ensemble up first. Both answer when the ensembles that have the model as a member
  // have been looked at again.
  void Load(std::string name, LoadOverrides overrides, Done done);
  // With `members`: also those members of an ensemble that nobody asked for and no other ensemble has.
  void Unload(std::string name, bool members, Done done);
  void Check(std::string name, LoadOverrides overrides, CheckDone done);
  // See Lifecycle; `name` is no key: it is forgotten in every namespace that has lost it.
  void Forget(const std::string& name, ForgetDone done);
  // Why the configuration of a model could not be read at the last attempt to load it; empty when it could.
  std::string PollErrorOf(const std::string& name);

  // One look at the repository: loads what is new or changed, unloads what is gone; `done` when all of it has ended.
  // With `names` only those are loaded. An error when a model failed.
  void Sync(std::optional<std::vector<std::string>> names, Done done);
  // Sync now and again `poll_interval` after each end.
  void Poll();

  // Cancels running loads; loads asked for from now on are refused.
  void RefuseLoads();
  // Unloads everything; false when requests were still inside at the deadline.
  bool UnloadAll(absl::Time deadline);

 private:
  // One after the other for each model. Those that only take out of service go past loads, which may wait for them.
  struct Queued {
    LoadPool::Lane lane = LoadPool::Lane::kLoads;
    absl::AnyInvocable<void()> run;
  };
  struct Version {
    VersionState state = VersionState::kUnknown;
    std::string reason;
    std::uint64_t generation = 0;  // which load or unload wrote this last
    std::unique_ptr<Model> model;
    std::shared_ptr<PublishedVersion> published;
  };
  struct Waiter {
    std::uint64_t id = 0;
    LoadPool::Ticket deadline;  // the task that answers late
    Done done;
  };
  struct Record {
    std::map<std::int64_t, Version> versions;
    bool known = false;               // in the registry
    bool gone = false;                // its repository is: to be forgotten when nothing of it is left
    std::optional<ModelStamp> stamp;  // of the last good load; absent: the next load always runs
    bool busy = false;
    std::deque<Queued> waiting;
    int draining = 0;  // versions that are withdrawn and not yet gone
    std::vector<Waiter> waiters;
    absl::Status cause;  // why the last load failed, as its first failing version said it; OK when none of them did
    // Ensembles, and what has to do with them.
    std::vector<std::string> members;  // keys of the members at the last load; empty for other models
    bool wanted = false;               // loaded, and not unloaded since: comes back when its members do
    bool asked_for = false;            // a client or the start-up named it, not only an ensemble
    std::uint64_t attempted = 0;       // counter when the last load began with the model itself
  };
  // One load operation, handed from step to step. Last owner: the task or callback that ends it.
  struct LoadRequest {
    std::string name;
    LoadOverrides overrides;
    Done done;
    std::uint64_t since = 0;  // counter when it was asked for
    bool is_member = false;   // of an ensemble that loads: not asked for by itself, and not tried again
    bool refresh = false;     // an ensemble whose member has changed: whatever its own files say
    std::shared_ptr<Scope> files;
    absl::StatusOr<ModelSource> source = absl::UnknownError("not resolved");
    absl::Status refused;                          // why it is not even tried
    bool changed = false;                          // the model is another one now, or gone
    std::atomic<bool> member_without_room{false};  // a member's load found no memory
  };
  // A version that was withdrawn and is on its way out.
  struct Drain {
    std::string name;
    std::int64_t version = 0;
    std::uint64_t generation = 0;
    std::unique_ptr<Model> model;
    std::shared_ptr<PublishedVersion> published;
  };

  void Enqueue(const std::string& name, Queued operation);
  void EndOperation(const std::string& name);

  // One call of Forget on its way through the members. Last owner: the operation that ends last.
  struct Forgetting {
    ForgetDone done;
    absl::Mutex mutex;
    std::size_t open ABSL_GUARDED_BY(mutex) = 1;
    std::set<std::string> seen ABSL_GUARDED_BY(mutex);                // keys
    std::set<std::string, std::less<>> names ABSL_GUARDED_BY(mutex);  // without a repository
  };
  // Queues the question whether `key` is gone behind the model's other operations; each key once.
  void EnqueueForget(const std::shared_ptr<Forgetting>& all, const std::string& key);
  void RunForget(const std::shared_ptr<Forgetting>& all, const std::string& key);
  void EndForget(Forgetting& all);
  static bool Serves(const Record& record);  // a version is READY
  // Erases the record of a model that the registry need not or does not know, and all that is kept by its name, once nothing
  // of it is loaded, leaving, waited for or under way.
  void EraseIfForgottenLocked(std::map<std::string, Record>::iterator it) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void EnqueueLoad(std::shared_ptr<LoadRequest> request);
  // The steps of a load: resolve, then the members of an ensemble, then the model itself.
  void BeginLoad(const std::shared_ptr<LoadRequest>& request);
  void LoadMembers(const std::shared_ptr<LoadRequest>& request);
  void FinishLoad(const std::shared_ptr<LoadRequest>& request);
  absl::Status RunLoad(LoadRequest& request);
  // The key of an ensemble's member: in the ensemble's namespace, else wherever there is one.
  std::string MemberKey(const std::string& ensemble, const std::string& member);
  // "E -> F -> E" when ensembles have each other as members; "" otherwise.
  std::string FindCycle(const std::string& name, const inference::ModelConfig& config, std::vector<std::string>& path);
  // The ensembles that have `name` as a member are checked against what it is now, except those whose last check began
  // after it had changed (counter `since`); `done` afterwards.
  void RefreshDependents(const std::string& name, std::uint64_t since, absl::AnyInvocable<void()> done);
  // Makes `done` wait for one more call: that of the answer.
  static absl::AnyInvocable<void()> AfterRefreshToo(Done& done);
  // An ensemble that no longer fits its members stops serving.
  void WithdrawInvalid(const std::string& name);
  // After an ensemble is gone: unloads the members that only it needed.
  void UnloadMembers(std::vector<std::string> members, absl::Status status, Done done);
  absl::StatusOr<ModelSource> ResolveSource(const std::string& name, const LoadOverrides& overrides,
                                            std::shared_ptr<Scope>& files);
  // A temporary directory with the file overrides, on a new scope.
  absl::StatusOr<std::filesystem::path> WriteFiles(const std::string& name, const LoadOverrides& overrides,
                                                   std::shared_ptr<Scope>& files);
  absl::StatusOr<std::vector<Finding>> RunCheck(const std::string& name, const LoadOverrides& overrides);
  // One load operation on its way.
  struct Running {
    explicit Running(Admission& admission) : operation(admission) {}
    CancelFlag cancel;
    Admission::Operation operation;
  };
  std::vector<absl::StatusOr<std::unique_ptr<Model>>> RunTransactions(const ModelSource& source,
                                                                      const std::shared_ptr<Scope>& files,
                                                                      bool overridden, Running& running);
  absl::StatusOr<std::unique_ptr<Model>> RunVersion(const ModelSource& source, std::int64_t version,
                                                    const std::shared_ptr<Scope>& files, bool overridden,
                                                    Running& running);
  // What loading the version took at most when these very files were loaded last; nullopt when they never were.
  std::optional<MemoryEstimate> Measured(const ModelSource& source, std::int64_t version);
  // Keeps what a version took. With `stamp` it is a load of these files, without it a version on its way out.
  void Learn(const std::string& name, std::int64_t version, const Scope& scope, const ModelStamp* stamp);
  // Counts an operation by its answer or, where that hides it, by the cause.
  void CountLoad(const std::string& name, const absl::Status& answer);
  // What kernel and driver count now, by device.
  DeviceBytes Witnessed(const DeviceBytes& devices) const;
  // Remembers the end of one version's load, good or bad, that began at `start` (NowNanos) with `before` witnessed.
  void RememberLoad(const std::string& name, std::int64_t version, const std::string& owner,
                    const absl::StatusOr<std::unique_ptr<Model>>& result, std::int64_t start,
                    const DeviceBytes& before);
  absl::Status FailLoad(const ModelSource& source, std::vector<absl::StatusOr<std::unique_ptr<Model>>> results);
  // What a commit needs and what can fail, made before anything changes.
  struct Staged {
    std::vector<std::shared_ptr<PublishedVersion>> published;  // by position in ModelSource::versions
    std::vector<Drain> drains;                                 // of the versions that are READY now
    std::shared_ptr<const RegistrySnapshot> picture;
    std::optional<ModelStamp> stamp;
  };
  Staged StageLocked(const ModelSource& source, bool keep_stamp,
                     const std::vector<absl::StatusOr<std::unique_ptr<Model>>>& results)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ApplyLocked(const ModelSource& source, Staged& staged,
                   std::vector<absl::StatusOr<std::unique_ptr<Model>>>& results) noexcept
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Commit(const ModelSource& source, bool keep_stamp,
                      std::vector<absl::StatusOr<std::unique_ptr<Model>>> results);
  void RunUnload(const std::string& name, bool members, Done done);
  // The unload's answer when its deadline has passed and requests are still inside.
  void AnswerLate(const std::string& name, std::uint64_t waiter);

  // Takes the READY version out of service: state UNLOADING (unless it is replaced), its drain appended.
  void WithdrawLocked(const std::string& name, std::int64_t number, Version& version, std::vector<Drain>& drains)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Each goes on, on a pool thread, when its last request has left. With `keep_one` the first that nobody is inside of is
  // given back instead, for this thread to finish; null where there is none.
  std::shared_ptr<Drain> StartDrains(std::vector<Drain> drains, bool keep_one = false);
  // Destroys the model, which nobody is inside any more, and measures what came back.
  UnloadRecord TakeDown(Drain& drain);
  void FinishDrain(Drain drain);
  void PublishLocked(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IdleLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  Parts parts_;
  LoadHistory history_;

  absl::Mutex mutex_;
  std::uint64_t counter_ ABSL_GUARDED_BY(mutex_) = 0;  // generations, attempts, waiters
  bool refusing_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, Record> records_ ABSL_GUARDED_BY(mutex_);
  std::set<CancelFlag*> running_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> poll_errors_ ABSL_GUARDED_BY(mutex_);  // by key
  struct Learned {
    ModelStamp stamp;
    MemoryEstimate high_water;
  };
  std::map<std::pair<std::string, std::int64_t>, Learned> learned_ ABSL_GUARDED_BY(mutex_);  // by key and version
  Admission admission_;

  std::unique_ptr<LoadPool> pool_;  // last: its end waits for the tasks, which use all of the above
};

}  // namespace tidemark
