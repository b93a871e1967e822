#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "backend/backend.h"
#include "backend/ragged_plan.h"
#include "backends/onnxruntime/model_io.h"
#include "backends/onnxruntime/ort_session.h"

namespace tidemark {

// Where an output's dimension comes from: a number, or a dimension of an input with the same name.
struct OrtDimSource {
  std::int64_t value = -1;
  int input = -1;  // position in ModelConfig.input; -1: not known before the run
  int axis = 0;
};

// What an execution needs to know about one tensor of the configuration, prepared once.
struct OrtTensorPlan {
  std::string name;
  DataType data_type = DataType::kInvalid;
  int element_type = 0;
  bool scalar = false;  // the model's tensor has rank 0, the configuration calls it [1]
  // Of an output: all dimensions have a source, so that its shape can be told before the run.
  bool predictable = false;
  std::vector<OrtDimSource> dims;
};

// One loaded ONNX model: a session that all instances share (the engine's Run is made for many threads), so that the
// weights are there once.
class OrtModel final : public BackendModel {
 public:
  OrtModel(std::unique_ptr<OrtSession> session, inference::ModelConfig config, const ModelIo& io,
           bool shrink_after_run);

  const inference::ModelConfig& config() const override { return config_; }
  absl::StatusOr<std::unique_ptr<BackendInstance>> CreateInstance(Scope& scope,
                                                                  const inference::ModelInstanceGroup& group,
                                                                  std::string_view name, DeviceId device) override;
  std::uint64_t cached_bytes(DeviceId device) const override {
    return device == kHost ? session_->heap().cached_bytes() : 0;
  }
  void Trim() noexcept override { session_->heap().Trim(); }

  const OrtSession& session() const { return *session_; }
  // Those of the configuration, then those that `ragged` makes.
  const std::vector<OrtTensorPlan>& inputs() const { return inputs_; }
  const std::vector<OrtTensorPlan>& outputs() const { return outputs_; }
  const RaggedPlan& ragged() const { return ragged_; }
  bool shrink_after_run() const { return shrink_after_run_; }

 private:
  std::unique_ptr<OrtSession> session_;
  const inference::ModelConfig config_;
  const RaggedPlan ragged_;
  const bool shrink_after_run_;
  std::vector<OrtTensorPlan> inputs_;
  std::vector<OrtTensorPlan> outputs_;
};

// Runs requests through the session of `model`, which outlives it. An output goes straight into the request's buffer
// once an earlier run has shown that its shape can be told beforehand. Others lie where the engine put them: blocks of
// 64 KiB and more become the request's as they are, so that nothing of an answer is the model's; smaller ones are copied.
class OrtInstance final : public BackendInstance {
 public:
  // `run_options` lives on the instance's scope.
  OrtInstance(const OrtModel& model, ort::RunOptions* run_options);

  void Execute(std::span<Execution* const> requests) noexcept override;

 private:
  enum class Prediction : std::uint8_t { kUntried, kTrue, kWrong };
  struct Call;

  absl::Status Run(Execution& request);
  absl::Status MakeInputs(const Execution& request, Call* call);
  absl::StatusOr<OrtValuePtr> MakeInput(const InputTensor& input, const OrtTensorPlan& plan, Call* call);
  absl::StatusOr<OrtValuePtr> MakeStrings(const InputTensor& input, std::span<const std::int64_t> shape);
  absl::Status MakeOutputs(const Execution& request, Call* call);
  // Takes the value from `owned` where its memory becomes the answer's.
  absl::Status TakeOutput(const Execution& request, std::size_t index, ort::Value** owned);
  absl::Status TakeStrings(const Execution& request, std::size_t index, std::span<const std::int64_t> shape,
                           ort::Value* value);
  // The shape of an output by the shapes of the inputs; false when it cannot be told.
  bool Predict(const Execution& request, const OrtTensorPlan& plan, Shape* shape) const;

  const OrtModel& model_;
  const OrtRuntime& runtime_;
  const ort::Api& api_;
  ort::RunOptions* const run_options_;
  std::vector<Prediction> predictions_;  // for each output
  std::vector<std::size_t> offsets_;     // scratch of TakeStrings
};

}  // namespace tidemark
