#pragma once

#include <chrono>
#include <cstdint>

namespace tidemark {

// Monotonic time in nanoseconds, for durations and deadlines.
inline std::int64_t NowNanos() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Wall-clock time in milliseconds since the Unix epoch, for what is shown to people.
inline std::int64_t UnixMillis() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace tidemark
