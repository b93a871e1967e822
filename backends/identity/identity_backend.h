#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backend/backend.h"

namespace tidemark {

// The backend that answers output i with the bytes of input i (positions in the configuration): any data type, BYTES
// included, any number of pairs, any shape. It opens nothing, so it always can be had.
//
// Model parameters (names and meaning as Triton's backend of that name knows them):
//   creation_delay_sec              seconds (fractions allowed) that a load takes longer
//   execute_delay_ms                milliseconds that every execution takes longer
//   instance_wise_delay_multiplier  instance k of a group waits max(1, k * multiplier) times as long
// It adds the counter `input_byte_size_counter` to the metrics, as Triton's does.
// All delays end at once when the load or every request of the execution is cancelled.
absl::StatusOr<std::unique_ptr<Backend>> CreateIdentityBackend(const BackendContext& context);

}  // namespace tidemark
