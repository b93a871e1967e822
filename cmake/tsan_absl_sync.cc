// Makes absl::Mutex, absl::CondVar and absl::Notification visible to the thread sanitizer. Debian builds Abseil without
// the sanitizer, so that it sees neither the happens-before edges of these classes nor that a condition is evaluated by a
// thread that holds the mutex; without this file every guarded variable is reported. The linker sends our calls here
// (--wrap, see cmake/TidemarkOptions.cmake). Part of thread-sanitizer builds only.

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
}

namespace {

// Abseil evaluates waiters' conditions inside its own calls, under the mutex.
struct IgnoreReads {
  IgnoreReads() { AnnotateIgnoreReadsBegin(__FILE__, __LINE__); }
  ~IgnoreReads() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
};

// Notification::HasBeenNotified is inline and reads this atomic, which lies behind a mutex of one word.
void* NotifiedYet(const absl::Notification* notification) {
  return const_cast<char*>(reinterpret_cast<const char*>(notification)) + sizeof(absl::Mutex);
}

}  // namespace

extern "C" {

void __real__ZN4absl7debian35Mutex4LockEv(absl::Mutex* mutex);
void __wrap__ZN4absl7debian35Mutex4LockEv(absl::Mutex* mutex) {
  {
    const IgnoreReads ignore;
    __real__ZN4absl7debian35Mutex4LockEv(mutex);
  }
  __tsan_acquire(mutex);
}

void __real__ZN4absl7debian35Mutex10ReaderLockEv(absl::Mutex* mutex);
void __wrap__ZN4absl7debian35Mutex10ReaderLockEv(absl::Mutex* mutex) {
  {
    const IgnoreReads ignore;
    __real__ZN4absl7debian35Mutex10ReaderLockEv(mutex);
  }
  __tsan_acquire(mutex);
}

void __real__ZN4absl7debian35Mutex6UnlockEv(absl::Mutex* mutex);
void __wrap__ZN4absl7debian35Mutex6UnlockEv(absl::Mutex* mutex) {
  __tsan_release(mutex);
  const IgnoreReads ignore;
  __real__ZN4absl7debian35Mutex6UnlockEv(mutex);
}

void __real__ZN4absl7debian35Mutex12ReaderUnlockEv(absl::Mutex* mutex);
void __wrap__ZN4absl7debian35Mutex12ReaderUnlockEv(absl::Mutex* mutex) {
  __tsan_release(mutex);
  const IgnoreReads ignore;
  __real__ZN4absl7debian35Mutex12ReaderUnlockEv(mutex);
}

bool __real__ZN4absl7debian35Mutex7TryLockEv(absl::Mutex* mutex);
bool __wrap__ZN4absl7debian35Mutex7TryLockEv(absl::Mutex* mutex) {
  bool result = false;
  {
    const IgnoreReads ignore;
    result = __real__ZN4absl7debian35Mutex7TryLockEv(mutex);
  }
  if (result) __tsan_acquire(mutex);
  return result;
}

bool __real__ZN4absl7debian35Mutex13ReaderTryLockEv(absl::Mutex* mutex);
bool __wrap__ZN4absl7debian35Mutex13ReaderTryLockEv(absl::Mutex* mutex) {
  bool result = false;
  {
    const IgnoreReads ignore;
    result = __real__ZN4absl7debian35Mutex13ReaderTryLockEv(mutex);
  }
  if (result) __tsan_acquire(mutex);
  return result;
}

void __real__ZN4absl7debian35Mutex8LockWhenERKNS0_9ConditionE(absl::Mutex* mutex, const absl::Condition& condition);
void __wrap__ZN4absl7debian35Mutex8LockWhenERKNS0_9ConditionE(absl::Mutex* mutex, const absl::Condition& condition) {
  {
    const IgnoreReads ignore;
    __real__ZN4absl7debian35Mutex8LockWhenERKNS0_9ConditionE(mutex, condition);
  }
  __tsan_acquire(mutex);
}

void __real__ZN4absl7debian35Mutex14ReaderLockWhenERKNS0_9ConditionE(absl::Mutex* mutex,
                                                                     const absl::Condition& condition);
void __wrap__ZN4absl7debian35Mutex14ReaderLockWhenERKNS0_9ConditionE(absl::Mutex* mutex,
                                                                     const absl::Condition& condition) {
  {
    const IgnoreReads ignore;
    __real__ZN4absl7debian35Mutex14ReaderLockWhenERKNS0_9ConditionE(mutex, condition);
  }
  __tsan_acquire(mutex);
}

bool __real__ZN4absl7debian35Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE(
    absl::Mutex* mutex, const absl::Condition& condition, absl::Duration timeout);
bool __wrap__ZN4absl7debian35Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE(
    absl::Mutex* mutex, const absl::Condition& condition, absl::Duration timeout) {
  bool result = false;
  {
    const IgnoreReads ignore;
    result =
        __real__ZN4absl7debian35Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE(mutex, condition, timeout);
  }
  __tsan_acquire(mutex);
  return result;
}

bool __real__ZN4absl7debian35Mutex25ReaderLockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE(
    absl::Mutex* mutex, const absl::Condition& condition, absl::Duration timeout);
bool __wrap__ZN4absl7debian35Mutex25ReaderLockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE(
    absl::Mutex* mutex, const absl::Condition& condition, absl::Duration timeout) {
  bool result = false;
  {
    const IgnoreReads ignore;
    result = __real__ZN4absl7debian35Mutex25ReaderLockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE(mutex, condition,
                                                                                                      timeout);
  }
  __tsan_acquire(mutex);
  return result;
}

bool __real__ZN4absl7debian35Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE(absl::Mutex* mutex,
                                                                                     const absl::Condition& condition,
                                                                                     absl::Time deadline);
bool __wrap__ZN4absl7debian35Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE(absl::Mutex* mutex,
                                                                                     const absl::Condition& condition,
                                                                                     absl::Time deadline) {
  bool result = false;
  {
    const IgnoreReads ignore;
    result =
        __real__ZN4absl7debian35Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE(mutex, condition, deadline);
  }
  __tsan_acquire(mutex);
  return result;
}

bool __real__ZN4absl7debian35Mutex26ReaderLockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE(
    absl::Mutex* mutex, const absl::Condition& condition, absl::Time deadline);
bool __wrap__ZN4absl7debian35Mutex26ReaderLockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE(
    absl::Mutex* mutex, const absl::Condition& condition, absl::Time deadline) {
  bool result = false;
  {
    const IgnoreReads ignore;
    result = __real__ZN4absl7debian35Mutex26ReaderLockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE(mutex, condition,
                                                                                                   deadline);
  }
  __tsan_acquire(mutex);
  return result;
}

void __real__ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE(absl::Mutex* mutex, const absl::Condition& condition);
void __wrap__ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE(absl::Mutex* mutex, const absl::Condition& condition) {
  __tsan_release(mutex);
  {
    const IgnoreReads ignore;
    __real__ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE(mutex, condition);
  }
  __tsan_acquire(mutex);
}

bool __real__ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE(absl::Mutex* mutex,
                                                                                     const absl::Condition& condition,
                                                                                     absl::Duration timeout);
bool __wrap__ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE(absl::Mutex* mutex,
                                                                                     const absl::Condition& condition,
                                                                                     absl::Duration timeout) {
  __tsan_release(mutex);
  bool result = false;
  {
    const IgnoreReads ignore;
    result = __real__ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE(mutex, condition, timeout);
  }
  __tsan_acquire(mutex);
  return result;
}

bool __real__ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE(absl::Mutex* mutex,
                                                                                  const absl::Condition& condition,
                                                                                  absl::Time deadline);
bool __wrap__ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE(absl::Mutex* mutex,
                                                                                  const absl::Condition& condition,
                                                                                  absl::Time deadline) {
  __tsan_release(mutex);
  bool result = false;
  {
    const IgnoreReads ignore;
    result = __real__ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE(mutex, condition, deadline);
  }
  __tsan_acquire(mutex);
  return result;
}

void __real__ZN4absl7debian37CondVar4WaitEPNS0_5MutexE(absl::CondVar* condition_variable, absl::Mutex* mutex);
void __wrap__ZN4absl7debian37CondVar4WaitEPNS0_5MutexE(absl::CondVar* condition_variable, absl::Mutex* mutex) {
  __tsan_release(mutex);
  {
    const IgnoreReads ignore;
    __real__ZN4absl7debian37CondVar4WaitEPNS0_5MutexE(condition_variable, mutex);
  }
  __tsan_acquire(mutex);
}

bool __real__ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE(absl::CondVar* condition_variable,
                                                                                 absl::Mutex* mutex,
                                                                                 absl::Duration timeout);
bool __wrap__ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE(absl::CondVar* condition_variable,
                                                                                 absl::Mutex* mutex,
                                                                                 absl::Duration timeout) {
  __tsan_release(mutex);
  bool result = false;
  {
    const IgnoreReads ignore;
    result =
        __real__ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE(condition_variable, mutex, timeout);
  }
  __tsan_acquire(mutex);
  return result;
}

bool __real__ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE(absl::CondVar* condition_variable,
                                                                              absl::Mutex* mutex, absl::Time deadline);
bool __wrap__ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE(absl::CondVar* condition_variable,
                                                                              absl::Mutex* mutex, absl::Time deadline) {
  __tsan_release(mutex);
  bool result = false;
  {
    const IgnoreReads ignore;
    result =
        __real__ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE(condition_variable, mutex, deadline);
  }
  __tsan_acquire(mutex);
  return result;
}

void __real__ZN4absl7debian312Notification6NotifyEv(absl::Notification* notification);
void __wrap__ZN4absl7debian312Notification6NotifyEv(absl::Notification* notification) {
  __tsan_release(NotifiedYet(notification));
  const IgnoreReads ignore;
  __real__ZN4absl7debian312Notification6NotifyEv(notification);
}

void __real__ZNK4absl7debian312Notification19WaitForNotificationEv(const absl::Notification* notification);
void __wrap__ZNK4absl7debian312Notification19WaitForNotificationEv(const absl::Notification* notification) {
  {
    const IgnoreReads ignore;
    __real__ZNK4absl7debian312Notification19WaitForNotificationEv(notification);
  }
  __tsan_acquire(NotifiedYet(notification));
}

bool __real__ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE(
    const absl::Notification* notification, absl::Duration timeout);
bool __wrap__ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE(
    const absl::Notification* notification, absl::Duration timeout) {
  bool result = false;
  {
    const IgnoreReads ignore;
    result =
        __real__ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE(notification, timeout);
  }
  if (result) __tsan_acquire(NotifiedYet(notification));
  return result;
}

bool __real__ZNK4absl7debian312Notification31WaitForNotificationWithDeadlineENS0_4TimeE(
    const absl::Notification* notification, absl::Time deadline);
bool __wrap__ZNK4absl7debian312Notification31WaitForNotificationWithDeadlineENS0_4TimeE(
    const absl::Notification* notification, absl::Time deadline) {
  bool result = false;
  {
    const IgnoreReads ignore;
    result = __real__ZNK4absl7debian312Notification31WaitForNotificationWithDeadlineENS0_4TimeE(notification, deadline);
  }
  if (result) __tsan_acquire(NotifiedYet(notification));
  return result;
}

// A Status counts its references inside the library: the sanitizer does not see that the last one comes last. Nor does it
// see the spin lock of the library's graph of locks, whose nodes are moved there by memmove, which it does see.
const char* __tsan_default_suppressions() {
  return "race:absl::debian3::Status::Unref\n"
         "race:absl::debian3::synchronization_internal::GraphCycles\n";
}

}  // extern "C"
