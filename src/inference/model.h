#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "backend/backend.h"
#include "backend/model_metrics.h"
#include "inference/model_info.h"
#include "inference/request.h"
#include "inference/response_cache.h"
#include "inference/scheduler.h"
#include "observe/model_statistics.h"
#include "resource/gate.h"
#include "resource/scope.h"

namespace tidemark {

// One version of a model that can serve. Built step by step by a LoadTransaction, immutable after publication, destroyed
// by a drain task after its gate has emptied. Rollback and unload are this destructor: instances go first, newest
// first, then the backend's model, then the scope with whatever is left on it.
class Model {
 public:
  // Everything that serving needs, made by the load in this order and undone in reverse.
  struct Parts {
    std::shared_ptr<Scope> files;  // temporary directory of a load with file overrides; last owner: its last version
    std::unique_ptr<Scope> scope;
    std::unique_ptr<ModelMetrics> metrics;  // the backend's own; null for an ensemble
    std::unique_ptr<BackendModel> backend_model;
    std::unique_ptr<ModelInfo> info;
    std::unique_ptr<Scheduler> scheduler;   // owns the instances
    std::unique_ptr<ModelAnswers> answers;  // null: its answers are not cached
    // Where the version is counted; null: a place of its own. Last owner: the model.
    std::shared_ptr<ModelStatistics> statistics;
  };

  explicit Model(Parts parts);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ModelInfo& info() const { return *parts_.info; }
  ModelStatistics& statistics() { return *parts_.statistics; }
  Scope& scope() { return *parts_.scope; }
  // What its engine holds without using it at the moment; an ensemble has no engine.
  std::uint64_t cached_bytes(DeviceId device) const {
    return parts_.backend_model == nullptr ? 0 : parts_.backend_model->cached_bytes(device);
  }

  // What its backend measures; null for an ensemble.
  const ModelMetrics* metrics() const { return parts_.metrics.get(); }
  // The memory of its cached answers, which are beside its scope: they do not tell what the next load will need.
  MemoryFigures answer_memory() const { return parts_.answers == nullptr ? MemoryFigures() : parts_.answers->memory(); }

  // Takes a request whose model handle is this model; it comes back through request->on_complete exactly once, at
  // once when it is refused. With `may_run_inline` a short execution runs on the calling thread.
  // Thread-safe; called under the gate.
  void Submit(std::unique_ptr<InferenceRequest> request, bool may_run_inline);

  // OK when every instance can serve.
  absl::Status Health() const;

 private:
  Parts parts_;
};

}  // namespace tidemark
