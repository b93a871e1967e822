#pragma once

#include "absl/status/status.h"

namespace tidemark {

// A load that fails is answered with INVALID_ARGUMENT, as Triton does, whatever failed in it. The code of the cause travels
// along, for the front ends whose platform wants to know.

// `answer`, an error, with the code of what is behind it.
absl::Status WithCause(absl::Status answer, absl::StatusCode cause);

// The code that the answer was given; its own where it was given none.
absl::StatusCode CauseOf(const absl::Status& answer);

}  // namespace tidemark
