#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "frontend/http/routes.h"
#include "protocol/control_requests.h"
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

// Answers a load or unload when it is done.
Lifecycle::Done AnswerWhenDone(ResponseSender sender) {
  return [sender = std::move(sender)](absl::Status status) mutable {
    if (!status.ok()) return http::SendError(std::move(sender), status);
    http::SendEmpty(std::move(sender), http::kJson);
  };
}

// `body` is good until the answer was sent.
void ParseAndLoad(Lifecycle& lifecycle, std::string name, std::string_view body, ResponseSender sender) {
  absl::StatusOr<LoadParameters> parameters = ParseLoadRequest(body);
  if (!parameters.ok()) return http::SendError(std::move(sender), parameters.status());
  LoadOverrides overrides;
  overrides.config_json = std::move(parameters->config);
  overrides.files = std::move(parameters->files);
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
  if (!status.ok()) return http::SendError(std::move(sender), status);
  const std::string_view body = request.body_text();
  if (body.size() <= kLongBody) {
    return ParseAndLoad(*parts_.lifecycle, std::string(match.model), body, std::move(sender));
  }
  parts_.offload(
      [lifecycle = parts_.lifecycle, name = std::string(match.model), body, answer = std::move(sender)]() mutable {
        ParseAndLoad(*lifecycle, std::move(name), body, std::move(answer));
      });
}

void HttpRoutes::Unload(const RouteMatch& match, HttpRequest& request, ResponseSender sender) const {
  absl::Status status = NoRepositoryName(match);
  status.Update(CheckJsonSize(request.body().size(), options_.max_input_bytes));
  status.Update(Serving());
  if (!status.ok()) return http::SendError(std::move(sender), status);
  const absl::StatusOr<bool> dependents = ParseUnloadRequest(request.body_text());
  if (!dependents.ok()) return http::SendError(std::move(sender), dependents.status());
  parts_.lifecycle->Unload(std::string(match.model), *dependents, AnswerWhenDone(std::move(sender)));
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
               : global     ? trace_.UpdateGlobal(*update)
                            : trace_.UpdateModel(match.model, *update);
    }
    if (!status.ok()) return http::SendError(std::move(sender), status);
  }
  http::SendJson(std::move(sender), TraceSettingsJson(global ? trace_.Global() : trace_.OfModel(match.model)));
}

}  // namespace tidemark
