#pragma once

#include <cstdint>
#include <span>

#include "backend/execution.h"
#include "inference/model_info.h"
#include "inference/request.h"
#include "resource/buffer_pool.h"

namespace tidemark {

// Puts what an instance makes into the request's response: buffers from the pool, `reshape` undone, outputs in the
// order in which the client will see them. Lives for one execution on one thread.
class ResponseSink final : public OutputSink {
 public:
  ResponseSink(const ModelInfo& info, InferenceRequest& request, BufferPool& buffers)
      : info_(info), request_(request), buffers_(buffers) {}

  bool Wants(std::size_t index) const override;
  absl::StatusOr<std::span<std::byte>> Allocate(std::size_t index, DataType data_type,
                                                std::span<const std::int64_t> shape, std::size_t bytes) override;

  // After a good execution: puts the outputs in order. INTERNAL when a wanted one was not made.
  absl::Status Finish();

 private:
  Shape ClientShape(const TensorInfo& info, std::span<const std::int64_t> shape) const;

  const ModelInfo& info_;
  InferenceRequest& request_;
  BufferPool& buffers_;
};

}  // namespace tidemark
