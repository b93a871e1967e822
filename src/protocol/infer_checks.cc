#include "protocol/infer_checks.h"

#include <algorithm>
#include <array>

namespace tidemark {

bool IsReservedParameter(std::string_view key) {
  constexpr std::array<std::string_view, 7> kReserved = {
      "sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "binary_data_output"};
  return key.starts_with("triton_") || std::find(kReserved.begin(), kReserved.end(), key) != kReserved.end();
}

absl::Status NoSuchRegion(std::string_view region) {
  return absl::NotFoundError(fmt::format("Unable to find shared memory region: '{}'", region));
}

}  // namespace tidemark
