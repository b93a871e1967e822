#include "resource/gate.h"

#include <utility>

namespace tidemark {

void Gate::Close(absl::AnyInvocable<void()> on_empty) {
  {
    absl::MutexLock lock(&mutex_);
    on_empty_ = std::move(on_empty);
  }
  // Being inside oneself while closing makes the last Leave, whoever's it is, the one that tells.
  state_.fetch_add(1, std::memory_order_acq_rel);
  state_.fetch_or(kClosed, std::memory_order_acq_rel);
  Leave();
}

void Gate::Emptied() noexcept {
  // A refused Enter passes through here, too, and may come at any time: only the first one finds something to call.
  absl::AnyInvocable<void()> tell;
  {
    absl::MutexLock lock(&mutex_);
    tell = std::move(on_empty_);
    on_empty_ = nullptr;
  }
  if (tell) tell();
}

}  // namespace tidemark
