#pragma once

#include <cstdint>
#include <span>

#include "backend/execution.h"
#include "inference/model_info.h"
#include "inference/request.h"
#include "inference/sequence_tensors.h"
#include "observe/model_statistics.h"
#include "resource/buffer_pool.h"

namespace tidemark {

// Puts what an instance makes into the request's response: buffers from the pool, `reshape` undone, outputs in the
// order in which the client will see them. Sends the responses of a decoupled model. Lives for one execution on one
// thread.
class ResponseSink : public OutputSink {
 public:
  // `statistics` counts the responses of a decoupled model; null in a warm-up.
  ResponseSink(const ModelInfo& info, InferenceRequest& request, BufferPool& buffers,
               ModelStatistics* statistics = nullptr)
      : info_(info), request_(request), buffers_(buffers), statistics_(statistics) {}

  bool Wants(std::size_t index) const override;
  absl::StatusOr<std::span<std::byte>> Allocate(std::size_t index, DataType data_type,
                                                std::span<const std::int64_t> shape, std::size_t bytes) override;
  absl::StatusOr<Memory> AllocateOn(DeviceId device, std::size_t index, DataType data_type,
                                    std::span<const std::int64_t> shape, std::size_t bytes) override;
  absl::Status Give(std::size_t index, DataType data_type, std::span<const std::int64_t> shape, Buffer data) override;
  absl::Status Send() override;

  // The execution makes states of a sequence as well: they go there instead of to the client. Both outlive the sink.
  void KeepStates(const SequenceTensors* tensors, SequenceState* states) {
    tensors_ = tensors;
    states_ = states;
  }

  // When the execution begins: where the times of the first response start. Earlier ones of the same request sent
  // `responses`.
  void Begin(std::int64_t now, std::uint64_t responses = 0) {
    start_ = now;
    responses_ = responses;
  }

  // After an execution that ended with `status`: puts the outputs in order, or sends the last response of a decoupled
  // model. The request's status: INTERNAL when a wanted output was not made. `again`: the request runs once more, and is
  // answered by an execution to come; what this one has made but the states is dropped where it was not sent.
  absl::Status Finish(const absl::Status& status, bool again = false);

  std::uint64_t responses() const { return responses_; }

 private:
  Shape ClientShape(const TensorInfo& info, std::span<const std::int64_t> shape) const;
  // What the request says of that output; null when it named none.
  const RequestedOutput* Asked(std::string_view name) const;
  bool WritesInto(std::span<const std::byte> memory, DeviceId device, DeviceId engine) const;
  absl::Status FillRegions();
  absl::Status FinishResponse(const absl::Status& status, bool again);
  // Sorts the outputs as the client named them; `complete`: all of them must be there.
  absl::Status PutInOrder(bool complete);
  bool ClientWants(std::size_t index) const;
  // An output of the current response, without its data.
  ResponseOutput& AddOutput(std::size_t index, DataType data_type, std::span<const std::int64_t> shape);
  bool IsState(std::size_t index) const;
  absl::StatusOr<std::span<std::byte>> AllocateState(std::size_t state, DataType data_type,
                                                     std::span<const std::int64_t> shape, std::size_t bytes);
  // Copies those states that are also outputs of the current response.
  absl::Status CopyStates();
  // A response has ended: counts it and begins the next.
  void EndResponse(ResponseOutcome outcome);

  const ModelInfo& info_;
  InferenceRequest& request_;
  BufferPool& buffers_;
  ModelStatistics* const statistics_;
  const SequenceTensors* tensors_ = nullptr;  // null: no states
  SequenceState* states_ = nullptr;
  std::uint64_t responses_ = 0;    // sent ones, by earlier executions as well
  std::int64_t start_ = 0;         // the response before the current one was sent, or the execution began
  std::int64_t output_start_ = 0;  // the current one's first output was asked for; 0 = it had none yet
};

}  // namespace tidemark
