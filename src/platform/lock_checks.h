#pragma once

namespace tidemark {

// From now on absl::Mutex does not look for cycles in the order of locks. Where Abseil was built without NDEBUG, as
// distributions do, it looks at every lock, under a lock that the whole process shares: a fifth of the instructions of a
// small request. Programs built for use call it first; those built for tests keep the check.
void StopCheckingLocks();

}  // namespace tidemark
