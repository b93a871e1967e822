#include "backend/model_metrics.h"

#include <algorithm>
#include <cmath>

#include "base/status.h"

namespace tidemark {
namespace {

bool IsName(std::string_view name, bool colons) {
  const auto fits = [&](char c, bool first) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (colons && c == ':') ||
           (!first && c >= '0' && c <= '9');
  };
  if (name.empty() || !fits(name[0], true)) return false;
  return std::all_of(name.begin() + 1, name.end(), [&](char c) { return fits(c, false); });
}

absl::Status CheckLabels(std::string_view family, const ModelMetrics::Labels& labels) {
  constexpr std::string_view kTaken[] = {"model", "version", "namespace", "le", "quantile"};
  for (const auto& [name, value] : labels) {
    if (IsName(name, false) && !name.starts_with("__") &&
        std::find(std::begin(kTaken), std::end(kTaken), name) == std::end(kTaken)) {
      continue;
    }
    return absl::InvalidArgumentError(
        fmt::format("metric '{}': '{}' is no label that a backend may give: expected letters, digits and underscores, "
                    "and none of {}",
                    family, name, fmt::join(kTaken, ", ")));
  }
  return absl::OkStatus();
}

}  // namespace

MetricHistogram::MetricHistogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

void MetricHistogram::Observe(double value) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[static_cast<std::size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

std::vector<std::uint64_t> MetricHistogram::counts() const {
  std::vector<std::uint64_t> counts;
  for (const auto& count : counts_) counts.push_back(count.load(std::memory_order_relaxed));
  return counts;
}

absl::StatusOr<ModelMetrics::Series*> ModelMetrics::Find(std::string_view family, std::string_view help, Kind kind,
                                                         const std::vector<double>& bounds, Labels labels) {
  if (!IsName(family, true) || family.starts_with("tidemark_")) {
    return absl::InvalidArgumentError(
        fmt::format("'{}' is no name for a backend's metric: expected letters, digits, underscores and colons, and not "
                    "tidemark_ in front",
                    family));
  }
  RETURN_IF_ERROR(CheckLabels(family, labels));
  if (!std::is_sorted(bounds.begin(), bounds.end(), std::less_equal<>()) ||
      std::any_of(bounds.begin(), bounds.end(), [](double bound) { return !std::isfinite(bound); })) {
    return absl::InvalidArgumentError(fmt::format("metric '{}': the bounds of its buckets do not ascend", family));
  }
  const auto [found, is_new] = families_.try_emplace(std::string(family));
  Family& entry = found->second;
  if (is_new) {
    entry.help = std::string(help);
    entry.kind = kind;
    entry.bounds = bounds;
  } else if (entry.kind != kind || entry.help != help || entry.bounds != bounds) {
    return absl::InvalidArgumentError(
        fmt::format("metric '{}' is there already, with another kind, help or other buckets", family));
  }
  return &entry.series[std::move(labels)];
}

absl::StatusOr<MetricCounter*> ModelMetrics::Counter(std::string_view family, std::string_view help, Labels labels) {
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(Series * series, Find(family, help, Kind::kCounter, {}, std::move(labels)));
  if (series->counter == nullptr) series->counter = std::make_unique<MetricCounter>();
  return series->counter.get();
}

absl::StatusOr<MetricGauge*> ModelMetrics::Gauge(std::string_view family, std::string_view help, Labels labels) {
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(Series * series, Find(family, help, Kind::kGauge, {}, std::move(labels)));
  if (series->gauge == nullptr) series->gauge = std::make_unique<MetricGauge>();
  return series->gauge.get();
}

absl::StatusOr<MetricHistogram*> ModelMetrics::Histogram(std::string_view family, std::string_view help,
                                                         const std::vector<double>& bounds, Labels labels) {
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(Series * series, Find(family, help, Kind::kHistogram, bounds, std::move(labels)));
  if (series->histogram == nullptr) series->histogram = std::make_unique<MetricHistogram>(bounds);
  return series->histogram.get();
}

std::vector<ModelMetrics::Sample> ModelMetrics::Collect() const {
  std::vector<Sample> samples;
  absl::MutexLock lock(&mutex_);
  for (const auto& [name, family] : families_) {
    for (const auto& [labels, series] : family.series) {
      Sample sample{name, family.help, family.kind, labels, 0, {}, {}};
      if (series.counter != nullptr) sample.value = series.counter->value();
      if (series.gauge != nullptr) sample.value = series.gauge->value();
      if (series.histogram != nullptr) {
        sample.value = series.histogram->sum();
        sample.bounds = series.histogram->bounds();
        sample.counts = series.histogram->counts();
      }
      samples.push_back(std::move(sample));
    }
  }
  return samples;
}

}  // namespace tidemark
