#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "inference/request_queue.h"
#include "inference/sequence_tensors.h"

namespace tidemark {

// The queue of a model with `sequence_batching` (config digest 7.4). A sequence has a slot of one instance from its
// first request to its last, or waits in the backlog for one. With the direct strategy a slot is a row of the batch, and
// rows without a request are filled with null requests; with the oldest strategy the oldest requests of an instance's
// slots form a batch. A sequence has one request in an execution at most.
//
// With `iterative_sequence` a request keeps its slot and its state while its executions ask for another, and others run
// beside it or in between; the sequence ends with the first that does not, and what waits in it by then is its rest. A
// request without a correlation id is a sequence of its own, which nobody else can address.
class SequenceQueue final : public RequestQueue {
 public:
  // `info` and `tensors` outlive the queue.
  SequenceQueue(const ModelInfo& info, const SequenceTensors& tensors, std::size_t instances);
  ~SequenceQueue() override;

  absl::Status Push(ScheduledRequest& scheduled, std::int64_t now) override;
  Batch Take(std::size_t instance, std::int64_t now, DroppedRequests& dropped) override;
  void Requeue(std::size_t instance, ScheduledRequest& scheduled) override;
  void Done(std::size_t instance, std::int64_t now) override;
  void Sweep(std::int64_t now, DroppedRequests& dropped) override;
  std::int64_t NextEvent(bool instance_is_idle) const override;
  bool empty() const override { return size_ == 0; }

 private:
  struct Sequence {
    CorrelationId id;
    std::deque<ScheduledRequest> queue;
    std::shared_ptr<SequenceState> state;
    std::int64_t last_used = 0;
    std::int64_t deadline = kNever;  // in the backlog: when the first of its requests has waited too long
    bool running = false;            // a request of it is in an execution
    bool again = false;              // … that runs again
    bool ended = false;              // nothing more will come; the slot is free when the queue is empty
  };
  using Slots = std::vector<std::unique_ptr<Sequence>>;
  struct Worker {
    Slots slots;
    bool busy = false;
    std::int64_t wait_until = kNever;  // an incomplete batch of it may wait until then
  };

  absl::Status Check(const ScheduledRequest& scheduled) const;
  // A new sequence with that id, in a slot or in the backlog.
  Sequence& Begin(const CorrelationId& id);
  // The sequence that the request belongs to, begun where it is its first.
  Sequence& SequenceOf(const InferenceRequest& request);
  // The requests of the sequence and itself are gone; later ones must start anew.
  void Cancel(Sequence& sequence, DroppedRequests& dropped);
  void Forget(Sequence& sequence);
  // The slot is free: the sequence that has waited longest gets it.
  void Refill(std::unique_ptr<Sequence>& slot);
  // Frees the slots of an instance that are done with or whose next request is cancelled.
  void CleanUp(Worker& worker, DroppedRequests& dropped);
  Batch TakeDirect(Worker& worker, std::int64_t now, DroppedRequests& dropped);
  Batch TakeOldest(Worker& worker, std::int64_t now, DroppedRequests& dropped);
  bool WorthRunning(Worker& worker, std::int64_t now) const;
  // The next request of the slot with its tensors; without memory for a state it goes to `dropped` (false).
  bool Pop(std::unique_ptr<Sequence>& slot, Batch& batch, DroppedRequests& dropped);

  const ModelInfo& info_;
  const SequenceTensors& tensors_;
  BatchRules rules_;
  bool oldest_ = false;
  bool iterative_ = false;
  float minimum_utilization_ = 0;
  std::int64_t max_idle_nanos_ = 0;

  std::vector<Worker> workers_;
  std::list<std::unique_ptr<Sequence>> backlog_;  // longest waiting first
  std::map<CorrelationId, Sequence*> active_;     // those that may get more requests
  std::size_t size_ = 0;                          // requests that wait
  std::uint64_t generated_ = 0;                   // ids given to requests without
};

}  // namespace tidemark
