#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "inference/model_info.h"
#include "inference/scheduler.h"

namespace tidemark {

// No point in time: later than every deadline.
inline constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

// When requests may run together, from a model's configuration (config digest 7.3).
struct BatchRules {
  std::int64_t max_batch = 1;           // inferences in one execution
  std::vector<std::int64_t> preferred;  // sizes worth running at once; empty: max_batch
  std::int64_t delay_nanos = 0;         // how long an incomplete batch may wait
  std::vector<std::size_t> variable;    // inputs (config index) whose shapes must be equal but for the batch dimension
  std::vector<std::size_t> shape_tensors;  // inputs whose contents must be equal: they count for the whole batch
  bool optional_inputs = false;            // the sets of given inputs must be equal

  // The inputs of `info`; preferred sizes and delay are the caller's.
  static BatchRules Of(const ModelInfo& info);
  std::int64_t LargestPreferred() const;
  bool IsPreferred(std::int64_t size) const;
  // May the two be part of one execution, whatever their sizes?
  bool Compatible(const ScheduledRequest& first, const ScheduledRequest& other) const;
};

// Decides how many of the requests at the front of a queue run now. Shown them in the queue's order; keeps pointers to
// none after the next Add.
class BatchPlanner {
 public:
  BatchPlanner(const BatchRules& rules, std::int64_t now) : rules_(rules), now_(now) {}

  // One more request; false: it is not part of the batch, and no further one can be.
  bool Add(const ScheduledRequest& request);

  // The number of requests to run now, from the front; 0: wait, until WaitUntil at most.
  std::size_t Count() const;
  // When the oldest of them has waited long enough; kNever when there is none.
  std::int64_t WaitUntil() const { return oldest_ == kNever ? kNever : oldest_ + rules_.delay_nanos; }

 private:
  const BatchRules& rules_;
  const std::int64_t now_;
  const ScheduledRequest* first_ = nullptr;
  std::int64_t oldest_ = kNever;
  std::int64_t total_ = 0;
  std::size_t count_ = 0;
  std::size_t best_ = 0;  // requests up to the last preferred size
  bool full_ = false;     // waiting cannot make it larger
};

}  // namespace tidemark
