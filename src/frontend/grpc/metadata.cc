#include "frontend/grpc/metadata.h"

#include <algorithm>
#include <charconv>
#include <limits>

namespace tidemark {

std::optional<std::string_view> GrpcMetadata::Find(std::string_view name) const {
  const auto it =
      std::find_if(entries_.begin(), entries_.end(), [&](const auto& entry) { return entry.first == name; });
  if (it == entries_.end()) return std::nullopt;
  return it->second;
}

std::optional<std::int64_t> ParseGrpcTimeout(std::string_view text) {
  constexpr std::size_t kDigits = 8;  // at most, by the protocol
  if (text.size() < 2 || text.size() > kDigits + 1) return std::nullopt;
  std::int64_t value = 0;
  const char* const end = text.data() + text.size() - 1;
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < 0 || text[0] == '-') return std::nullopt;
  std::int64_t unit = 0;
  switch (text.back()) {
    case 'H':
      unit = 3'600'000'000'000;
      break;
    case 'M':
      unit = 60'000'000'000;
      break;
    case 'S':
      unit = 1'000'000'000;
      break;
    case 'm':
      unit = 1'000'000;
      break;
    case 'u':
      unit = 1'000;
      break;
    case 'n':
      unit = 1;
      break;
    default:
      return std::nullopt;
  }
  std::int64_t nanos = 0;
  return __builtin_mul_overflow(value, unit, &nanos) ? std::numeric_limits<std::int64_t>::max() : nanos;
}

std::string EncodeGrpcMessage(std::string_view message) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  out.reserve(message.size());
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte <= 0x7E && byte != '%') {
      out += c;
    } else {
      out += '%';
      out += kHex[byte >> 4];
      out += kHex[byte & 0xF];
    }
  }
  return out;
}

bool IsGrpcContentType(std::string_view content_type) {
  constexpr std::string_view kType = "application/grpc";
  if (!content_type.starts_with(kType)) return false;
  content_type.remove_prefix(kType.size());
  return content_type.empty() || content_type[0] == '+' || content_type[0] == ';';
}

ContentCoding ChooseMessageCoding(std::string_view accept_encoding) {
  while (!accept_encoding.empty()) {
    const std::size_t comma = accept_encoding.find(',');
    std::string_view name = accept_encoding.substr(0, comma);
    accept_encoding.remove_prefix(comma == std::string_view::npos ? accept_encoding.size() : comma + 1);
    while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
    while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
    if (name == "gzip") return ContentCoding::kGzip;
    if (name == "deflate") return ContentCoding::kDeflate;
  }
  return ContentCoding::kIdentity;
}

}  // namespace tidemark
