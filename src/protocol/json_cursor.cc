#include "protocol/json_cursor.h"

#include <fmt/format.h>

#include <array>
#include <bitset>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

namespace tidemark {
namespace {

constexpr char kInvalidValue[] = "Invalid value.";
constexpr char kInvalidEncoding[] = "Invalid encoding in string.";
constexpr char kNoClosingQuote[] = "Missing a closing quotation mark in string.";
constexpr char kBadSurrogate[] = "The surrogate pair in string is invalid.";
constexpr char kBadHex[] = "Incorrect hex digit after \\u escape in string.";
constexpr char kTooDeep[] = "JSON nesting depth exceeds maximum allowed limit (4096).";

// Bytes that end a plain run inside a string.
constexpr std::array<bool, 256> kStringStop = [] {
  std::array<bool, 256> table{};
  for (std::size_t c = 0; c < 0x20; ++c) table[c] = true;
  table['"'] = table['\\'] = true;
  return table;
}();

bool StopsString(char c) { return kStringStop[static_cast<unsigned char>(c)]; }

int HexDigit(char c) {
  if (json::IsDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Four hex digits at `p`; -1 when they are not there.
int Hex4(const char*& p, const char* end) {
  if (end - p < 4) return -1;
  int value = 0;
  for (int i = 0; i < 4; ++i) {
    const int digit = HexDigit(*p++);
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

char* AppendUtf8(char* out, std::uint32_t code) {
  const auto put = [&out](std::uint32_t byte) { *out++ = static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | (code >> 6));
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3f));
    put(0x80 | ((code >> 6) & 0x3f));
    put(0x80 | (code & 0x3f));
  }
  return out;
}

// `p` behind "\u". False: `message` says what is wrong with it.
bool DecodeUnicodeEscape(const char*& p, const char* end, std::uint32_t& code, const char*& message) {
  const int first = Hex4(p, end);
  message = kBadHex;
  if (first < 0) return false;
  code = static_cast<std::uint32_t>(first);
  if (first < 0xd800 || first > 0xdfff) return true;
  message = kBadSurrogate;
  if (first > 0xdbff || end - p < 2 || p[0] != '\\' || p[1] != 'u') return false;
  p += 2;
  const int second = Hex4(p, end);
  if (second < 0) {
    message = kBadHex;
    return false;
  }
  if (second < 0xdc00 || second > 0xdfff) return false;
  code = 0x10000 + ((static_cast<std::uint32_t>(first) - 0xd800) << 10) + (static_cast<std::uint32_t>(second) - 0xdc00);
  return true;
}

// The byte that the one-letter escape stands for; 0 when there is none of that name.
char SimpleEscape(char c) {
  switch (c) {
    case '"':
    case '\\':
    case '/':
      return c;
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    default:
      return 0;
  }
}

bool ScanWord(const char*& p, const char* end, std::string_view word) {
  for (const char c : word) {
    if (p == end || *p != c) return false;
    ++p;
  }
  return true;
}

}  // namespace

namespace json {

bool DecodeString(const char*& p, const char* end, char** out, const char*& message) {
  ++p;  // the opening quotation mark
  while (true) {
    const char* const run = p;
    while (p != end && !StopsString(*p)) ++p;
    if (out != nullptr && p != run) {
      std::memcpy(*out, run, static_cast<std::size_t>(p - run));
      *out += p - run;
    }
    if (p == end || *p == '\0') {
      message = kNoClosingQuote;
      return false;
    }
    if (*p == '"') {
      ++p;
      return true;
    }
    if (*p != '\\') {
      message = kInvalidEncoding;
      return false;
    }
    const char* const escape = p++;
    std::uint32_t code = 0;
    if (p != end && *p == 'u') {
      ++p;
      if (!DecodeUnicodeEscape(p, end, code, message)) {
        p = escape;
        return false;
      }
    } else {
      code = p == end ? 0 : static_cast<std::uint32_t>(SimpleEscape(*p));
      if (code == 0) {
        message = "Invalid escape character in string.";
        p = escape;
        return false;
      }
      ++p;
    }
    if (out != nullptr) *out = AppendUtf8(*out, code);
  }
}

bool ScanNumber(const char*& p, const char* end, JsonNumber& number, const char*& message) {
  const char* const start = p;
  message = kInvalidValue;
  number = JsonNumber();
  if (p != end && *p == '-') {
    number.negative = true;
    ++p;
  }
  if (p != end && *p == 'N') {
    if (!ScanWord(p, end, "NaN")) return false;
  } else if (p != end && *p == 'I') {
    if (!ScanWord(p, end, "Inf")) return false;
    if (p != end && *p == 'i' && !ScanWord(p, end, "inity")) return false;
  } else {
    if (p == end || !IsDigit(*p)) return false;
    number.integral = number.fits = true;
    if (*p == '0') {
      ++p;
    } else {
      while (p != end && IsDigit(*p)) {
        const auto digit = static_cast<std::uint64_t>(*p++ - '0');
        if (number.fits && (__builtin_mul_overflow(number.magnitude, 10, &number.magnitude) ||
                            __builtin_add_overflow(number.magnitude, digit, &number.magnitude))) {
          number.fits = false;
        }
      }
    }
    if (p != end && *p == '.') {
      number.integral = number.fits = false;
      ++p;
      if (p == end || !IsDigit(*p)) {
        message = "Missing fraction part in number.";
        return false;
      }
      while (p != end && IsDigit(*p)) ++p;
    }
    if (p != end && (*p == 'e' || *p == 'E')) {
      number.integral = number.fits = false;
      ++p;
      if (p != end && (*p == '+' || *p == '-')) ++p;
      if (p == end || !IsDigit(*p)) {
        message = "Missing exponent in number.";
        return false;
      }
      while (p != end && IsDigit(*p)) ++p;
    }
  }
  number.text = {start, static_cast<std::size_t>(p - start)};
  return true;
}

}  // namespace json

std::optional<std::uint64_t> JsonNumber::AsUint64() const {
  if (!fits || (negative && magnitude != 0)) return std::nullopt;
  return magnitude;
}

std::optional<std::int64_t> JsonNumber::AsInt64() const {
  constexpr std::uint64_t kMax = std::uint64_t{1} << 63;
  if (!fits || magnitude > kMax - (negative ? 0 : 1)) return std::nullopt;
  return static_cast<std::int64_t>(negative ? std::uint64_t{0} - magnitude : magnitude);
}

double JsonNumber::AsDouble() const {
  const std::string_view digits = text.substr(negative ? 1 : 0);
  double value = 0;
  if (digits.starts_with('N')) {
    value = std::numeric_limits<double>::quiet_NaN();
  } else if (digits.starts_with('I')) {
    value = std::numeric_limits<double>::infinity();
  } else if (const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
             result.ec == std::errc::result_out_of_range) {
    // Too big or too small: from_chars leaves the value alone. strtod tells which; this road is seldom taken.
    value = std::strtod(std::string(digits).c_str(), nullptr);
  }
  return negative ? -value : value;
}

bool JsonCursor::Fail(const char* message, const char* at) {
  if (message_ == nullptr) {
    message_ = message;
    failed_at_ = at;
  }
  position_ = end_;
  entered_ = false;
  return false;
}

absl::Status JsonCursor::Error() const {
  return absl::InvalidArgumentError(
      fmt::format("failed to parse the request JSON buffer: {} at {}", message_, failed_at_ - begin_));
}

JsonKind JsonCursor::Peek() {
  if (failed()) return JsonKind::kNone;
  SkipSpace();
  switch (position_ == end_ ? ',' : *position_) {
    case '{':
      return JsonKind::kObject;
    case '[':
      return JsonKind::kArray;
    case '"':
      return JsonKind::kString;
    case 't':
      return JsonKind::kTrue;
    case 'f':
      return JsonKind::kFalse;
    case 'n':
      return JsonKind::kNull;
    case '}':
    case ']':
    case ',':
    case ':': {
      const std::string_view before(begin_, static_cast<std::size_t>(position_ - begin_));
      const bool at_root = before.find_first_not_of(" \n\r\t") == std::string_view::npos;
      Fail(at_root ? "The document is empty." : kInvalidValue, position_);
      return JsonKind::kNone;
    }
    default:
      return JsonKind::kNumber;
  }
}

bool JsonCursor::ScanString(std::string_view& raw, bool& escaped) {
  const char* const start = position_ + 1;
  const char* p = start;
  while (p != end_ && !StopsString(*p)) ++p;
  escaped = p == end_ || *p != '"';
  if (!escaped) {
    raw = {start, static_cast<std::size_t>(p - start)};
    position_ = p + 1;
    return true;
  }
  p = position_;
  const char* message = nullptr;
  if (!json::DecodeString(p, end_, nullptr, message)) return Fail(message, p);
  raw = {start, static_cast<std::size_t>(p - 1 - start)};
  return true;  // position_ still at the opening quotation mark
}

bool JsonCursor::ReadString(std::string_view& value) {
  if (failed()) return false;
  bool escaped = false;
  if (!ScanString(value, escaped)) return false;
  if (!escaped) return true;
  scratch_.resize(value.size());
  char* out = scratch_.data();
  const char* message = nullptr;
  const bool good = json::DecodeString(position_, end_, &out, message);
  scratch_.resize(static_cast<std::size_t>(out - scratch_.data()));
  value = scratch_;
  return good;
}

bool JsonCursor::ReadNumber(JsonNumber& value) {
  if (failed()) return false;
  const char* message = nullptr;
  return json::ScanNumber(position_, end_, value, message) || Fail(message, position_);
}

bool JsonCursor::ReadLiteral(std::string_view literal) {
  return ScanWord(position_, end_, literal) || Fail(kInvalidValue, position_);
}

bool JsonCursor::ReadBool(bool& value) {
  if (failed()) return false;
  value = *position_ == 't';
  return ReadLiteral(value ? "true" : "false");
}

bool JsonCursor::NextMember(std::string_view& key) {
  if (failed()) return false;
  SkipSpace();
  const bool first = std::exchange(entered_, false);
  if (position_ != end_ && *position_ == '}') {
    ++position_;
    return false;
  }
  if (!first) {
    if (position_ == end_ || *position_ != ',') return Fail("Missing a comma or } after an object member.", position_);
    ++position_;
    SkipSpace();
  }
  if (position_ == end_ || *position_ != '"') return Fail("Missing a name for object member.", position_);
  if (!ReadString(key)) return false;
  SkipSpace();
  if (position_ == end_ || *position_ != ':') return Fail("Missing a colon after a name of object member.", position_);
  ++position_;
  return Peek() != JsonKind::kNone;
}

bool JsonCursor::NextElement() {
  if (failed()) return false;
  SkipSpace();
  const bool first = std::exchange(entered_, false);
  if (position_ != end_ && *position_ == ']') {
    ++position_;
    return false;
  }
  if (!first) {
    if (position_ == end_ || *position_ != ',') return Fail("Missing a comma or ] after an array element.", position_);
    ++position_;
  }
  return Peek() != JsonKind::kNone;
}

bool JsonCursor::SkipValue() {
  std::bitset<kMaxDepth> is_object;
  int depth = 0;
  std::string_view text;
  JsonKind kind = Peek();
  while (true) {
    switch (kind) {
      case JsonKind::kObject:
      case JsonKind::kArray:
        if (depth == kMaxDepth) return Fail(kTooDeep, position_);
        is_object[static_cast<std::size_t>(depth++)] = kind == JsonKind::kObject;
        Enter();
        break;
      case JsonKind::kString: {
        bool escaped = false;
        if (!ScanString(text, escaped)) return false;
        if (escaped) position_ = text.data() + text.size() + 1;
        break;
      }
      case JsonKind::kNumber: {
        JsonNumber number;
        if (!ReadNumber(number)) return false;
        break;
      }
      case JsonKind::kTrue:
        if (!ReadLiteral("true")) return false;
        break;
      case JsonKind::kFalse:
        if (!ReadLiteral("false")) return false;
        break;
      case JsonKind::kNull:
        if (!ReadLiteral("null")) return false;
        break;
      case JsonKind::kNone:
        return false;
    }
    while (depth > 0 && !(is_object[static_cast<std::size_t>(depth - 1)] ? NextMember(text) : NextElement())) {
      if (failed()) return false;
      --depth;
    }
    if (depth == 0) return true;
    kind = Peek();
  }
}

bool JsonCursor::Finish() {
  if (failed()) return false;
  SkipSpace();
  return position_ == end_ || Fail("The document root must not be followed by other values.", position_);
}

}  // namespace tidemark
