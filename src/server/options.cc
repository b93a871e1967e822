#include "server/options.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <functional>
#include <limits>

#include "base/status.h"

namespace tidemark {
namespace {

// One option of the command line. The value is empty for a flag.
struct OptionRow {
  std::string_view name;
  std::string_view argument;  // "" for a flag
  std::string_view help;
  std::function<absl::Status(const std::string&, ServerOptions&)> apply;
};

absl::StatusOr<bool> ParseBool(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  if (text == "true" || text == "on" || text == "1") return true;
  if (text == "false" || text == "off" || text == "0") return false;
  return absl::InvalidArgumentError(fmt::format("invalid value for bool option: {}", text));
}

template <typename T>
absl::StatusOr<T> ParseNumber(const std::string& text, T low, T high) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) {
    return absl::InvalidArgumentError(fmt::format("Provided option value is out of bound. Got {}", text));
  }
  if (error != std::errc() || end != text.data() + text.size()) {
    return absl::InvalidArgumentError(fmt::format("Invalid option value. Got {}", text));
  }
  if (value < low || value > high) {
    return absl::InvalidArgumentError(
        fmt::format("Provided option value is out of bound. Got {}, expected {} to {}", text, low, high));
  }
  return value;
}

using Apply = std::function<absl::Status(const std::string&, ServerOptions&)>;

// Setters for a member that `get` finds.
template <typename Get>
Apply SetString(Get get) {
  return [get](const std::string& text, ServerOptions& options) {
    get(options) = text;
    return absl::OkStatus();
  };
}
template <typename Get>
Apply SetBool(Get get) {
  return [get](const std::string& text, ServerOptions& options) -> absl::Status {
    ASSIGN_OR_RETURN(get(options), ParseBool(text));
    return absl::OkStatus();
  };
}
template <typename T, typename Get>
Apply SetNumber(T low, T high, Get get) {
  return [low, high, get](const std::string& text, ServerOptions& options) -> absl::Status {
    ASSIGN_OR_RETURN(get(options), ParseNumber<T>(text, low, high));
    return absl::OkStatus();
  };
}
Apply WithoutEffect(std::string_view name, std::string_view why) {
  return [name, why](const std::string& /*value*/, ServerOptions& options) {
    options.without_effect.push_back(fmt::format("option '--{}' has no effect: {}", name, why));
    return absl::OkStatus();
  };
}

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

absl::Status AddRestrictedApi(const std::string& text, ServerOptions& options) {
  static constexpr std::string_view kCategories[] = {"health",        "metadata",     "inference",
                                                     "shared-memory", "model-config", "model-repository",
                                                     "statistics",    "trace",        "logging"};
  const std::size_t colon = text.find(':');
  const std::size_t equals = text.find('=', colon == std::string::npos ? 0 : colon);
  if (colon == std::string::npos || equals == std::string::npos) {
    return absl::InvalidArgumentError(
        fmt::format("--http-restricted-api option format is '<API1>,<API2>,...:<key>=<value>'. Got {}", text));
  }
  RestrictedApi api;
  api.key = text.substr(colon + 1, equals - colon - 1);
  api.value = text.substr(equals + 1);
  for (std::size_t from = 0; from < colon;) {
    const std::size_t to = std::min(text.find(',', from), colon);
    const std::string category = text.substr(from, to - from);
    if (std::find(std::begin(kCategories), std::end(kCategories), category) == std::end(kCategories)) {
      return absl::InvalidArgumentError(fmt::format("unknown restricted api '{}'", category));
    }
    for (const RestrictedApi& other : options.http_restricted) {
      if (std::find(other.categories.begin(), other.categories.end(), category) != other.categories.end()) {
        return absl::InvalidArgumentError(
            fmt::format("restricted api '{}' can not be specified in multiple config groups", category));
      }
    }
    api.categories.push_back(category);
    from = to + 1;
  }
  options.http_restricted.push_back(std::move(api));
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
  if (text != "default" && text != "ISO8601") {
    return absl::InvalidArgumentError(
        fmt::format("invalid argument for --log-format: '{}', expected default or ISO8601", text));
  }
  options.log.format = text == "default" ? LogFormat::kDefault : LogFormat::kIso8601;
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

std::vector<OptionRow> ServedOptions() {
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
      {"allow-http", "BOOL", "serve HTTP", SetBool([](auto& o) -> auto& { return o.allow_http; })},
      {"http-address", "ADDRESS", "where to listen", SetString([](auto& o) -> auto& { return o.http_address; })},
      {"http-port", "PORT", "0 = any free port",
       SetNumber<std::uint16_t>(
           0, 65535, [](auto& o) -> auto& { return o.http_port; })},
      {"reuse-http-port", "BOOL", "share the port with other processes",
       SetBool([](auto& o) -> auto& { return o.reuse_http_port; })},
      {"http-thread-count", "N", "event loops; default: one for each core",
       SetNumber<int>(
           1, 1024, [](auto& o) -> auto& { return o.http_threads; })},
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
      {"http-restricted-api", "APIS:KEY=VALUE", "APIs that need a header; may be repeated", AddRestrictedApi},
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
      {"log-format", "FORMAT", "default or ISO8601", SetLogFormat},
      {"log-file", "PATH", "", SetString([](auto& o) -> auto& { return o.log.file; })},
  };
}

// Options of Triton that this server takes for the sake of existing command lines.
std::vector<OptionRow> IgnoredOptions() {
  constexpr std::string_view kGrpc = "this version serves HTTP only";
  constexpr std::string_view kMetrics = "this version has no metrics port";
  constexpr std::string_view kTrace = "this version writes no traces";
  constexpr std::string_view kGpu = "memory of GPUs is taken by the engines as they need it";
  constexpr std::string_view kCloud = "this version has no cloud front ends";
  constexpr std::string_view kCache = "this version has no response cache";
  constexpr std::string_view kHost = "engines are part of this server";
  static constexpr std::pair<std::string_view, int> kNames[] = {{"allow-grpc", 0},
                                                                {"grpc-address", 0},
                                                                {"grpc-port", 0},
                                                                {"reuse-grpc-port", 0},
                                                                {"grpc-header-forward-pattern", 0},
                                                                {"grpc-infer-thread-count", 0},
                                                                {"grpc-infer-allocation-pool-size", 0},
                                                                {"grpc-max-response-pool-size", 0},
                                                                {"grpc-use-ssl", 0},
                                                                {"grpc-use-ssl-mutual", 0},
                                                                {"grpc-server-cert", 0},
                                                                {"grpc-server-key", 0},
                                                                {"grpc-root-cert", 0},
                                                                {"grpc-infer-response-compression-level", 0},
                                                                {"grpc-keepalive-time", 0},
                                                                {"grpc-keepalive-timeout", 0},
                                                                {"grpc-keepalive-permit-without-calls", 0},
                                                                {"grpc-http2-max-pings-without-data", 0},
                                                                {"grpc-http2-min-recv-ping-interval-without-data", 0},
                                                                {"grpc-http2-max-ping-strikes", 0},
                                                                {"grpc-max-connection-age", 0},
                                                                {"grpc-max-connection-age-grace", 0},
                                                                {"grpc-restricted-protocol", 0},
                                                                {"allow-metrics", 1},
                                                                {"allow-gpu-metrics", 1},
                                                                {"allow-cpu-metrics", 1},
                                                                {"metrics-address", 1},
                                                                {"metrics-port", 1},
                                                                {"metrics-interval-ms", 1},
                                                                {"metrics-config", 1},
                                                                {"trace-config", 2},
                                                                {"trace-file", 2},
                                                                {"trace-level", 2},
                                                                {"trace-rate", 2},
                                                                {"trace-count", 2},
                                                                {"trace-log-frequency", 2},
                                                                {"enable-peer-access", 3},
                                                                {"pinned-memory-pool-byte-size", 3},
                                                                {"cuda-memory-pool-byte-size", 3},
                                                                {"cuda-virtual-address-size", 3},
                                                                {"min-supported-compute-capability", 3},
                                                                {"model-load-gpu-limit", 3},
                                                                {"allow-sagemaker", 4},
                                                                {"sagemaker-port", 4},
                                                                {"sagemaker-safe-port-range", 4},
                                                                {"sagemaker-thread-count", 4},
                                                                {"allow-vertex-ai", 4},
                                                                {"vertex-ai-port", 4},
                                                                {"vertex-ai-thread-count", 4},
                                                                {"vertex-ai-default-model", 4},
                                                                {"cache-config", 5},
                                                                {"cache-directory", 5},
                                                                {"response-cache-byte-size", 5},
                                                                {"rate-limit", 6},
                                                                {"rate-limit-resource", 6},
                                                                {"backend-directory", 6},
                                                                {"repoagent-directory", 6},
                                                                {"host-policy", 6},
                                                                {"buffer-manager-thread-count", 6},
                                                                {"allow-client-shm", 7}};
  const std::string_view reasons[] = {kGrpc,  kMetrics, kTrace, kGpu,
                                      kCloud, kCache,   kHost,  "this version has no shared-memory extension"};
  std::vector<OptionRow> rows;
  for (const auto& [name, reason] : kNames) {
    rows.push_back({name, "VALUE", reasons[reason], WithoutEffect(name, reasons[reason])});
  }
  return rows;
}

std::string Usage(const std::vector<OptionRow>& rows) {
  std::string text = "Usage: tidemark serve --model-repository=DIR [options]\n";
  for (const OptionRow& row : rows) {
    const std::string left =
        row.argument.empty() ? fmt::format("--{}", row.name) : fmt::format("--{} <{}>", row.name, row.argument);
    text += fmt::format("  {:<44} {}\n", left, row.help);
  }
  return text;
}

std::size_t Distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0U : 1U)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

// Exact name, or the only one that begins with it.
absl::StatusOr<const OptionRow*> FindOption(const std::vector<OptionRow>& rows, std::string_view name) {
  std::vector<const OptionRow*> found;
  for (const OptionRow& row : rows) {
    if (row.name == name) return &row;
    if (!name.empty() && row.name.starts_with(name)) found.push_back(&row);
  }
  if (found.size() == 1) return found.front();
  if (!found.empty()) {
    std::string names;
    for (const OptionRow* row : found) names += fmt::format(" '--{}'", row->name);
    return absl::InvalidArgumentError(fmt::format("option '--{}' is ambiguous; possibilities:{}", name, names));
  }
  const auto nearest = std::min_element(rows.begin(), rows.end(), [&](const OptionRow& a, const OptionRow& b) {
    return Distance(a.name, name) < Distance(b.name, name);
  });
  return absl::InvalidArgumentError(
      fmt::format("unrecognized option '--{}'; did you mean '--{}'?", name, nearest->name));
}

absl::Status CheckTogether(const ServerOptions& options) {
  if (options.model_repositories.empty()) {
    return absl::InvalidArgumentError(
        "error: creating server: Invalid argument - --model-repository must be specified");
  }
  if (!options.lifecycle.startup_models.empty() && options.lifecycle.mode != ControlMode::kExplicit) {
    return absl::InvalidArgumentError(
        "Error: Use of '--load-model' requires setting '--model-control-mode=explicit' as well.");
  }
  if (!options.allow_http && options.http_unix_socket.empty()) {
    return absl::InvalidArgumentError("nothing to serve: HTTP is off and there is no --http-unix-socket");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ServerOptions> ParseServerOptions(std::span<char* const> args) {
  std::vector<OptionRow> rows = ServedOptions();
  for (OptionRow& row : IgnoredOptions()) rows.push_back(std::move(row));
  ServerOptions options;
  for (std::size_t i = 0; i < args.size(); ++i) {
    std::string_view arg = args[i];
    if (arg == "--help" || arg == "-h") return absl::CancelledError(Usage(rows));
    if (!arg.starts_with("--")) return absl::InvalidArgumentError(fmt::format("Unexpected argument: {}", arg));
    arg.remove_prefix(2);
    const std::size_t equals = arg.find('=');
    ASSIGN_OR_RETURN(const OptionRow* row, FindOption(rows, arg.substr(0, equals)));
    std::string value;
    if (row->argument.empty()) {
      if (equals != std::string_view::npos) {
        return absl::InvalidArgumentError(fmt::format("option '--{}' takes no value", row->name));
      }
    } else if (equals != std::string_view::npos) {
      value = std::string(arg.substr(equals + 1));
    } else if (i + 1 < args.size()) {
      value = args[++i];
    } else {
      return absl::InvalidArgumentError(fmt::format("option '--{}' requires an argument", row->name));
    }
    if (absl::Status status = row->apply(value, options); !status.ok()) {
      return absl::InvalidArgumentError(fmt::format("Bad option: \"--{}\".\n{}", row->name, MessageOf(status)));
    }
  }
  RETURN_IF_ERROR(CheckTogether(options));
  return options;
}

}  // namespace tidemark
