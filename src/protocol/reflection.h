#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"

// Server reflection: what this server's services look like, for tools as grpcurl. Thread-safe.

namespace tidemark {

// Both versions have the same messages.
enum class ReflectionVersion : std::uint8_t { kV1, kV1Alpha };

// The serialised ServerReflectionResponse to a serialised ServerReflectionRequest. INVALID_ARGUMENT when it is none; what it
// asks for and is not there is told in the response.
absl::StatusOr<std::string> AnswerReflection(ReflectionVersion version, std::span<const std::byte> message);

}  // namespace tidemark
