#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/cancel.h"
#include "base/data_type.h"
#include "resource/buffer_pool.h"
#include "resource/ledger.h"

namespace tidemark {

using Parameter = std::variant<bool, std::int64_t, double, std::string>;
using Parameters = std::vector<std::pair<std::string, Parameter>>;

// One input of one request: a view, good until the execution has ended.
struct InputTensor {
  std::size_t index = 0;  // position in ModelConfig.input
  std::string_view name;
  DataType data_type = DataType::kInvalid;
  Shape shape;                      // complete, batch dimension included, `reshape` applied; no negative dims
  std::span<const std::byte> data;  // row-major, little-endian; BYTES in wire form (uint32 length + bytes each)
  // Where `data` lies. A GPU (then it is not to be dereferenced) only for an instance on that GPU whose model
  // takes_device_memory().
  DeviceId device = kHost;
};

// Where a backend puts its outputs. Called by the thread that runs the execution.
class OutputSink {
 public:
  virtual ~OutputSink() = default;

  // True when the request wants this output (position in ModelConfig.output); others need not be computed. The same for
  // every response of one request.
  virtual bool Wants(std::size_t index) const = 0;

  // Memory for the output, exactly `bytes` long and 64-byte aligned, good until the request is answered. `shape` is
  // complete, as the engine made it (before `reshape` is undone). Called at most once for each output of a response.
  virtual absl::StatusOr<std::span<std::byte>> Allocate(std::size_t index, DataType data_type,
                                                        std::span<const std::int64_t> shape, std::size_t bytes) = 0;

  // As Allocate, for an instance on the GPU `device`: where the client wants the output in memory of that GPU it is that
  // memory, of any alignment, else memory of the host.
  struct Memory {
    std::span<std::byte> bytes;
    DeviceId device = kHost;
  };
  virtual absl::StatusOr<Memory> AllocateOn(DeviceId /*device*/, std::size_t index, DataType data_type,
                                            std::span<const std::int64_t> shape, std::size_t bytes) {
    const absl::StatusOr<std::span<std::byte>> memory = Allocate(index, data_type, shape, bytes);
    if (!memory.ok()) return memory.status();
    return Memory{*memory, kHost};
  }

  // As Allocate, for an output that lies in a buffer of Execution::buffers already: it is the client's without a copy
  // where the client can take it so. This default copies.
  virtual absl::Status Give(std::size_t index, DataType data_type, std::span<const std::int64_t> shape, Buffer data) {
    const absl::StatusOr<std::span<std::byte>> memory = Allocate(index, data_type, shape, data.size());
    if (!memory.ok()) return memory.status();
    if (data.size() > 0) std::memcpy(memory->data(), data.data(), data.size());
    return absl::OkStatus();
  }

  // Decoupled models only: ends the current response, which goes to the client with the outputs allocated since the
  // last one, and begins the next. The memory of the ended response is out of bounds from here on. CANCELLED when nobody
  // waits any more: the execution should end. Returning from Execute is the final flag; outputs that stand unsent by
  // then are the last response. FAILED_PRECONDITION for a model that is not decoupled.
  virtual absl::Status Send() {
    return absl::FailedPreconditionError("the model is not decoupled: it answers once, when its execution ends");
  }
};

// One request on its way through an instance. All pointers outlive the execution.
struct Execution {
  std::span<const InputTensor> inputs;  // those that the request gave, in config order
  OutputSink* outputs = nullptr;
  CancelFlag* cancel = nullptr;            // may be null: set when the client went away or the deadline passed
  std::int64_t deadline_nanos = 0;         // NowNanos() clock; 0 = none
  BufferPool* buffers = nullptr;           // for memory that lives as long as the execution; may be null
  const Parameters* parameters = nullptr;  // custom request parameters; never null
  std::string_view request_id;

  // Filled by the instance.
  absl::Status status;
  // The request is not done: it is to run once more, beside whatever waits by then. The states that this execution made
  // are what the next one gets; outputs that stand unsent are a response of a decoupled model, and dropped for others,
  // which are answered by the execution that does not ask for another. Only for a model with `iterative_sequence`, where
  // every request is a sequence of executions; others fail. Of no effect with an error.
  bool reschedule = false;
  std::int64_t infer_start_nanos = 0;  // inputs are ready, the engine starts; 0 = not measured
  std::int64_t infer_end_nanos = 0;    // the engine has ended, outputs are being written
};

}  // namespace tidemark
