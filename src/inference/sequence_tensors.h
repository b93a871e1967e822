#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "inference/model_info.h"
#include "inference/scheduler.h"
#include "resource/buffer_pool.h"

namespace tidemark {

// Which sequence a request belongs to; 0 and "" are none.
using CorrelationId = std::variant<std::uint64_t, std::string>;

// One implicit state of a sequence: what the next execution gets.
struct StateTensor {
  DataType data_type = DataType::kInvalid;
  Shape shape;
  Buffer data;
};

// The implicit states of one sequence. Handed from execution to execution: a sequence has one at a time.
struct SequenceState {
  std::vector<StateTensor> current;
  std::vector<std::optional<StateTensor>> next;  // what the running execution has made; by state
  // A good execution: what it made is what the next one gets.
  void Commit();
  void Discard();
};

// The control and state tensors of a model with `sequence_batching`: how they look and what is in them. Their indices
// continue those of the configuration's inputs and outputs, as the engine was told (repository/sequence_config.h).
// Immutable, thread-safe.
class SequenceTensors {
 private:
  struct Private {};

 public:
  // Reads initial states from `model_directory`/initial_state. INVALID_ARGUMENT with Triton's text when a file is short.
  // The configuration has passed ValidateSequenceStates.
  // `info` and `buffers` outlive it.
  static absl::StatusOr<std::unique_ptr<SequenceTensors>> Create(const ModelInfo& info,
                                                                 const std::filesystem::path& model_directory,
                                                                 BufferPool& buffers);
  SequenceTensors(Private, const ModelInfo& info, BufferPool& buffers) : info_(info), buffers_(buffers) {}

  // States for the start of a sequence.
  absl::StatusOr<std::shared_ptr<SequenceState>> NewState() const;

  // INVALID_ARGUMENT when the model cannot be told an id of this kind.
  absl::Status CheckId(const InferenceRequest& request) const;

  // Appends the control tensors for the request and its state's tensors; `ready` false for a null request. The state
  // must stay as it is until the execution has begun.
  void Append(ScheduledRequest& scheduled, std::shared_ptr<SequenceState> state, bool ready) const;

  // Takes away what Append has appended, so that it can be appended anew.
  void Strip(ScheduledRequest& scheduled) const;

  // The id of the server's own sequence `number`, of the kind that the model can be told.
  CorrelationId MakeId(std::uint64_t number) const;

  // A request that fills a place in a batch: the inputs of `like` in shape, zeros in content, and controls that say so.
  absl::StatusOr<ScheduledRequest> MakeNull(const ScheduledRequest& like) const;

  std::size_t states() const { return states_.size(); }
  // The state that output `index` of the engine is; nullopt for an ordinary output.
  std::optional<std::size_t> StateOfOutput(std::size_t index) const;

 private:
  struct Control {
    enum class Kind : std::uint8_t { kStart, kEnd, kReady, kCorrelation } kind = Kind::kStart;
    std::string name;
    DataType data_type = DataType::kInvalid;
    std::string when_false;  // bytes of the tensor
    std::string when_true;
  };
  struct State {
    std::string input_name;
    DataType data_type = DataType::kInvalid;
    Shape shape;             // of the first execution's input, batch dimension included
    std::string initial;     // bytes; zeros without a file
    std::size_t output = 0;  // the engine's index
  };

  absl::Status AddControl(const inference::ModelSequenceBatching::Control& control, const std::string& name);
  absl::Status AddState(const inference::ModelSequenceBatching::State& state,
                        const std::filesystem::path& model_directory);
  std::string IdBytes(const Control& control, const CorrelationId& id) const;

  const ModelInfo& info_;
  BufferPool& buffers_;
  std::vector<Control> controls_;
  std::vector<State> states_;
  Shape control_shape_;
};

}  // namespace tidemark
