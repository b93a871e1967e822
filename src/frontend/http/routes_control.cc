#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "frontend/http/routes.h"
#include "protocol/control_requests.h"
#include "protocol/http_status.h"
#include "protocol/json_writer.h"

namespace tidemark {
namespace {

// Bodies above this are read off the event loop.
constexpr std::size_t kLongBody = 64 << 10;

std::string IndexJson(const std::vector<IndexEntry>& entries) {
  std::string out = "[";
  for (const IndexEntry& entry : entries) {
    if (out.size() > 1) out += ',';
    out += "{\"name\":";
    AppendJsonString(out, entry.name);
    const std::pair<std::string_view, const std::string*> members[] = {
        {",\"version\":", &entry.version}, {",\"state\":", &entry.state}, {",\"reason\":", &entry.reason}};
    for (const auto& [key, value] : members) {
      if (value->empty()) continue;
      out += key;
      AppendJsonString(out, *value);
    }
    out += '}';
  }
  out += ']';
  return out;
}

absl::Status NoRepositoryName(const RouteMatch& match) {
  if (match.repository.empty()) return absl::OkStatus();
  return absl::UnimplementedError("'repository_name' specification is not supported");
}

// Answers a load when it is done.
Lifecycle::Done AnswerWhenDone(ResponseSender sender) {
  return [sender = std::move(sender)](absl::Status status) mutable {
    if (!status.ok()) return http::SendError(std::move(sender), status);
    http::SendEmpty(std::move(sender), http::kJson);
  };
}

// Answers a check: {"findings":[…]}, and "error" in front when a load would fail.
Lifecycle::CheckDone AnswerWithFindings(ResponseSender sender) {
  return [sender = std::move(sender)](absl::Status status, std::string findings) mutable {
    std::string body = "{";
    if (!status.ok()) {
      body += "\"error\":";
      AppendJsonString(body, MessageOf(status));
      body += ',';
    }
    body += "\"findings\":" + findings + "}";
    HttpResponse response(HttpStatusOf(status.code()));
    response.SetContentType(http::kJson);
    response.Append(std::move(body));
    sender.Send(std::move(response));
  };
}

// The value of `dry_run` in a query; false when it is absent.
absl::StatusOr<bool> DryRun(std::string_view query) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(pair.size() + 1, query.size()));
    if (pair.substr(0, pair.find('=')) != "dry_run") continue;
    const std::string_view value = pair.substr(std::min(std::string_view("dry_run=").size(), pair.size()));
    if (value.empty() || value == "true" || value == "1") return true;
    if (value == "false" || value == "0") return false;
    return absl::InvalidArgumentError(
        fmt::format("query parameter 'dry_run': found '{}', expected true or false", value));
  }
  return false;
}

// Answers an unload when it is done, with what became of the memory: a body that Triton's answer does not have and its
// clients do not look at.
Lifecycle::Done AnswerUnload(const MemoryReport* report, std::string name, ResponseSender sender) {
  return
      [report, name = std::move(name), since = UnixMillis(), sender = std::move(sender)](absl::Status status) mutable {
        if (!status.ok()) return http::SendError(std::move(sender), status);
        if (report == nullptr) return http::SendEmpty(std::move(sender), http::kJson);
        http::SendJson(std::move(sender), report->UnloadJson(name, since));
      };
}

// `body` is good until the answer was sent.
void ParseAndLoad(Lifecycle& lifecycle, std::string name, std::string_view body, bool dry_run, ResponseSender sender) {
  absl::StatusOr<LoadParameters> parameters = ParseLoadRequest(body);
  if (!parameters.ok()) return http::SendError(std::move(sender), parameters.status());
  LoadOverrides overrides;
  overrides.config_json = std::move(parameters->config);
  overrides.files = std::move(parameters->files);
  if (dry_run) {
    return lifecycle.Check(std::move(name), std::move(overrides), AnswerWithFindings(std::move(sender)));
  }
  lifecycle.Load(std::move(name), std::move(overrides), AnswerWhenDone(std::move(sender)));
}

}  // namespace

void HttpRoutes::Index(HttpRequest& request, ResponseSender sender) const {
  absl::Status status = CheckJsonSize(request.body().size(), options_.max_input_bytes);
  status.Update(Serving());
  if (!status.ok()) return http::SendError(std::move(sender), status);
  const absl::StatusOr<bool> ready_only = ParseIndexRequest(request.body_text());
  if (!ready_only.ok()) return http::SendError(std::move(sender), ready_only.status());
  parts_.offload([lifecycle = parts_.lifecycle, ready = *ready_only, answer = std::move(sender)]() mutable {
    const absl::StatusOr<std::vector<IndexEntry>> entries = lifecycle->Index(ready);
    if (!entries.ok()) return http::SendError(std::move(answer), entries.status());
    http::SendJson(std::move(answer), IndexJson(*entries));
  });
}

void HttpRoutes::Load(const RouteMatch& match, HttpRequest& request, ResponseSender sender) const {
  absl::Status status = NoRepositoryName(match);
  status.Update(CheckJsonSize(request.body().size(), options_.max_input_bytes));
  status.Update(Serving());
  const absl::StatusOr<bool> dry_run = DryRun(request.query());
  status.Update(dry_run.status());
  if (!status.ok()) return http::SendError(std::move(sender), status);
  const std::string_view body = request.body_text();
  if (body.size() <= kLongBody) {
    return ParseAndLoad(*parts_.lifecycle, std::string(match.model), body, *dry_run, std::move(sender));
  }
  parts_.offload([lifecycle = parts_.lifecycle, name = std::string(match.model), body, dry = *dry_run,
                  answer = std::move(sender)]() mutable {
    ParseAndLoad(*lifecycle, std::move(name), body, dry, std::move(answer));
  });
}

void HttpRoutes::Unload(const RouteMatch& match, HttpRequest& request, ResponseSender sender) const {
  absl::Status status = NoRepositoryName(match);
  status.Update(CheckJsonSize(request.body().size(), options_.max_input_bytes));
  status.Update(Serving());
  if (!status.ok()) return http::SendError(std::move(sender), status);
  const absl::StatusOr<bool> dependents = ParseUnloadRequest(request.body_text());
  if (!dependents.ok()) return http::SendError(std::move(sender), dependents.status());
  parts_.lifecycle->Unload(std::string(match.model), *dependents,
                           AnswerUnload(parts_.memory, std::string(match.model), std::move(sender)));
}

void HttpRoutes::Logging(HttpRequest& request, ResponseSender sender) const {
  if (request.method() == HttpMethod::kPost) {
    absl::Status status = CheckJsonSize(request.body().size(), options_.max_input_bytes);
    if (status.ok()) {
      const absl::StatusOr<LogSettings> settings = ParseLogSettings(request.body_text(), GetLogSettings());
      status = settings.ok() ? SetLogSettings(*settings) : settings.status();
    }
    if (!status.ok()) return http::SendError(std::move(sender), status);
  }
  http::SendJson(std::move(sender), LogSettingsJson(GetLogSettings()));
}

void HttpRoutes::Trace(const RouteMatch& match, HttpRequest& request, ResponseSender sender) {
  const bool global = match.route == Route::kTrace;
  if (!global) {
    const absl::Status found = parts_.registry->Find(match.model, -1).status();
    const std::shared_ptr<const RegistrySnapshot> snapshot = parts_.registry->Snapshot();
    if (!found.ok() && snapshot->find(match.model) != snapshot->end()) {
      return sender.Send(
          MakeErrorResponse(400, fmt::format("Request for unknown model : {}", match.model), http::kJson));
    }
    if (!found.ok()) return http::SendError(std::move(sender), found);
  }
  if (request.method() == HttpMethod::kPost) {
    absl::Status status = CheckJsonSize(request.body().size(), options_.max_input_bytes);
    if (status.ok()) {
      const absl::StatusOr<TraceUpdate> update = ParseTraceUpdate(request.body_text());
      status = !update.ok() ? update.status()
               : global     ? parts_.tracer->settings().UpdateGlobal(*update)
                            : parts_.tracer->settings().UpdateModel(match.model, *update);
    }
    if (!status.ok()) return http::SendError(std::move(sender), status);
  }
  http::SendJson(std::move(sender), TraceSettingsJson(global ? parts_.tracer->settings().Global()
                                                             : parts_.tracer->settings().OfModel(match.model)));
}

}  // namespace tidemark
