#include <limits>

#include "server/options_table.h"

namespace tidemark {
namespace {

absl::Status SetControlMode(const std::string& text, ServerOptions& options) {
  if (text == "none") {
    options.lifecycle.mode = ControlMode::kNone;
  } else if (text == "poll") {
    options.lifecycle.mode = ControlMode::kPoll;
  } else if (text == "explicit") {
    options.lifecycle.mode = ControlMode::kExplicit;
  } else {
    return absl::InvalidArgumentError(
        fmt::format("invalid argument for --model-control-mode: '{}', expected none, poll or explicit", text));
  }
  return absl::OkStatus();
}

absl::Status AddBackendConfig(const std::string& text, ServerOptions& options) {
  const std::size_t equals = text.find('=');
  const std::size_t comma = text.substr(0, equals).find(',');
  if (equals == std::string::npos) {
    return absl::InvalidArgumentError(
        fmt::format("--backend-config option format is '<backend name>,<setting>=<value>'. Got {}", text));
  }
  const std::string backend = comma == std::string::npos ? "" : text.substr(0, comma);
  const std::size_t key = comma == std::string::npos ? 0 : comma + 1;
  options.backend_settings[backend][text.substr(key, equals - key)] = text.substr(equals + 1);
  return absl::OkStatus();
}

absl::Status SetLogVerbose(const std::string& text, ServerOptions& options) {
  if (const absl::StatusOr<int> number = ParseNumber<int>(text, 0, 1000); number.ok()) {
    options.log.verbose_level = *number;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const bool on, ParseBool(text));
  options.log.verbose_level = on ? 1 : 0;
  return absl::OkStatus();
}

absl::Status SetLogFormat(const std::string& text, ServerOptions& options) {
  const std::optional<LogFormat> format = ParseLogFormat(text);
  if (!format) {
    return absl::InvalidArgumentError(
        fmt::format("invalid argument for --log-format: '{}', expected default, ISO8601 or json", text));
  }
  options.log.format = *format;
  return absl::OkStatus();
}

constexpr int kMaxInt = std::numeric_limits<int>::max();

// "host:BYTES" or "gpu:N:BYTES".
absl::Status SetMemoryLimit(const std::string& text, ServerOptions& options) {
  const std::size_t colon = text.rfind(':');
  const std::string device = text.substr(0, colon == std::string::npos ? 0 : colon);
  if (device != "host" && device.rfind("gpu:", 0) != 0) {
    return absl::InvalidArgumentError(
        fmt::format("--memory-limit option format is 'host:<bytes>' or 'gpu:<number>:<bytes>'. Got {}", text));
  }
  ASSIGN_OR_RETURN(const auto bytes,
                   ParseNumber<std::uint64_t>(text.substr(colon + 1), 0, std::numeric_limits<std::uint64_t>::max()));
  DeviceId id = kHost;
  if (device != "host") {
    ASSIGN_OR_RETURN(id, ParseNumber<int>(device.substr(4), 0, 1023));
  }
  options.memory_limits[id] = bytes;
  return absl::OkStatus();
}

}  // namespace

std::vector<OptionRow> GeneralOptions() {
  return {
      {"id", "NAME", "server name in the metadata", SetString([](auto& o) -> auto& { return o.id; })},
      {"model-repository", "DIR", "a model repository; may be repeated",
       [](const std::string& text, ServerOptions& o) {
         o.model_repositories.emplace_back(text);
         return absl::OkStatus();
       }},
      {"model-store", "DIR", "the same as --model-repository",
       [](const std::string& text, ServerOptions& o) {
         o.model_repositories.emplace_back(text);
         return absl::OkStatus();
       }},
      {"exit-timeout-secs", "N", "time for requests in flight at shutdown",
       SetNumber<int>(
           0, kMaxInt, [](auto& o) -> auto& { return o.exit_timeout_secs; })},
      {"exit-on-error", "BOOL", "end when a start-up model fails",
       SetBool([](auto& o) -> auto& { return o.lifecycle.exit_on_error; })},
      {"disable-auto-complete-config", "", "configurations must be complete",
       [](const std::string& /*flag*/, ServerOptions& o) {
         o.auto_complete = false;
         return absl::OkStatus();
       }},
      {"strict-model-config", "BOOL", "deprecated; true = --disable-auto-complete-config",
       [](const std::string& text, ServerOptions& o) -> absl::Status {
         ASSIGN_OR_RETURN(const bool strict, ParseBool(text));
         o.without_effect.push_back(
             "Warning: '--strict-model-config' has been deprecated! Please use '--disable-auto-complete-config' "
             "instead.");
         if (strict) o.auto_complete = false;
         return absl::OkStatus();
       }},
      {"strict-readiness", "BOOL", "ready only when every model is",
       SetBool([](auto& o) -> auto& { return o.lifecycle.strict_readiness; })},
      {"model-control-mode", "MODE", "none, poll or explicit", SetControlMode},
      {"repository-poll-secs", "N", "seconds between polls",
       [](const std::string& text, ServerOptions& o) -> absl::Status {
         ASSIGN_OR_RETURN(const int seconds, ParseNumber<int>(text, 0, kMaxInt));
         o.lifecycle.poll_interval = absl::Seconds(std::max(seconds, 1));
         return absl::OkStatus();
       }},
      {"load-model", "NAME", "a model to load at start-up (explicit mode); may be repeated; '*' = all",
       [](const std::string& text, ServerOptions& o) {
         o.lifecycle.startup_models.push_back(text);
         return absl::OkStatus();
       }},
      {"model-config-name", "NAME", "use configs/NAME.pbtxt where it exists",
       [](const std::string& text, ServerOptions& o) {
         if (text.empty()) return absl::InvalidArgumentError("Error: empty argument for --model-config-name");
         o.model_config_name = text;
         return absl::OkStatus();
       }},
      {"model-load-thread-count", "N", "loads at one time",
       SetNumber<int>(
           1, 1024, [](auto& o) -> auto& { return o.lifecycle.load_threads; })},
      {"model-load-retry-count", "N", "attempts after the first",
       SetNumber<int>(
           0, kMaxInt - 1, [](auto& o) -> auto& { return o.lifecycle.retry_count; })},
      {"model-namespacing", "BOOL", "the same model name in several repositories",
       SetBool([](auto& o) -> auto& { return o.model_namespacing; })},
      {"allow-http", "BOOL", "serve HTTP; default: true, but not with AIP_MODE=PREDICTION",
       [](const std::string& text, ServerOptions& o) -> absl::Status {
         ASSIGN_OR_RETURN(o.allow_http, ParseBool(text));
         o.allow_http_given = true;
         return absl::OkStatus();
       }},
      {"http-address", "ADDRESS", "where to listen", SetString([](auto& o) -> auto& { return o.http_address; })},
      {"http-port", "PORT", "0 = any free port",
       SetNumber<std::uint16_t>(
           0, 65535, [](auto& o) -> auto& { return o.http_port; })},
      {"reuse-http-port", "BOOL", "share the port with other processes",
       SetBool([](auto& o) -> auto& { return o.reuse_http_port; })},
      {"http-thread-count", "N",
       "event loops; default: one for each core, four at most up to 16 cores, then one for each four",
       SetNumber<int>(
           1, 1024, [](auto& o) -> auto& { return o.http_threads; })},
      {"http-poll-us", "N",
       "how long a loop that awaits an answer looks for it before it sleeps; default: 50 beyond four cores, else 0",
       SetNumber<int>(
           0, 1000, [](auto& o) -> auto& { return o.http_poll_us; })},
      {"http-header-forward-pattern", "REGEX", "headers passed on as request parameters",
       SetString([](auto& o) -> auto& { return o.http_header_forward_pattern; })},
      {"http-max-input-size", "BYTES", "largest JSON part of a request",
       [](const std::string& text, ServerOptions& o) -> absl::Status {
         ASSIGN_OR_RETURN(const std::int64_t bytes,
                          ParseNumber<std::int64_t>(text, std::numeric_limits<std::int64_t>::min(),
                                                    std::numeric_limits<std::int64_t>::max()));
         if (bytes <= 0) return absl::InvalidArgumentError("Error: --http-max-input-size must be greater than 0.");
         o.http_max_input_size = static_cast<std::uint64_t>(bytes);
         return absl::OkStatus();
       }},
      {"http-unix-socket", "PATH", "serve HTTP on a UNIX-domain socket, too",
       SetString([](auto& o) -> auto& { return o.http_unix_socket; })},
      {"http-port-file", "PATH", "write the bound port here once it is open",
       SetString([](auto& o) -> auto& { return o.http_port_file; })},
      {"unload-timeout-secs", "N", "how long an unload's answer waits for requests",
       [](const std::string& text, ServerOptions& o) -> absl::Status {
         ASSIGN_OR_RETURN(const int seconds, ParseNumber<int>(text, 0, kMaxInt));
         o.lifecycle.unload_deadline = absl::Seconds(seconds);
         return absl::OkStatus();
       }},
      {"host-memory-limit", "BYTES", "budget of all models; a load beyond it is refused",
       SetNumber<std::uint64_t>(
           0, std::numeric_limits<std::uint64_t>::max(), [](auto& o) -> auto& { return o.host_memory_limit; })},
      {"memory-limit", "DEVICE:BYTES", "budget of all models on host or gpu:N; may be repeated", SetMemoryLimit},
      {"cuda-library", "PATH", "NVIDIA's driver library; 'none': use no GPU",
       [](const std::string& text, ServerOptions& o) {
         o.cuda_library = text;
         return absl::OkStatus();
       }},
      {"request-memory-limit", "BYTES", "requests and answers at one time",
       SetNumber<std::uint64_t>(
           1 << 20, std::numeric_limits<std::uint64_t>::max(),
           [](auto& o) -> auto& { return o.request_memory_limit; })},
      {"engine-directory", "DIR", "where the engines' libraries are",
       [](const std::string& text, ServerOptions& o) {
         o.engine_directory = text;
         return absl::OkStatus();
       }},
      {"backend-config", "[BACKEND,]KEY=VALUE", "a setting of one backend or of all; may be repeated",
       AddBackendConfig},
      {"log-verbose", "N", "verbose level", SetLogVerbose},
      {"log-info", "BOOL", "", SetBool([](auto& o) -> auto& { return o.log.info; })},
      {"log-warning", "BOOL", "", SetBool([](auto& o) -> auto& { return o.log.warning; })},
      {"log-error", "BOOL", "", SetBool([](auto& o) -> auto& { return o.log.error; })},
      {"log-format", "FORMAT", "default, ISO8601 or json (one object a line)", SetLogFormat},
      {"log-file", "PATH", "", SetString([](auto& o) -> auto& { return o.log.file; })},
  };
}

}  // namespace tidemark
