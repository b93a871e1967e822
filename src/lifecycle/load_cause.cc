#include "lifecycle/load_cause.h"

#include <charconv>
#include <string>

#include "absl/strings/cord.h"

namespace tidemark {
namespace {

constexpr char kPayload[] = "tidemark/cause";

}  // namespace

absl::Status WithCause(absl::Status answer, absl::StatusCode cause) {
  answer.SetPayload(kPayload, absl::Cord(std::to_string(static_cast<int>(cause))));
  return answer;
}

absl::StatusCode CauseOf(const absl::Status& answer) {
  const auto payload = answer.GetPayload(kPayload);
  if (!payload.has_value()) return answer.code();
  const std::string text(*payload);
  int code = static_cast<int>(answer.code());
  std::from_chars(text.data(), text.data() + text.size(), code);
  return static_cast<absl::StatusCode>(code);
}

}  // namespace tidemark
