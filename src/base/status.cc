#include "base/status.h"

#include "absl/strings/cord.h"

namespace tidemark {

absl::Status WithContext(const absl::Status& status, std::string_view context) {
  if (status.ok()) return status;
  absl::Status result(status.code(), fmt::format("{}: {}", context, MessageOf(status)));
  status.ForEachPayload([&result](absl::string_view url, const absl::Cord& value) { result.SetPayload(url, value); });
  return result;
}

std::string_view TritonCodeName(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return "OK";
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
      return "Invalid argument";
    case absl::StatusCode::kNotFound:
      return "Not found";
    case absl::StatusCode::kAlreadyExists:
      return "Already exists";
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kDeadlineExceeded:
      return "Unavailable";
    case absl::StatusCode::kUnimplemented:
      return "Unsupported";
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kAborted:
      return "Cancelled";
    case absl::StatusCode::kUnknown:
      return "Unknown";
    default:
      return "Internal";
  }
}

std::string TritonStatusText(const absl::Status& status) {
  if (status.ok()) return "OK";
  return fmt::format("{}: {}", TritonCodeName(status.code()), MessageOf(status));
}

}  // namespace tidemark
