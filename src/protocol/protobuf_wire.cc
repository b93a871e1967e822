#include "protocol/protobuf_wire.h"

#include <cstring>

namespace tidemark {

bool WireReader::TakeVarint(std::span<const std::byte>& bytes, std::uint64_t& value) {
  value = 0;
  for (std::size_t i = 0; i < bytes.size() && i < 10; ++i) {
    const auto byte = static_cast<std::uint64_t>(bytes[i]);
    value |= (byte & 0x7F) << (7 * i);
    if ((byte & 0x80) == 0) {
      bytes = bytes.subspan(i + 1);
      return i < 9 || byte <= 1;
    }
  }
  return false;
}

bool WireReader::Next() {
  if (at_ == end_) return false;
  std::span<const std::byte> rest(at_, end_);
  std::uint64_t tag = 0;
  if (!TakeVarint(rest, tag) || tag >> 3 == 0 || tag >> 32 != 0) return Fail();
  field_ = static_cast<std::uint32_t>(tag >> 3);
  switch (tag & 7) {
    case 0:
      type_ = WireType::kVarint;
      if (!TakeVarint(rest, number_)) return Fail();
      break;
    case 1:
      type_ = WireType::kFixed64;
      if (rest.size() < sizeof(number_)) return Fail();
      std::memcpy(&number_, rest.data(), sizeof(number_));
      rest = rest.subspan(sizeof(number_));
      break;
    case 2: {
      type_ = WireType::kLength;
      std::uint64_t length = 0;
      if (!TakeVarint(rest, length) || length > rest.size()) return Fail();
      bytes_ = rest.first(length);
      rest = rest.subspan(length);
      break;
    }
    case 5: {
      type_ = WireType::kFixed32;
      std::uint32_t bits = 0;
      if (rest.size() < sizeof(bits)) return Fail();
      std::memcpy(&bits, rest.data(), sizeof(bits));
      number_ = bits;
      rest = rest.subspan(sizeof(bits));
      break;
    }
    default:
      return Fail();
  }
  at_ = rest.data();
  return true;
}

bool IsUtf8(std::string_view text) {
  const auto* at = reinterpret_cast<const unsigned char*>(text.data());
  const unsigned char* const end = at + text.size();
  while (at != end) {
    if (*at < 0x80) {
      ++at;
      continue;
    }
    const int length = *at >= 0xC2 && *at <= 0xDF ? 2 : (*at & 0xF0) == 0xE0 ? 3 : *at >= 0xF0 && *at <= 0xF4 ? 4 : 0;
    if (length == 0 || end - at < length) return false;
    for (int i = 1; i < length; ++i) {
      if ((at[i] & 0xC0) != 0x80) return false;
    }
    // No overlong forms, no surrogates, nothing beyond U+10FFFF.
    if ((*at == 0xE0 && at[1] < 0xA0) || (*at == 0xED && at[1] > 0x9F) || (*at == 0xF0 && at[1] < 0x90) ||
        (*at == 0xF4 && at[1] > 0x8F)) {
      return false;
    }
    at += length;
  }
  return true;
}

void AppendVarint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(static_cast<unsigned char>(value | 0x80));
  out += static_cast<char>(static_cast<unsigned char>(value));
}

}  // namespace tidemark
