#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "backend/execution.h"
#include "proto/model_config.pb.h"
#include "resource/buffer_pool.h"

namespace tidemark {

// What `allow_ragged_batch`, `batch_input` and `batch_output` of a configuration mean for an execution, worked out once.
//
// A ragged input reaches the model flat, the elements of all requests behind one another; tensors that the server makes
// (`batch_input`) tell it where each request begins, and flat outputs (`batch_output`) are cut by the shapes of an input.
// Immutable, thread-safe.
class RaggedPlan {
 public:
  // A tensor of the model that is made for each batch. Its position among the inputs of an execution is the number of
  // configured inputs plus its own.
  struct Made {
    std::string name;
    DataType data_type = DataType::kInvalid;  // INT32 or FP32
  };

  // `config` is validated.
  explicit RaggedPlan(const inference::ModelConfig& config);

  // Requests are put together as always.
  bool empty() const { return !any_ragged_ && made_.empty() && scattered_.empty(); }
  const std::vector<Made>& made() const { return made_; }
  bool ragged(std::size_t input) const { return input < ragged_.size() && ragged_[input]; }

  // Appends the made tensors for a batch of these requests to `inputs`, their memory to `memory`. RESOURCE_EXHAUSTED;
  // INVALID_ARGUMENT for more elements than their type can count.
  absl::Status Make(std::span<Execution* const> requests, BufferPool& buffers, std::vector<InputTensor>& inputs,
                    std::vector<Buffer>& memory) const;

  // The shape of the request's part of a flat output; nullopt for an output that is cut by rows.
  std::optional<Shape> PartShape(std::size_t output, const Execution& request) const;

 private:
  struct Source {
    inference::BatchInput::Kind kind = inference::BatchInput::BATCH_ELEMENT_COUNT;
    std::size_t input = 0;  // position in the configuration
  };
  struct Scattered {
    std::size_t output = 0;
    std::size_t input = 0;
    Shape dims;                         // of the output, without the batch dimension
    std::vector<std::size_t> variable;  // axes of the source that give the output's variable dimensions, in order
  };

  // The numbers of a made tensor and its shape; a tensor that only has a shape has no numbers.
  void Count(const Source& source, std::span<Execution* const> requests, std::vector<std::int64_t>& values,
             Shape& shape) const;

  bool batching_ = false;
  bool any_ragged_ = false;
  std::size_t inputs_ = 0;
  std::vector<bool> ragged_;  // by input
  std::vector<Made> made_;
  std::vector<Source> sources_;  // of the made ones
  std::vector<Scattered> scattered_;
};

}  // namespace tidemark
