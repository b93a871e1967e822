#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "inference/ensemble_scheduler.h"

namespace tidemark {

// One request on its way through an ensemble. Held by the callbacks of the requests to its members; one thread at a time
// drives it: whoever brings something new, unless another already does.
//
// Tensors have a number of iteration: that of the response of the decoupled step that they come from, 0 without one.
class EnsembleRun : public std::enable_shared_from_this<EnsembleRun> {
 public:
  EnsembleRun(EnsembleScheduler& scheduler, std::unique_ptr<InferenceRequest> request, std::int64_t batch);

  // Enters the members of the steps that the request needs; their error otherwise.
  absl::Status Begin();
  // Starts what can start and answers what can be answered. After this the scheduler may be gone.
  void Advance(bool may_run_inline);

  // When Begin has failed.
  void Fail(const absl::Status& status);
  // A place for a request of this step, which it has waited for, is its own now.
  void Grant(std::size_t step);

 private:
  struct Value {
    DataType data_type = DataType::kInvalid;
    Shape shape;
    std::span<const std::byte> data;
    std::shared_ptr<Buffer> memory;  // of `data`; null: the request's own input. Last owner: whoever reads it last
    SharedMemoryLease region;        // the client's memory that `data` lies in
    bool absent = false;             // an optional input that is not given, or an output that the member did not make
  };
  using Key = std::pair<std::size_t, std::uint64_t>;  // tensor or step, and iteration
  struct Call {
    std::size_t step = 0;
    std::uint64_t iteration = 0;
    ModelHandle handle;
    std::unique_ptr<InferenceRequest> request;
  };

  // The value, once it is there. A tensor without a decoupled origin is the same in every iteration.
  Value* Find(std::size_t tensor, std::uint64_t iteration) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Call> ReadyCalls() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsReady(std::size_t step, std::uint64_t iteration) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Call MakeCall(std::size_t step, std::uint64_t iteration) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Submit(Call call, bool may_run_inline);

  // Outputs of a step, by a response of it or by its end.
  void TakeOutputs(std::size_t step, std::uint64_t iteration, std::vector<ResponseOutput>& outputs)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnResponse(std::size_t step, InferenceResponse response);
  void OnComplete(std::size_t step, std::uint64_t iteration, std::unique_ptr<InferenceRequest> request);
  void NoteError(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The answer's outputs of one iteration; nullopt while one of them is missing.
  absl::StatusOr<std::optional<std::vector<ResponseOutput>>> MakeOutputs(std::uint64_t iteration)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `last`: nobody needs the value any more.
  absl::StatusOr<ResponseOutput> MakeOutput(std::size_t index, Value& value, bool last)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Responses of a decoupled ensemble that are complete and whose turn it is.
  std::vector<InferenceResponse> ReadyResponses() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendResponses(std::vector<InferenceResponse> responses);
  void LeaveStep(std::size_t step);
  void Finish();
  void Count(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  EnsembleScheduler& scheduler_;
  const EnsemblePlan& plan_;
  const std::int64_t batch_;
  std::unique_ptr<InferenceRequest> request_;  // the ensemble's; its owner's until Finish
  std::vector<std::size_t> outputs_;           // wanted ones: index in the configuration, in the answer's order
  std::size_t output_origin_ = EnsemblePlan::kNone;
  std::vector<ModelHandle> handles_;  // by step; empty: not needed

  absl::Mutex mutex_;
  bool driving_ ABSL_GUARDED_BY(mutex_) = false;
  bool again_ ABSL_GUARDED_BY(mutex_) = false;  // something new came while somebody drives
  std::size_t inflight_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  std::map<Key, Value> values_ ABSL_GUARDED_BY(mutex_);
  std::set<Key> started_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::uint64_t> first_open_ ABSL_GUARDED_BY(mutex_);  // by step: all iterations before it have started
  std::set<std::size_t> waiting_ ABSL_GUARDED_BY(mutex_);          // steps that wait for a place
  std::set<std::size_t> granted_ ABSL_GUARDED_BY(mutex_);          // steps that have one that is not used yet
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::uint64_t> made_ ABSL_GUARDED_BY(mutex_);  // responses of each decoupled step so far
  std::int64_t last_sent_nanos_ = 0;                         // the driver's
  std::uint64_t sent_ ABSL_GUARDED_BY(mutex_) = 0;           // responses of a decoupled ensemble
  // Sums over the members' requests, nanoseconds.
  std::int64_t queue_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t input_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t infer_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t output_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tidemark
