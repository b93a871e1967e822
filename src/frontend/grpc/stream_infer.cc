#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "base/status.h"
#include "frontend/grpc/infer_calls.h"

namespace tidemark {
namespace {

constexpr std::size_t kMostInFlight = 1024;  // requests of one stream; then its next ones wait unread

// What a stream's requests share; completions come from other threads.
//
// Answers of ordinary models leave in the order of their requests, those of decoupled models as they are made.
class StreamState : public std::enable_shared_from_this<StreamState> {
 public:
  StreamState(const InferContext& context, ContentCoding coding, bool errors_end_stream, GrpcResponder responder)
      : requests_(context.requests),
        buffers_(context.buffers),
        level_(context.compression_level),
        coding_(coding),
        errors_end_stream_(errors_end_stream),
        responder_(std::move(responder)) {}

  // A request begins; its place in the order is `ticket`.
  std::uint64_t Begin(std::shared_ptr<CancelFlag> cancel, bool ordered) {
    absl::MutexLock lock(&mutex_);
    const std::uint64_t ticket = next_ticket_++;
    if (over_ && cancel != nullptr) cancel->Cancel();  // it was decoded meanwhile; nobody listens to the flag yet
    in_flight_.emplace(ticket, std::move(cancel));
    if (ordered) waiting_.push_back({ticket, std::nullopt});
    return ticket;
  }

  // An answer that comes at once, in its place.
  void AnswerNow(GrpcMessage message) {
    const std::uint64_t ticket = Begin(nullptr, /*ordered=*/true);
    End(ticket, std::move(message));
  }

  // A response of a decoupled model.
  void Send(GrpcMessage message) {
    absl::MutexLock lock(&mutex_);
    if (!over_) Deliver(std::move(message));
  }

  // The request has ended; `last` is sent in its place, if there is one.
  void End(std::uint64_t ticket, std::optional<GrpcMessage> last) {
    absl::MutexLock lock(&mutex_);
    in_flight_.erase(ticket);
    if (over_) return;
    bool ordered = false;
    for (Waiting& waiting : waiting_) {
      if (waiting.ticket != ticket) continue;
      waiting.answer = std::move(last);
      ordered = true;
      break;
    }
    if (!ordered && last) Deliver(*std::move(last));
    while (!waiting_.empty() && waiting_.front().answer) {
      Deliver(*std::move(waiting_.front().answer));
      waiting_.pop_front();
    }
    FinishIfDone();
    if (in_flight_.size() + 1 == kMostInFlight) responder_.Resume();
  }

  // Ends the stream with an error of an execution; everything else in flight is cancelled.
  void Fail(std::uint64_t ticket, absl::Status status) {
    {
      absl::MutexLock lock(&mutex_);
      in_flight_.erase(ticket);
      if (std::exchange(over_, true)) return;
      responder_.Finish(std::move(status));
    }
    CancelAll();
  }

  // A message is being decoded beside the loop: the next ones wait unread, so that requests keep their order.
  void BeginDecode() {
    absl::MutexLock lock(&mutex_);
    decoding_ = true;
  }
  // `status`: what ends the stream; OK when its request has begun, or was answered.
  void EndDecode(absl::Status status) {
    bool broken = false;
    {
      absl::MutexLock lock(&mutex_);
      decoding_ = false;
      broken = !status.ok() && !over_;
      if (broken) {
        over_ = true;
        responder_.Finish(std::move(status));
      } else {
        FinishIfDone();
        responder_.Resume();
      }
    }
    if (broken) CancelAll();
  }
  bool over() const {
    absl::MutexLock lock(&mutex_);
    return over_;
  }

  void HalfClose() {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    FinishIfDone();
  }

  void CancelAll() {
    std::map<std::uint64_t, std::shared_ptr<CancelFlag>> flags;
    {
      absl::MutexLock lock(&mutex_);
      over_ = true;
      flags = in_flight_;
      waiting_.clear();
    }
    for (const auto& [ticket, flag] : flags) {
      if (flag != nullptr) flag->Cancel();
    }
  }

  bool Ready() const {
    absl::MutexLock lock(&mutex_);
    return !decoding_ && in_flight_.size() < kMostInFlight;
  }

  bool errors_end_stream() const { return errors_end_stream_; }
  BufferPool& buffers() const { return *buffers_; }
  InferRequestPool& requests() const { return *requests_; }

 private:
  struct Waiting {
    std::uint64_t ticket;
    std::optional<GrpcMessage> answer;
  };

  // Under the mutex, so that the order stands.
  void Deliver(GrpcMessage message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    absl::StatusOr<GrpcMessage> ready = CompressMessage(std::move(message), coding_, level_, *buffers_);
    if (ready.ok()) return responder_.Send(*std::move(ready));
    over_ = true;
    responder_.Finish(ready.status());
  }

  void FinishIfDone() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (over_ || !closed_ || decoding_ || !in_flight_.empty() || !waiting_.empty()) return;
    over_ = true;
    responder_.Finish(absl::OkStatus());
  }

  const std::shared_ptr<InferRequestPool> requests_;  // last owner: see InferContext
  BufferPool* const buffers_;
  const int level_;
  const ContentCoding coding_;
  const bool errors_end_stream_;
  const GrpcResponder responder_;

  mutable absl::Mutex mutex_;
  std::uint64_t next_ticket_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, std::shared_ptr<CancelFlag>> in_flight_ ABSL_GUARDED_BY(mutex_);
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);  // ordered ones, oldest first
  bool decoding_ ABSL_GUARDED_BY(mutex_) = false;        // a message, beside the loop
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;          // the client sends no more
  bool over_ ABSL_GUARDED_BY(mutex_) = false;            // nothing more is sent
};

// One request of a stream.
struct StreamRequest {
  std::shared_ptr<StreamState> stream;  // last owner: whichever of call and requests ends later
  std::uint64_t ticket = 0;
  std::string model_name, model_version;  // as the client wrote them
  bool decoupled = false;
  bool empty_final_response = false;

  GrpcMessage ErrorMessage(const absl::Status& status, const InferenceRequest& request) const {
    return EncodeStreamError({.text = MessageOf(status),
                              .id = request.id,
                              .executed = request.times.queued != 0,  // else no scheduler took it
                              .model_name = model_name,
                              .model_version = model_version});
  }

  // One response of a decoupled model.
  void OnResponse(const InferenceRequest& request, const ModelInfo& model, InferenceResponse response) const {
    absl::Status status = response.status;
    if (status.ok()) status = CheckRegions(request);
    GrpcMessage message;
    if (status.ok()) status = EncodeStreamInfer(request, response, model, stream->buffers(), false, message);
    if (status.ok()) return stream->Send(std::move(message));
    if (stream->errors_end_stream()) return stream->Fail(ticket, std::move(status));
    stream->Send(ErrorMessage(status, request));
  }

  void OnComplete(std::unique_ptr<InferenceRequest> request) const {
    TraceEnd(*request);
    Finish(*request);
    stream->requests().GiveBack(std::move(request));
  }

 private:
  void Finish(InferenceRequest& request) const {
    absl::Status status = request.response.status;
    if (status.ok() && decoupled) {
      std::optional<GrpcMessage> last;
      if (empty_final_response) last = EncodeStreamFinal(request.id, model_name, model_version);
      return stream->End(ticket, std::move(last));
    }
    GrpcMessage message;
    if (status.ok()) status = CheckRegions(request);
    if (status.ok()) {
      status = EncodeStreamInfer(request, request.response, request.model()->info(), stream->buffers(), true, message);
    }
    if (status.ok()) return stream->End(ticket, std::move(message));
    if (stream->errors_end_stream() && request.times.queued != 0) return stream->Fail(ticket, std::move(status));
    stream->End(ticket, ErrorMessage(status, request));
  }
};

class StreamInferCallImpl final : public GrpcCall {
 public:
  StreamInferCallImpl(const InferContext& context, InferCallMetadata metadata, GrpcResponder responder)
      : context_(context),
        metadata_(std::move(metadata)),
        reader_(*context.buffers),
        state_(std::make_shared<StreamState>(context, metadata_.coding, metadata_.errors_end_stream,
                                             std::move(responder))) {}

  absl::Status BeginMessage(std::size_t most) override {
    reader_.Begin(most);
    return absl::OkStatus();
  }
  absl::Status Add(std::span<const std::byte> bytes) override { return reader_.Add(bytes); }

  absl::Status EndMessage() override {
    RETURN_IF_ERROR(reader_.Finish());
    if (!TakesLong(context_, reader_)) return Submit(context_, metadata_, reader_, state_, /*on_loop=*/true);
    state_->BeginDecode();
    context_.decode([&context = context_, metadata = metadata_, reader = std::move(reader_),
                     state = state_]() mutable {  // the call may be gone by then
      state->EndDecode(state->over() ? absl::OkStatus() : Submit(context, metadata, reader, state, /*on_loop=*/false));
    });
    return absl::OkStatus();
  }

  absl::Status HalfClose() override {
    state_->HalfClose();
    return absl::OkStatus();
  }
  void Cancel() override { state_->CancelAll(); }
  bool Ready() const override { return state_->Ready(); }

 private:
  // An error ends the stream.
  static absl::Status Submit(const InferContext& context, const InferCallMetadata& metadata, InferMessageReader& reader,
                             const std::shared_ptr<StreamState>& state, bool on_loop) {
    InferEnvelope envelope;
    RETURN_IF_ERROR(ReadInferEnvelope(reader.envelope(), envelope));
    absl::StatusOr<BoundRequest> bound = BindRequest(context, envelope, reader.raw(), metadata, /*unary=*/false);
    if (!bound.ok()) {
      StreamError error;
      error.text = MessageOf(bound.status());
      error.id = envelope.id;
      state->AnswerNow(EncodeStreamError(error));
      reader.Clear();
      return absl::OkStatus();
    }
    std::unique_ptr<InferenceRequest> request = std::move(bound->request);
    Model& model = *request->model();
    const ModelInfo& info = model.info();
    StreamRequest one;
    one.stream = state;
    one.model_name = envelope.model_name;
    one.model_version = envelope.model_version;
    one.decoupled = info.decoupled();
    one.empty_final_response = bound->flags.empty_final_response;
    request->cancel = std::make_shared<CancelFlag>();
    one.ticket = state->Begin(request->cancel, /*ordered=*/!one.decoupled);
    if (one.decoupled) {
      // The request outlives its responses, and its model does as long as it.
      request->on_response = [one, self = request.get(), &info](InferenceResponse response) {
        one.OnResponse(*self, info, std::move(response));
      };
    }
    request->on_complete = [one = std::move(one)](std::unique_ptr<InferenceRequest> done) {
      one.OnComplete(std::move(done));
    };
    reader.Clear();
    model.Submit(std::move(request), /*may_run_inline=*/on_loop);
    return absl::OkStatus();
  }

  const InferContext& context_;
  const InferCallMetadata metadata_;
  InferMessageReader reader_;
  const std::shared_ptr<StreamState> state_;  // last owner: whichever of call and requests ends later
};

}  // namespace

std::unique_ptr<GrpcCall> MakeStreamInferCall(const InferContext& context, InferCallMetadata metadata,
                                              GrpcResponder responder) {
  return std::make_unique<StreamInferCallImpl>(context, std::move(metadata), std::move(responder));
}

}  // namespace tidemark
