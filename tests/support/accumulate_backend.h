#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backend/backend.h"

namespace tidemark {

// "accumulate", a model with sequences: its config lists INPUT and OUTPUT (INT32, [1]) and, in sequence_batching, the
// state STATE_IN / STATE_OUT (INT32, [1]). OUTPUT and the state are the sum of the sequence's INPUTs and its initial
// state. A control CORRID (UINT64) is added to OUTPUT; a control READY (INT32) that is 0 makes OUTPUT -1.
absl::StatusOr<std::unique_ptr<Backend>> CreateAccumulateBackend(const BackendContext& context);

}  // namespace tidemark
