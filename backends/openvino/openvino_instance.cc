#include "backends/openvino/openvino_instance.h"

#include <fmt/format.h>

#include <cstring>

#include "backend/batch_execution.h"
#include "base/cancel.h"
#include "base/clock.h"
#include "base/status.h"

namespace tidemark {
namespace {

using Tensor = OpenVinoModel::Tensor;

// The shape to give to the engine, once type, shape and bytes were checked against the model.
absl::StatusOr<Shape> CheckInput(const InputTensor& input, const Tensor& tensor) {
  if (input.data_type != tensor.data_type) {
    return absl::InvalidArgumentError(fmt::format("inference input '{}' data-type is '{}', but the model expects '{}'",
                                                  tensor.name, ProtocolName(input.data_type),
                                                  ProtocolName(tensor.data_type)));
  }
  const auto bytes = TensorByteSize(input.data_type, AsSpan(input.shape));
  if (!bytes || static_cast<std::size_t>(*bytes) != input.data.size()) {
    return absl::InvalidArgumentError(fmt::format(
        "inference input '{}' of shape {} and type {} has {} bytes, expected {}", tensor.name,
        ShapeText(AsSpan(input.shape)), ProtocolName(input.data_type), input.data.size(), bytes.value_or(-1)));
  }
  if (!tensor.known_rank) return input.shape;
  if (tensor.shape.empty() && input.shape == tensor.scalar_shape) return Shape();
  bool fits = input.shape.size() == tensor.shape.size();
  for (std::size_t i = 0; fits && i < tensor.shape.size(); ++i) {
    fits = tensor.shape[i] == -1 || tensor.shape[i] == input.shape[i];
  }
  if (fits) return input.shape;
  return absl::InvalidArgumentError(fmt::format("inference input '{}' has shape {}, but the model expects {}",
                                                tensor.name, ShapeText(AsSpan(input.shape)),
                                                ShapeText(AsSpan(tensor.shape))));
}

bool Late(const Execution& execution) {
  return execution.deadline_nanos != 0 && NowNanos() >= execution.deadline_nanos;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BackendInstance>> OpenVinoInstance::Create(const OpenVinoModel& model, Scope& scope,
                                                                          std::string_view name) {
  auto instance = std::make_unique<OpenVinoInstance>(Private(), model, name);
  instance->lent_.resize(model.outputs().size());
  const std::string what = fmt::format("unable to create instance '{}'", name);
  ASSIGN_OR_RETURN(instance->request_, HoldOpenVino<OpenVinoRequest>(scope, 0, "infer request", what, [&](auto* made) {
                     return model.compiled().CreateRequest(made);
                   }));
  return instance;
}

void OpenVinoInstance::Execute(std::span<Execution* const> requests) noexcept {
  ExecuteAsBatch(requests, model_.config().max_batch_size() > 0, [this](Execution& execution) {
    try {
      execution.status = Run(execution);
    } catch (const std::exception& error) {
      execution.status = absl::InternalError(error.what());
    }
  });
}

absl::Status OpenVinoInstance::Failed(const OpenVinoOutcome& outcome, std::string_view step) const {
  return OpenVinoStatus(outcome, fmt::format("instance '{}' failed to {}", name_, step));
}

absl::Status OpenVinoInstance::Run(Execution& execution) {
  RETURN_IF_ERROR(SetInputs(execution));
  RETURN_IF_ERROR(SetOutputs(execution));
  execution.infer_start_nanos = NowNanos();
  const absl::Status status = Infer(execution);
  execution.infer_end_nanos = NowNanos();
  RETURN_IF_ERROR(status);
  return CopyOutputs(execution);
}

absl::Status OpenVinoInstance::SetInputs(const Execution& execution) {
  // All of them, each time: what an earlier request lent is gone.
  const std::vector<Tensor>& tensors = model_.inputs();
  std::size_t given = 0;
  for (const InputTensor& input : execution.inputs) {
    if (input.index >= tensors.size()) {
      return absl::InvalidArgumentError(fmt::format("unexpected inference input '{}'", input.name));
    }
    const Tensor& tensor = tensors[input.index];
    ASSIGN_OR_RETURN(const Shape shape, CheckInput(input, tensor));
    const OpenVinoOutcome outcome =
        request_->SetInput(tensor.port, AsSpan(shape), input.data.data(), input.data.size());
    if (!outcome.ok()) return Failed(outcome, fmt::format("set input '{}'", tensor.name));
    ++given;
  }
  if (given != tensors.size()) {
    return absl::InvalidArgumentError(fmt::format("expected {} inputs but got {} inputs for model '{}'", tensors.size(),
                                                  given, model_.config().name()));
  }
  return absl::OkStatus();
}

absl::Status OpenVinoInstance::SetOutputs(const Execution& execution) {
  const std::vector<Tensor>& tensors = model_.outputs();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    lent_[i] = nullptr;
    if (tensor.static_bytes == 0 || !execution.outputs->Wants(i)) {
      // What the request before this one lent must not be written to any more.
      const OpenVinoOutcome outcome = request_->ClearOutput(tensor.port);
      if (!outcome.ok()) return Failed(outcome, fmt::format("reset output '{}'", tensor.name));
      continue;
    }
    const Shape& shape = tensor.scalar_shape.empty() ? tensor.shape : tensor.scalar_shape;
    ASSIGN_OR_RETURN(const std::span<std::byte> memory,
                     execution.outputs->Allocate(i, tensor.data_type, AsSpan(shape), tensor.static_bytes));
    const OpenVinoOutcome outcome = request_->SetOutput(tensor.port, memory.data(), memory.size());
    if (!outcome.ok()) return Failed(outcome, fmt::format("set output '{}'", tensor.name));
    lent_[i] = memory.data();
  }
  return absl::OkStatus();
}

// Returns only when the engine no longer touches the request's memory.
absl::Status OpenVinoInstance::Infer(Execution& execution) {
  const auto cancelled = [&] { return execution.cancel != nullptr && execution.cancel->cancelled(); };
  if (cancelled()) return absl::CancelledError("the request was cancelled before its inference started");
  if (Late(execution)) return absl::DeadlineExceededError("the deadline passed before the inference started");
  if (const OpenVinoOutcome outcome = request_->Start(); !outcome.ok()) return Failed(outcome, "start the inference");
  OpenVinoOutcome outcome;
  bool late = false;
  {
    // Only from here on has the engine something to cancel; a flag set meanwhile cancels at once.
    const ScopedOnCancel on_cancel(execution.cancel, [this] { request_->Cancel(); });
    bool finished = execution.deadline_nanos == 0;
    while (!finished && !late) {
      const std::int64_t left = execution.deadline_nanos - NowNanos();
      late = left <= 0;
      // Whatever it answers, Finish below answers again.
      if (!late && !request_->WaitFor(left, &finished).ok()) finished = true;
    }
    if (late) request_->Cancel();
    outcome = request_->Finish();
  }
  if (outcome.ok()) return absl::OkStatus();
  if (outcome.code == OpenVinoOutcome::Code::kCancelled) {
    return late ? absl::DeadlineExceededError("the deadline passed while the inference ran; it was stopped")
                : absl::CancelledError("the request was cancelled while its inference ran");
  }
  return Failed(outcome, "run the inference");
}

absl::Status OpenVinoInstance::CopyOutputs(const Execution& execution) {
  const std::vector<Tensor>& tensors = model_.outputs();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    if (!execution.outputs->Wants(i)) continue;
    OpenVinoRequest::Output made;
    if (const OpenVinoOutcome outcome = request_->GetOutput(tensor.port, &made); !outcome.ok()) {
      return Failed(outcome, fmt::format("read output '{}'", tensor.name));
    }
    if (lent_[i] != nullptr) {
      if (made.data == lent_[i] && made.bytes == tensor.static_bytes) continue;
      return absl::InternalError(fmt::format(
          "instance '{}': the engine did not write output '{}' to the memory it was given", name_, tensor.name));
    }
    Shape shape(made.shape.begin(), made.shape.end());
    if (shape.empty() && !tensor.scalar_shape.empty()) shape = tensor.scalar_shape;
    ASSIGN_OR_RETURN(const std::span<std::byte> memory,
                     execution.outputs->Allocate(i, tensor.data_type, AsSpan(shape), made.bytes));
    if (made.bytes > 0) std::memcpy(memory.data(), made.data, made.bytes);
  }
  return absl::OkStatus();
}

}  // namespace tidemark
