#include <fmt/format.h>

#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "frontend/http/routes.h"
#include "protocol/http_infer.h"
#include "protocol/http_status.h"

namespace tidemark {
namespace {

constexpr std::string_view kHeaderLength = "Inference-Header-Content-Length";

// The whole body, decompressed; its memory goes to `inference`.
absl::StatusOr<std::span<std::byte>> TakeBody(HttpRequest& request, std::size_t max_input_bytes,
                                              InferenceRequest& inference) {
  const std::optional<ContentCoding> coding = ParseContentCoding(request.Find("Content-Encoding").value_or(""));
  if (!coding) return absl::UnimplementedError("Unsupported compression type");
  const std::span<std::byte> body = request.body();
  if (*coding == ContentCoding::kIdentity) {
    inference.body = request.TakeBody();
    return body;
  }
  const std::optional<std::uint64_t> aligned_at = ParseDecimal(request.Find(kHeaderLength).value_or("0"));
  ASSIGN_OR_RETURN(InflatedBody inflated, Inflate(body, max_input_bytes, aligned_at.value_or(0), request.pool()));
  inference.body = std::move(inflated.buffer);
  return inflated.bytes;
}

// Would decoding it hold up the other connections of a loop? A compressed body may be a thousand times larger than it
// looks.
bool TakesLong(const HttpRequest& request) {
  constexpr std::size_t kCompressedBytes = std::size_t{1} << 10;
  const std::size_t bytes = request.body().size();
  if (bytes <= kCompressedBytes) return false;
  const auto coding = request.Find("Content-Encoding");
  if (coding && !coding->empty()) return true;
  if (bytes <= http::kLongJsonBytes) return false;
  const std::optional<std::uint64_t> json = ParseDecimal(request.Find(kHeaderLength).value_or(""));
  return !json || *json > http::kLongJsonBytes;
}

void SendInferError(ResponseSender sender, const absl::Status& status, std::string_view content_type) {
  HttpResponse response = MakeErrorResponse(HttpStatusOf(status.code()), MessageOf(status), content_type);
  if (MessageOf(status) == "Unsupported compression type") response.AddHeader("Accept-Encoding", "gzip, deflate");
  sender.Send(std::move(response));
}

}  // namespace

absl::Status HttpRoutes::ForwardHeaders(const HttpRequest& request, InferenceRequest& inference) const {
  if (!forward_.enabled()) return absl::OkStatus();
  for (const HttpHeader& header : request.headers()) {
    RETURN_IF_ERROR(forward_.Forward(header.name, header.value, inference.parameters));
  }
  return absl::OkStatus();
}

void HttpRoutes::StartTrace(const HttpRequest& request, const ModelInfo& info, InferenceRequest& inference) const {
  inference.trace = parts_.tracer->Start({.model = info.name(),
                                          .version = info.version(),
                                          .request_id = inference.id,
                                          .traceparent = request.Find("traceparent").value_or(""),
                                          .tracestate = request.Find("tracestate").value_or("")});
  if (inference.trace == nullptr) return;
  inference.trace->Mark(TraceEvent::kHttpRecvStart, request.received_nanos());
  inference.trace->Mark(TraceEvent::kHttpRecvEnd, NowNanos());
  TraceStart(inference);
}

void HttpRoutes::Infer(const RouteMatch& match, HttpRequest& request, ResponseSender sender) {
  absl::StatusOr<ModelHandle> handle = FindModel(match);
  if (!handle.ok()) return SendInferError(std::move(sender), handle.status(), {});
  const ModelInfo& info = (*handle)->info();
  if (info.decoupled()) {
    return SendInferError(
        std::move(sender),
        absl::UnimplementedError("HTTP end point doesn't support models with decoupled transaction policy"), {});
  }
  std::unique_ptr<InferCall> call = InferCallPool::Take(calls_);
  call->request->set_model(std::move(*handle));
  call->model = &info;
  const bool hashed = info.config().response_cache().enable() && request.body().size() > kLongHashBytes;
  if (parts_.decode && (hashed || TakesLong(request))) {
    return parts_.decode([this, &request, call = std::move(call), sender = std::move(sender)]() mutable {
      DecodeAndSubmit(request, std::move(call), std::move(sender), /*on_loop=*/false);
    });
  }
  DecodeAndSubmit(request, std::move(call), std::move(sender), /*on_loop=*/true);
}

void HttpRoutes::DecodeAndSubmit(HttpRequest& request, std::unique_ptr<InferCall> call, ResponseSender sender,
                                 bool on_loop) const {
  InferenceRequest& inference = *call->request;
  const ModelInfo& info = *call->model;
  if (!on_loop && sender.disconnected()) return InferCallPool::GiveBack(std::move(call));  // nobody waits any more

  absl::StatusOr<std::span<std::byte>> body = TakeBody(request, options_.max_input_bytes, inference);
  absl::StatusOr<std::size_t> json_bytes =
      body.ok() ? InferJsonBytes(request.Find(kHeaderLength), body->size()) : body.status();
  absl::Status status = json_bytes.status();
  std::string_view content_type;
  if (status.ok()) {
    content_type = http::kJson;
    status = DecodeInfer(*body, *json_bytes, info, options_.json, *parts_.buffers, inference, parts_.shared_memory);
  }
  if (status.ok()) status = ForwardHeaders(request, inference);
  if (!status.ok()) {
    SendInferError(std::move(sender), status, content_type);
    return InferCallPool::GiveBack(std::move(call));
  }

  StartTrace(request, info, inference);
  call->coding = ChooseResponseCoding(request.Find("Accept-Encoding").value_or(""));
  call->binary_type = request.binary_type();
  call->buffers = parts_.buffers;
  inference.cancel = std::make_shared<CancelFlag>();
  sender.OnDisconnect([flag = inference.cancel] { flag->Cancel(); });
  call->sender = std::move(sender);
  Model& model = *inference.model();
  std::unique_ptr<InferenceRequest> submitted = std::move(call->request);
  submitted->on_complete = [owner = std::move(call)](std::unique_ptr<InferenceRequest> done) mutable {
    InferCall::Complete(std::move(owner), std::move(done));
  };
  model.Submit(std::move(submitted), /*may_run_inline=*/on_loop);
}

}  // namespace tidemark
