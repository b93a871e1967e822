#include "frontend/http/sagemaker_routes.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "frontend/http/routes.h"
#include "protocol/cloud_requests.h"
#include "protocol/control_requests.h"
#include "protocol/http_status.h"
#include "protocol/json_writer.h"

namespace tidemark {
namespace {

void SendMethodNotAllowed(ResponseSender sender, std::string_view allowed) {
  HttpResponse response = MakeErrorResponse(405, "Method Not Allowed", http::kJson);
  response.AddHeader("Allow", allowed);
  sender.Send(std::move(response));
}

void SendUnknown(ResponseSender sender, std::string_view model) {
  sender.Send(MakeErrorResponse(404, fmt::format("model '{}' is not loaded", model), http::kJson));
}

void AppendModel(std::string& out, std::string_view name, std::string_view url) {
  out += "{\"modelName\":";
  AppendJsonString(out, name);
  out += ",\"modelUrl\":";
  AppendJsonString(out, url);
  out += '}';
}

// SageMaker knows two answers of its own: there is no room, and the model is there already.
int LoadStatus(absl::StatusCode code) {
  if (code == absl::StatusCode::kResourceExhausted) return 507;
  if (code == absl::StatusCode::kAlreadyExists) return 409;
  return HttpStatusOf(code);
}

}  // namespace

void SageMakerRoutes::Handle(HttpRequest& request, ResponseSender sender) {
  const SageMakerMatch match = MatchSageMaker(request.path());
  switch (match.route) {
    case SageMakerRoute::kPing:
      request.Redirect(request.method(), "/v2/health/ready");
      return state_->parts.routes->Handle(request, std::move(sender));
    case SageMakerRoute::kInvocations:
      if (request.method() != HttpMethod::kPost) return SendMethodNotAllowed(std::move(sender), "POST");
      return ForwardInference(request, std::move(sender), kSageMakerBinary, state_->parts.default_model(),
                              *state_->parts.routes);
    case SageMakerRoute::kInvoke:
      return Invoke(match.model, request, std::move(sender));
    case SageMakerRoute::kModels:
    case SageMakerRoute::kModel:
      return Control(match, request, std::move(sender));
    case SageMakerRoute::kNotFound:
      break;
  }
  sender.Send(MakeErrorResponse(
      400, fmt::format("SageMaker: found path '{}', expected /ping, /invocations or /models…", request.path()),
      http::kJson));
}

void SageMakerRoutes::Control(const SageMakerMatch& match, HttpRequest& request, ResponseSender sender) {
  const AccessDecision access =
      state_->parts.access->Check(Protocol::kHttp, Door::kService, ApiCategory::kModelRepository,
                                  [&request](std::string_view name) { return request.Find(name); });
  if (!access.allowed()) return http::SendDenial(std::move(sender), access);
  const bool all = match.route == SageMakerRoute::kModels;
  const HttpMethod changes = all ? HttpMethod::kPost : HttpMethod::kDelete;
  if (request.method() != HttpMethod::kGet && request.method() != changes) {
    return SendMethodNotAllowed(std::move(sender), all ? "GET, POST" : "GET, DELETE");
  }
  if (request.method() == HttpMethod::kGet) {
    return all ? List(std::move(sender)) : Show(match.model, std::move(sender));
  }
  if (!access.caller.empty()) {
    LOG_INFO("API key '{}': {} {}", access.caller, request.method_name(), request.path());
  }
  if (const absl::Status status = state_->parts.serving(); !status.ok()) {
    return http::SendError(std::move(sender), status);
  }
  return all ? Load(request, std::move(sender)) : Unload(match.model, std::move(sender));
}

void SageMakerRoutes::Invoke(std::string_view model, HttpRequest& request, ResponseSender sender) {
  if (request.method() != HttpMethod::kPost) return SendMethodNotAllowed(std::move(sender), "POST");
  {
    absl::MutexLock lock(&state_->mutex);
    const auto found = state_->models.find(model);
    if (found == state_->models.end() || found->second.phase == Phase::kLoading) {
      model = {};
    }
  }
  if (model.empty()) return SendUnknown(std::move(sender), MatchSageMaker(request.path()).model);
  ForwardInference(request, std::move(sender), kSageMakerBinary, std::string(model), *state_->parts.routes);
}

void SageMakerRoutes::List(ResponseSender sender) const {
  std::string body = "{\"models\":[";
  {
    absl::MutexLock lock(&state_->mutex);
    bool first = true;
    for (const auto& [name, entry] : state_->models) {
      if (entry.phase != Phase::kLoaded || !state_->parts.is_ready(name)) continue;
      if (!std::exchange(first, false)) body += ',';
      AppendModel(body, name, entry.url);
    }
  }
  body += "]}";
  http::SendJson(std::move(sender), std::move(body));
}

void SageMakerRoutes::Show(std::string_view model, ResponseSender sender) const {
  std::string body;
  {
    absl::MutexLock lock(&state_->mutex);
    const auto found = state_->models.find(model);
    if (found != state_->models.end() && found->second.phase != Phase::kLoading) {
      AppendModel(body, model, found->second.url);
    }
  }
  if (body.empty()) return SendUnknown(std::move(sender), model);
  http::SendJson(std::move(sender), std::move(body));
}

void SageMakerRoutes::Load(HttpRequest& request, ResponseSender sender) {
  absl::Status status = CheckJsonSize(request.body().size(), state_->parts.max_json_bytes);
  absl::StatusOr<SageMakerLoad> load =
      status.ok() ? ParseSageMakerLoad(request.body_text()) : absl::StatusOr<SageMakerLoad>(status);
  if (!load.ok()) return http::SendError(std::move(sender), load.status());
  bool fresh = false;
  {
    absl::MutexLock lock(&state_->mutex);
    fresh = state_->models.try_emplace(load->model_name, Entry{.url = load->url, .phase = Phase::kLoading}).second;
  }
  if (!fresh) {
    return sender.Send(MakeErrorResponse(
        409, fmt::format("model '{}' is loaded already, or on its way", load->model_name), http::kJson));
  }
  state_->parts.offload([state = state_, wanted = *std::move(load), answer = std::move(sender)]() mutable {
    const std::string name = wanted.model_name;
    const absl::Status mounted = state->parts.mount(name, wanted.url);
    if (!mounted.ok()) return Loaded(state, name, mounted, std::move(answer));
    state->parts.load(name, [state, name, answer = std::move(answer)](absl::Status done) mutable {
      if (done.ok()) return Loaded(state, name, done, std::move(answer));
      if (state->parts.is_ready(name)) {  // an older one serves on
        state->parts.unmount(name);
        return Loaded(state, name, done, std::move(answer));
      }
      // The members of an ensemble that did load go, too: nobody else would ask for it.
      state->parts.unload(name,
                          [state, name, done, answer = std::move(answer)](const absl::Status& /*logged*/) mutable {
                            state->parts.forget(name, [state, name, done, answer = std::move(answer)]() mutable {
                              Loaded(state, name, done, std::move(answer));
                            });
                          });
    });
  });
}

void SageMakerRoutes::Loaded(const SharedState& state, const std::string& name, const absl::Status& status,
                             ResponseSender sender) {
  {
    absl::MutexLock lock(&state->mutex);
    if (status.ok()) {
      state->models[name].phase = Phase::kLoaded;
    } else {
      state->models.erase(name);
    }
  }
  if (status.ok()) return http::SendEmpty(std::move(sender), http::kJson);
  sender.Send(MakeErrorResponse(LoadStatus(status.code()), MessageOf(status), http::kJson));
}

void SageMakerRoutes::Unload(std::string_view model, ResponseSender sender) {
  const std::string name(model);
  bool known = false;
  bool idle = false;
  {
    absl::MutexLock lock(&state_->mutex);
    const auto found = state_->models.find(name);
    known = found != state_->models.end();
    idle = known && found->second.phase == Phase::kLoaded;
    if (idle) found->second.phase = Phase::kUnloading;
  }
  if (!known) return SendUnknown(std::move(sender), name);
  if (!idle) {
    return sender.Send(
        MakeErrorResponse(409, fmt::format("model '{}' is being loaded or unloaded", name), http::kJson));
  }
  state_->parts.unload(name, [state = state_, name, answer = std::move(sender)](absl::Status done) mutable {
    // At the deadline requests are still inside: the unload goes on, and nobody can begin a new one.
    const bool gone = done.ok() || absl::IsDeadlineExceeded(done);
    if (!gone) return Unloaded(state, name, gone, done, std::move(answer));
    state->parts.forget(name, [state, name, done, answer = std::move(answer)]() mutable {
      Unloaded(state, name, /*gone=*/true, done, std::move(answer));
    });
  });
}

void SageMakerRoutes::Unloaded(const SharedState& state, const std::string& name, bool gone, const absl::Status& status,
                               ResponseSender sender) {
  {
    absl::MutexLock lock(&state->mutex);
    if (gone) {
      state->models.erase(name);
    } else {
      state->models[name].phase = Phase::kLoaded;
    }
  }
  if (!status.ok()) return http::SendError(std::move(sender), status);
  http::SendEmpty(std::move(sender), http::kJson);
}

}  // namespace tidemark
