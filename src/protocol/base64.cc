#include "protocol/base64.h"

#include <array>
#include <cstdint>

namespace tidemark {
namespace {

constexpr std::uint8_t kForeign = 0xff;
constexpr std::uint8_t kPad = 0xfe;
constexpr std::uint8_t kBreak = 0xfd;

constexpr std::array<std::uint8_t, 256> kValues = [] {
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<std::uint8_t, 256> table{};
  for (std::uint8_t& value : table) value = kForeign;
  for (std::size_t i = 0; i < kAlphabet.size(); ++i) {
    table[static_cast<unsigned char>(kAlphabet[i])] = static_cast<std::uint8_t>(i);
  }
  table['='] = kPad;
  table['\r'] = table['\n'] = kBreak;
  return table;
}();

}  // namespace

bool DecodeBase64(std::string_view text, std::string& out) {
  out.resize(text.size() / 4 * 3 + 3);
  char* write = out.data();
  std::uint32_t bits = 0;
  int digits = 0;   // in the current quartet
  int padding = 0;  // in it
  for (const char c : text) {
    const std::uint8_t value = kValues[static_cast<unsigned char>(c)];
    if (value == kBreak) continue;
    if (value == kForeign) return false;
    if (value == kPad) {
      if (digits < 2 || digits + ++padding > 4) return false;
      continue;
    }
    if (padding != 0) return false;
    bits = bits << 6 | value;
    if (++digits == 4) {
      *write++ = static_cast<char>(bits >> 16);
      *write++ = static_cast<char>(bits >> 8);
      *write++ = static_cast<char>(bits);
      bits = 0;
      digits = 0;
    }
  }
  if (digits != 0) {
    if (digits + padding != 4) return false;
    // Two digits hold one byte and four unused bits, three hold two bytes and two unused bits.
    const std::uint32_t unused = digits == 2 ? bits & 15 : bits & 3;
    if (unused != 0) return false;
    if (digits == 3) *write++ = static_cast<char>(bits >> 10);
    *write++ = static_cast<char>(digits == 3 ? bits >> 2 : bits >> 4);
  }
  out.resize(static_cast<std::size_t>(write - out.data()));
  return true;
}

}  // namespace tidemark
