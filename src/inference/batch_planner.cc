#include "inference/batch_planner.h"

#include <algorithm>

namespace tidemark {
namespace {

const InputTensor* Find(const ScheduledRequest& request, std::size_t index) {
  if (index < request.tensors.size() && request.tensors[index].index == index) return &request.tensors[index];
  const auto it = std::find_if(request.tensors.begin(), request.tensors.end(),
                               [&](const InputTensor& tensor) { return tensor.index == index; });
  return it == request.tensors.end() ? nullptr : &*it;
}

std::int64_t Weight(const ScheduledRequest& request) { return std::max<std::int64_t>(request.batch, 1); }

}  // namespace

BatchRules BatchRules::Of(const ModelInfo& info) {
  BatchRules rules;
  rules.max_batch = std::max<std::int64_t>(info.max_batch_size(), 1);
  for (std::size_t i = 0; i < info.inputs().size(); ++i) {
    const TensorInfo& input = info.inputs()[i];
    rules.optional_inputs = rules.optional_inputs || input.optional;
    if (input.shape_tensor) {
      rules.shape_tensors.push_back(i);
      continue;
    }
    if (input.ragged) continue;
    const auto own = input.backend_dims.begin() + (info.max_batch_size() > 0 ? 1 : 0);
    if (std::any_of(own, input.backend_dims.end(), [](std::int64_t dim) { return dim < 0; })) {
      rules.variable.push_back(i);
    }
  }
  return rules;
}

std::int64_t BatchRules::LargestPreferred() const {
  return preferred.empty() ? max_batch : *std::max_element(preferred.begin(), preferred.end());
}

bool BatchRules::IsPreferred(std::int64_t size) const {
  if (preferred.empty()) return size == max_batch;
  return std::find(preferred.begin(), preferred.end(), size) != preferred.end();
}

bool BatchRules::Compatible(const ScheduledRequest& first, const ScheduledRequest& other) const {
  if (optional_inputs) {
    if (!std::equal(first.tensors.begin(), first.tensors.end(), other.tensors.begin(), other.tensors.end(),
                    [](const InputTensor& a, const InputTensor& b) { return a.index == b.index; })) {
      return false;
    }
  }
  for (const std::size_t index : shape_tensors) {
    const InputTensor* a = Find(first, index);
    const InputTensor* b = Find(other, index);
    if (a == nullptr || b == nullptr) {
      if (a != b) return false;
    } else if (a->shape != b->shape || !std::equal(a->data.begin(), a->data.end(), b->data.begin(), b->data.end())) {
      return false;
    }
  }
  return std::all_of(variable.begin(), variable.end(), [&](std::size_t index) {
    const InputTensor* a = Find(first, index);
    const InputTensor* b = Find(other, index);
    if (a == nullptr || b == nullptr) return a == b;
    return a->shape.size() == b->shape.size() && !a->shape.empty() &&
           std::equal(a->shape.begin() + 1, a->shape.end(), b->shape.begin() + 1);
  });
}

bool BatchPlanner::Add(const ScheduledRequest& request) {
  if (full_) return false;
  const std::int64_t weight = Weight(request);
  if (first_ != nullptr) {
    // The last chance to run what is there as a batch of its own: the next one oversteps every preferred size.
    if (best_ == 0 && total_ + weight > rules_.LargestPreferred()) best_ = count_;
    if (total_ + weight > rules_.max_batch || !rules_.Compatible(*first_, request)) {
      full_ = true;
      return false;
    }
  } else {
    first_ = &request;
  }
  oldest_ = std::min(oldest_, request.request->times.queued);
  total_ += weight;
  ++count_;
  if (rules_.IsPreferred(total_)) best_ = count_;
  return total_ < rules_.max_batch;
}

std::size_t BatchPlanner::Count() const {
  if (count_ == 0) return 0;
  const bool late = rules_.delay_nanos > 0 && now_ >= WaitUntil();
  if (best_ != 0 && !late) return best_;
  if (full_ || total_ >= rules_.LargestPreferred() || rules_.delay_nanos == 0 || late) return count_;
  return 0;
}

}  // namespace tidemark
