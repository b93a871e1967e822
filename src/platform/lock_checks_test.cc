#include "platform/lock_checks.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/synchronization/mutex.h"

namespace tidemark {
namespace {

// Locks two mutexes in both orders, one thread after itself: no deadlock, but what the check is there to report.
void LockInBothOrders() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  absl::Mutex first;
  absl::Mutex second;
  {
    absl::MutexLock outer(&first);
    absl::MutexLock inner(&second);
  }
  absl::MutexLock outer(&second);
  absl::MutexLock inner(&first);
}

TEST(LockChecksDeathTest, AStoppedCheckLetsLocksBeTakenInAnyOrder) {
  EXPECT_EXIT(
      {
        absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kAbort);
        StopCheckingLocks();
        LockInBothOrders();
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tidemark
