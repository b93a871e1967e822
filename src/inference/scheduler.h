#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "backend/execution.h"
#include "inference/request.h"

namespace tidemark {

class ModelStatistics;
struct SequenceState;

// Where the time of a request's executions went, in nanoseconds.
struct PhaseTimes {
  std::int64_t queue = 0;
  std::int64_t input = 0;
  std::int64_t infer = 0;
  std::int64_t output = 0;
};

// A checked request on its way to an instance.
struct ScheduledRequest {
  std::unique_ptr<InferenceRequest> request;
  std::vector<InputTensor> tensors;  // views into `request`
  std::int64_t batch = 1;
  bool is_null = false;                  // fills a place in a batch of sequences; nobody waits for it
  std::shared_ptr<SequenceState> state;  // of its sequence; last owner: whichever of slot and execution ends later
  std::string controls;                  // memory of the control tensors
  std::uint64_t place = 0;               // in the order of the answers, where the model keeps one
  std::uint64_t cancel_id = 0;  // what the scheduler has registered with the request's cancel flag; 0 = nothing
  // Of an iterative sequence:
  bool again = false;           // its execution has asked for another
  std::uint64_t responses = 0;  // that earlier executions sent
  PhaseTimes spent;             // in earlier executions
};

// Turns requests into executions. Owns the instances; made with them, gives them back in its destructor, newest first,
// when nothing is queued or running any more. Thread-safe.
class Scheduler {
 public:
  virtual ~Scheduler() = default;

  // Takes the request; it is answered through request->on_complete exactly once.
  virtual void Enqueue(ScheduledRequest scheduled, bool may_run_inline) = 0;

  // Hands on a request whose response is there without an execution, in its turn where the model keeps an order.
  virtual void AnswerUnexecuted(std::unique_ptr<InferenceRequest> request) {
    auto done = std::move(request->on_complete);
    done(std::move(request));
  }

  virtual absl::Status Health() const = 0;

  // The model is published: where its executions are counted. Called once, before the first Enqueue.
  virtual void Start(ModelStatistics& statistics) = 0;
};

}  // namespace tidemark
