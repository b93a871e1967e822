#include "inference/request.h"

#include <fmt/format.h>

#include "base/status.h"
#include "inference/registry.h"

namespace tidemark {

InferenceRequest::InferenceRequest() : model_(std::make_unique<ModelHandle>()) {}
InferenceRequest::~InferenceRequest() = default;

void InferenceRequest::set_model(ModelHandle handle) { *model_ = std::move(handle); }

std::string InferenceRequest::Prefix() const {
  return fmt::format("[request id: {}] ", id.empty() ? std::string_view("<id_unknown>") : std::string_view(id));
}

void InferenceRequest::Clear() {
  id.clear();
  sequence_id = std::uint64_t{0};
  sequence_start = sequence_end = false;
  priority = timeout_us = 0;
  deadline_nanos = 0;
  parameters.clear();
  inputs.clear();
  outputs.clear();
  binary_data_output = false;
  raw = false;
  times = {};
  trace.reset();
  cancel.reset();
  response.status = absl::OkStatus();
  response.outputs.clear();
  response.parameters.clear();
  on_response = nullptr;
  on_complete = nullptr;
  body.Reset();
  model_->Reset();
}

absl::Status LendInput(SharedMemoryLease lease, BufferPool& pool, InferenceRequest& request, RequestInput& input) {
  const bool here = lease.device == kHost || (request.model() && request.model()->info().TakesDeviceMemory(input.name));
  if (here && input.data_type != DataType::kBytes) {
    input.data = lease.bytes;
    input.region = std::move(lease);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(input.owned, pool.Allocate(lease.bytes.size()));
  RETURN_IF_ERROR(lease.region->Read(lease.bytes, input.owned.bytes()));
  input.data = input.owned.bytes();
  return lease.region->Check();
}

absl::Status BringToHost(BufferPool& pool, RequestInput& input) {
  if (input.device() == kHost) return absl::OkStatus();
  ASSIGN_OR_RETURN(Buffer host, pool.Allocate(input.data.size()));
  RETURN_IF_ERROR(input.region.region->Read(input.data, host.bytes()));
  input.owned = std::move(host);
  input.data = input.owned.bytes();
  return absl::OkStatus();
}

void TraceStart(InferenceRequest& request) {
  if (request.trace == nullptr) return;
  for (const RequestInput& input : request.inputs) {
    if (input.device() == kHost) {
      request.trace->AddTensor("TENSOR_QUEUE_INPUT", input.name, input.data_type, AsSpan(input.shape), input.data);
      continue;
    }
    std::vector<std::byte> copy(input.data.size());
    if (!input.region.region->Read(input.data, copy).ok()) continue;
    request.trace->AddTensor("TENSOR_QUEUE_INPUT", input.name, input.data_type, AsSpan(input.shape), copy);
  }
}

void TraceEnd(InferenceRequest& request) {
  if (request.trace == nullptr) return;
  request.trace->MarkTimes(request.times);
  for (const ResponseOutput& output : request.response.outputs) {
    request.trace->AddTensor("TENSOR_BACKEND_OUTPUT", output.name, output.data_type, AsSpan(output.shape),
                             output.data.bytes());
  }
}

absl::Status CheckWanted(const InferenceRequest& request, std::int64_t now) {
  if (request.cancel != nullptr && request.cancel->cancelled()) return absl::CancelledError("");
  if (request.deadline_nanos != 0 && request.deadline_nanos <= now) {
    return absl::DeadlineExceededError("the request's deadline passed before it was executed");
  }
  return absl::OkStatus();
}

absl::Status CheckRegions(const InferenceRequest& request) {
  for (const RequestInput& input : request.inputs) {
    if (input.region) RETURN_IF_ERROR(input.region.region->Check());
  }
  for (const RequestedOutput& output : request.outputs) {
    if (output.destination) RETURN_IF_ERROR(output.destination.region->Check());
  }
  return absl::OkStatus();
}

}  // namespace tidemark
