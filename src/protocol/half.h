#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace tidemark {

// Conversions of the two 16-bit floating-point types, as bit patterns. Rounding is to nearest, ties to even; what is too
// big becomes infinity; a NaN stays one.

inline float HalfToFloat(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fu;
  const std::uint32_t fraction = half & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24 is exact
    const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

inline std::uint16_t DoubleToHalf(double value) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000u : 0);
  const double magnitude = std::fabs(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (magnitude >= 65520.0) return static_cast<std::uint16_t>(sign | 0x7c00u);
  int exponent = 0;
  std::frexp(magnitude, &exponent);         // magnitude = f * 2^exponent, 0.5 <= f < 1
  if (magnitude < 0x1p-14) exponent = -13;  // subnormal: one spacing for all
  // In units of the last place; the division by a power of two is exact, nearbyint rounds to even.
  const auto units = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(magnitude, 11 - exponent)));
  const auto bits = static_cast<std::uint32_t>(exponent + 13) * 1024 + units;
  return static_cast<std::uint16_t>(sign | (magnitude < 0x1p-14 ? units : bits));
}

inline float Bf16ToFloat(std::uint16_t value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16); }

// From a double by way of a float that is rounded to odd, so that rounding twice is rounding once.
inline std::uint16_t DoubleToBf16(double value) {
  if (std::isnan(value)) return std::signbit(value) ? 0xffc0u : 0x7fc0u;
  auto single = static_cast<float>(value);
  std::uint32_t bits = std::bit_cast<std::uint32_t>(single);
  if (std::isinf(single) && !std::isinf(value)) bits -= 1;  // between the largest float and infinity
  if (static_cast<double>(std::bit_cast<float>(bits)) != value) {
    if (std::fabs(static_cast<double>(std::bit_cast<float>(bits))) > std::fabs(value)) bits -= 1;  // towards zero
    bits |= 1;
  }
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace tidemark
