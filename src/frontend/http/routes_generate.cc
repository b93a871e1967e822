#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "frontend/http/routes.h"
#include "protocol/control_requests.h"
#include "protocol/generate.h"
#include "protocol/http_status.h"
#include "protocol/json_writer.h"

namespace tidemark {
namespace {

constexpr std::string_view kEventStream = "text/event-stream; charset=utf-8";
constexpr std::string_view kNotOne =
    "generate expects model to produce exactly 1 response, use generate stream for model that generates various number "
    "of responses";

// One generate request between submission and its last response. Owned by the request's on_complete; on_response, which
// never runs beside or after it, borrows it. The first response decides the status; it opens the stream.
class GenerateCall {
 public:
  GenerateCall(ResponseSender sender, const ModelInfo& model, std::string id, std::shared_ptr<CancelFlag> cancel,
               bool events)
      : sender_(std::move(sender)), model_(model), id_(std::move(id)), cancel_(std::move(cancel)), events_(events) {}

  void OnResponse(const absl::Status& status, const InferenceResponse& response) {
    std::string body;
    absl::Status outcome = status;
    if (outcome.ok()) outcome = AppendGenerated(body, id_, model_, response);
    if (!outcome.ok()) {
      body = "{\"error\":";
      AppendJsonString(body, MessageOf(outcome));
      body += '}';
    }
    const int code = HttpStatusOf(outcome.code());
    if (count_++ == 0) status_ = code;
    if (!events_) {
      only_ = std::move(body);
      return;
    }
    Open();
    if (!stream_.Write(fmt::format("data: {}\n\n", body)) && cancel_ != nullptr) cancel_->Cancel();
  }

  void End() {
    Open();
    if (!events_) {
      if (count_ != 1) only_ = fmt::format("{{\"error\":\"{}\"}}", kNotOne);
      stream_.Write(only_);
    }
    stream_.End();
  }

 private:
  void Open() {
    if (stream_) return;
    HttpResponse head(status_);
    head.SetContentType(events_ ? kEventStream : http::kJson);
    stream_ = sender_.Begin(std::move(head));
  }

  ResponseSender sender_;
  ResponseStream stream_;
  const ModelInfo& model_;  // as long as the request holds its model
  const std::string id_;
  const std::shared_ptr<CancelFlag> cancel_;  // last owner: see InferenceRequest::cancel
  const bool events_;
  int status_ = 200;
  int count_ = 0;
  std::string only_;
};

absl::Status CheckCoding(const HttpRequest& request) {
  const std::string_view coding = request.Find("Content-Encoding").value_or("");
  if (coding.empty() || coding == "identity") return absl::OkStatus();
  return absl::InvalidArgumentError("Unsupported content-encoding, only 'identity' is supported.");
}

}  // namespace

void HttpRoutes::Generate(const RouteMatch& match, HttpRequest& request, ResponseSender sender) {
  absl::StatusOr<ModelHandle> handle = FindModel(match);
  if (!handle.ok()) return http::SendError(std::move(sender), handle.status());
  if (const absl::Status status = CheckCoding(request); !status.ok()) {
    return http::SendError(std::move(sender), status);
  }
  auto inference = std::make_unique<InferenceRequest>();
  inference->set_model(std::move(*handle));
  const bool events = match.route == Route::kGenerateStream;
  if (parts_.decode && request.body().size() > http::kLongJsonBytes) {
    return parts_.decode(
        [this, &request, inference = std::move(inference), sender = std::move(sender), events]() mutable {
          DecodeAndGenerate(request, std::move(inference), std::move(sender), events, /*on_loop=*/false);
        });
  }
  DecodeAndGenerate(request, std::move(inference), std::move(sender), events, /*on_loop=*/true);
}

void HttpRoutes::DecodeAndGenerate(HttpRequest& request, std::unique_ptr<InferenceRequest> inference,
                                   ResponseSender sender, bool events, bool on_loop) const {
  if (!on_loop && sender.disconnected()) return;  // nobody waits any more
  Model& model = *inference->model();
  const ModelInfo& info = model.info();
  absl::Status status = CheckJsonSize(request.body().size(), options_.max_input_bytes);
  if (status.ok()) {
    status = DecodeGenerate(request.body_text(), info, options_.json, *parts_.buffers, *inference);
  }
  if (!status.ok()) return http::SendError(std::move(sender), status);

  StartTrace(request, info, *inference);
  inference->cancel = std::make_shared<CancelFlag>();
  sender.OnDisconnect([flag = inference->cancel] { flag->Cancel(); });
  auto call = std::make_unique<GenerateCall>(std::move(sender), info, inference->id, inference->cancel, events);
  const bool decoupled = info.decoupled();
  if (decoupled) {
    inference->on_response = [borrowed = call.get()](InferenceResponse response) {
      borrowed->OnResponse(response.status, response);
    };
  }
  inference->on_complete = [owner = std::move(call), decoupled](std::unique_ptr<InferenceRequest> done) {
    // A decoupled model's last word has no outputs; it is a response only when it is an error.
    const absl::Status& last = done->response.status;
    TraceEnd(*done);
    if (done->trace != nullptr) done->trace->Mark(TraceEvent::kHttpSendStart, NowNanos());
    if (!decoupled || !last.ok()) owner->OnResponse(last, done->response);
    owner->End();
  };
  model.Submit(std::move(inference), /*may_run_inline=*/on_loop);
}

}  // namespace tidemark
