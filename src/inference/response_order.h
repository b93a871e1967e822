#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "inference/request.h"

namespace tidemark {

// Hands answers on in the order in which the requests were queued (`preserve_ordering`), whichever instance is done
// first; all responses of a decoupled request stay together, in its place. Thread-safe. Last owner: whichever of the
// scheduler and a thread that is handing answers on ends later, since the last answer may let the scheduler go.
class ResponseOrder {
 public:
  // The next place. The request's responses go through here from now on; it must be completed.
  static std::uint64_t Add(const std::shared_ptr<ResponseOrder>& order, InferenceRequest& request);

  // The last place again, for a request that was not queued after all.
  static void Withdraw(const std::shared_ptr<ResponseOrder>& order, InferenceRequest& request);

  // The request of that place is done: it, and what waited for it alone, is answered.
  static void Complete(const std::shared_ptr<ResponseOrder>& order, std::uint64_t place,
                       std::unique_ptr<InferenceRequest> request);

 private:
  struct Entry {
    std::vector<InferenceResponse> responses;
    absl::AnyInvocable<void(InferenceResponse)> on_response;
    std::unique_ptr<InferenceRequest> done;
  };

  static void Respond(const std::shared_ptr<ResponseOrder>& order, std::uint64_t place, InferenceResponse response);
  // Hands on what the first places have; by one thread at a time.
  static void HandOn(const std::shared_ptr<ResponseOrder>& order);

  absl::Mutex mutex_;
  bool handing_on_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t front_ ABSL_GUARDED_BY(mutex_) = 0;  // place of the first entry
  std::deque<Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidemark
