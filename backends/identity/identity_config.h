#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/model_config.pb.h"

namespace tidemark {

// What the model's parameters ask for.
struct IdentityDelays {
  std::int64_t creation_nanos = 0;
  std::int64_t execute_nanos = 0;
  std::int64_t multiplier = 0;  // 0: every instance waits the same time

  // How long one execution of instance `index` waits.
  std::int64_t ExecuteNanos(std::int64_t index) const;
};

// Reads the parameters. INVALID_ARGUMENT, naming model, key and value, when one is no number or out of range.
absl::StatusOr<IdentityDelays> ReadIdentityDelays(const inference::ModelConfig& config);

// Are inputs and outputs pairs that can be copied? INVALID_ARGUMENT otherwise: the first finding, the further ones on
// the same line after "; also: ".
absl::Status CheckIdentityPairs(const inference::ModelConfig& config);

// The number at the end of an instance's name ("add_0_3" -> 3); 0 when there is none.
std::int64_t InstanceIndex(std::string_view name);

}  // namespace tidemark
