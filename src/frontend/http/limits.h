#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tidemark {

// What one client may take of the server. Beyond a limit the request is refused by name and the connection closed.
struct HttpLimits {
  std::size_t head_bytes = 64 * 1024;                       // request line and headers; beyond: 431
  std::size_t header_count = 128;                           // beyond: 431
  std::uint64_t body_bytes = (std::uint64_t{1} << 31) - 1;  // decoded; beyond: 413
  std::size_t stream_bytes = 8 * 1024 * 1024;               // of a streamed answer, written and not yet read; then cut
  std::size_t connections = 10000;                          // all loops together; beyond: 503
  // Slow clients. Zero: no limit.
  std::chrono::milliseconds head_timeout{30'000};     // first byte to end of head; then 408
  std::chrono::milliseconds body_timeout{900'000};    // end of head to end of body; then 408
  std::chrono::milliseconds idle_timeout{0};          // between requests; Triton has none
  std::chrono::milliseconds progress_window{30'000};  // in each window a body or an answer …
  std::size_t progress_bytes = 16 * 1024;             // … moves at least so many bytes, or ends; else 408 or cut
  std::chrono::milliseconds memory_wait{10'000};      // how long a body waits, unread, for request memory; then 503
  std::chrono::milliseconds linger{2'000};            // how long a refused client may still send before it is cut
};

}  // namespace tidemark
