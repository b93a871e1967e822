#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "inference/batch_planner.h"
#include "inference/scheduler.h"
#include "observe/model_statistics.h"

namespace tidemark {

// Requests that run in one execution of an instance, in the order of their rows.
using Batch = absl::InlinedVector<ScheduledRequest, 1>;

// A request that left a queue without an execution; its response has the status.
struct DroppedRequest {
  ScheduledRequest scheduled;
  FailureReason reason = FailureReason::kRejected;
};
using DroppedRequests = std::vector<DroppedRequest>;

// What waits for the instances of one model, and which of it runs next. Not thread-safe: the scheduler's mutex guards
// it. Holds no clock: the times come from the caller.
class RequestQueue {
 public:
  virtual ~RequestQueue() = default;

  // Takes the request, or leaves it with the caller and says why not. `times.queued` is set.
  virtual absl::Status Push(ScheduledRequest& scheduled, std::int64_t now) = 0;

  // What instance `instance`, which is idle, runs next; empty: nothing for now. Requests that are cancelled or late go
  // to `dropped`.
  virtual Batch Take(std::size_t instance, std::int64_t now, DroppedRequests& dropped) = 0;

  // Takes back a request of what the instance took last, which runs again (Execution::reschedule). Before Done.
  virtual void Requeue(std::size_t /*instance*/, ScheduledRequest& /*scheduled*/) {}

  // The instance has ended what it took last.
  virtual void Done(std::size_t /*instance*/, std::int64_t /*now*/) {}

  // Drops or moves what has waited too long, and what has been cancelled.
  virtual void Sweep(std::int64_t now, DroppedRequests& dropped) = 0;

  // When Sweep, or Take of an idle instance, has something to do although nothing else happens; kNever otherwise.
  virtual std::int64_t NextEvent(bool instance_is_idle) const = 0;

  // Nothing waits.
  virtual bool empty() const = 0;
};

}  // namespace tidemark
