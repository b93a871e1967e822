#include "frontend/grpc/infer_calls.h"

#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "frontend/grpc/message_call.h"
#include "frontend/model_queries.h"
#include "frontend/worker_pool.h"

namespace tidemark {
namespace {

// What stays of a unary call when its request is with the model.
struct UnaryAnswer {
  GrpcResponder responder;
  std::shared_ptr<InferRequestPool> requests;  // last owner: see InferContext
  BufferPool* buffers;
  ContentCoding coding;
  int level;

  void Complete(std::unique_ptr<InferenceRequest> request) const {
    if (!responder.gone()) {
      TraceEnd(*request);
      Answer(*request);
    }
    requests->GiveBack(std::move(request));
  }

 private:
  void Answer(InferenceRequest& request) const {
    absl::Status status = request.response.status;
    GrpcMessage message;
    if (request.trace != nullptr) {
      request.trace->Mark(TraceEvent::kGrpcSendStart, NowNanos());
      message.KeepUntilSent(std::move(request.trace));
    }
    if (status.ok()) status = CheckRegions(request);
    if (status.ok()) {
      status = EncodeGrpcInfer(request, request.response, request.model()->info(), *buffers, message);
    }
    if (!status.ok()) return responder.Finish(std::move(status));
    if (coding == ContentCoding::kIdentity) return responder.Answer(std::move(message));
    absl::StatusOr<GrpcMessage> compressed = CompressMessage(std::move(message), coding, level, *buffers);
    if (!compressed.ok()) return responder.Finish(compressed.status());
    responder.Answer(*std::move(compressed));
  }
};

class InferCallImpl final : public GrpcCall {
 public:
  InferCallImpl(const InferContext& context, InferCallMetadata metadata, GrpcResponder responder)
      : context_(context),
        metadata_(std::move(metadata)),
        responder_(std::move(responder)),
        reader_(*context.buffers) {}

  absl::Status BeginMessage(std::size_t most) override {
    if (std::exchange(begun_, true)) return NotOneMessage("more");
    reader_.Begin(most);
    return absl::OkStatus();
  }
  absl::Status Add(std::span<const std::byte> bytes) override { return reader_.Add(bytes); }

  absl::Status EndMessage() override {
    RETURN_IF_ERROR(reader_.Finish());
    cancel_ = std::make_shared<CancelFlag>();
    if (!TakesLong(context_, reader_)) {
      return Submit(context_, metadata_, reader_, responder_, cancel_, /*on_loop=*/true);
    }
    context_.decode([&context = context_, metadata = metadata_, reader = std::move(reader_), responder = responder_,
                     cancel = cancel_]() mutable {  // the call may be gone by then
      if (responder.gone()) return;
      absl::Status status = Submit(context, metadata, reader, responder, std::move(cancel), /*on_loop=*/false);
      if (!status.ok()) responder.Finish(std::move(status));
    });
    return absl::OkStatus();
  }

  absl::Status HalfClose() override { return begun_ ? absl::OkStatus() : NotOneMessage("none"); }
  void Cancel() override {
    if (cancel_ != nullptr) cancel_->Cancel();
  }

 private:
  static absl::Status Submit(const InferContext& context, const InferCallMetadata& metadata, InferMessageReader& reader,
                             const GrpcResponder& responder, std::shared_ptr<CancelFlag> cancel, bool on_loop) {
    InferEnvelope envelope;
    RETURN_IF_ERROR(ReadInferEnvelope(reader.envelope(), envelope));
    ASSIGN_OR_RETURN(BoundRequest bound, BindRequest(context, envelope, reader.raw(), metadata, /*unary=*/true));
    reader.Clear();
    std::unique_ptr<InferenceRequest> request = std::move(bound.request);
    request->cancel = std::move(cancel);
    request->on_complete = [answer = UnaryAnswer{responder, context.requests, context.buffers, metadata.coding,
                                                 context.compression_level}](std::unique_ptr<InferenceRequest> done) {
      answer.Complete(std::move(done));
    };
    Model& model = *request->model();
    model.Submit(std::move(request), /*may_run_inline=*/on_loop);
    return absl::OkStatus();
  }

  const InferContext& context_;
  const InferCallMetadata metadata_;
  const GrpcResponder responder_;
  InferMessageReader reader_;
  bool begun_ = false;
  std::shared_ptr<CancelFlag> cancel_;  // last owner: whichever of call and request ends later
};

}  // namespace

std::unique_ptr<InferenceRequest> InferRequestPool::Take() {
  {
    absl::MutexLock lock(&mutex_);
    if (!free_.empty()) {
      std::unique_ptr<InferenceRequest> request = std::move(free_.back());
      free_.pop_back();
      return request;
    }
  }
  return std::make_unique<InferenceRequest>();
}

void InferRequestPool::GiveBack(std::unique_ptr<InferenceRequest> request) {
  request->Clear();
  absl::MutexLock lock(&mutex_);
  if (free_.size() < kKept) free_.push_back(std::move(request));
}

bool TakesLong(const InferContext& context, InferMessageReader& reader) {
  if (!context.decode) return false;
  if (reader.envelope().size() > kLongDecodeBytes) return true;
  std::size_t bytes = 0;
  for (const Buffer& raw : reader.raw()) bytes += raw.size();
  if (bytes <= kLongHashBytes) return false;
  InferEnvelope envelope;
  if (!ReadInferEnvelope(reader.envelope(), envelope).ok()) return false;
  const absl::StatusOr<ModelHandle> handle =
      FindModel(*context.registry, *context.lifecycle, envelope.model_name, envelope.model_version);
  return handle.ok() && (*handle)->info().config().response_cache().enable();
}

absl::StatusOr<BoundRequest> BindRequest(const InferContext& context, const InferEnvelope& envelope,
                                         std::span<Buffer> raw, const InferCallMetadata& metadata, bool unary) {
  if (context.lifecycle->state() == ServerState::kExiting) {
    return absl::UnavailableError("GRPC server is shutting down and has stopped accepting new requests.");
  }
  if (metadata.deadline_nanos != 0 && metadata.deadline_nanos <= NowNanos()) {
    return absl::DeadlineExceededError("Deadline Exceeded");
  }
  ASSIGN_OR_RETURN(ModelHandle handle,
                   FindModel(*context.registry, *context.lifecycle, envelope.model_name, envelope.model_version));
  if (unary && handle->info().decoupled()) {
    return absl::UnimplementedError("ModelInfer RPC doesn't support models with decoupled transaction policy");
  }
  BoundRequest bound;
  bound.request = context.requests->Take();
  bound.request->set_model(std::move(handle));
  absl::Status status = DecodeGrpcInfer(envelope, raw, context.regions, *context.buffers, *bound.request, bound.flags);
  if (status.ok()) status = metadata.forward_status;
  if (!status.ok()) {
    context.requests->GiveBack(std::move(bound.request));
    return status;
  }
  bound.request->deadline_nanos = metadata.deadline_nanos;
  for (const auto& entry : metadata.forwarded) bound.request->parameters.push_back(entry);
  const ModelInfo& info = bound.request->model()->info();
  bound.request->trace = context.tracer->Start({.model = info.name(),
                                                .version = info.version(),
                                                .request_id = bound.request->id,
                                                .traceparent = metadata.traceparent,
                                                .tracestate = metadata.tracestate,
                                                .http = false});
  if (bound.request->trace != nullptr) {
    bound.request->trace->Mark(TraceEvent::kGrpcWaitreadEnd, NowNanos());
    TraceStart(*bound.request);
  }
  return bound;
}

absl::StatusOr<GrpcMessage> CompressMessage(GrpcMessage message, ContentCoding coding, int level, BufferPool& pool) {
  if (coding == ContentCoding::kIdentity) return message;
  absl::InlinedVector<std::span<const std::byte>, 8> parts;
  for (std::size_t i = 0; i < message.pieces(); ++i) parts.push_back(message.piece(i));
  parts[0] = parts[0].subspan(GrpcMessage::kPrefix);
  ASSIGN_OR_RETURN(Buffer compressed, Deflate(coding, {parts.data(), parts.size()}, pool, level));
  return GrpcMessage::OfCompressed(std::move(compressed));
}

std::unique_ptr<GrpcCall> MakeInferCall(const InferContext& context, InferCallMetadata metadata,
                                        GrpcResponder responder) {
  return std::make_unique<InferCallImpl>(context, std::move(metadata), std::move(responder));
}

}  // namespace tidemark
