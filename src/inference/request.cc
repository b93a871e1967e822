#include "inference/request.h"

#include <fmt/format.h>

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
  parameters.clear();
  inputs.clear();
  outputs.clear();
  binary_data_output = false;
  raw = false;
  times = {};
  cancel.reset();
  response.status = absl::OkStatus();
  response.outputs.clear();
  response.parameters.clear();
  on_complete = nullptr;
  body.Reset();
  model_->Reset();
}

}  // namespace tidemark
