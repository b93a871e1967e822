#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>

#include "inference/request_queue.h"
#include "proto/model_config.pb.h"

namespace tidemark {

// The queue of a model without sequences: batches by size, delay and shapes, levels of priority, and for each level a
// limit and a time-out (config digest 7.3). Without `dynamic_batching` a plain queue, first come, first served, that
// gives requests one by one and knows neither priority nor time-out.
class BatchQueue final : public RequestQueue {
 public:
  // `info` outlives the queue.
  explicit BatchQueue(const ModelInfo& info);

  absl::Status Push(ScheduledRequest& scheduled, std::int64_t now) override;
  Batch Take(std::size_t instance, std::int64_t now, DroppedRequests& dropped) override;
  void Sweep(std::int64_t now, DroppedRequests& dropped) override;
  std::int64_t NextEvent(bool instance_is_idle) const override;
  bool empty() const override { return size_ == 0; }

  // True when an idle instance never leaves a request waiting.
  bool immediate() const { return rules_.delay_nanos == 0; }
  // True when time alone can change what is to be done, or a place in the queue is worth something.
  bool timed() const { return rules_.delay_nanos > 0 || has_policies_; }

 private:
  struct Policy {
    bool delays = false;             // what has waited too long goes behind the others instead of being refused
    std::int64_t timeout_nanos = 0;  // 0: none
    bool may_override = false;
    std::size_t max_size = 0;  // 0: no limit
  };
  struct Entry {
    ScheduledRequest scheduled;
    std::int64_t deadline = kNever;  // the policy's, or the request's own
  };
  struct Level {
    Policy policy;
    std::deque<Entry> active;
    std::deque<Entry> delayed;
    std::int64_t earliest = kNever;  // no entry's deadline is before it
    std::size_t size() const { return active.size() + delayed.size(); }
  };

  static Policy PolicyOf(const inference::ModelQueuePolicy& policy);
  Level& LevelOf(const ScheduledRequest& scheduled);
  void SweepLevel(Level& level, std::int64_t now, DroppedRequests& dropped);
  void Drop(Entry& entry, std::int64_t now, DroppedRequests& dropped);
  void DropCancelled(std::deque<Entry>& entries, std::int64_t now, DroppedRequests& dropped);

  const bool batches_;
  BatchRules rules_;
  std::uint64_t levels_declared_ = 0;
  std::uint64_t default_level_ = 0;
  Policy default_policy_;
  std::map<std::uint64_t, Policy> policies_;
  bool has_policies_ = false;

  std::map<std::uint64_t, Level> levels_;
  std::size_t size_ = 0;
};

}  // namespace tidemark
