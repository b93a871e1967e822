#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backend/backend.h"

namespace tidemark {

// "iterate", a model with iterative sequences: its config lists the input N (INT32, [1]), the output OUT (INT32, [1]) and,
// in sequence_batching, `iterative_sequence: true` and the state STATE_IN / STATE_OUT (INT32, [1]), which counts the
// executions of a request; N of them are asked for. OUT is the count: of a decoupled model a response of each execution,
// else the last one. A negative N fails in the second execution with INVALID_ARGUMENT "N is negative". A control START
// (INT32) that does not stand in the first execution, or in a later one, fails the request with INTERNAL.
absl::StatusOr<std::unique_ptr<Backend>> CreateIterativeBackend(const BackendContext& context);

}  // namespace tidemark
