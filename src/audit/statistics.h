#pragma once

#include <cstdint>
#include <span>

namespace tidemark::audit {

// The median; of an even number of values the lower one of the middle two, so that it is a value that was read.
// 0 for none.
std::int64_t Median(std::span<const std::int64_t> values);

struct Interval {
  double mean = 0;
  double low = 0;
  double high = 0;
};

// Mean step between consecutive levels with a two-sided 95 % confidence interval (Student's t over the steps). Steps
// rather than a straight line through the levels: memory levels are a sum of what happened before, so that the
// residuals of a fitted line depend on each other and its interval comes out far too narrow; one jump in the middle of
// a flat line would "prove" a slope. Fewer than three levels give an infinitely wide interval.
Interval MeanStep(std::span<const std::int64_t> levels);

// Theil-Sen estimate: the median of the slopes of all pairs. 0 for fewer than two levels.
double TheilSenSlope(std::span<const std::int64_t> levels);

// The 97.5 % quantile of Student's t with `degrees` ≥ 1 degrees of freedom.
double StudentT975(int degrees);

}  // namespace tidemark::audit
