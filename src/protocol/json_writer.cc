#include "protocol/json_writer.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "protocol/half.h"

namespace tidemark {
namespace {

constexpr std::size_t kLongestNumber = 40;

constexpr std::string_view kHex = "0123456789ABCDEF";

// What a byte becomes inside a string: 0 itself, 'u' \u00XX, else a backslash and this letter.
constexpr std::array<char, 256> kEscapes = [] {
  std::array<char, 256> table{};
  for (std::size_t c = 0; c < 0x20; ++c) table[c] = 'u';
  table['\b'] = 'b';
  table['\f'] = 'f';
  table['\n'] = 'n';
  table['\r'] = 'r';
  table['\t'] = 't';
  table['"'] = '"';
  table['\\'] = '\\';
  return table;
}();

char EscapeOf(char c) { return kEscapes[static_cast<unsigned char>(c)]; }

char* Put(char* out, std::string_view text) {
  std::memcpy(out, text.data(), text.size());
  return out + text.size();
}

constexpr std::array<char, 200> kPairs = [] {
  std::array<char, 200> table{};
  for (std::size_t i = 0; i < 100; ++i) {
    table[2 * i] = static_cast<char>('0' + i / 10);
    table[2 * i + 1] = static_cast<char>('0' + i % 10);
  }
  return table;
}();

template <typename Digits>
constexpr std::array<Digits, std::numeric_limits<Digits>::digits10 + 1> kPowersOfTen = [] {
  std::array<Digits, std::numeric_limits<Digits>::digits10 + 1> table{};
  Digits power = 1;
  for (Digits& entry : table) {
    entry = power;
    power = static_cast<Digits>(power * 10);
  }
  return table;
}();

// Exactly `count` digits of `value`, zeros in front. Written straight to their place: copying them afterwards costs more
// than making them.
template <typename Digits>
char* WriteDigits(char* out, Digits value, int count) {
  char* const end = out + count;
  for (char* p = end; count >= 2; count -= 2) {
    p -= 2;
    std::memcpy(p, &kPairs[2 * static_cast<std::size_t>(value % 100)], 2);
    value = static_cast<Digits>(value / 100);
  }
  if (count == 1) *out = static_cast<char>('0' + value);
  return end;
}

// The eight digits of `value` < 10^8, the first in the lowest byte. All are made at once: halves, their halves and those
// halves' halves lie side by side in one word, and each is divided by a multiplication.
std::uint64_t EightDigits(std::uint32_t value) {
  std::uint64_t word = value / 10'000 | std::uint64_t{value % 10'000} << 32;
  const std::uint64_t hundreds = word * 10'486 >> 20 & 0x0000'007f'0000'007f;
  word = hundreds | (word - hundreds * 100) << 16;
  const std::uint64_t tens = word * 103 >> 10 & 0x000f'000f'000f'000f;
  word = tens | (word - tens * 10) << 8;
  return word + 0x3030'3030'3030'3030;
}

// All digits that a float or a double can need, those of `value` in front: 9 or 17.
template <typename Digits>
class LeftDigits {
 public:
  LeftDigits(Digits value, int length) {
    static_assert(std::endian::native == std::endian::little);
    value *= kPowersOfTen<Digits>[static_cast<std::size_t>(1 + static_cast<int>(8 * kWords) - length)];
    for (std::size_t i = kWords; i > 0; --i) {
      rest_[i - 1] = EightDigits(static_cast<std::uint32_t>(value % 100'000'000));
      value /= 100'000'000;
    }
    first_ = static_cast<char>('0' + value);
  }
  // Writes more than there is: what comes next is written over it.
  void PutFirst(char* out) const { *out = first_; }
  void PutRest(char* out) const { std::memcpy(out, rest_.data(), sizeof(rest_)); }

 private:
  static constexpr std::size_t kWords = sizeof(Digits) == 4 ? 1 : 2;
  std::array<std::uint64_t, kWords> rest_;
  char first_;
};

// `digits` * 10^`exponent` in the writer's layout, `digits` without trailing zeros.
template <typename Digits>
char* WriteDecimal(char* out, Digits digits, int exponent) {
  const int length = fmt::detail::count_digits(digits);
  const int point = length + exponent;  // 10^(point-1) <= value < 10^point
  if (point > -6 && point <= 1 && exponent < 0) {
    // What most tensors hold. 0.1 to 10 come in no order, so that nothing here hangs on which side of 1 a value is.
    const LeftDigits<Digits> text(digits, length);
    const bool whole = point == 1;
    std::memcpy(out, "0.000000", 8);
    text.PutFirst(out + (whole ? 0 : 2 - point));
    text.PutRest(out + (whole ? 2 : 3 - point));
    return out + (whole ? 1 : 2 - point) + length;
  }
  if (point > 0 && exponent < 0) {
    const Digits unit = kPowersOfTen<Digits>[static_cast<std::size_t>(-exponent)];
    out = WriteDigits<Digits>(out, digits / unit, point);
    *out++ = '.';
    return WriteDigits<Digits>(out, digits % unit, -exponent);
  }
  if (exponent >= 0 && point <= 21) {
    out = WriteDigits(out, digits, length);
    std::memset(out, '0', static_cast<std::size_t>(exponent));
    return Put(out + exponent, ".0");
  }
  char* const first = out;
  out = WriteDigits(out + 1, digits, length);  // one place too far: the point goes between
  first[0] = first[1];
  first[1] = '.';
  if (length == 1) out = first + 1;
  *out++ = 'e';
  return std::to_chars(out, out + 8, point - 1).ptr;
}

// Shortest digits that read back as the same T.
template <typename T>
char* WriteFloating(char* out, T value) {
  if (std::isnan(value)) return Put(out, "NaN");
  *out = '-';
  out += std::signbit(value) ? 1 : 0;
  value = std::abs(value);
  if (std::isinf(value)) return Put(out, "Infinity");
  if (value == 0) return Put(out, "0.0");
  // Dragonbox as fmt carries it; the documented road there, format_to, takes twice as long.
  const auto decimal = fmt::detail::dragonbox::to_decimal(value);
  auto digits = decimal.significand;
  int exponent = decimal.exponent;
  while (digits % 10 == 0) {
    digits /= 10;
    ++exponent;
  }
  return WriteDecimal(out, digits, exponent);
}

// `write` puts one element. `usual` is how long one mostly is, with its comma: memory for all is taken at once.
template <typename T, typename Write>
void AppendArray(std::string& out, std::span<const std::byte> data, std::size_t usual, Write&& write) {
  const std::size_t wanted = out.size() + data.size() / sizeof(T) * usual + 2;
  if (wanted > out.capacity()) out.reserve(wanted);
  char chunk[4096];
  char* p = chunk;
  *p++ = '[';
  for (std::size_t at = 0; at + sizeof(T) <= data.size(); at += sizeof(T)) {
    if (p > chunk + sizeof(chunk) - kLongestNumber - 2) {
      out.append(chunk, static_cast<std::size_t>(p - chunk));
      p = chunk;
    }
    if (at != 0) *p++ = ',';
    T value;
    std::memcpy(&value, data.data() + at, sizeof(value));
    p = write(p, value);
  }
  *p++ = ']';
  out.append(chunk, static_cast<std::size_t>(p - chunk));
}

template <typename T>
void AppendIntegers(std::string& out, std::span<const std::byte> data) {
  AppendArray<T>(out, data, 2 + 2 * sizeof(T),
                 [](char* p, T value) { return std::to_chars(p, p + kLongestNumber, value).ptr; });
}

template <typename T>
void AppendFloats(std::string& out, std::span<const std::byte> data) {
  AppendArray<T>(out, data, sizeof(T) == 4 ? 12 : 20, [](char* p, T value) { return WriteFloating(p, value); });
}

}  // namespace

void AppendJsonString(std::string& out, std::string_view text) {
  out += '"';
  std::size_t from = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char escape = EscapeOf(text[i]);
    if (escape == 0) continue;
    out.append(text, from, i - from);
    from = i + 1;
    out += '\\';
    out += escape;
    if (escape == 'u') {
      const auto byte = static_cast<unsigned char>(text[i]);
      out += "00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
  out.append(text, from);
  out += '"';
}

void AppendJsonInt(std::string& out, std::int64_t value) {
  char text[kLongestNumber];
  out.append(text, std::to_chars(text, text + sizeof(text), value).ptr);
}

void AppendJsonUint(std::string& out, std::uint64_t value) {
  char text[kLongestNumber];
  out.append(text, std::to_chars(text, text + sizeof(text), value).ptr);
}

void AppendJsonDouble(std::string& out, double value) {
  char text[kLongestNumber];
  out.append(text, WriteFloating(text, value));
}

void AppendJsonShape(std::string& out, std::span<const std::int64_t> shape) {
  out += '[';
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i != 0) out += ',';
    AppendJsonInt(out, shape[i]);
  }
  out += ']';
}

void AppendJsonElements(std::string& out, DataType type, std::span<const std::byte> data) {
  switch (type) {
    case DataType::kBool:
      return AppendArray<std::uint8_t>(out, data, 6, [](char* p, std::uint8_t value) {
        return Put(p, value != 0 ? std::string_view("true") : std::string_view("false"));
      });
    case DataType::kUint8:
      return AppendIntegers<std::uint8_t>(out, data);
    case DataType::kUint16:
      return AppendIntegers<std::uint16_t>(out, data);
    case DataType::kUint32:
      return AppendIntegers<std::uint32_t>(out, data);
    case DataType::kUint64:
      return AppendIntegers<std::uint64_t>(out, data);
    case DataType::kInt8:
      return AppendIntegers<std::int8_t>(out, data);
    case DataType::kInt16:
      return AppendIntegers<std::int16_t>(out, data);
    case DataType::kInt32:
      return AppendIntegers<std::int32_t>(out, data);
    case DataType::kInt64:
      return AppendIntegers<std::int64_t>(out, data);
    case DataType::kFp32:
      return AppendFloats<float>(out, data);
    case DataType::kFp64:
      return AppendFloats<double>(out, data);
    case DataType::kFp16:
      return AppendArray<std::uint16_t>(
          out, data, 10, [](char* p, std::uint16_t value) { return WriteFloating(p, HalfToFloat(value)); });
    case DataType::kBf16:
      return AppendArray<std::uint16_t>(
          out, data, 10, [](char* p, std::uint16_t value) { return WriteFloating(p, Bf16ToFloat(value)); });
    case DataType::kInvalid:
    case DataType::kBytes:
      break;
  }
  out += "[]";
}

bool AppendJsonStrings(std::string& out, std::span<const std::byte> data, std::uint64_t count) {
  const std::size_t before = out.size();
  out += '[';
  std::uint64_t written = 0;
  while (!data.empty()) {
    std::uint32_t length = 0;
    if (written == count || data.size() < sizeof(length)) break;
    std::memcpy(&length, data.data(), sizeof(length));
    if (data.size() - sizeof(length) < length) break;
    if (written++ != 0) out += ',';
    AppendJsonString(out, {reinterpret_cast<const char*>(data.data()) + sizeof(length), length});
    data = data.subspan(sizeof(length) + length);
  }
  if (!data.empty() || written != count) {
    out.resize(before);
    return false;
  }
  out += ']';
  return true;
}

}  // namespace tidemark
