#include "inference/output_sink.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/status.h"

namespace tidemark {

bool ResponseSink::Wants(std::size_t index) const { return IsState(index) || ClientWants(index); }

bool ResponseSink::IsState(std::size_t index) const {
  return tensors_ != nullptr && tensors_->StateOfOutput(index).has_value();
}

bool ResponseSink::ClientWants(std::size_t index) const {
  if (index >= info_.outputs().size()) return false;
  if (request_.outputs.empty()) return true;
  const std::string& name = info_.outputs()[index].name;
  return std::any_of(request_.outputs.begin(), request_.outputs.end(),
                     [&](const RequestedOutput& output) { return output.name == name; });
}

// `shape` is what the engine made. With a reshape the client sees the declared dims, their variable ones taken from the
// engine's variable ones, left to right; the batch dimension stays in front.
Shape ResponseSink::ClientShape(const TensorInfo& info, std::span<const std::int64_t> shape) const {
  if (!info.reshaped || shape.size() != info.backend_dims.size()) return Shape(shape.begin(), shape.end());
  Shape result = info.dims;
  std::size_t from = 0;
  for (std::int64_t& dim : result) {
    if (dim >= 0) continue;
    while (from < shape.size() && info.backend_dims[from] >= 0) ++from;
    dim = from < shape.size() ? shape[from++] : 1;
  }
  return result;
}

const RequestedOutput* ResponseSink::Asked(std::string_view name) const {
  const auto it = std::find_if(request_.outputs.begin(), request_.outputs.end(),
                               [&](const RequestedOutput& output) { return output.name == name; });
  return it != request_.outputs.end() ? &*it : nullptr;
}

// An engine may write straight into a client's region when the memory is what engines are promised: on the host and
// aligned, or on the engine's own GPU, and none of the request's inputs, which it may still be reading.
bool ResponseSink::WritesInto(std::span<const std::byte> memory, DeviceId device, DeviceId engine) const {
  constexpr std::uintptr_t kAlignment = 64;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  if (device != kHost && device != engine) return false;
  if (device == kHost && begin % kAlignment != 0) return false;
  return std::none_of(request_.inputs.begin(), request_.inputs.end(), [&](const RequestInput& input) {
    const auto other = reinterpret_cast<std::uintptr_t>(input.data.data());
    return begin < other + input.data.size() && other < begin + memory.size();
  });
}

absl::StatusOr<std::span<std::byte>> ResponseSink::Allocate(std::size_t index, DataType data_type,
                                                            std::span<const std::int64_t> shape, std::size_t bytes) {
  ASSIGN_OR_RETURN(const Memory memory, AllocateOn(kHost, index, data_type, shape, bytes));
  return memory.bytes;
}

absl::StatusOr<OutputSink::Memory> ResponseSink::AllocateOn(DeviceId device, std::size_t index, DataType data_type,
                                                            std::span<const std::int64_t> shape, std::size_t bytes) {
  if (tensors_ != nullptr && !ClientWants(index)) {
    if (const std::optional<std::size_t> state = tensors_->StateOfOutput(index); state.has_value()) {
      ASSIGN_OR_RETURN(const std::span<std::byte> memory, AllocateState(*state, data_type, shape, bytes));
      return Memory{memory, kHost};
    }
  }
  const RequestedOutput* const asked = Asked(info_.outputs()[index].name);
  const bool shared = asked != nullptr && asked->destination;
  if (shared && bytes > asked->destination.bytes.size()) {
    return absl::InvalidArgumentError(
        fmt::format("shared memory size specified with the request for output '{}' ({} bytes) should be at least {} "
                    "bytes to hold the results",
                    asked->name, asked->destination.bytes.size(), bytes));
  }
  const bool in_place =
      shared && !IsState(index) && WritesInto(asked->destination.bytes.first(bytes), asked->destination.device, device);
  Buffer buffer;
  if (!in_place) {
    ASSIGN_OR_RETURN(buffer, buffers_.Allocate(bytes));
  }
  ResponseOutput& output = AddOutput(index, data_type, shape);
  output.data = std::move(buffer);
  output.shared = shared;
  if (in_place) return Memory{asked->destination.bytes.first(bytes), asked->destination.device};
  return Memory{output.data.bytes(), kHost};
}

ResponseOutput& ResponseSink::AddOutput(std::size_t index, DataType data_type, std::span<const std::int64_t> shape) {
  if (info_.decoupled() && output_start_ == 0) output_start_ = NowNanos();
  const TensorInfo& info = info_.outputs()[index];
  ResponseOutput& output = request_.response.outputs.emplace_back();
  output.index = index;
  output.name = info.name;
  output.data_type = data_type;
  output.shape = ClientShape(info, shape);
  return output;
}

absl::Status ResponseSink::Give(std::size_t index, DataType data_type, std::span<const std::int64_t> shape,
                                Buffer data) {
  // A client's region and a state's memory get a copy. A state may lie behind the model's outputs.
  const RequestedOutput* const asked = IsState(index) ? nullptr : Asked(info_.outputs()[index].name);
  if (IsState(index) || (asked != nullptr && asked->destination)) {
    return OutputSink::Give(index, data_type, shape, std::move(data));
  }
  AddOutput(index, data_type, shape).data = std::move(data);
  return absl::OkStatus();
}

// Puts what was made elsewhere into the client's regions. After this the outputs that lie there have no data of their own.
absl::Status ResponseSink::FillRegions() {
  for (ResponseOutput& output : request_.response.outputs) {
    if (!output.shared || output.data.empty()) continue;
    const SharedMemoryLease& destination = Asked(output.name)->destination;
    RETURN_IF_ERROR(
        destination.region->Write(output.data.bytes(), destination.bytes.first(output.data.bytes().size())));
    output.data.Reset();
  }
  return CheckRegions(request_);
}

absl::StatusOr<std::span<std::byte>> ResponseSink::AllocateState(std::size_t state, DataType data_type,
                                                                 std::span<const std::int64_t> shape,
                                                                 std::size_t bytes) {
  StateTensor made;
  made.data_type = data_type;
  made.shape = Shape(shape.begin(), shape.end());
  ASSIGN_OR_RETURN(made.data, buffers_.Allocate(bytes));
  const std::span<std::byte> memory = made.data.bytes();
  states_->next[state] = std::move(made);
  return memory;
}

absl::Status ResponseSink::CopyStates() {
  if (tensors_ == nullptr) return absl::OkStatus();
  for (const ResponseOutput& output : request_.response.outputs) {
    const std::optional<std::size_t> state = tensors_->StateOfOutput(output.index);
    if (!state.has_value()) continue;
    ASSIGN_OR_RETURN(const std::span<std::byte> target,
                     AllocateState(*state, output.data_type, AsSpan(output.shape), output.data.size()));
    if (!target.empty()) std::memcpy(target.data(), output.data.data(), target.size());
  }
  return absl::OkStatus();
}

absl::Status ResponseSink::PutInOrder(bool complete) {
  std::vector<ResponseOutput>& made = request_.response.outputs;
  const std::size_t wanted = request_.outputs.empty() ? info_.outputs().size() : request_.outputs.size();
  std::size_t place = 0;
  for (std::size_t i = 0; i < wanted; ++i) {
    const std::string& name = request_.outputs.empty() ? info_.outputs()[i].name : request_.outputs[i].name;
    const auto it = std::find_if(made.begin() + static_cast<std::ptrdiff_t>(std::min(place, made.size())), made.end(),
                                 [&](const ResponseOutput& output) { return output.name == name; });
    if (it != made.end()) {
      std::iter_swap(made.begin() + static_cast<std::ptrdiff_t>(place++), it);
    } else if (complete) {
      return absl::InternalError(
          fmt::format("model '{}' version {} made no output '{}'", info_.name(), info_.version(), name));
    }
  }
  made.resize(place);
  return FillRegions();
}

void ResponseSink::EndResponse(ResponseOutcome outcome) {
  const std::int64_t end = NowNanos();
  if (statistics_ != nullptr) {
    statistics_->RecordResponse(responses_, outcome, start_, output_start_ != 0 ? output_start_ : end, end);
    if (responses_ == 0) statistics_->RecordFirstResponse(end - request_.times.received);
  }
  start_ = end;
  output_start_ = 0;
  ++responses_;
}

absl::Status ResponseSink::Send() {
  if (!info_.decoupled()) return OutputSink::Send();
  if (request_.cancel != nullptr && request_.cancel->cancelled()) {
    request_.response.outputs.clear();
    return absl::CancelledError("");
  }
  RETURN_IF_ERROR(CopyStates());
  RETURN_IF_ERROR(PutInOrder(false));
  const ResponseOutcome outcome =
      request_.response.outputs.empty() ? ResponseOutcome::kEmpty : ResponseOutcome::kSuccess;
  InferenceResponse response = std::exchange(request_.response, {});
  if (request_.on_response) request_.on_response(std::move(response));
  EndResponse(outcome);
  return absl::OkStatus();
}

absl::Status ResponseSink::Finish(const absl::Status& status, bool again) {
  if (states_ == nullptr) return FinishResponse(status, again);
  absl::Status finished = info_.decoupled() || !status.ok() ? status : CopyStates();
  finished = FinishResponse(finished, again);
  if (finished.ok()) {
    states_->Commit();
  } else {
    states_->Discard();
  }
  return finished;
}

absl::Status ResponseSink::FinishResponse(const absl::Status& status, bool again) {
  if (again && status.ok() && (!info_.decoupled() || request_.response.outputs.empty())) {
    request_.response.outputs.clear();
    return absl::OkStatus();
  }
  if (!info_.decoupled()) return status.ok() ? PutInOrder(true) : status;
  absl::Status ended = status;
  if (ended.ok() && !request_.response.outputs.empty()) {
    ended = Send();
    if (ended.ok()) return ended;
  }
  request_.response.outputs.clear();
  EndResponse(ended.ok()                 ? ResponseOutcome::kEmpty
              : absl::IsCancelled(ended) ? ResponseOutcome::kCancel
                                         : ResponseOutcome::kFail);
  return ended;
}

}  // namespace tidemark
