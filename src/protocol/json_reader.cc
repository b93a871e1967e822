#include "protocol/json_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "base/status.h"
#include "protocol/half.h"

namespace tidemark {
namespace {

// How reading one element ended.
enum class Outcome : std::uint8_t { kGood, kWrongKind, kOutOfRange, kSyntax };

// Where and why an array could not be read.
struct Trouble {
  int max_depth = kMaxDataDepth;
  Outcome outcome = Outcome::kGood;
  const char* at = nullptr;
  const char* message = nullptr;  // kSyntax
  bool too_many = false;
  bool too_deep = false;
};

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

bool StartsNumber(char c) { return json::IsDigit(c) || c == '-' || c == 'N' || c == 'I'; }

// Eight digits at once: the value of `chunk`'s characters, or nothing when one is no digit. The chunk is little-endian.
bool AreEightDigits(std::uint64_t chunk) {
  return ((chunk & 0xf0f0f0f0f0f0f0f0) | (((chunk + 0x0606060606060606) & 0xf0f0f0f0f0f0f0f0) >> 4)) ==
         0x3333333333333333;
}

std::uint32_t EightDigits(std::uint64_t chunk) {
  chunk -= 0x3030303030303030;
  chunk = chunk * 10 + (chunk >> 8);
  const std::uint64_t low = (chunk & 0x000000ff000000ff) * 0x000f424000000064;
  const std::uint64_t high = ((chunk >> 16) & 0x000000ff000000ff) * 0x0000271000000001;
  return static_cast<std::uint32_t>((low + high) >> 32);
}

// Adds the digits at `p` to `value`. May wrap around: the caller counts the digits.
[[gnu::always_inline]] inline const char* ReadDigits(const char* p, const char* end, std::uint64_t& value) {
  static_assert(std::endian::native == std::endian::little);
  while (end - p >= 8) {
    std::uint64_t chunk = 0;
    std::memcpy(&chunk, p, sizeof(chunk));
    if (!AreEightDigits(chunk)) break;
    value = value * 100'000'000 + EightDigits(chunk);
    p += 8;
  }
  while (p != end && json::IsDigit(*p)) value = value * 10 + static_cast<std::uint64_t>(*p++ - '0');
  return p;
}

constexpr double kPowersOfTen[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                   1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

// What a JSON number literal says, if it is short enough to be said exactly: mantissa * 10^exponent.
struct Decimal {
  std::uint64_t mantissa = 0;
  int exponent = 0;
  bool exact = false;
  bool negative = false;
};

// The usual shape of a number, quickly. False: not usual, or wrong; ScanNumber knows.
[[gnu::always_inline]] inline bool ScanDecimal(const char*& p, const char* end, Decimal& decimal) {
  const char* q = p;
  if (q != end && *q == '-') {
    decimal.negative = true;
    ++q;
  }
  const char* const first = q;
  // One digit at a time in front of the point, where there are few, eight at a time behind it.
  while (q != end && json::IsDigit(*q))
    decimal.mantissa = decimal.mantissa * 10 + static_cast<std::uint64_t>(*q++ - '0');
  std::ptrdiff_t digits = q - first;
  if (digits == 0 || (digits > 1 && *first == '0')) return false;
  if (q != end && *q == '.') {
    const char* const fraction = ++q;
    q = ReadDigits(q, end, decimal.mantissa);
    if (q == fraction) return false;
    digits += q - fraction;
    decimal.exponent = static_cast<int>(fraction - q);
  }
  if (digits > 19) return false;  // the mantissa may have wrapped around
  if (q != end && (*q == 'e' || *q == 'E')) {
    ++q;
    bool down = false;
    if (q != end && (*q == '+' || *q == '-')) down = *q++ == '-';
    std::uint64_t power = 0;
    const char* const from = q;
    q = ReadDigits(q, end, power);
    if (q == from || q - from > 4) return false;
    decimal.exponent += down ? -static_cast<int>(power) : static_cast<int>(power);
  }
  decimal.exact = decimal.mantissa <= (std::uint64_t{1} << 53) && decimal.exponent >= -22 && decimal.exponent <= 22;
  p = q;
  return true;
}

// Clinger's case: both operands are exact, so that the one operation rounds once.
double ExactDouble(const Decimal& decimal) {
  const auto mantissa = static_cast<double>(decimal.mantissa);
  const double value =
      decimal.exponent < 0 ? mantissa / kPowersOfTen[-decimal.exponent] : mantissa * kPowersOfTen[decimal.exponent];
  return decimal.negative ? -value : value;
}

// The nearest float to a decimal whose nearest double is `value`: rounding twice is the same as rounding once unless
// the double lies just between two floats, or the float is subnormal or too big.
bool NarrowExactly(double value, float& result) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const double magnitude = std::fabs(value);
  if ((bits & 0x1fffffff) == 0x10000000) return false;
  if (magnitude > 0x1.fffffep127 || (magnitude < 0x1p-126 && magnitude != 0)) return false;
  result = static_cast<float>(value);
  return true;
}

// from_chars on a checked literal. False when a finite text is too big for T; what is too small is 0 or the nearest
// subnormal.
template <typename T>
bool ParseFloating(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc()) return std::isfinite(value);
  const std::string copy(text);
  value = sizeof(T) == sizeof(float) ? static_cast<T>(std::strtof(copy.c_str(), nullptr))
                                     : static_cast<T>(std::strtod(copy.c_str(), nullptr));
  return std::isfinite(value);
}

template <typename T>
Outcome ReadFloating(const char*& p, const char* end, T& value, const char*& message) {
  const char* const start = p;
  Decimal decimal;
  if (ScanDecimal(p, end, decimal)) {
    if (decimal.exact) {
      if constexpr (std::same_as<T, double>) {
        value = ExactDouble(decimal);
        return Outcome::kGood;
      } else if (NarrowExactly(ExactDouble(decimal), value)) {
        return Outcome::kGood;
      }
    }
    return ParseFloating(std::string_view(start, static_cast<std::size_t>(p - start)), value) ? Outcome::kGood
                                                                                              : Outcome::kOutOfRange;
  }
  p = start;
  if (!StartsNumber(*p)) return Outcome::kWrongKind;
  JsonNumber number;
  if (!json::ScanNumber(p, end, number, message)) return Outcome::kSyntax;
  const char kind = number.text[number.negative ? 1 : 0];
  if (kind == 'N' || kind == 'I') {
    value = kind == 'N' ? std::numeric_limits<T>::quiet_NaN() : std::numeric_limits<T>::infinity();
    if (number.negative) value = -value;
    return Outcome::kGood;
  }
  return ParseFloating(number.text, value) ? Outcome::kGood : Outcome::kOutOfRange;
}

template <std::integral T>
Outcome ReadInteger(const char*& p, const char* end, T& value, const char*& message) {
  const char* const start = p;
  const bool negative = *p == '-';
  std::uint64_t magnitude = 0;
  const char* const first = p + (negative ? 1 : 0);
  const char* const last = ReadDigits(first, end, magnitude);
  const bool plain = last != first && (last - first == 1 || *first != '0') && last - first <= 19 &&
                     (last == end || (*last != '.' && *last != 'e' && *last != 'E'));
  if (plain) {
    p = last;
  } else {
    if (!StartsNumber(*p)) return Outcome::kWrongKind;
    JsonNumber number;
    if (!json::ScanNumber(p, end, number, message)) return Outcome::kSyntax;
    if (!number.integral) {
      p = start;
      return Outcome::kWrongKind;
    }
    if (!number.fits) return Outcome::kOutOfRange;
    magnitude = number.magnitude;
  }
  if constexpr (std::unsigned_integral<T>) {
    if (negative && magnitude != 0) {
      p = start;
      return Outcome::kWrongKind;
    }
    if (magnitude > std::numeric_limits<T>::max()) return Outcome::kOutOfRange;
    value = static_cast<T>(magnitude);
  } else {
    const std::uint64_t limit = static_cast<std::uint64_t>(std::numeric_limits<T>::max()) + (negative ? 1 : 0);
    if (magnitude > limit) return Outcome::kOutOfRange;
    value = static_cast<T>(negative ? std::uint64_t{0} - magnitude : magnitude);
  }
  return Outcome::kGood;
}

Outcome ReadBoolean(const char*& p, const char* end, bool& value, const char*& message) {
  if (*p != 't' && *p != 'f') return Outcome::kWrongKind;
  value = *p == 't';
  const std::string_view word = value ? "true" : "false";
  message = "Invalid value.";
  for (const char c : word) {
    if (p == end || *p != c) return Outcome::kSyntax;
    ++p;
  }
  return Outcome::kGood;
}

// A number that becomes one of the 16-bit types.
template <std::uint16_t (*kConvert)(double), std::uint16_t kInfinity>
Outcome ReadSmallFloat(const char*& p, const char* end, std::uint16_t& value, const char*& message) {
  double wide = 0;
  const Outcome outcome = ReadFloating(p, end, wide, message);
  if (outcome != Outcome::kGood) return outcome;
  value = kConvert(wide);
  return (value & 0x7fffu) == kInfinity && std::isfinite(wide) ? Outcome::kOutOfRange : Outcome::kGood;
}

// Walks the arrays; `element(p, message)` reads one element at `p`. True: `p` is behind the outermost ']'.
template <typename Element>
bool WalkArrays(const char*& p, const char* end, Trouble& trouble, Element&& element) {
  const auto syntax = [&](const char* message) {
    trouble.outcome = Outcome::kSyntax;
    trouble.message = message;
    trouble.at = p;
    return false;
  };
  const auto space = [&] {
    while (p != end && IsSpace(*p)) ++p;
  };
  int depth = 0;
  while (true) {  // at the beginning of a value
    space();
    if (p == end) return syntax("Invalid value.");
    bool closed = false;
    if (*p == '[') {
      if (++depth >= trouble.max_depth) {
        trouble.too_deep = true;
        return false;
      }
      ++p;
      space();
      closed = p != end && *p == ']';
      if (!closed) continue;
    } else {
      trouble.at = p;
      const char* message = nullptr;
      trouble.outcome = element(p, message);
      if (trouble.outcome != Outcome::kGood) {
        trouble.message = message;
        if (trouble.outcome == Outcome::kSyntax) trouble.at = p;
        return false;
      }
    }
    while (true) {  // behind a value
      if (closed) {
        ++p;
        if (--depth == 0) return true;
      }
      if (p != end && *p == ',') break;
      space();
      closed = p != end && *p == ']';
      if (!closed) break;
    }
    if (p == end || *p != ',') return syntax("Missing a comma or ] after an array element.");
    ++p;
  }
}

template <typename T, typename Read>
bool ReadElements(const char*& p, const char* end, std::span<std::byte> target, std::size_t& read, Trouble& trouble,
                  Read&& read_one) {
  std::byte* out = target.data();
  std::byte* const last = target.data() + target.size();
  const bool good = WalkArrays(p, end, trouble, [&](const char*& at, const char*& message) {
    if (out == last) {
      trouble.too_many = true;
      return Outcome::kWrongKind;
    }
    T value{};
    const Outcome outcome = read_one(at, end, value, message);
    std::memcpy(out, &value, sizeof(value));
    out += sizeof(value);
    return outcome;
  });
  read = static_cast<std::size_t>(out - target.data()) / sizeof(T);
  return good;
}

bool ReadNumbers(DataType type, const char*& p, const char* end, std::span<std::byte> target, std::size_t& read,
                 Trouble& trouble) {
  const auto go = [&]<typename T>(T /*element*/, auto read_one) {
    return ReadElements<T>(p, end, target, read, trouble, read_one);
  };
  switch (type) {
    case DataType::kBool:
      return go(false, ReadBoolean);
    case DataType::kUint8:
      return go(std::uint8_t{}, ReadInteger<std::uint8_t>);
    case DataType::kUint16:
      return go(std::uint16_t{}, ReadInteger<std::uint16_t>);
    case DataType::kUint32:
      return go(std::uint32_t{}, ReadInteger<std::uint32_t>);
    case DataType::kUint64:
      return go(std::uint64_t{}, ReadInteger<std::uint64_t>);
    case DataType::kInt8:
      return go(std::int8_t{}, ReadInteger<std::int8_t>);
    case DataType::kInt16:
      return go(std::int16_t{}, ReadInteger<std::int16_t>);
    case DataType::kInt32:
      return go(std::int32_t{}, ReadInteger<std::int32_t>);
    case DataType::kInt64:
      return go(std::int64_t{}, ReadInteger<std::int64_t>);
    case DataType::kFp32:
      return go(float{}, [](const char*& at, const char* stop, float& value, const char*& message) {
        return ReadFloating(at, stop, value, message);
      });
    case DataType::kFp64:
      return go(double{}, [](const char*& at, const char* stop, double& value, const char*& message) {
        return ReadFloating(at, stop, value, message);
      });
    case DataType::kFp16:
      return go(std::uint16_t{}, ReadSmallFloat<DoubleToHalf, 0x7c00>);
    case DataType::kBf16:
      return go(std::uint16_t{}, ReadSmallFloat<DoubleToBf16, 0x7f80>);
    case DataType::kInvalid:
    case DataType::kBytes:
      break;
  }
  return false;
}

// What Triton says when an element is of another kind than the type needs.
std::string_view WrongKindText(DataType type) {
  switch (type) {
    case DataType::kBool:
      return "attempt to access JSON non-boolean as boolean";
    case DataType::kUint8:
    case DataType::kUint16:
    case DataType::kUint32:
    case DataType::kUint64:
      return "attempt to access JSON non-unsigned-integer as unsigned-integer";
    case DataType::kInt8:
    case DataType::kInt16:
    case DataType::kInt32:
    case DataType::kInt64:
      return "attempt to access JSON non-signed-integer as signed-integer";
    case DataType::kBytes:
      return "attempt to access JSON non-string as string";
    default:
      return "attempt to access JSON non-number as double";
  }
}

absl::Status StatusOf(const Trouble& trouble, DataType type, std::string_view name, const char* p) {
  const bool strings = type == DataType::kBytes;
  if (trouble.too_deep) {
    return absl::InvalidArgumentError(fmt::format("{}JSON nesting depth exceeds maximum allowed limit ({})",
                                                  strings ? "" : "Unable to parse 'data': ", trouble.max_depth));
  }
  if (trouble.too_many) {
    return absl::InvalidArgumentError("Unable to parse 'data': Shape does not match true shape of 'data' field");
  }
  if (trouble.outcome == Outcome::kOutOfRange) {
    const std::string_view text(trouble.at, std::min<std::size_t>(static_cast<std::size_t>(p - trouble.at), 40));
    return absl::InvalidArgumentError(
        fmt::format("Unable to parse 'data': value {} of input '{}' is out of range for datatype {}", text, name,
                    ProtocolName(type)));
  }
  return absl::InvalidArgumentError(fmt::format(
      "{}: {}", strings ? "Unable to parse JSON bytes array" : "Unable to parse 'data'", WrongKindText(type)));
}

absl::Status TooFew() {
  return absl::InvalidArgumentError("Failed to parse 'data' field: shape does not match true shape");
}

absl::Status TooManyElements(std::string_view name, std::int64_t count, const JsonLimits& limits) {
  return absl::InvalidArgumentError(fmt::format(
      "JSON input '{}' has {} elements, at most {} are taken. Use --http-max-json-elements to increase the limit.",
      name, count, limits.elements));
}

// Gives the error of an array that ends at no good place: its syntax comes first, as it does where the whole text is
// parsed before it is looked at.
absl::Status Refuse(JsonCursor& cursor, const char* start, const Trouble& trouble, DataType type, std::string_view name,
                    const char* p) {
  if (trouble.outcome == Outcome::kSyntax && !trouble.too_many && !trouble.too_deep) {
    cursor.Fail(trouble.message, trouble.at);
    return cursor.Error();
  }
  absl::Status status = StatusOf(trouble, type, name, p);
  cursor.Seek(start);
  return cursor.SkipValue() ? status : cursor.Error();
}

// Strings: the array is walked twice, once to know where it ends, which bounds the memory, once to decode.
absl::Status ReadStrings(JsonCursor& cursor, std::string_view name, const JsonLimits& limits, BufferPool& pool,
                         Buffer& out) {
  const char* const start = cursor.position();
  if (!cursor.SkipValue()) return cursor.Error();
  const char* const end = cursor.position();
  const auto text_bytes = static_cast<std::size_t>(end - start);
  // The shortest string, "" and a comma, takes 3 bytes here and 4 in wire form; every other byte stays one at most.
  ASSIGN_OR_RETURN(Buffer buffer, pool.Allocate(text_bytes + text_bytes / 3 + 4));
  char* write = reinterpret_cast<char*>(buffer.data());
  const char* p = start;
  Trouble trouble;
  trouble.max_depth = limits.depth;
  std::int64_t count = 0;
  const bool good = WalkArrays(p, end, trouble, [&](const char*& at, const char*& message) {
    if (*at != '"') return Outcome::kWrongKind;
    ++count;
    char* const length_at = write;
    write += sizeof(std::uint32_t);
    if (!json::DecodeString(at, end, &write, message)) return Outcome::kSyntax;
    const auto length =
        static_cast<std::uint32_t>(write - length_at - static_cast<std::ptrdiff_t>(sizeof(std::uint32_t)));
    std::memcpy(length_at, &length, sizeof(length));
    return Outcome::kGood;
  });
  if (!good) return Refuse(cursor, start, trouble, DataType::kBytes, name, p);
  const auto bytes = static_cast<std::size_t>(write - reinterpret_cast<char*>(buffer.data()));
  if (count > limits.elements) return TooManyElements(name, count, limits);
  if (bytes > limits.bytes) return JsonTensorTooBig(name, bytes, limits.bytes);
  buffer.Truncate(bytes);
  out = std::move(buffer);
  return absl::OkStatus();
}

}  // namespace

absl::Status JsonTensorTooBig(std::string_view name, std::uint64_t bytes, std::size_t max_bytes) {
  return absl::InvalidArgumentError(
      fmt::format("JSON input '{}' has a byte_size ({} bytes) that exceeds the maximum allowed value of {} bytes. Use "
                  "--http-max-input-size to increase the limit.",
                  name, bytes, max_bytes));
}

absl::Status ReadJsonTensor(JsonCursor& cursor, DataType type, std::string_view name, std::int64_t count,
                            const JsonLimits& limits, BufferPool& pool, Buffer& out) {
  const JsonKind kind = cursor.Peek();
  if (kind == JsonKind::kNone) return cursor.Error();
  if (kind != JsonKind::kArray) {
    if (!cursor.SkipValue()) return cursor.Error();
    return absl::InvalidArgumentError("Unable to parse 'data': attempt to access JSON non-array as array");
  }
  if (type == DataType::kBytes) return ReadStrings(cursor, name, limits, pool, out);

  const std::uint64_t elements = static_cast<std::uint64_t>(count);
  const std::uint64_t bytes = elements * ElementByteSize(type);
  if (count > limits.elements) {
    return cursor.SkipValue() ? TooManyElements(name, count, limits) : cursor.Error();
  }
  if (bytes > limits.bytes) {
    return cursor.SkipValue() ? JsonTensorTooBig(name, bytes, limits.bytes) : cursor.Error();
  }
  const char* const start = cursor.position();
  // An element and its separator are two bytes of text at least: no memory for what cannot be there.
  if (elements > static_cast<std::uint64_t>(cursor.end() - start) / 2) {
    return cursor.SkipValue() ? TooFew() : cursor.Error();
  }
  absl::StatusOr<Buffer> buffer = pool.Allocate(bytes);
  if (!buffer.ok()) return cursor.SkipValue() ? buffer.status() : cursor.Error();
  const char* p = start;
  std::size_t read = 0;
  Trouble trouble;
  trouble.max_depth = limits.depth;
  if (!ReadNumbers(type, p, cursor.end(), buffer->bytes(), read, trouble)) {
    return Refuse(cursor, start, trouble, type, name, p);
  }
  cursor.Seek(p);
  if (read != elements) return TooFew();
  out = *std::move(buffer);
  return absl::OkStatus();
}

}  // namespace tidemark
