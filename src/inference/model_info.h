#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/data_type.h"
#include "inference/request.h"
#include "proto/model_config.pb.h"

namespace tidemark {

// One input or output of a model, in the form that a request is checked against.
struct TensorInfo {
  std::string name;
  DataType data_type = DataType::kInvalid;
  Shape dims;          // as the client sees them, batch dimension (-1) in front for a batching model
  Shape backend_dims;  // the same after `reshape`
  bool reshaped = false;
  bool optional = false;
  bool ragged = false;              // requests of different shapes may share a batch (`allow_ragged_batch`)
  bool shape_tensor = false;        // its values are a shape: no batch dimension of its own
  bool non_linear = false;          // in a vectorised layout: only the engine knows how many bytes that is
  std::vector<std::string> labels;  // outputs only
};

// What requests need of a ModelConfig, worked out once at load. Immutable, thread-safe.
class ModelInfo {
 public:
  // `labels`: by output name.
  ModelInfo(const inference::ModelConfig& config, std::int64_t version,
            const std::map<std::string, std::vector<std::string>>& labels);

  const std::string& name() const { return config_.name(); }
  std::int64_t version() const { return version_; }
  const std::string& version_text() const { return version_text_; }
  const inference::ModelConfig& config() const { return config_; }
  std::string config_json() const;  // body of GET …/config; made anew for each, so that a load does not wait for it
  std::int64_t max_batch_size() const { return config_.max_batch_size(); }
  bool decoupled() const { return decoupled_; }
  const std::vector<TensorInfo>& inputs() const { return inputs_; }
  const std::vector<TensorInfo>& outputs() const { return outputs_; }
  const TensorInfo* FindInput(std::string_view name) const;
  const TensorInfo* FindOutput(std::string_view name) const;

  // May a request's input stay in GPU memory? Said of the engine by the load, before the model is published; what the server
  // itself looks at (shapes, sequences, cached responses) must be on the host.
  void set_takes_device_memory(bool takes) { takes_device_memory_ = takes; }
  bool TakesDeviceMemory(std::string_view input) const;

  // Checks `request` against the model in Triton's order and with its texts (config digest section 2.13), deduces a raw
  // request's tensor, and fills `tensors` (config order, reshape applied; views into the request) and `batch` (the
  // batch size, 1 for a model that does not batch). INVALID_ARGUMENT.
  absl::Status Prepare(InferenceRequest& request, std::vector<InputTensor>& tensors, std::int64_t& batch) const;

 private:
  absl::Status CheckCount(const InferenceRequest& request) const;
  absl::Status CheckBatch(const InferenceRequest& request, std::int64_t& batch) const;
  absl::Status CheckInput(const InferenceRequest& request, const RequestInput& input, const TensorInfo& info) const;
  absl::Status CheckStrings(const InferenceRequest& request, const RequestInput& input, std::uint64_t expected) const;
  absl::Status DeduceRaw(InferenceRequest& request) const;

  const inference::ModelConfig config_;
  const std::int64_t version_;
  const std::string version_text_;
  bool decoupled_ = false;
  bool takes_device_memory_ = false;
  std::size_t required_inputs_ = 0;
  std::vector<TensorInfo> inputs_;
  std::vector<TensorInfo> outputs_;
};

}  // namespace tidemark
