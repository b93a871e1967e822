#include <algorithm>
#include <utility>

#include "server/options_table.h"

namespace tidemark {
namespace {

absl::Status SetMetricsConfig(const std::string& text, ServerOptions& options) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    return absl::InvalidArgumentError(fmt::format("--metrics-config option format is <setting>=<value>. Got {}", text));
  }
  const std::string setting = text.substr(0, equals);
  const std::string value = text.substr(equals + 1);
  LatencyOptions& latencies = options.metrics.latencies;
  const std::pair<std::string_view, bool*> switches[] = {{"counter_latencies", &latencies.counters},
                                                         {"histogram_latencies", &latencies.histograms},
                                                         {"summary_latencies", &latencies.summaries}};
  for (const auto& [name, target] : switches) {
    if (setting != name) continue;
    ASSIGN_OR_RETURN(*target, ParseBool(value));
    return absl::OkStatus();
  }
  if (setting != "summary_quantiles") {
    return absl::InvalidArgumentError(
        fmt::format("--metrics-config has no setting '{}', expected counter_latencies, histogram_latencies, "
                    "summary_latencies or summary_quantiles",
                    setting));
  }
  latencies.quantiles.clear();
  for (std::size_t from = 0; from <= value.size();) {
    const std::size_t to = std::min(value.find(',', from), value.size());
    const std::string pair = value.substr(from, to - from);
    const std::size_t colon = pair.find(':');
    if (colon == std::string::npos) {
      return absl::InvalidArgumentError(
          fmt::format("summary_quantiles: '{}' is not <quantile>:<error>, as in 0.5:0.05", pair));
    }
    ASSIGN_OR_RETURN(const double quantile, ParseNumber<double>(pair.substr(0, colon), 0, 1));
    ASSIGN_OR_RETURN(const double error, ParseNumber<double>(pair.substr(colon + 1), 0, 1));
    latencies.quantiles.emplace_back(quantile, error);
    from = to + 1;
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<OptionRow> ObservationOptions() {
  return {
      {"allow-metrics", "BOOL", "serve metrics", SetBool([](auto& o) -> auto& { return o.metrics.allow; })},
      {"allow-cpu-metrics", "BOOL", "with figures of the CPU", SetBool([](auto& o) -> auto& { return o.metrics.cpu; })},
      {"allow-gpu-metrics", "BOOL", "with figures of GPUs", SetBool([](auto& o) -> auto& { return o.metrics.gpu; })},
      {"metrics-address", "ADDRESS", "where to listen; default: as for HTTP",
       SetString([](auto& o) -> auto& { return o.metrics.address; })},
      {"metrics-port", "PORT", "0 = any free port; default: 8002, or 0 with --http-port=0",
       [](const std::string& text, ServerOptions& o) -> absl::Status {
         ASSIGN_OR_RETURN(o.metrics.port, ParseNumber<std::uint16_t>(text, 0, 65535));
         o.metrics.port_given = true;
         return absl::OkStatus();
       }},
      {"metrics-interval-ms", "MS", "how old figures of CPU and GPU may be",
       SetNumber<double>(
           0, 1e9, [](auto& o) -> auto& { return o.metrics.interval_ms; })},
      {"metrics-config", "SETTING=VALUE",
       "counter_latencies, histogram_latencies, summary_latencies, summary_quantiles; may be repeated",
       SetMetricsConfig},
      {"metrics-port-file", "PATH", "write the bound metrics port here once it is open",
       SetString([](auto& o) -> auto& { return o.metrics.port_file; })},
      {"allow-dashboard", "BOOL", "serve the page /dashboard",
       SetBool([](auto& o) -> auto& { return o.allow_dashboard; })},
  };
}

}  // namespace tidemark
