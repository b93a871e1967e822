#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "frontend/http/compression.h"

namespace tidemark {

// The metadata of a call: names in lower case as they travel, in order, without the pseudo-headers.
class GrpcMetadata {
 public:
  void Add(std::string_view name, std::string_view value) { entries_.emplace_back(name, value); }
  // The first value of that name.
  std::optional<std::string_view> Find(std::string_view name) const;
  const std::vector<std::pair<std::string, std::string>>& entries() const { return entries_; }

 private:
  std::vector<std::pair<std::string, std::string>> entries_;
};

// "100m" and the like, in nanoseconds; nothing for what is no time-out.
std::optional<std::int64_t> ParseGrpcTimeout(std::string_view text);

// The form in which a status message travels: every byte outside printable ASCII, and '%', as %XX.
std::string EncodeGrpcMessage(std::string_view message);

// Is this the content type of a gRPC call?
bool IsGrpcContentType(std::string_view content_type);

// The first of gzip and deflate that a grpc-accept-encoding names; identity when it names neither.
ContentCoding ChooseMessageCoding(std::string_view accept_encoding);

// gRPC's number for a status code; absl's are the same.
constexpr int GrpcCodeOf(absl::StatusCode code) { return static_cast<int>(code); }

}  // namespace tidemark
