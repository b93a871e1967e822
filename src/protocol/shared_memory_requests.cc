#include "protocol/shared_memory_requests.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <utility>

#include "base/status.h"
#include "protocol/base64.h"
#include "protocol/json_cursor.h"

namespace tidemark {
namespace {

absl::Status Invalid(std::string text) { return absl::InvalidArgumentError(std::move(text)); }

// Reads the members of a registration, of either kind; what a kind needs is asked afterwards. The first of a name counts.
class RegistrationReader {
 public:
  explicit RegistrationReader(std::string_view body) : cursor_(body) {}

  absl::Status Read() {
    absl::Status first;
    if (cursor_.Peek() != JsonKind::kObject) {
      cursor_.SkipValue();
      first = Invalid("attempt to get members for non-object");
    } else {
      cursor_.EnterObject();
      std::string_view name;
      while (cursor_.NextMember(name)) first.Update(ReadMember(name));
    }
    return cursor_.Finish() ? first : cursor_.Error();
  }

  std::optional<std::string> key;
  std::optional<std::string> handle;  // base64
  bool has_handle = false;
  std::optional<std::uint64_t> offset;
  std::optional<std::uint64_t> byte_size;
  std::optional<std::uint64_t> device;

 private:
  absl::Status ReadMember(std::string_view name) {
    if (name == "key" && !key) return ReadString(key);
    if (name == "offset" && !offset) return ReadUnsigned(offset);
    if (name == "byte_size" && !byte_size) return ReadUnsigned(byte_size);
    if (name == "device_id" && !device) return ReadUnsigned(device);
    if (name == "raw_handle" && !std::exchange(has_handle, true)) return ReadHandle();
    cursor_.SkipValue();
    return absl::OkStatus();
  }

  absl::Status ReadString(std::optional<std::string>& value) {
    if (cursor_.Peek() != JsonKind::kString) {
      cursor_.SkipValue();
      return Invalid("attempt to access JSON non-string as string");
    }
    std::string_view text;
    if (cursor_.ReadString(text)) value = std::string(text);
    return absl::OkStatus();
  }

  absl::Status ReadUnsigned(std::optional<std::uint64_t>& value) {
    JsonNumber number;
    if (cursor_.Peek() != JsonKind::kNumber) {
      cursor_.SkipValue();
    } else if (!cursor_.ReadNumber(number)) {
      return absl::OkStatus();
    } else if (value = number.AsUint64(); value) {
      return absl::OkStatus();
    }
    return Invalid("attempt to access JSON non-unsigned-integer as unsigned-integer");
  }

  absl::Status ReadHandle() {
    if (cursor_.Peek() != JsonKind::kObject) {
      cursor_.SkipValue();
      return Invalid("attempt to access JSON non-object as object");
    }
    absl::Status first;
    cursor_.EnterObject();
    std::string_view name;
    while (cursor_.NextMember(name)) {
      if (name == "b64" && !handle) {
        first.Update(ReadString(handle));
      } else {
        cursor_.SkipValue();
      }
    }
    return first;
  }

  JsonCursor cursor_;
};

absl::Status NoField(std::string_view name) {
  return Invalid(fmt::format("Shared memory register request has no '{}' field", name));
}

absl::Status NoMember(std::string_view name) {
  return Invalid(fmt::format("attempt to access non-existing object member '{}'", name));
}

}  // namespace

absl::StatusOr<SystemMemoryRequest> ParseSystemMemoryRequest(std::string_view body) {
  RegistrationReader reader(body);
  RETURN_IF_ERROR(reader.Read());
  if (!reader.key) return NoField("key");
  if (!reader.byte_size) return NoField("byte_size");
  return SystemMemoryRequest{*std::move(reader.key), reader.offset.value_or(0), *reader.byte_size};
}

absl::StatusOr<CudaMemoryRequest> ParseCudaMemoryRequest(std::string_view body) {
  RegistrationReader reader(body);
  RETURN_IF_ERROR(reader.Read());
  if (!reader.has_handle) return NoField("raw_handle");
  if (!reader.handle) return NoMember("b64");
  if (!reader.byte_size) return NoMember("byte_size");
  if (!reader.device) return NoMember("device_id");
  CudaMemoryRequest request;
  if (!DecodeBase64(*reader.handle, request.raw_handle)) {
    return Invalid("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t");
  }
  if (*reader.device > static_cast<std::uint64_t>(std::numeric_limits<int>::max())) {
    return Invalid(fmt::format("there is no device {}", *reader.device));
  }
  request.device = static_cast<int>(*reader.device);
  request.byte_size = *reader.byte_size;
  return request;
}

}  // namespace tidemark
