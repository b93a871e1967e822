#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backend/backend.h"
#include "backends/openvino/adapter.h"
#include "backends/openvino/openvino_model.h"

namespace tidemark {

// One inference request of the engine, used for one execution after the other.
class OpenVinoInstance final : public BackendInstance {
  struct Private {};

 public:
  OpenVinoInstance(Private /*only Create*/, const OpenVinoModel& model, std::string_view name)
      : model_(model), name_(name) {}

  // `model` outlives the instance.
  static absl::StatusOr<std::unique_ptr<BackendInstance>> Create(const OpenVinoModel& model, Scope& scope,
                                                                 std::string_view name);

  void Execute(std::span<Execution* const> requests) noexcept override;

 private:
  absl::Status Run(Execution& execution);
  absl::Status SetInputs(const Execution& execution);
  absl::Status SetOutputs(const Execution& execution);
  absl::Status Infer(Execution& execution);
  absl::Status CopyOutputs(const Execution& execution);
  absl::Status Failed(const OpenVinoOutcome& outcome, std::string_view step) const;

  const OpenVinoModel& model_;
  const std::string name_;
  OpenVinoRequest* request_ = nullptr;  // held by the instance's scope
  std::vector<std::byte*> lent_;        // for each output, the request's memory that the engine writes to, or null
};

}  // namespace tidemark
