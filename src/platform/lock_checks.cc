#include "platform/lock_checks.h"

#include "absl/synchronization/mutex.h"

namespace tidemark {

void StopCheckingLocks() { absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore); }

}  // namespace tidemark
