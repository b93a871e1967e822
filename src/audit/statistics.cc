#include "audit/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace tidemark::audit {

std::int64_t Median(std::span<const std::int64_t> values) {
  if (values.empty()) return 0;
  std::vector<std::int64_t> sorted(values.begin(), values.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((sorted.size() - 1) / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

double StudentT975(int degrees) {
  // Exact to three digits up to 30, beyond that the Cornish-Fisher expansion is good to four.
  static constexpr std::array<double, 31> kTable = {
      0,     12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
      2.120, 2.110,  2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
  if (degrees < 1) return std::numeric_limits<double>::infinity();
  if (degrees < static_cast<int>(kTable.size())) return kTable[static_cast<std::size_t>(degrees)];
  const double z = 1.959964;
  const double n = degrees;
  const double z3 = z * z * z;
  return z + (z3 + z) / (4 * n) + (5 * z3 * z * z + 16 * z3 + 3 * z) / (96 * n * n);
}

Interval MeanStep(std::span<const std::int64_t> levels) {
  const double infinity = std::numeric_limits<double>::infinity();
  if (levels.size() < 2) return {0, -infinity, infinity};
  const auto steps = static_cast<double>(levels.size() - 1);
  const double mean = static_cast<double>(levels.back() - levels.front()) / steps;
  if (levels.size() < 3) return {mean, -infinity, infinity};
  double squares = 0;
  for (std::size_t i = 1; i < levels.size(); ++i) {
    const double off = static_cast<double>(levels[i] - levels[i - 1]) - mean;
    squares += off * off;
  }
  const double error = std::sqrt(squares / (steps - 1) / steps);
  const double half = StudentT975(static_cast<int>(levels.size()) - 2) * error;
  return {mean, mean - half, mean + half};
}

double TheilSenSlope(std::span<const std::int64_t> levels) {
  std::vector<double> slopes;
  slopes.reserve(levels.size() * (levels.size() + 1) / 2);
  for (std::size_t i = 0; i < levels.size(); ++i) {
    for (std::size_t j = i + 1; j < levels.size(); ++j) {
      slopes.push_back(static_cast<double>(levels[j] - levels[i]) / static_cast<double>(j - i));
    }
  }
  if (slopes.empty()) return 0;
  const auto middle = slopes.begin() + static_cast<std::ptrdiff_t>(slopes.size() / 2);
  std::nth_element(slopes.begin(), middle, slopes.end());
  if (slopes.size() % 2 == 1) return *middle;
  const double upper = *middle;
  return (upper + *std::max_element(slopes.begin(), middle)) / 2;
}

}  // namespace tidemark::audit
