#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "backend/batch_execution.h"
#include "backends/onnxruntime/ort_model.h"
#include "base/clock.h"
#include "base/status.h"

namespace tidemark {
namespace {

// Stands for the data of a tensor without elements: the engine wants an address.
alignas(64) std::byte no_elements[64];

absl::Status StillWanted(const Execution& request) {
  if (request.deadline_nanos != 0 && NowNanos() >= request.deadline_nanos) {
    return absl::DeadlineExceededError("the request's deadline passed during the execution");
  }
  if (request.cancel != nullptr && request.cancel->cancelled()) {
    return absl::CancelledError("the request was cancelled");
  }
  return absl::OkStatus();
}

// The next element of a BYTES tensor; false when the data is cut.
bool NextString(std::span<const std::byte>* data, std::string_view* element) {
  std::uint32_t length = 0;
  if (data->size() < sizeof length) return false;
  std::memcpy(&length, data->data(), sizeof length);
  if (data->size() - sizeof length < length) return false;
  *element = {reinterpret_cast<const char*>(data->data()) + sizeof length, length};
  *data = data->subspan(sizeof length + length);
  return true;
}

}  // namespace

// The arrays of one run.
struct OrtInstance::Call {
  absl::InlinedVector<const char*, 8> input_names;
  absl::InlinedVector<OrtValuePtr, 8> input_owners;
  absl::InlinedVector<const ort::Value*, 8> inputs;
  std::vector<std::vector<std::byte>> copies;  // of inputs that the engine cannot read where they are
  absl::InlinedVector<const char*, 8> output_names;
  absl::InlinedVector<std::size_t, 8> output_indices;
  absl::InlinedVector<ort::Value*, 8> outputs;  // those that are not null go back in the destructor
  absl::InlinedVector<bool, 8> in_place;
  const ort::Api* api = nullptr;

  ~Call() {
    for (ort::Value* value : outputs) {
      if (value != nullptr) api->ReleaseValue(value);
    }
  }
};

OrtInstance::OrtInstance(const OrtModel& model, ort::RunOptions* run_options)
    : model_(model),
      runtime_(model.session().runtime()),
      api_(runtime_.api()),
      run_options_(run_options),
      predictions_(model.outputs().size(), Prediction::kUntried) {}

void OrtInstance::Execute(std::span<Execution* const> requests) noexcept {
  const auto run = [this](Execution& request) {
    request.infer_start_nanos = NowNanos();
    try {
      request.status = Run(request);
    } catch (const std::exception& error) {
      request.status = absl::InternalError(error.what());
    }
    if (request.infer_end_nanos == 0) request.infer_end_nanos = NowNanos();
  };
  if (model_.ragged().empty()) {
    ExecuteAsBatch(requests, model_.config().max_batch_size() > 0, run);
  } else {
    ExecuteRagged(requests, model_.ragged(), run);
  }
  if (model_.shrink_after_run()) model_.session().heap().Trim();
}

absl::Status OrtInstance::Run(Execution& request) {
  RETURN_IF_ERROR(StillWanted(request));
  const ScopedHeap use(&model_.session().heap());
  Call call;
  call.api = &api_;
  RETURN_IF_ERROR(MakeInputs(request, &call));
  RETURN_IF_ERROR(MakeOutputs(request, &call));
  if (call.output_names.empty()) return absl::OkStatus();

  request.infer_start_nanos = NowNanos();
  absl::Status status;
  {
    const ScopedOnCancel stop(request.cancel,
                              [this] { static_cast<void>(runtime_.Take(api_.RunOptionsSetTerminate(run_options_))); });
    status = runtime_.Take(
        api_.Run(model_.session().get(), run_options_, call.input_names.data(), call.inputs.data(), call.inputs.size(),
                 call.output_names.data(), call.output_names.size(), call.outputs.data()),
        absl::StatusCode::kInvalidArgument);
  }
  request.infer_end_nanos = NowNanos();
  if (request.cancel != nullptr && request.cancel->cancelled()) {
    RETURN_IF_ERROR(runtime_.Take(api_.RunOptionsUnsetTerminate(run_options_)));
  }
  if (!status.ok()) {
    // A model may declare its output shapes wrongly: never again beforehand.
    for (std::size_t i = 0; i < call.output_indices.size(); ++i) {
      if (call.in_place[i]) predictions_[call.output_indices[i]] = Prediction::kWrong;
    }
    const absl::Status wanted = StillWanted(request);
    return wanted.ok() ? status : wanted;
  }
  for (std::size_t i = 0; i < call.output_indices.size(); ++i) {
    if (!call.in_place[i]) RETURN_IF_ERROR(TakeOutput(request, call.output_indices[i], &call.outputs[i]));
  }
  return absl::OkStatus();
}

absl::Status OrtInstance::MakeInputs(const Execution& request, Call* call) {
  for (const InputTensor& input : request.inputs) {
    const OrtTensorPlan& plan = model_.inputs()[input.index];
    ASSIGN_OR_RETURN(OrtValuePtr value, MakeInput(input, plan, call));
    call->input_names.push_back(plan.name.c_str());
    call->inputs.push_back(value.get());
    call->input_owners.push_back(std::move(value));
  }
  return absl::OkStatus();
}

absl::StatusOr<OrtValuePtr> OrtInstance::MakeInput(const InputTensor& input, const OrtTensorPlan& plan, Call* call) {
  const std::span<const std::int64_t> shape = plan.scalar ? std::span<const std::int64_t>() : AsSpan(input.shape);
  if (plan.data_type == DataType::kBytes) return MakeStrings(input, shape);
  const std::optional<std::int64_t> bytes = TensorByteSize(plan.data_type, shape);
  if (!bytes.has_value() || static_cast<std::size_t>(*bytes) != input.data.size()) {
    return absl::InvalidArgumentError(fmt::format("input '{}' has {} bytes, but shape {} of {} needs {}", plan.name,
                                                  input.data.size(), ShapeText(shape), ProtocolName(plan.data_type),
                                                  bytes.value_or(-1)));
  }
  // The engine only reads; its interface has no const.
  auto* data = const_cast<std::byte*>(input.data.data());
  if (input.data.empty()) {
    data = no_elements;
  } else if (reinterpret_cast<std::uintptr_t>(data) % ElementByteSize(plan.data_type) != 0) {
    data = call->copies.emplace_back(input.data.begin(), input.data.end()).data();
  }
  ort::Value* value = nullptr;
  RETURN_IF_ORT_ERROR(runtime_,
                      api_.CreateTensorWithDataAsOrtValue(runtime_.memory_info(), data, input.data.size(), shape.data(),
                                                          shape.size(), plan.element_type, &value));
  return OrtValuePtr(value, {&api_});
}

absl::StatusOr<OrtValuePtr> OrtInstance::MakeStrings(const InputTensor& input, std::span<const std::int64_t> shape) {
  ort::Value* raw = nullptr;
  const std::optional<std::int64_t> count = ElementCount(shape);
  // Each element takes at least four bytes: a huge shape over little data is refused before memory is taken for it.
  if (!count.has_value() || static_cast<std::size_t>(*count) > input.data.size() / sizeof(std::uint32_t)) {
    return absl::InvalidArgumentError(fmt::format("input '{}' has {} bytes, too few for shape {} of BYTES", input.name,
                                                  input.data.size(), ShapeText(shape)));
  }
  RETURN_IF_ORT_ERROR(runtime_, api_.CreateTensorAsOrtValue(runtime_.allocator(), shape.data(), shape.size(),
                                                            OnnxOfDataType(DataType::kBytes), &raw));
  OrtValuePtr value(raw, {&api_});
  std::span<const std::byte> data = input.data;
  for (std::int64_t i = 0; i < *count; ++i) {
    std::string_view element;
    if (!NextString(&data, &element)) {
      return absl::InvalidArgumentError(
          fmt::format("input '{}': element {} of {} is cut: {} bytes are left", input.name, i, *count, data.size()));
    }
    char* target = nullptr;
    RETURN_IF_ORT_ERROR(runtime_, api_.GetResizedStringTensorElementBuffer(value.get(), static_cast<std::size_t>(i),
                                                                           element.size(), &target));
    if (!element.empty()) std::memcpy(target, element.data(), element.size());
  }
  if (!data.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("input '{}' has {} bytes more than its {} elements", input.name, data.size(), *count));
  }
  return value;
}

bool OrtInstance::Predict(const Execution& request, const OrtTensorPlan& plan, Shape* shape) const {
  for (const OrtDimSource& dim : plan.dims) {
    if (dim.value >= 0) {
      shape->push_back(dim.value);
      continue;
    }
    const auto input = std::find_if(request.inputs.begin(), request.inputs.end(), [&](const InputTensor& tensor) {
      return tensor.index == static_cast<std::size_t>(dim.input);
    });
    if (input == request.inputs.end() || input->shape.size() <= static_cast<std::size_t>(dim.axis)) return false;
    shape->push_back(input->shape[static_cast<std::size_t>(dim.axis)]);
  }
  return true;
}

absl::Status OrtInstance::MakeOutputs(const Execution& request, Call* call) {
  for (std::size_t index = 0; index < model_.outputs().size(); ++index) {
    if (!request.outputs->Wants(index)) continue;
    const OrtTensorPlan& plan = model_.outputs()[index];
    call->output_names.push_back(plan.name.c_str());
    call->output_indices.push_back(index);
    call->outputs.push_back(nullptr);
    call->in_place.push_back(false);
    Shape shape;
    if (!plan.predictable || predictions_[index] != Prediction::kTrue || !Predict(request, plan, &shape)) continue;
    const std::optional<std::int64_t> bytes = TensorByteSize(plan.data_type, AsSpan(shape));
    if (!bytes.has_value() || *bytes == 0) continue;
    const Shape shown = plan.scalar ? Shape{1} : shape;
    ASSIGN_OR_RETURN(const std::span<std::byte> target,
                     request.outputs->Allocate(index, plan.data_type, AsSpan(shown), static_cast<std::size_t>(*bytes)));
    RETURN_IF_ORT_ERROR(runtime_, api_.CreateTensorWithDataAsOrtValue(runtime_.memory_info(), target.data(),
                                                                      target.size(), shape.data(), shape.size(),
                                                                      plan.element_type, &call->outputs.back()));
    call->in_place.back() = true;
  }
  return absl::OkStatus();
}

absl::Status OrtInstance::TakeOutput(const Execution& request, std::size_t index, ort::Value** owned) {
  ort::Value* const value = *owned;
  const OrtTensorPlan& plan = model_.outputs()[index];
  ort::TensorInfo* raw = nullptr;
  RETURN_IF_ORT_ERROR(runtime_, api_.GetTensorTypeAndShape(value, &raw));
  const OrtTensorInfoPtr info(raw, {&api_});
  std::size_t rank = 0;
  RETURN_IF_ORT_ERROR(runtime_, api_.GetDimensionsCount(info.get(), &rank));
  Shape shape(rank);
  RETURN_IF_ORT_ERROR(runtime_, api_.GetDimensions(info.get(), shape.data(), rank));
  if (plan.predictable && predictions_[index] != Prediction::kWrong) {
    Shape predicted;
    const bool right = Predict(request, plan, &predicted) && predicted == shape;
    predictions_[index] = right ? Prediction::kTrue : Prediction::kWrong;
  }
  if (plan.scalar && rank == 0) shape.push_back(1);
  if (plan.data_type == DataType::kBytes) return TakeStrings(request, index, AsSpan(shape), value);
  const std::optional<std::int64_t> bytes = TensorByteSize(plan.data_type, AsSpan(shape));
  if (!bytes.has_value()) {
    return absl::InternalError(
        fmt::format("output '{}' has a shape without end: {}", plan.name, ShapeText(AsSpan(shape))));
  }
  void* data = nullptr;
  RETURN_IF_ORT_ERROR(runtime_, api_.GetTensorMutableData(value, &data));
  constexpr std::int64_t kWorthMoving = 64 << 10;
  EngineHeap& heap = model_.session().heap();
  if (request.buffers != nullptr && *bytes >= kWorthMoving && heap.Claim(data)) {
    api_.ReleaseValue(std::exchange(*owned, nullptr));
    ASSIGN_OR_RETURN(Buffer moved, heap.Move(data, static_cast<std::size_t>(*bytes), *request.buffers));
    return request.outputs->Give(index, plan.data_type, AsSpan(shape), std::move(moved));
  }
  ASSIGN_OR_RETURN(const std::span<std::byte> target,
                   request.outputs->Allocate(index, plan.data_type, AsSpan(shape), static_cast<std::size_t>(*bytes)));
  if (*bytes > 0) std::memcpy(target.data(), data, static_cast<std::size_t>(*bytes));
  return absl::OkStatus();
}

absl::Status OrtInstance::TakeStrings(const Execution& request, std::size_t index, std::span<const std::int64_t> shape,
                                      ort::Value* value) {
  constexpr std::size_t kHead = sizeof(std::uint32_t);
  const auto count = static_cast<std::size_t>(ElementCount(shape).value_or(0));
  std::size_t text = 0;
  RETURN_IF_ORT_ERROR(runtime_, api_.GetStringTensorDataLength(value, &text));
  ASSIGN_OR_RETURN(const std::span<std::byte> target,
                   request.outputs->Allocate(index, DataType::kBytes, shape, text + kHead * count));
  if (count == 0) return absl::OkStatus();
  // All texts go to the end of the buffer; then each moves forward behind its length, which never overtakes the rest.
  offsets_.resize(count + 1);
  std::byte* const texts = target.data() + kHead * count;
  RETURN_IF_ORT_ERROR(runtime_, api_.GetStringTensorContent(value, texts, text, offsets_.data(), count));
  offsets_[count] = text;
  std::byte* at = target.data();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t length = offsets_[i + 1] - offsets_[i];
    if (length > UINT32_MAX) {
      return absl::InternalError(fmt::format("output '{}': element {} has {} bytes, more than the protocol can carry",
                                             model_.outputs()[index].name, i, length));
    }
    const auto head = static_cast<std::uint32_t>(length);
    std::memcpy(at, &head, kHead);
    std::memmove(at + kHead, texts + offsets_[i], length);
    at += kHead + length;
  }
  return absl::OkStatus();
}

}  // namespace tidemark
