#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backend/backend.h"

namespace tidemark {

// Decoupled models as test doubles; the shapes and names are those of Triton's examples. Their configs must list these
// tensors and `model_transaction_policy { decoupled: true }`; max_batch_size 0.

// "repeat": inputs IN (INT32, [-1]), DELAY (UINT32, [-1]: milliseconds before each response) and WAIT (UINT32, [1]:
// the shortest time of an execution in milliseconds); outputs OUT (INT32, [1]: one element of IN a response) and IDX
// (UINT32, [1]: its place). As many responses as IN has elements, none for an empty one. A cancelled request ends at
// once. A negative element ends the request with INVALID_ARGUMENT "negative element".
absl::StatusOr<std::unique_ptr<Backend>> CreateRepeatBackend(const BackendContext& context);

// "square": input IN (INT32, [1]), output OUT (INT32, [1]): the number n is answered n times, 0 with the final flag only.
absl::StatusOr<std::unique_ptr<Backend>> CreateSquareBackend(const BackendContext& context);

}  // namespace tidemark
