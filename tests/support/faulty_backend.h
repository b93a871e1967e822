#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backend/backend.h"

namespace tidemark {

// "faulty", an identity of IN and OUT (INT32, [1]) that breaks when it is told to, for what a whole process does then. A
// request with -1 fails, and so does its instance's Health from then on ("the device is lost"); after one with -2 the
// model's release fails when it is unloaded ("the driver refused"), which strands a row of 4096 bytes.
absl::StatusOr<std::unique_ptr<Backend>> CreateFaultyBackend(const BackendContext& context);

}  // namespace tidemark
