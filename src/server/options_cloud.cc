// The front ends of SageMaker and Vertex AI (protocol digest 1.17 and 8.8).

#include "platform/environment.h"
#include "repository/model_repository.h"
#include "server/options_table.h"

namespace tidemark {
namespace {

absl::Status SetSafePorts(const std::string& text, ServerOptions& options) {
  const std::size_t dash = text.find('-');
  if (dash == std::string::npos) {
    return absl::InvalidArgumentError(
        fmt::format("--sagemaker-safe-port-range option format is '<integer>-<integer>'. Got {}", text));
  }
  ASSIGN_OR_RETURN(const auto low, ParseNumber<std::uint16_t>(text.substr(0, dash), 0, 65535));
  ASSIGN_OR_RETURN(const auto high, ParseNumber<std::uint16_t>(text.substr(dash + 1), 0, 65535));
  if (low > high) {
    return absl::InvalidArgumentError(fmt::format("--sagemaker-safe-port-range: {} is above {}", low, high));
  }
  options.sagemaker.safe_ports = {low, high};
  return absl::OkStatus();
}

// The ports other than SageMaker's lie in the range that it leaves to them.
absl::Status CheckPorts(const ServerOptions& options) {
  const SageMakerOptions& sagemaker = options.sagemaker;
  const VertexOptions& vertex = options.vertex;
  if (sagemaker.allow && *vertex.allow && sagemaker.port != 0 && sagemaker.port == *vertex.port) {
    return absl::InvalidArgumentError(
        fmt::format("--sagemaker-port and --vertex-ai-port are both {}, expected two different ports", sagemaker.port));
  }
  if (!sagemaker.allow || !sagemaker.safe_ports) return absl::OkStatus();
  const auto [low, high] = *sagemaker.safe_ports;
  struct Port {
    std::string_view option;
    bool open;
    std::uint16_t number;
  };
  const Port ports[] = {{"http-port", options.allow_http, options.http_port},
                        {"grpc-port", options.allow_grpc, options.grpc.port.value_or(0)},
                        {"metrics-port", options.metrics.allow, options.metrics.port},
                        {"vertex-ai-port", *vertex.allow, *vertex.port}};
  for (const Port& port : ports) {
    if (!port.open || (port.number >= low && port.number <= high)) continue;
    return absl::InvalidArgumentError(
        fmt::format("--{}: found port {}, expected one of --sagemaker-safe-port-range, {} to {}", port.option,
                    port.number, low, high));
  }
  return absl::OkStatus();
}

// A default model that no load could ever bring is a mistake that each request would tell, and the start can.
absl::Status CheckDefaultModels(const ServerOptions& options) {
  const auto check = [](bool allow, std::string_view setting, std::string_view name) {
    if (!allow || name.empty() || ValidateLoadName(name).ok()) return absl::OkStatus();
    return absl::InvalidArgumentError(fmt::format("{}: found '{}', expected the name of a model", setting, name));
  };
  RETURN_IF_ERROR(
      check(options.sagemaker.allow, "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME", options.sagemaker.default_model));
  return check(*options.vertex.allow, "--vertex-ai-default-model", options.vertex.default_model);
}

std::string Variable(const char* name) { return EnvironmentVariable(name).value_or(""); }

}  // namespace

std::vector<OptionRow> CloudOptions() {
  return {
      {"allow-sagemaker", "BOOL", "serve SageMaker's requests; default: false",
       SetBool([](auto& o) -> auto& { return o.sagemaker.allow; })},
      {"sagemaker-port", "PORT", "0 = any free port; default: 8080",
       SetNumber<std::uint16_t>(
           0, 65535, [](auto& o) -> auto& { return o.sagemaker.port; })},
      {"sagemaker-safe-port-range", "LOW-HIGH", "ports other than SageMaker's lie in it", SetSafePorts},
      {"sagemaker-port-file", "PATH", "write the bound port here once it is open",
       SetString([](auto& o) -> auto& { return o.sagemaker.port_file; })},
      {"allow-vertex-ai", "BOOL", "serve Vertex AI's requests; default: with AIP_MODE=PREDICTION",
       [](const std::string& text, ServerOptions& o) -> absl::Status {
         ASSIGN_OR_RETURN(o.vertex.allow, ParseBool(text));
         return absl::OkStatus();
       }},
      {"vertex-ai-port", "PORT", "0 = any free port; default: AIP_HTTP_PORT, or 8080",
       [](const std::string& text, ServerOptions& o) -> absl::Status {
         ASSIGN_OR_RETURN(o.vertex.port, ParseNumber<std::uint16_t>(text, 0, 65535));
         return absl::OkStatus();
       }},
      {"vertex-ai-default-model", "NAME", "for predictions that name no model; default: the only one",
       SetString([](auto& o) -> auto& { return o.vertex.default_model; })},
      {"vertex-ai-port-file", "PATH", "write the bound port here once it is open",
       SetString([](auto& o) -> auto& { return o.vertex.port_file; })},
  };
}

absl::Status CompleteCloudOptions(ServerOptions& options) {
  options.sagemaker.default_model = Variable("SAGEMAKER_TRITON_DEFAULT_MODEL_NAME");
  VertexOptions& vertex = options.vertex;
  const bool prediction = Variable("AIP_MODE") == "PREDICTION";
  if (!vertex.allow) vertex.allow = prediction;
  if (prediction && *vertex.allow) {  // Vertex AI's port alone, unless more is asked for
    options.allow_http = options.allow_http && options.allow_http_given;
    options.allow_grpc = options.allow_grpc && options.allow_grpc_given;
  }
  const std::string port = Variable("AIP_HTTP_PORT");
  if (!vertex.port && *vertex.allow && !port.empty()) {
    absl::StatusOr<std::uint16_t> number = ParseNumber<std::uint16_t>(port, 0, 65535);
    if (!number.ok()) {
      return absl::InvalidArgumentError(fmt::format("AIP_HTTP_PORT: {}", MessageOf(number.status())));
    }
    vertex.port = *number;
  }
  if (!vertex.port) vertex.port = 8080;
  if (*vertex.allow) {
    vertex.health_route = Variable("AIP_HEALTH_ROUTE");
    vertex.predict_route = Variable("AIP_PREDICT_ROUTE");
    for (const auto& [name, route] :
         {std::pair<std::string_view, const std::string*>("PREDICT", &vertex.predict_route),
          std::pair<std::string_view, const std::string*>("HEALTH", &vertex.health_route)}) {
      if (route->empty()) {
        return absl::InvalidArgumentError(fmt::format("AIP_{}_ROUTE is not defined for Vertex AI endpoint", name));
      }
    }
    const std::string storage = Variable("AIP_STORAGE_URI");
    if (options.model_repositories.empty() && !storage.empty()) options.model_repositories.emplace_back(storage);
  }
  RETURN_IF_ERROR(CheckDefaultModels(options));
  return CheckPorts(options);
}

}  // namespace tidemark
