#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "inference/model_info.h"
#include "proto/model_config.pb.h"

namespace tidemark {

// The pipeline of an ensemble, with its tensors as numbers. Immutable, thread-safe.
class EnsemblePlan {
 public:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  struct Step {
    std::string model;  // the member's name
    std::string key;    // what the registry knows it by (namespacing)
    std::int64_t version = -1;
    std::vector<std::pair<std::string, std::size_t>> inputs;   // the member's input, the tensor
    std::vector<std::pair<std::string, std::size_t>> outputs;  // the member's output, the tensor
    bool decoupled = false;
    // The decoupled step that its inputs come from, directly or not; kNone: it runs once for each request.
    std::size_t origin = kNone;
    // The one that its outputs come from: itself when it is decoupled.
    std::size_t output_origin() const { return own_origin_; }

   private:
    friend class EnsemblePlan;
    std::size_t own_origin_ = kNone;
  };
  struct Tensor {
    std::string name;
    std::size_t producer = kNone;  // step; kNone: an input of the ensemble
    std::vector<std::size_t> consumers;
  };

  // What a member looks like, by its key and version; the key comes back as the registry knows it.
  using FindMember = absl::FunctionRef<absl::StatusOr<const ModelInfo*>(const inference::ModelEnsembling::Step& step,
                                                                        std::string& key)>;

  // Checks the pipeline against its members, in Triton's order and with its texts (config digest 2.6, 104 to 112). What
  // `find` answers is needed during the call only. `config` has passed ValidateConfig.
  static absl::StatusOr<EnsemblePlan> Create(const inference::ModelConfig& config, FindMember find);

  const std::vector<Step>& steps() const { return steps_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  // The tensor of that name; kNone when no step has it.
  std::size_t FindTensor(std::string_view name) const;
  // The decoupled step that the tensor comes from; kNone when there is none.
  std::size_t OriginOf(std::size_t tensor) const;
  bool decoupled() const { return decoupled_; }

 private:
  std::size_t TensorNumber(const std::string& name);
  void Connect(const inference::ModelConfig& config);
  absl::Status FindOrigins(const inference::ModelConfig& config);

  std::vector<Step> steps_;
  std::vector<Tensor> tensors_;
  bool decoupled_ = false;
};

// The names of the members of an ensemble, each once, in order.
std::vector<std::string> MembersOf(const inference::ModelConfig& config);

}  // namespace tidemark
