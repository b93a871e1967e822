#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "backend/execution.h"
#include "inference/request.h"

namespace tidemark {

class ModelStatistics;

// A checked request on its way to an instance.
struct ScheduledRequest {
  std::unique_ptr<InferenceRequest> request;
  std::vector<InputTensor> tensors;  // views into `request`
  std::int64_t batch = 1;
};

// Turns requests into executions. Owns the instances; made with them, gives them back in its destructor, newest first,
// when nothing is queued or running any more. Thread-safe.
class Scheduler {
 public:
  virtual ~Scheduler() = default;

  // Takes the request; it is answered through request->on_complete exactly once.
  virtual void Enqueue(ScheduledRequest scheduled, bool may_run_inline) = 0;

  virtual absl::Status Health() const = 0;

  // The model is published: where its executions are counted. Called once, before the first Enqueue.
  virtual void Start(ModelStatistics& statistics) = 0;
};

}  // namespace tidemark
