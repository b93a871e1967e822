#include "protocol/cloud_requests.h"

#include <fmt/format.h>

#include <utility>

#include "absl/status/status.h"
#include "base/status.h"
#include "protocol/json_cursor.h"

namespace tidemark {

absl::StatusOr<SageMakerLoad> ParseSageMakerLoad(std::string_view body) {
  SageMakerLoad load;
  JsonCursor cursor(body);
  if (cursor.Peek() != JsonKind::kObject) {
    cursor.SkipValue();
    if (!cursor.Finish()) return cursor.Error();
    return absl::InvalidArgumentError("load model: found no JSON object, expected {\"model_name\":…,\"url\":…}");
  }
  absl::Status status;
  cursor.EnterObject();
  std::string_view key;
  while (cursor.NextMember(key)) {
    std::string* const member = key == "model_name" ? &load.model_name : key == "url" ? &load.url : nullptr;
    if (member != nullptr && cursor.Peek() == JsonKind::kString) {
      std::string_view text;
      if (cursor.ReadString(text)) member->assign(text);
      continue;
    }
    if (member != nullptr) status.Update(absl::InvalidArgumentError(fmt::format("load model: '{}' is no string", key)));
    cursor.SkipValue();
  }
  if (!cursor.Finish()) return cursor.Error();
  RETURN_IF_ERROR(status);
  for (const auto& [name, value] : {std::pair<std::string_view, const std::string*>("model_name", &load.model_name),
                                    std::pair<std::string_view, const std::string*>("url", &load.url)}) {
    if (value->empty()) {
      return absl::InvalidArgumentError(fmt::format("load model: member '{}' is missing or empty", name));
    }
  }
  return load;
}

}  // namespace tidemark
