#include <limits>

#include "server/options_table.h"

// What one client may take of the server (docs/operations.md, "Limits").

namespace tidemark {
namespace {

constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();

// Whole seconds, 0 for no limit, into one of the limits' durations.
Apply SetSeconds(std::chrono::milliseconds HttpLimits::*limit) {
  return [limit](const std::string& text, ServerOptions& options) -> absl::Status {
    ASSIGN_OR_RETURN(const int seconds, ParseNumber<int>(text, 0, 1'000'000));
    options.http_limits.*limit = std::chrono::seconds(seconds);
    return absl::OkStatus();
  };
}

Apply SetSize(std::size_t low, std::size_t high, std::size_t HttpLimits::*limit) {
  return [low, high, limit](const std::string& text, ServerOptions& options) -> absl::Status {
    ASSIGN_OR_RETURN(options.http_limits.*limit, ParseNumber<std::size_t>(text, low, high));
    return absl::OkStatus();
  };
}

}  // namespace

std::vector<OptionRow> LimitOptions() {
  constexpr std::uint64_t kMostBody = (std::uint64_t{1} << 31) - 1;  // infer's Content-Length is a signed 32-bit number
  return {
      {"allow-client-shm", "BOOL", "clients may register shared memory",
       SetBool([](auto& o) -> auto& { return o.allow_client_shm; })},
      {"max-shm-regions", "N", "shared-memory regions at one time",
       SetNumber<std::size_t>(
           1, 4096, [](auto& o) -> auto& { return o.max_shm_regions; })},
      {"http-max-head-size", "BYTES", "request line and headers; beyond it 431",
       SetSize(256, 16 << 20, &HttpLimits::head_bytes)},
      {"http-max-header-count", "N", "headers of a request; beyond it 431",
       SetSize(1, 65536, &HttpLimits::header_count)},
      {"http-max-body-size", "BYTES", "body of a request; beyond it 413",
       SetNumber<std::uint64_t>(
           1, kMostBody, [](auto& o) -> auto& { return o.http_limits.body_bytes; })},
      {"http-max-connections", "N", "connections at one time; beyond it 503",
       SetSize(1, kMost, &HttpLimits::connections)},
      {"http-max-stream-backlog", "BYTES",
       "written to a stream and not yet read by its client; beyond it the stream ends",
       SetSize(1, kMost, &HttpLimits::stream_bytes)},
      {"http-head-timeout-secs", "N", "from the first byte of a head to its last; 0 = no limit",
       SetSeconds(&HttpLimits::head_timeout)},
      {"http-body-timeout-secs", "N", "from the end of a head to the end of its body; 0 = no limit",
       SetSeconds(&HttpLimits::body_timeout)},
      {"http-idle-timeout-secs", "N", "between requests; 0 = no limit", SetSeconds(&HttpLimits::idle_timeout)},
      {"http-progress-window-secs", "N",
       "time in which a body or an answer moves by --http-progress-size; 0 = no limit",
       SetSeconds(&HttpLimits::progress_window)},
      {"http-progress-size", "BYTES", "least that a body or an answer moves in each window",
       SetSize(1, kMost, &HttpLimits::progress_bytes)},
      {"http-memory-wait-secs", "N", "how long a body waits for request memory; then 503",
       SetSeconds(&HttpLimits::memory_wait)},
      {"http-max-json-depth", "N", "arrays inside one another in an input's data",
       SetNumber<int>(
           1, 1000, [](auto& o) -> auto& { return o.http_json.depth; })},
      {"http-max-json-elements", "N", "elements of one input in JSON",
       SetNumber<std::int64_t>(
           1, std::numeric_limits<std::int64_t>::max(), [](auto& o) -> auto& { return o.http_json.elements; })},
  };
}

}  // namespace tidemark
