#pragma once

#include <string>
#include <string_view>

namespace tidemark {

// Decodes base64 (RFC 4648, standard alphabet) strictly: whole quartets, padding where it is due and only there, unused
// bits zero. Line breaks (CR, LF) may stand anywhere, as `base64` writes them; any other foreign character is an error.
// False: `out` is unspecified. Thread-safe.
bool DecodeBase64(std::string_view text, std::string& out);

}  // namespace tidemark
