#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backend/backend_registry.h"
#include "base/cancel.h"
#include "inference/ensemble_plan.h"
#include "inference/instance_scheduler.h"
#include "inference/model.h"
#include "inference/registry.h"
#include "lifecycle/admission.h"
#include "observe/statistics_book.h"
#include "repository/config_finding.h"
#include "repository/model_repository.h"
#include "resource/buffer_pool.h"
#include "resource/ledger.h"
#include "resource/scope.h"

namespace tidemark {

// One attempt to bring one version of a model up. Run goes through the steps Resolve, Reserve, Initialise and Warm up;
// its result is a Model that is ready to be published, or a status, and then nothing is left: everything taken hangs on
// the half-built model inside this object, which gives it back newest first.
//
// Used by one load thread; another may set the cancel flag.
class LoadTransaction {
 public:
  // All of them outlive the transaction, and those that a model keeps outlive the model.
  struct Parts {
    Platform* platform = nullptr;
    Ledger* ledger = nullptr;
    BackendRegistry* backends = nullptr;
    BufferPool* buffers = nullptr;
    const Registry* registry = nullptr;    // where an ensemble finds its members; null: there are no ensembles
    StatisticsBook* statistics = nullptr;  // may be null
    ResponseCache* cache = nullptr;        // null: no answers are cached
    RateLimiter* rate_limiter = nullptr;   // null: instances execute whenever they are idle
    Admission* admission = nullptr;
    Admission::Operation* operation = nullptr;  // outlives the transaction only, like the flag
    CancelFlag* cancel = nullptr;               // may be null
    bool auto_complete = true;
    std::optional<MemoryEstimate> measured;  // what the last load of the same files and configuration took at most
    bool alone = false;                      // begin when no other load runs
  };

  // `owner` is the path under which the version's rows stand; no other load has it. `files` holds the temporary
  // directory that the source lies in, or is null; the model keeps it alive (last owner: the last version made from it).
  LoadTransaction(Parts parts, const ModelSource& source, std::int64_t version, std::string owner,
                  std::shared_ptr<Scope> files);
  ~LoadTransaction();
  LoadTransaction(const LoadTransaction&) = delete;
  LoadTransaction& operator=(const LoadTransaction&) = delete;

  // Called once. No exception leaves. After an error the version's rows are gone (or stranded).
  absl::StatusOr<std::unique_ptr<Model>> Run();

  // Instead of Run: everything that a load would find wrong, without making instances and without executing anything;
  // the model is opened with its engine, unless `open` is false, and given back at once. Goes on after a mistake where
  // that makes sense. No exception leaves; nothing of it stays.
  std::vector<Finding> Check(bool open);

  // After Run failed: was it refused memory that others, which were loading or leaving meanwhile, may have given back?
  bool worth_another_try() const { return worth_another_try_; }

 private:
  absl::StatusOr<std::unique_ptr<Model>> RunSteps();
  // An ensemble takes nothing: its members have been loaded before.
  absl::StatusOr<std::unique_ptr<Model>> RunEnsemble();
  absl::StatusOr<EnsemblePlan> PlanEnsemble(const inference::ModelConfig& config);
  absl::Status Resolve();
  absl::Status Reserve();
  absl::Status Open();
  absl::Status Validate();
  absl::Status Initialise();
  absl::Status WarmUp();
  // Last step but the commit: its part of the cache, a last look at the cancel flag, and where the version is counted.
  absl::Status Equip();
  void CheckSteps(bool open, Findings& out);
  void RollBack() noexcept;

  const Parts parts_;
  const ModelSource& source_;
  const std::int64_t version_;
  const std::string owner_;

  Backend* backend_ = nullptr;
  inference::ModelConfig config_;
  ModelArtifact artifact_;
  Admission::Permit permit_;
  Reservations reservations_;
  bool worth_another_try_ = false;
  std::unique_ptr<InstanceScheduler> scheduler_;
  Model::Parts model_;  // the half-built model, in Model's own order
};

}  // namespace tidemark
