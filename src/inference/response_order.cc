#include "inference/response_order.h"

#include <utility>

namespace tidemark {

std::uint64_t ResponseOrder::Add(const std::shared_ptr<ResponseOrder>& order, InferenceRequest& request) {
  std::uint64_t place = 0;
  absl::MutexLock lock(&order->mutex_);
  place = order->front_ + order->entries_.size();
  Entry& entry = order->entries_.emplace_back();
  if (request.on_response) {
    entry.on_response = std::exchange(request.on_response, [order, place](InferenceResponse response) {
      Respond(order, place, std::move(response));
    });
  }
  return place;
}

void ResponseOrder::Withdraw(const std::shared_ptr<ResponseOrder>& order, InferenceRequest& request) {
  absl::MutexLock lock(&order->mutex_);
  request.on_response = std::move(order->entries_.back().on_response);
  order->entries_.pop_back();
}

void ResponseOrder::Complete(const std::shared_ptr<ResponseOrder>& order, std::uint64_t place,
                             std::unique_ptr<InferenceRequest> request) {
  {
    absl::MutexLock lock(&order->mutex_);
    order->entries_[place - order->front_].done = std::move(request);
  }
  HandOn(order);
}

void ResponseOrder::Respond(const std::shared_ptr<ResponseOrder>& order, std::uint64_t place,
                            InferenceResponse response) {
  {
    absl::MutexLock lock(&order->mutex_);
    order->entries_[place - order->front_].responses.push_back(std::move(response));
  }
  HandOn(order);
}

void ResponseOrder::HandOn(const std::shared_ptr<ResponseOrder>& order) {
  {
    absl::MutexLock lock(&order->mutex_);
    if (order->handing_on_) return;  // that thread looks again
    order->handing_on_ = true;
  }
  for (;;) {
    std::vector<InferenceResponse> responses;
    absl::AnyInvocable<void(InferenceResponse)>* on_response = nullptr;  // the entry stays: only this thread removes it
    std::unique_ptr<InferenceRequest> done;
    {
      absl::MutexLock lock(&order->mutex_);
      if (order->entries_.empty() ||
          (order->entries_.front().responses.empty() && order->entries_.front().done == nullptr)) {
        order->handing_on_ = false;
        return;
      }
      Entry& entry = order->entries_.front();
      responses.swap(entry.responses);
      on_response = &entry.on_response;
      if (responses.empty()) {
        done = std::move(entry.done);
        order->entries_.pop_front();
        ++order->front_;
      }
    }
    for (InferenceResponse& response : responses) (*on_response)(std::move(response));
    if (done != nullptr) {
      auto on_complete = std::move(done->on_complete);
      on_complete(std::move(done));
    }
  }
}

}  // namespace tidemark
