#pragma once

#include <span>

#include "absl/functional/function_ref.h"
#include "backend/execution.h"
#include "backend/ragged_plan.h"

namespace tidemark {

// Runs the requests of one Execute call as one: their inputs are put behind each other along the batch dimension (one
// copy), `run` is called once with the whole, and the outputs are cut into the requests' own. For engines that read host
// memory and whose model has a batch dimension in front of every input and output.
//
// `run` fills status and times of what it is given and throws nothing. It is called once for each request where there is
// only one, where `stacks` is false, where the inputs cannot be put together (other inputs, other shapes, no memory),
// and, so that a failed request fails alone, after a run of the whole that failed. A run of the whole is cancelled when
// nobody waits for any of its requests any more; its deadline is the latest of theirs.
void ExecuteAsBatch(std::span<Execution* const> requests, bool stacks,
                    absl::FunctionRef<void(Execution& request)> run) noexcept;

// The same for a model with ragged inputs, made inputs or scattered outputs; `plan` is not empty. `run` always gets a
// whole, of one request as well: ragged inputs are flat in it, and the made ones follow behind the configured ones.
void ExecuteRagged(std::span<Execution* const> requests, const RaggedPlan& plan,
                   absl::FunctionRef<void(Execution& request)> run) noexcept;

}  // namespace tidemark
