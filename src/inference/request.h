#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "backend/execution.h"
#include "base/cancel.h"
#include "base/data_type.h"
#include "inference/shared_memory.h"
#include "observe/model_statistics.h"
#include "observe/request_trace.h"
#include "resource/buffer_pool.h"

namespace tidemark {

class ModelHandle;

// One input as the client sent it. `data` points into InferenceRequest::body, into `owned`, or into `region`, which may be
// memory of a GPU.
struct RequestInput {
  std::string name;
  DataType data_type = DataType::kInvalid;
  Shape shape;                      // as sent, batch dimension included
  std::span<const std::byte> data;  // row-major, little-endian; BYTES in wire form
  Buffer owned;                     // memory of `data` when the front end converted it (JSON)
  SharedMemoryLease region;         // where the client put it; set by LendInput

  // Where `data` lies: to be dereferenced only where that is kHost.
  DeviceId device() const { return owned.empty() ? region.device : kHost; }
};

// One output that the client named. `binary` and `classification` are the front end's business and pass through.
struct RequestedOutput {
  std::string name;
  bool binary = false;
  std::uint32_t classification = 0;    // top-k; 0 = off
  SharedMemoryLease destination = {};  // the client wants it there, and not in the answer
};

// One output of the answer.
struct ResponseOutput {
  std::size_t index = 0;  // position in ModelConfig.output
  std::string_view name;  // the config's string, good while the request's model handle lives
  DataType data_type = DataType::kInvalid;
  Shape shape;  // as the client sees it, `reshape` undone
  Buffer data;
  bool shared = false;  // it lies in its RequestedOutput's destination; `data` is empty
};

struct InferenceResponse {
  absl::Status status;
  std::vector<ResponseOutput> outputs;  // in the request's order, or the config's when it named none
  Parameters parameters;                // attached by the model
};

// One inference from decode to answer, with its answer. Owned by one thread at a time: the front end fills it, hands it
// to Model::Submit, and gets the same object back through `on_complete`. Reusable: Clear() keeps the memory.
class InferenceRequest {
 public:
  InferenceRequest();
  ~InferenceRequest();
  InferenceRequest(const InferenceRequest&) = delete;
  InferenceRequest& operator=(const InferenceRequest&) = delete;

  std::string id;
  std::variant<std::uint64_t, std::string> sequence_id = std::uint64_t{0};
  bool sequence_start = false;
  bool sequence_end = false;
  std::uint64_t priority = 0;
  std::uint64_t timeout_us = 0;     // longest wait in the queue; 0 = as the model says
  std::int64_t deadline_nanos = 0;  // the client's own deadline, NowNanos() clock; 0 = none
  Parameters parameters;            // custom ones
  std::vector<RequestInput> inputs;
  std::vector<RequestedOutput> outputs;  // empty: all outputs
  bool binary_data_output = false;       // representation of outputs when `outputs` is empty
  // A raw request: the one input's data is the whole body; name, datatype and shape come from the model.
  bool raw = false;
  Buffer body;  // memory that inputs point into

  RequestTimes times;
  // Null: not traced, which is usual. Last owner: the answer on its way, so that the end of sending is seen.
  std::shared_ptr<RequestTrace> trace;
  // Set when the client goes away; the front end makes it when the request leaves the event loop. May be null. Last
  // owner: whichever of request and connection ends later.
  std::shared_ptr<CancelFlag> cancel;

  InferenceResponse response;

  // Called for each response of a decoupled model, in order, on the executing thread and before `on_complete`; must not
  // block. The outputs' names are good while this request holds its model. Never called for other models. May be null:
  // then the responses are dropped.
  absl::AnyInvocable<void(InferenceResponse)> on_response;

  // Called exactly once for a submitted request, on the submitting thread (before Submit returns) or on an instance's
  // thread. Must not block. For a decoupled model it is the final flag: `response` has the last status and no outputs.
  absl::AnyInvocable<void(std::unique_ptr<InferenceRequest>)> on_complete;

  // Keeps the model from being unloaded until the answer has been encoded. Set by the front end after the look-up.
  ModelHandle& model() { return *model_; }
  void set_model(ModelHandle handle);

  // "[request id: ID] ", or with "<id_unknown>" when there is none: Triton's prefix of request errors.
  std::string Prefix() const;

  // Ready for the next request, memory kept, model handle dropped.
  void Clear();

 private:
  std::unique_ptr<ModelHandle> model_;
};

// Gives `input` of `request`, whose name and data type are set, the bytes of a lease: where they are, without a copy, unless
// that is not safe or not possible. Strings are copied, because a client could change their lengths after they were
// checked; memory of a device is, unless the request's model takes it. INVALID_ARGUMENT, RESOURCE_EXHAUSTED when the pool
// is empty.
absl::Status LendInput(SharedMemoryLease lease, BufferPool& pool, InferenceRequest& request, RequestInput& input);

// Copies an input that lies on a device to memory of the host; nothing for one that is there.
absl::Status BringToHost(BufferPool& pool, RequestInput& input);

// For a traced request: what is known before Submit (inputs), and at its completion (times, outputs). Whoever submits and
// gets `on_complete` calls them: the front ends, and ensembles for their steps (RequestTrace::MakeChild).
void TraceStart(InferenceRequest& request);
void TraceEnd(InferenceRequest& request);

// Does anybody still wait for the answer at `now`? CANCELLED, DEADLINE_EXCEEDED when the client's own deadline has come.
absl::Status CheckWanted(const InferenceRequest& request, std::int64_t now);

// OK when every region that the request used still is what was registered. Asked after an execution, before the answer.
absl::Status CheckRegions(const InferenceRequest& request);

}  // namespace tidemark
