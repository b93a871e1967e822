#include "resource/gate.h"

namespace tidemark {

bool Gate::WaitEmpty(absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  while (inside() != 0) {
    if (empty_.WaitWithDeadline(&mutex_, deadline)) return inside() == 0;
  }
  return true;
}

void Gate::Wake() noexcept {
  absl::MutexLock lock(&mutex_);
  empty_.SignalAll();
}

}  // namespace tidemark
