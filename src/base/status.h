#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Errors travel as absl::Status / absl::StatusOr. The code says what the caller should do next
// (see absl/status/status.h) and never changes on the way up; context is added with WithContext.

#define TIDEMARK_CONCAT_INNER(a, b) a##b
#define TIDEMARK_CONCAT(a, b) TIDEMARK_CONCAT_INNER(a, b)

// Returns from the enclosing function when `expr` (an absl::Status) is not OK.
#define RETURN_IF_ERROR(expr)                             \
  do {                                                    \
    if (::absl::Status status_ = (expr); !status_.ok()) { \
      return status_;                                     \
    }                                                     \
  } while (false)

// ASSIGN_OR_RETURN(auto x, MakeX()): moves the value out of a StatusOr, or returns its status.
#define ASSIGN_OR_RETURN(lhs, expr) ASSIGN_OR_RETURN_IMPL(TIDEMARK_CONCAT(status_or_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                          \
  if (!tmp.ok()) {                            \
    return std::move(tmp).status();           \
  }                                           \
  lhs = *std::move(tmp)

namespace tidemark {

// The text of a status, as a std::string_view (absl::string_view is a type of its own in Debian's Abseil).
inline std::string_view MessageOf(const absl::Status& status) {
  return {status.message().data(), status.message().size()};
}

// The same code and payloads with "context: " in front of the message. OK stays OK.
absl::Status WithContext(const absl::Status& status, std::string_view context);

// The name that Triton prints for a code in reasons and logs ("Invalid argument", "Internal", "Not found",
// "Unavailable", "Unsupported", "Already exists", "Cancelled", "Unknown").
std::string_view TritonCodeName(absl::StatusCode code);

// "<TritonCodeName>: <message>", the form of an index reason and of a log line. "OK" for an OK status.
std::string TritonStatusText(const absl::Status& status);

}  // namespace tidemark
