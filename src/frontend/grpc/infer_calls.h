#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "frontend/grpc/call.h"
#include "frontend/grpc/metadata.h"
#include "frontend/header_forwarder.h"
#include "inference/registry.h"
#include "inference/request.h"
#include "inference/shared_memory.h"
#include "lifecycle/lifecycle.h"
#include "observe/tracer.h"
#include "protocol/grpc_infer.h"
#include "resource/buffer_pool.h"

namespace tidemark {

// Requests that are not in use, with their memory. Thread-safe.
class InferRequestPool {
 public:
  std::unique_ptr<InferenceRequest> Take();
  // Clears the request, which drops its model handle, and keeps it, or lets it go when enough are kept.
  void GiveBack(std::unique_ptr<InferenceRequest> request);

 private:
  static constexpr std::size_t kKept = 256;

  absl::Mutex mutex_;
  std::vector<std::unique_ptr<InferenceRequest>> free_ ABSL_GUARDED_BY(mutex_);
};

// What all inference calls work with. Everything that it points to outlives every call.
struct InferContext {
  Registry* registry = nullptr;
  Lifecycle* lifecycle = nullptr;
  BufferPool* buffers = nullptr;
  SharedMemoryFinder* regions = nullptr;  // may be null
  Tracer* tracer = nullptr;
  int compression_level = 0;
  // Runs what would hold up a loop; what it still has when the server ends it runs before that. Empty: nothing is decoded
  // beside the loops.
  std::function<void(absl::AnyInvocable<void()>)> decode;
  std::shared_ptr<InferRequestPool> requests;  // last owner: the service, or the last request on its way
};

// What an inference call says in its metadata.
struct InferCallMetadata {
  ContentCoding coding = ContentCoding::kIdentity;  // of compressed answers
  Parameters forwarded;                             // by --grpc-header-forward-pattern
  absl::Status forward_status;                      // told for each request, after its own parameters
  bool errors_end_stream = false;                   // triton_grpc_error
  std::string traceparent, tracestate;
  std::int64_t deadline_nanos = 0;  // of the whole call, NowNanos() clock; 0: none
};

// ModelInfer: one request, one answer. `context` outlives the call.
std::unique_ptr<GrpcCall> MakeInferCall(const InferContext& context, InferCallMetadata metadata,
                                        GrpcResponder responder);

// ModelStreamInfer: any number of requests in flight. `context` outlives the call.
std::unique_ptr<GrpcCall> MakeStreamInferCall(const InferContext& context, InferCallMetadata metadata,
                                              GrpcResponder responder);

// A request read and bound to its model, and what goes with it.
struct BoundRequest {
  std::unique_ptr<InferenceRequest> request;
  GrpcInferFlags flags;
};

// Would binding the message to its model hold up the other calls of a loop? By what it has of typed contents, or of tensors
// that the model's response cache reads. False without `context.decode`.
bool TakesLong(const InferContext& context, InferMessageReader& reader);

// The road from a message to a request that its model can take: `envelope` and `raw` are the message's. With `unary` models
// with decoupled answers are refused. The call's deadline becomes the request's; DEADLINE_EXCEEDED when it has passed. On
// an error the request goes back to the pool.
absl::StatusOr<BoundRequest> BindRequest(const InferContext& context, const InferEnvelope& envelope,
                                         std::span<Buffer> raw, const InferCallMetadata& metadata, bool unary);

// `message`, compressed if `coding` says so. RESOURCE_EXHAUSTED when the pool is empty.
absl::StatusOr<GrpcMessage> CompressMessage(GrpcMessage message, ContentCoding coding, int level, BufferPool& pool);

}  // namespace tidemark
