// What lies between a request and its execution: the response cache and the rate limiter.

#include <limits>
#include <utility>

#include "server/options_table.h"

namespace tidemark {
namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();

// <cache>,<setting>=<value>
absl::Status AddCacheConfig(const std::string& text, ServerOptions& options) {
  const std::size_t equals = text.find('=');
  const std::size_t comma = text.substr(0, equals).find(',');
  if (equals == std::string::npos || comma == std::string::npos || comma == 0 || comma + 1 == equals) {
    return absl::InvalidArgumentError(
        fmt::format("--cache-config option format is '<cache name>,<setting>=<value>'. Got {}", text));
  }
  options.caches[text.substr(0, comma)][text.substr(comma + 1, equals - comma - 1)] = text.substr(equals + 1);
  return absl::OkStatus();
}

absl::Status SetCacheBytes(const std::string& text, ServerOptions& options) {
  ASSIGN_OR_RETURN(options.response_cache_byte_size, ParseNumber<std::uint64_t>(text, 0, kMost));
  options.without_effect.push_back(fmt::format(
      "Warning: '--response-cache-byte-size' has been deprecated! Please use '--cache-config=local,size={}' "
      "instead.",
      text));
  return absl::OkStatus();
}

// <device>:<fraction>
absl::Status AddGpuLimit(const std::string& text, ServerOptions& options) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) {
    return absl::InvalidArgumentError(
        fmt::format("--model-load-gpu-limit option format is '<device id>:<fraction>'. Got {}", text));
  }
  constexpr double kAny = std::numeric_limits<double>::max();
  ASSIGN_OR_RETURN(const int device, ParseNumber<int>(text.substr(0, colon), std::numeric_limits<int>::min(),
                                                      std::numeric_limits<int>::max()));
  ASSIGN_OR_RETURN(const double fraction, ParseNumber<double>(text.substr(colon + 1), -kAny, kAny));
  if (device < 0) return absl::InvalidArgumentError(fmt::format("expects device ID >= 0, got {}", device));
  if (!(fraction >= 0 && fraction <= 1)) {
    return absl::InvalidArgumentError(
        fmt::format("expects limit fraction to be in range [0.0, 1.0], got {}", fraction));
  }
  options.gpu_policy.load_limits[device] = fraction;
  return absl::OkStatus();
}

absl::Status SetRateLimit(const std::string& text, ServerOptions& options) {
  if (text != "off" && text != "execution_count") {
    return absl::InvalidArgumentError(
        fmt::format("invalid argument for --rate-limit: '{}', expected off or execution_count", text));
  }
  options.rate_limit = text == "execution_count";
  return absl::OkStatus();
}

// <name>:<count>[:<device>]
absl::Status AddRateLimit(const std::string& text, ServerOptions& options) {
  const std::size_t first = text.find(':');
  const std::size_t second = first == std::string::npos ? first : text.find(':', first + 1);
  RateLimiter::Limit limit;
  limit.name = text.substr(0, first);
  if (first == std::string::npos || limit.name.empty() ||
      (second != std::string::npos && text.find(':', second + 1) != std::string::npos)) {
    return absl::InvalidArgumentError(
        fmt::format("--rate-limit-resource option format is '<resource_name>:<count>:<device>' or "
                    "'<resource_name>:<count>'. Got {}",
                    text));
  }
  const std::string count = text.substr(first + 1, second == std::string::npos ? second : second - first - 1);
  ASSIGN_OR_RETURN(limit.count, ParseNumber<std::uint64_t>(count, 0, std::numeric_limits<std::int32_t>::max()));
  if (second != std::string::npos) {
    ASSIGN_OR_RETURN(limit.device, ParseNumber<int>(text.substr(second + 1), 0, 1023));
  }
  options.rate_limits.push_back(std::move(limit));
  return absl::OkStatus();
}

}  // namespace

absl::Status CompleteCacheOptions(ServerOptions& options) {
  if (options.response_cache_byte_size.has_value()) {
    if (!options.caches.empty()) {
      return absl::InvalidArgumentError(
          "Error: Incompatible flags --response-cache-byte-size and --cache-config both provided. Please provide one or "
          "the other.");
    }
    options.response_cache_bytes = *options.response_cache_byte_size;
    return absl::OkStatus();
  }
  if (options.caches.empty()) return absl::OkStatus();
  if (options.caches.size() > 1) {
    return absl::InvalidArgumentError(
        "found multiple cache configurations, but only a single cache is currently supported");
  }
  const auto& [name, settings] = *options.caches.begin();
  if (name != "local") {
    return absl::InvalidArgumentError(
        fmt::format("unable to find 'libtritoncache_{}.so' for cache. Searched: {}; this server has the cache 'local' "
                    "built in, and no other",
                    name, options.cache_directory));
  }
  for (const auto& [setting, value] : settings) {
    if (setting != "size") {
      return absl::InvalidArgumentError(
          fmt::format("--cache-config: the cache 'local' has no setting '{}', expected size", setting));
    }
    absl::StatusOr<std::uint64_t> bytes = ParseNumber<std::uint64_t>(value, 1, kMost);
    if (!bytes.ok()) return WithContext(bytes.status(), "--cache-config=local,size");
    options.response_cache_bytes = *bytes;
  }
  return absl::OkStatus();
}

std::vector<OptionRow> ExecutionOptions() {
  return {
      {"cache-config", "CACHE,SETTING=VALUE",
       "local,size=BYTES: keep answers of models with response_cache { enable: true } in this much host memory",
       AddCacheConfig},
      {"cache-directory", "DIR", "named in an error only: the cache 'local' is built in",
       SetString([](auto& o) -> auto& { return o.cache_directory; })},
      {"response-cache-byte-size", "BYTES", "deprecated; --cache-config=local,size=BYTES; 0 = no cache", SetCacheBytes},
      {"rate-limit", "MODE",
       "off, or execution_count: instances execute only while they hold the resources that their "
       "instance_group.rate_limiter asks for",
       SetRateLimit},
      {"model-load-gpu-limit", "DEVICE:FRACTION",
       "a load that ends with more of the GPU's memory in use, 0.0 to 1.0, is refused; may be repeated", AddGpuLimit},
      {"min-supported-compute-capability", "NUMBER", "GPUs below are not used (0.0: none is too old)",
       SetNumber<double>(
           0, 1000, [](auto& o) -> auto& { return o.gpu_policy.min_compute_capability; })},
      {"rate-limit-resource", "NAME:COUNT[:DEVICE]", "how much there is of a resource; may be repeated", AddRateLimit},
  };
}

}  // namespace tidemark
