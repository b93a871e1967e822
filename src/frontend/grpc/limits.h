#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace tidemark {

// What one gRPC client may take of the server. Beyond a limit a call is refused by name, or its connection is closed with
// GOAWAY.
struct GrpcLimits {
  std::size_t connections = 10000;                             // all loops together; beyond: GOAWAY
  std::uint32_t streams = 1000;                                // calls open at one time on a connection
  std::size_t metadata_bytes = 16 * 1024;                      // names and values; beyond: RESOURCE_EXHAUSTED
  std::uint64_t message_bytes = (std::uint64_t{1} << 31) - 1;  // decompressed; beyond: RESOURCE_EXHAUSTED
  std::int32_t stream_window = 4 << 20;       // bytes that a client may send of a call before they are processed
  std::int32_t connection_window = 64 << 20;  // the same for all calls of a connection
  std::size_t unsent_bytes = 16 << 20;        // answers of a call that wait for the client; then its requests wait, too
  // Frames that make work and carry nothing (PING, SETTINGS, WINDOW_UPDATE, empty DATA, RST_STREAM): so many at
  // once, and so many a second; what carries data adds to them. Beyond: GOAWAY.
  std::uint32_t idle_frames_burst = 2000;
  std::uint32_t idle_frames_per_second = 200;
  // Slow clients. Zero: no limit.
  std::chrono::milliseconds handshake_timeout{30'000};  // connection to the first SETTINGS
  std::chrono::milliseconds progress_window{30'000};    // in each window a message or an answer …
  std::size_t progress_bytes = 16 * 1024;   // … moves at least so many bytes, or ends; else the call is reset
  std::chrono::milliseconds linger{2'000};  // how long a refused client may still send before it is cut
};

// Triton's --grpc-keepalive-*, --grpc-http2-* and --grpc-max-connection-age*.
struct GrpcKeepalive {
  std::chrono::milliseconds time{7'200'000};  // silence after which the client is asked with a PING
  std::chrono::milliseconds timeout{20'000};  // and how long the answer may take
  bool permit_without_calls = false;          // ask, and let clients ask, while there is no call
  int max_pings_without_data = 2;             // our PINGs in a row without data between them; 0: any number
  std::chrono::milliseconds min_recv_ping_interval_without_data{300'000};
  int max_ping_strikes = 2;                                 // PINGs of the client that come too early; 0: any number
  std::optional<std::chrono::milliseconds> connection_age;  // then the connection is drained
  std::optional<std::chrono::milliseconds> connection_age_grace;  // and after this cut
};

}  // namespace tidemark
