#include "frontend/http/infer_call.h"

#include <fmt/format.h>

#include <span>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "protocol/http_status.h"

namespace tidemark {
namespace {

constexpr std::string_view kJson = "application/json";

HttpResponse ErrorOf(const absl::Status& status) {
  return MakeErrorResponse(HttpStatusOf(status.code()), MessageOf(status), kJson);
}

void AddNumber(HttpResponse& response, std::string_view name, std::size_t value) {
  const fmt::format_int text(value);
  response.AddHeader(name, {text.data(), text.size()});
}

// One stream over JSON and tensors.
absl::Status AppendCompressed(InferCall& call, HttpResponse& response) {
  absl::InlinedVector<std::span<const std::byte>, 5> parts;
  parts.push_back(std::as_bytes(std::span(call.encoded.json)));
  for (const Buffer& tensor : call.encoded.tensors) parts.push_back(tensor.bytes());
  ASSIGN_OR_RETURN(Buffer compressed, Deflate(call.coding, {parts.data(), parts.size()}, *call.buffers));
  response.AddHeader("Content-Encoding", ContentCodingName(call.coding));
  response.Append(std::move(compressed));
  return absl::OkStatus();
}

HttpResponse Answer(InferCall& call) {
  InferenceRequest& request = *call.request;
  if (!request.response.status.ok()) return ErrorOf(request.response.status);
  call.encoded.json = call.sender.TakeSpareString();
  if (const absl::Status status = EncodeInfer(request, *call.model, *call.buffers, call.encoded); !status.ok()) {
    return ErrorOf(status);
  }
  HttpResponse response(200);
  if (call.encoded.tensor_bytes != 0 && !call.binary_type.empty()) {
    response.SetContentType(fmt::format("{}{}", call.binary_type, call.encoded.json.size()));
  } else if (call.encoded.tensor_bytes != 0) {
    response.SetContentType("application/octet-stream");
    AddNumber(response, "Inference-Header-Content-Length", call.encoded.json.size());
  } else {
    response.SetContentType(kJson);
  }
  if (call.coding != ContentCoding::kIdentity) {
    const absl::Status status = AppendCompressed(call, response);
    return status.ok() ? std::move(response) : ErrorOf(status);
  }
  response.Append(std::move(call.encoded.json));
  for (Buffer& tensor : call.encoded.tensors) response.Append(std::move(tensor));
  return response;
}

// Is the answer small enough for an event loop to encode it between two events of other connections?
bool IsSmall(const InferCall& call, const InferenceRequest& request) {
  constexpr std::size_t kSmallBytes = 16 * 1024;
  if (call.coding != ContentCoding::kIdentity) return false;
  std::size_t bytes = 0;
  for (const ResponseOutput& output : request.response.outputs) bytes += output.data.size();
  return bytes <= kSmallBytes;
}

}  // namespace

void InferCall::Complete(std::unique_ptr<InferCall> call, std::unique_ptr<InferenceRequest> request) {
  // An instance's thread has its next batch to run: the many small answers of one batch are encoded by the loops.
  if (!call->sender.InLoopThread() && IsSmall(*call, *request)) {
    const ResponseSender& sender = call->sender;
    sender.PostToLoop([call = std::move(call), request = std::move(request)]() mutable {
      Finish(std::move(call), std::move(request));
    });
    return;
  }
  Finish(std::move(call), std::move(request));
}

void InferCall::Finish(std::unique_ptr<InferCall> call, std::unique_ptr<InferenceRequest> request) {
  call->request = std::move(request);
  const InferenceRequest& done = *call->request;
  // The code alone: a text may quote what the client sent.
  LOG_VERBOSE(1, "{}inference with '{}' version {}: {} after {} us", done.Prefix(), call->model->name(),
              call->model->version(), TritonCodeName(done.response.status.code()),
              (NowNanos() - done.times.received) / 1000);
  ResponseSender sender = std::move(call->sender);
  if (!sender.disconnected()) {
    call->sender = std::move(sender);
    TraceEnd(*call->request);
    HttpResponse response = Answer(*call);
    if (call->request->trace != nullptr) {
      call->request->trace->Mark(TraceEvent::kHttpSendStart, NowNanos());
      response.KeepUntilWritten(std::move(call->request->trace));
    }
    sender = std::move(call->sender);
    sender.Send(std::move(response));
  } else {
    sender.Send(HttpResponse(400));  // nobody reads it
  }
  InferCallPool::GiveBack(std::move(call));
}

std::unique_ptr<InferCall> InferCallPool::Take(const std::shared_ptr<InferCallPool>& pool) {
  std::unique_ptr<InferCall> call;
  {
    absl::MutexLock lock(&pool->mutex_);
    if (!pool->free_.empty()) {
      call = std::move(pool->free_.back());
      pool->free_.pop_back();
    }
  }
  if (call == nullptr) {
    call = std::make_unique<InferCall>();
    call->request = std::make_unique<InferenceRequest>();
  }
  call->home = pool;
  return call;
}

void InferCallPool::GiveBack(std::unique_ptr<InferCall> call) {
  const std::shared_ptr<InferCallPool> pool = std::move(call->home);
  call->request->Clear();
  call->sender = ResponseSender();
  call->model = nullptr;
  call->encoded.json.clear();
  call->encoded.tensors.clear();
  absl::MutexLock lock(&pool->mutex_);
  if (pool->free_.size() < kKept) pool->free_.push_back(std::move(call));
}

}  // namespace tidemark
