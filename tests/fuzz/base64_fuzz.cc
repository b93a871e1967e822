#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "protocol/base64.h"

// Whatever is accepted as base64 is, but for line breaks, exactly what its bytes encode to: there is one text for each.

namespace {

std::string Encode(std::string_view bytes) {
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t rest = bytes.size() - i;
    std::uint32_t bits = 0;
    for (std::size_t j = 0; j < 3; ++j) bits = bits << 8 | (j < rest ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j) out += j <= rest ? kAlphabet[bits >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::string bytes;
  if (!tidemark::DecodeBase64(text, bytes)) return 0;
  std::string compact;
  for (const char c : text) {
    if (c != '\r' && c != '\n') compact += c;
  }
  if (Encode(bytes) != compact) {
    std::fprintf(stderr, "broken claim: decoding and encoding give the text back\n");
    std::abort();
  }
  return 0;
}
