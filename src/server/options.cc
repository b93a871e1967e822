#include "server/options.h"

#include <algorithm>
#include <cctype>

#include "base/status.h"
#include "server/options_table.h"

namespace tidemark {

absl::StatusOr<bool> ParseBool(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  if (text == "true" || text == "on" || text == "1") return true;
  if (text == "false" || text == "off" || text == "0") return false;
  return absl::InvalidArgumentError(fmt::format("invalid value for bool option: {}", text));
}

Apply WithoutEffect(std::string_view name, std::string_view why) {
  return [name, why](const std::string& /*value*/, ServerOptions& options) {
    options.without_effect.push_back(fmt::format("option '--{}' has no effect: {}", name, why));
    return absl::OkStatus();
  };
}

std::vector<OptionRow> AllOptions() {
  std::vector<OptionRow> rows;
  const auto add = [&rows](std::vector<OptionRow> more) {
    for (OptionRow& row : more) rows.push_back(std::move(row));
  };
  add(GeneralOptions());
  add(GrpcOptions());
  add(AccessOptions());
  add(TraceOptions());
  add(LimitOptions());
  add(ObservationOptions());
  add(ExecutionOptions());
  add(CloudOptions());
  for (OptionRow& row : OptionsWithoutEffect()) {
    const bool served =
        std::any_of(rows.begin(), rows.end(), [&](const OptionRow& other) { return other.name == row.name; });
    if (!served) rows.push_back(std::move(row));
  }
  return rows;
}

namespace {

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
  const bool cloud = options.sagemaker.allow || options.vertex.allow.value_or(false);
  if (!cloud && !options.allow_http && options.http_unix_socket.empty() && !options.allow_grpc &&
      options.grpc.unix_path.empty()) {
    return absl::InvalidArgumentError(
        "nothing to serve: HTTP and gRPC are off, and there is no --http-unix-socket and no --grpc-unix-socket");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ServerOptions> ParseServerOptions(std::span<char* const> args) {
  const std::vector<OptionRow> rows = AllOptions();
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
  // Whoever wants any free port for HTTP does not want a fixed one beside it.
  if (!options.metrics.port_given && options.http_port == 0) options.metrics.port = 0;
  RETURN_IF_ERROR(CompleteCloudOptions(options));
  RETURN_IF_ERROR(CheckTogether(options));
  RETURN_IF_ERROR(CompleteTraceOptions(options));
  RETURN_IF_ERROR(CompleteCacheOptions(options));
  return options;
}

}  // namespace tidemark
