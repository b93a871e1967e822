#include "base/cancel.h"

#include <utility>

namespace tidemark {

void CancelFlag::Cancel() {
  absl::MutexLock lock(&mutex_);
  if (cancelled_.exchange(true, std::memory_order_acq_rel)) return;
  for (auto& [id, callback] : callbacks_) callback();
  callbacks_.clear();
}

std::uint64_t CancelFlag::OnCancel(std::function<void()> callback) {
  absl::MutexLock lock(&mutex_);
  const std::uint64_t id = next_id_++;
  if (cancelled()) {
    callback();
  } else {
    callbacks_.emplace(id, std::move(callback));
  }
  return id;
}

void CancelFlag::Remove(std::uint64_t id) {
  absl::MutexLock lock(&mutex_);
  callbacks_.erase(id);
}

}  // namespace tidemark
