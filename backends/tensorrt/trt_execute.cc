#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "backends/tensorrt/trt_config.h"
#include "backends/tensorrt/trt_instance.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"

namespace tidemark {
namespace {

// How long a wait polls before the thread goes to sleep: a tiny plan is done in 10 to 20 microseconds, and waking up
// takes longer than that.
constexpr std::int64_t kPollNanos = 100'000;

absl::Status StillWanted(const Execution& request) {
  if (request.deadline_nanos != 0 && NowNanos() >= request.deadline_nanos) {
    return absl::DeadlineExceededError("the request's deadline passed during the execution");
  }
  if (request.cancel != nullptr && request.cancel->cancelled()) {
    return absl::CancelledError("the request was cancelled");
  }
  return absl::OkStatus();
}

cuda::Pointer ToPointer(const std::byte* data) { return reinterpret_cast<std::uintptr_t>(data); }

std::int64_t ValueAt(const TrtTensor& tensor, const std::byte* data, std::size_t index) {
  if (tensor.type == nv::DataType::kInt64) {
    std::int64_t value = 0;
    std::memcpy(&value, data + index * sizeof value, sizeof value);
    return value;
  }
  std::int32_t value = 0;
  std::memcpy(&value, data + index * sizeof value, sizeof value);
  return value;
}

}  // namespace

void TrtInstance::Execute(std::span<Execution* const> requests) noexcept {
  const std::int64_t start = NowNanos();
  for (Execution* request : requests) {
    request->status = absl::OkStatus();
    request->infer_start_nanos = start;
  }
  absl::Status failure;
  try {
    RunAll(requests);
  } catch (const std::bad_alloc&) {
    failure = absl::ResourceExhaustedError("out of host memory");
  } catch (const std::exception& error) {
    failure = absl::InternalError(error.what());
  }
  for (Execution* request : requests) {
    if (request->status.ok() && !failure.ok()) request->status = failure;
    if (request->infer_end_nanos == 0) request->infer_end_nanos = NowNanos();
  }
}

void TrtInstance::RunAll(std::span<Execution* const> requests) {
  struct Pending {
    Execution* request;
    std::int64_t size;
  };
  absl::InlinedVector<Pending, 16> pending;
  const absl::Status device = gpus_.Use(device_);
  for (Execution* request : requests) {
    std::int64_t size = 1;
    request->status = device.ok() ? StillWanted(*request) : device;
    if (request->status.ok()) request->status = CheckRequest(*request, &size);
    if (request->status.ok()) pending.push_back({request, size});
  }
  while (!pending.empty()) {
    Batch batch;
    batch.requests.push_back(pending[0].request);
    batch.sizes.push_back(pending[0].size);
    batch.total = pending[0].size;
    std::size_t kept = 0;
    for (std::size_t i = 1; i < pending.size(); ++i) {
      if (splits_ && batch.total + pending[i].size <= batch_limit_ &&
          SameShapes(*batch.requests[0], *pending[i].request)) {
        batch.requests.push_back(pending[i].request);
        batch.sizes.push_back(pending[i].size);
        batch.total += pending[i].size;
      } else {
        pending[kept++] = pending[i];
      }
    }
    pending.resize(kept);
    RunBatch(batch);
  }
}

void TrtInstance::RunBatch(Batch& batch) {
  bool again = false;
  const absl::Status status = TryBatch(batch, &again);
  if (status.ok()) return;
  if (again && batch.requests.size() > 1 && gpus_.Health(device_).ok()) {
    // One of them, or their number, was too much: each on its own then, so that only what fails alone fails.
    for (std::size_t i = 0; i < batch.requests.size(); ++i) {
      Batch single;
      single.requests.push_back(batch.requests[i]);
      single.sizes.push_back(batch.sizes[i]);
      single.total = batch.sizes[i];
      RunBatch(single);
    }
    return;
  }
  for (Execution* request : batch.requests) {
    if (request->status.ok()) request->status = status;
  }
}

const InputTensor* TrtInstance::InputOf(const Execution& request, const Binding& binding) const {
  for (const InputTensor& input : request.inputs) {
    const bool same = binding.config_index >= 0 ? input.index == static_cast<std::size_t>(binding.config_index) &&
                                                      input.name == binding.tensor->name
                                                : input.name == binding.tensor->name;
    if (same) return &input;
  }
  return nullptr;
}

absl::Status TrtInstance::CheckRequest(const Execution& request, std::int64_t* batch_size) const {
  *batch_size = 1;
  bool first = true;
  for (const std::size_t i : inputs_) {
    const Binding& binding = bindings_[i];
    const TrtTensor& tensor = *binding.tensor;
    const InputTensor* const input = InputOf(request, binding);
    if (input == nullptr) {
      return absl::InvalidArgumentError(fmt::format("request has no input '{}' for {}", tensor.name, name_));
    }
    if (tensor.shape) {
      const std::size_t element = ElementBytes(tensor.type);
      const auto full = static_cast<std::size_t>(tensor.length()) * element;
      if (input->data.size() == full || (batching() && input->data.size() + element == full)) continue;
      return absl::InvalidArgumentError(fmt::format(
          "shape tensor for input '{}' expected byte size is {}{}, got {}", tensor.name,
          batching() ? full - element : full,
          batching() ? fmt::format(" or {} if input includes batch shape value", full) : "", input->data.size()));
    }
    if (input->shape.size() != tensor.dims.size()) {
      return absl::InvalidArgumentError(fmt::format(
          "request specifies invalid shape for input '{}' for {}. Error details: model expected {} dimensions "
          "but received {} dimensions",
          tensor.name, name_, tensor.dims.size(), input->shape.size()));
    }
    if (!batching()) continue;
    if (!first && input->shape[0] != *batch_size) {
      return absl::InvalidArgumentError(
          fmt::format("input '{}' batch size does not match other inputs for '{}'", tensor.name, config_.name()));
    }
    *batch_size = input->shape[0];
    first = false;
  }
  if (batching() && *batch_size > config_.max_batch_size()) {
    return absl::InvalidArgumentError(
        fmt::format("batch size {} for '{}', max allowed is {}", *batch_size, name_, config_.max_batch_size()));
  }
  return absl::OkStatus();
}

bool TrtInstance::SameShapes(const Execution& a, const Execution& b) const {
  for (const std::size_t i : inputs_) {
    const InputTensor* const left = InputOf(a, bindings_[i]);
    const InputTensor* const right = InputOf(b, bindings_[i]);
    if (bindings_[i].tensor->shape) {
      if (!std::equal(left->data.begin(), left->data.end(), right->data.begin(), right->data.end())) return false;
    } else if (!std::equal(left->shape.begin() + 1, left->shape.end(), right->shape.begin() + 1, right->shape.end())) {
      return false;
    }
  }
  return true;
}

// The shapes of the whole batch's inputs, by binding.
std::vector<Shape>& TrtInstance::WantedShapes(const Batch& batch) {
  wanted_.resize(bindings_.size());
  for (const std::size_t i : inputs_) {
    if (bindings_[i].tensor->shape) {
      wanted_[i] = bindings_[i].tensor->dims;
      continue;
    }
    wanted_[i] = InputOf(*batch.requests[0], bindings_[i])->shape;
    if (batching()) wanted_[i][0] = batch.total;
  }
  return wanted_;
}

// Puts the values of shape inputs where the library reads them.
void TrtInstance::FillShapeInputs(const Batch& batch) {
  for (const std::size_t i : inputs_) {
    Binding& binding = bindings_[i];
    const TrtTensor& tensor = *binding.tensor;
    if (!tensor.shape) continue;
    const std::span<const std::byte> data = InputOf(*batch.requests[0], binding)->data;
    const std::size_t element = ElementBytes(tensor.type);
    std::vector<std::byte> values(static_cast<std::size_t>(tensor.length()) * element);
    const std::size_t lead = values.size() - data.size();  // the batch size goes in front, if it is not there
    if (!data.empty()) std::memcpy(values.data() + lead, data.data(), data.size());
    if (lead > 0) std::memcpy(values.data(), &batch.total, element);  // little-endian
    if (values == shape_values_[i]) continue;
    ++values_;
    std::memcpy(binding.host, values.data(), values.size());
    shape_values_[i] = std::move(values);
  }
}

// How far a profile's best shapes are from these; -1 when they are out of its bounds.
std::int64_t TrtInstance::Distance(const Profile& profile, const std::vector<Shape>& shapes) const {
  const auto p = static_cast<std::size_t>(profile.index);
  std::int64_t distance = 0;
  for (const std::size_t i : inputs_) {
    const TrtTensor& tensor = *bindings_[i].tensor;
    if (tensor.shape) {
      if (shape_values_.size() <= i || shape_values_[i].empty() || p >= tensor.values.size()) continue;
      const TrtRange& range = tensor.values[p];
      for (std::size_t k = 0; k < range.max.size() && k < range.min.size(); ++k) {
        const std::int64_t value = ValueAt(tensor, shape_values_[i].data(), k);
        if (value < range.min[k] || value > range.max[k]) return -1;
        distance += std::abs(value - range.opt[k]);
      }
      continue;
    }
    const TrtRange& range = tensor.dim_range[p];
    if (range.max.size() != shapes[i].size()) return -1;
    for (std::size_t k = 0; k < shapes[i].size(); ++k) {
      if (shapes[i][k] < range.min[k] || shapes[i][k] > range.max[k]) return -1;
      distance += std::abs(shapes[i][k] - range.opt[k]);
    }
  }
  return distance;
}

absl::Status TrtInstance::WhyOutOfRange(const Profile& profile, const std::vector<Shape>& shapes) const {
  const auto p = static_cast<std::size_t>(profile.index);
  for (const std::size_t i : inputs_) {
    const TrtTensor& tensor = *bindings_[i].tensor;
    if (tensor.shape) {
      if (shape_values_[i].empty() || p >= tensor.values.size()) continue;
      const TrtRange& range = tensor.values[p];
      for (std::size_t k = 0; k < range.max.size() && k < range.min.size(); ++k) {
        const std::int64_t value = ValueAt(tensor, shape_values_[i].data(), k);
        if (value >= range.min[k] && value <= range.max[k]) continue;
        return absl::InvalidArgumentError(
            fmt::format("The shape value at index {} is expected to be in range from {} to "
                        "{}, Got: {} (input '{}' for {})",
                        k, range.min[k], range.max[k], value, tensor.name, name_));
      }
      continue;
    }
    const TrtRange& range = tensor.dim_range[p];
    for (std::size_t k = 0; k < shapes[i].size() && k < range.max.size(); ++k) {
      if (shapes[i][k] >= range.min[k] && shapes[i][k] <= range.max[k]) continue;
      return absl::InvalidArgumentError(fmt::format(
          "request specifies invalid shape for input '{}' for {}. Error details: model expected the shape of "
          "dimension {} to be between {} and {} but received {}",
          tensor.name, name_, k, range.min[k], range.max[k], shapes[i][k]));
    }
  }
  return absl::InvalidArgumentError(fmt::format("request specifies an invalid shape for {}", name_));
}

absl::Status TrtInstance::ChooseProfile(Batch& batch, const std::vector<Shape>& shapes) {
  std::int64_t best = -1;
  for (Profile& profile : profiles_) {
    const std::int64_t distance = Distance(profile, shapes);
    if (distance < 0 || (best >= 0 && distance >= best)) continue;
    best = distance;
    batch.profile = &profile;
  }
  if (batch.profile != nullptr) return absl::OkStatus();
  return WhyOutOfRange(profiles_[0], shapes);
}

void TrtInstance::FindGraph(Batch& batch, std::vector<Shape>& shapes) {
  if (graphs_.empty()) return;
  const auto position = static_cast<std::size_t>(batch.profile - profiles_.data());
  key_ = KeyOf(position, shapes);
  if (const auto it = graphs_.find(key_); it != graphs_.end()) {
    batch.graph = &it->second;
    batch.shapes = &it->second.shapes;
    return;
  }
  if (!batching()) return;
  // A graph of a larger batch, where the configuration allows it; the smallest that does.
  for (const auto& entry : graphs_) {
    const CapturedGraph& captured = entry.second;
    if (entry.first[0] != static_cast<std::int64_t>(position)) continue;
    const std::int64_t size = captured.shapes[inputs_[0]][0];
    if (batch.total < captured.lowest_batch || batch.total > size) continue;
    if (batch.graph != nullptr && batch.graph->shapes[inputs_[0]][0] <= size) continue;
    const bool same = std::all_of(inputs_.begin(), inputs_.end(), [&](std::size_t i) {
      return std::equal(shapes[i].begin() + 1, shapes[i].end(), captured.shapes[i].begin() + 1,
                        captured.shapes[i].end());
    });
    if (same) batch.graph = &captured;
  }
  if (batch.graph == nullptr) return;
  for (std::size_t i = 0; i < bindings_.size(); ++i) {
    shapes[i] = batch.graph->shapes[i];
    if (!shapes[i].empty()) shapes[i][0] = batch.total;
  }
  batch.shapes = &shapes;
}

absl::Status TrtInstance::SetShapes(Profile& profile, const std::vector<Shape>& shapes) {
  bool changed = profile.values != values_ || profile.shapes.empty();
  if (profile.shapes.empty()) profile.shapes.resize(bindings_.size());
  for (const std::size_t i : inputs_) {
    const Binding& binding = bindings_[i];
    const char* const tensor = binding.tensor->name.c_str();
    if (profile.shapes[i] != shapes[i] || changed) {
      changed = true;
      errors_.Clear();
      if (!profile.context.set_input_shape(tensor, nv::ToDims(shapes[i]))) {
        profile.shapes.clear();
        return absl::InvalidArgumentError(
            fmt::format("trt failed to set binding dimension to {} for input '{}' for {}: {}",
                        ShapeText(AsSpan(shapes[i])), tensor, name_, errors_.Text("the library gave no reason")));
      }
      profile.shapes[i] = shapes[i];
    }
    // The values are read when the address is set.
    if (binding.tensor->shape && changed &&
        !profile.context.set_address(tensor, reinterpret_cast<void*>(static_cast<std::uintptr_t>(binding.address)))) {
      profile.shapes.clear();
      return absl::InternalError(
          fmt::format("trt failed to set the input shape binding for '{}' for {}", tensor, name_));
    }
  }
  if (!changed) return absl::OkStatus();
  profile.values = values_;
  errors_.Clear();
  const char* missing[4] = {};
  const int inferred = profile.context.infer_shapes(4, missing);
  if (inferred != 0) {
    profile.shapes.clear();
    return absl::InvalidArgumentError(fmt::format(
        "failed to specify the dimensions of all input tensors or values of all input shape tensors{}{} for "
        "{}: {}",
        inferred > 0 ? ", missing: " : "", inferred > 0 && missing[0] != nullptr ? missing[0] : "", name_,
        errors_.Text("the library gave no reason")));
  }
  for (const std::size_t i : outputs_) {
    profile.shapes[i] = nv::ToShape(profile.context.tensor_shape(bindings_[i].tensor->name.c_str()));
  }
  return absl::OkStatus();
}

absl::Status TrtInstance::CheckBytes(const Batch& batch) const {
  for (const std::size_t i : inputs_) {
    const Binding& binding = bindings_[i];
    if (binding.tensor->shape) continue;
    std::size_t total = 0;
    for (const Execution* request : batch.requests) {
      const InputTensor* const input = InputOf(*request, binding);
      const std::int64_t bytes = MemoryBytes(*binding.tensor, FormatOf(binding, *batch.profile), input->shape);
      if (bytes < 0 || static_cast<std::size_t>(bytes) != input->data.size()) {
        return absl::InvalidArgumentError(
            fmt::format("input byte size mismatch for input '{}' for model '{}'. Expected "
                        "{}, got {}",
                        binding.tensor->name, config_.name(), bytes, input->data.size()));
      }
      total += input->data.size();
    }
    if (total > binding.capacity) {
      return absl::InternalError(fmt::format("input '{}' for {} has {} bytes, more than its buffer's {}",
                                             binding.tensor->name, name_, total, binding.capacity));
    }
  }
  return absl::OkStatus();
}

absl::Status TrtInstance::CopyInput(const Batch& batch, const Binding& binding) {
  absl::InlinedVector<std::span<const std::byte>, 16> pieces;  // of the host, one behind the other
  cuda::Pointer to = binding.address;                          // where `pieces` go
  std::size_t offset = 0;
  std::size_t waiting = 0;  // bytes of `pieces`
  const auto flush = [&]() -> absl::Status {
    absl::Status status;
    if (!pieces.empty()) status = copier_->In(to, {pieces.data(), pieces.size()});
    to += waiting;
    waiting = 0;
    pieces.clear();
    return status;
  };
  for (const Execution* request : batch.requests) {
    const InputTensor& input = *InputOf(*request, binding);
    const std::size_t bytes = input.data.size();
    if (bytes == 0) continue;
    if (input.device != kHost) {
      RETURN_IF_ERROR(flush());
      const cuda::Pointer from = ToPointer(input.data.data());
      const cuda::Result copied = binding.host != nullptr
                                      ? gpus_.api().copy_to_host(binding.host + offset, from, bytes, stream_.stream)
                                      : gpus_.api().copy_on_device(to, from, bytes, stream_.stream);
      RETURN_IF_ERROR(gpus_.Check(device_, copied, "copy an input that lies on the GPU"));
      if (binding.tensor->host) {  // the library itself reads it, when the execution is enqueued
        RETURN_IF_ERROR(gpus_.Check(device_, gpus_.api().synchronize_stream(stream_.stream), "wait for an input"));
      }
      to += bytes;
    } else if (binding.host != nullptr) {
      std::memcpy(binding.host + offset, input.data.data(), bytes);
    } else {
      pieces.push_back(input.data);
      waiting += bytes;
    }
    offset += bytes;
  }
  return flush();
}

absl::Status TrtInstance::CopyInputs(const Batch& batch) {
  for (const std::size_t i : inputs_) {
    const Binding& binding = bindings_[i];
    if (binding.tensor->shape && binding.host != nullptr && binding.tensor->host) continue;  // FillShapeInputs did it
    RETURN_IF_ERROR(CopyInput(batch, binding));
  }
  return absl::OkStatus();
}

absl::Status TrtInstance::Enqueue(const Batch& batch) {
  if (batch.graph != nullptr) {
    return gpus_.Check(device_, gpus_.api().launch(batch.graph->graph.exec, stream_.stream),
                       fmt::format("unable to execute graph for inference {}", name_));
  }
  errors_.Clear();
  if (batch.profile->context.enqueue(stream_.stream)) return absl::OkStatus();
  batch.profile->shapes.clear();
  const std::string why =
      fmt::format("unable to enqueue for inference {}: {}", name_, errors_.Text("the library gave no reason"));
  absl::Status refusal = temporaries_->TakeRefusal();
  for (Binding& binding : bindings_) {
    if (binding.grows == nullptr) continue;
    const absl::Status refused = binding.grows->TakeRefusal();
    if (refusal.ok()) refusal = refused;
  }
  if (!refusal.ok()) return absl::Status(refusal.code(), fmt::format("{} ({})", why, MessageOf(refusal)));
  if (errors_.Has(nv::ErrorCode::kFailedAllocation)) return absl::ResourceExhaustedError(why);
  if (errors_.Has(nv::ErrorCode::kInternalError)) {
    LOG_ERROR("{} lost its state: {}", name_, why);
    unhealthy_.store(true, std::memory_order_release);
  }
  return absl::InternalError(why);
}

absl::Status TrtInstance::MakeOutputs(const Batch& batch, std::size_t index, const Shape& shape) {
  const Binding& binding = bindings_[index];
  const TrtFormat& format = FormatOf(binding, *batch.profile);
  std::vector<TrtCopier::Piece>& pieces = targets_[index];
  pieces.clear();
  if (splits_ && (shape.empty() || shape[0] != batch.total)) {
    return absl::InternalError(fmt::format("unexpected size for output '{}', shape {} is not that of a batch of {}",
                                           binding.tensor->name, ShapeText(AsSpan(shape)), batch.total));
  }
  const auto type = static_cast<DataType>(config_.output(binding.config_index).data_type());
  std::size_t total = 0;
  for (std::size_t r = 0; r < batch.requests.size(); ++r) {
    Execution& request = *batch.requests[r];
    Shape mine = shape;
    if (splits_) mine[0] = batch.sizes[r];
    const std::int64_t bytes = MemoryBytes(*binding.tensor, format, mine);
    if (bytes < 0) {
      return absl::InternalError(fmt::format("unable to calculate size for output '{}' of shape {} for {}",
                                             binding.tensor->name, ShapeText(AsSpan(mine)), name_));
    }
    TrtCopier::Piece piece{nullptr, static_cast<std::size_t>(bytes), false};
    total += piece.bytes;
    const auto config_index = static_cast<std::size_t>(binding.config_index);
    if (request.status.ok() && request.outputs->Wants(config_index)) {
      const absl::StatusOr<OutputSink::Memory> target =
          request.outputs->AllocateOn(device_, config_index, type, AsSpan(mine), piece.bytes);
      if (target.ok()) {
        piece.to = target->bytes.data();
        piece.on_device = target->device != kHost;
      } else {
        request.status = target.status();
      }
    }
    pieces.push_back(piece);
  }
  if (binding.grows == nullptr && total > binding.capacity) {
    return absl::InternalError(fmt::format("unexpected size for output '{}', byte-size {} is less than {} (shape {})",
                                           binding.tensor->name, binding.capacity, total, ShapeText(AsSpan(shape))));
  }
  return absl::OkStatus();
}

// Pieces on the device go there on the stream, the others through the copier; of memory that the host reaches, the host
// takes its pieces later by itself.
absl::Status TrtInstance::Fetch(cuda::Pointer from, const std::byte* host, std::span<const TrtCopier::Piece> pieces) {
  std::size_t begin = 0;  // of the pieces for the copier
  cuda::Pointer at = from;
  const auto flush = [&](std::size_t end) -> absl::Status {
    if (host != nullptr || begin == end) return absl::OkStatus();
    return copier_->Out(from, pieces.subspan(begin, end - begin));
  };
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const TrtCopier::Piece& piece = pieces[i];
    if (piece.on_device) {
      RETURN_IF_ERROR(flush(i));
      begin = i + 1;
      from = at + piece.bytes;
      if (piece.bytes > 0) {
        device_copies_ = true;
        const cuda::Pointer to = ToPointer(piece.to);
        const cuda::Result copied = host != nullptr ? gpus_.api().copy_to_device(to, host, piece.bytes, stream_.stream)
                                                    : gpus_.api().copy_on_device(to, at, piece.bytes, stream_.stream);
        RETURN_IF_ERROR(gpus_.Check(device_, copied, "copy an output to where the client wants it on the GPU"));
      }
    }
    at += piece.bytes;
    if (host != nullptr) host += piece.bytes;
  }
  return flush(pieces.size());
}

absl::Status TrtInstance::StartOutputs(const Batch& batch) {
  for (const std::size_t i : outputs_) {
    const Binding& binding = bindings_[i];
    if (binding.grows != nullptr) continue;
    RETURN_IF_ERROR(MakeOutputs(batch, i, (*batch.shapes)[i]));
    RETURN_IF_ERROR(Fetch(binding.address, binding.host, targets_[i]));
  }
  return absl::OkStatus();
}

absl::Status TrtInstance::FinishOutputs(const Batch& batch) {
  for (const std::size_t i : outputs_) {
    const Binding& binding = bindings_[i];
    if (binding.grows != nullptr) {
      RETURN_IF_ERROR(MakeOutputs(batch, i, nv::ToShape(binding.grows->shape())));
      RETURN_IF_ERROR(Fetch(binding.grows->address(), nullptr, targets_[i]));
    } else if (binding.host != nullptr) {
      const std::byte* from = binding.host;
      for (const TrtCopier::Piece& piece : targets_[i]) {
        if (piece.to != nullptr && !piece.on_device) std::memcpy(piece.to, from, piece.bytes);
        from += piece.bytes;
      }
    }
  }
  return absl::OkStatus();
}

absl::Status TrtInstance::Wait() {
  if (!spin_) {
    const std::int64_t until = NowNanos() + kPollNanos;
    do {
      const cuda::Result result = gpus_.api().query_event(done_.event);
      if (result == cuda::kSuccess) return absl::OkStatus();
      if (result != cuda::kNotReady) return gpus_.Check(device_, result, "an execution failed");
    } while (NowNanos() < until);
  }
  return gpus_.Check(device_, gpus_.api().synchronize_event(done_.event), "an execution failed");
}

absl::Status TrtInstance::TryBatch(Batch& batch, bool* again) {
  *again = true;
  device_copies_ = false;
  FillShapeInputs(batch);
  std::vector<Shape>& shapes = WantedShapes(batch);
  RETURN_IF_ERROR(ChooseProfile(batch, shapes));
  RETURN_IF_ERROR(CheckBytes(batch));
  FindGraph(batch, shapes);
  if (batch.graph == nullptr) {
    RETURN_IF_ERROR(SetShapes(*batch.profile, shapes));
    batch.shapes = &batch.profile->shapes;
  }
  absl::Status status = CopyInputs(batch);
  const std::int64_t start = NowNanos();
  for (Execution* request : batch.requests) request->infer_start_nanos = start;
  if (status.ok()) status = Enqueue(batch);
  if (status.ok()) {
    *again = false;  // from here on the requests' outputs are asked for, which is done once
    status = gpus_.Check(device_, gpus_.api().record_event(done_.event, stream_.stream), "record an event");
    if (status.ok()) status = StartOutputs(batch);
    if (status.ok()) status = Wait();
    const std::int64_t end = NowNanos();
    for (Execution* request : batch.requests) request->infer_end_nanos = end;
    if (status.ok()) status = FinishOutputs(batch);
    if (status.ok() && copier_ == nullptr && !device_copies_) return status;
  }
  // Copies are on their way, or something went wrong: nothing may be in use any more when this returns.
  const absl::Status idle =
      status.ok() && !device_copies_ && copier_->stages_out()
          ? absl::OkStatus()
          : gpus_.Check(device_, gpus_.api().synchronize_stream(stream_.stream), "wait for an execution");
  const absl::Status drained = copier_ != nullptr ? copier_->Drain() : absl::OkStatus();
  if (status.ok()) status = idle;
  if (status.ok()) status = drained;
  return status;
}

}  // namespace tidemark
