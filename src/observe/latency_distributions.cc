#include "observe/latency_distributions.h"

#include <prometheus/client_metric.h>
#include <prometheus/histogram.h>
#include <prometheus/summary.h>

#include <array>
#include <optional>

namespace tidemark {
namespace {

constexpr std::size_t kPhases = 7;

prometheus::Summary::Quantiles QuantilesOf(const LatencyOptions& options) {
  prometheus::Summary::Quantiles quantiles;
  for (const auto& [quantile, error] : options.quantiles) quantiles.emplace_back(quantile, error);
  return quantiles;
}

}  // namespace

struct LatencyDistributions::State {
  State(const LatencyOptions& options, const std::vector<double>& buckets) {
    if (options.histograms) first_response.emplace(buckets);
    if (options.summaries) {
      for (auto& summary : summaries) summary.emplace(QuantilesOf(options));
    }
  }
  std::optional<prometheus::Histogram> first_response;
  std::array<std::optional<prometheus::Summary>, kPhases> summaries;
};

LatencyDistributions::LatencyDistributions(const LatencyOptions& options, const std::vector<double>& buckets)
    : state_(std::make_unique<State>(options, buckets)) {}

LatencyDistributions::~LatencyDistributions() = default;

const std::vector<double>& LatencyDistributions::DefaultBuckets() {
  static const std::vector<double> kBuckets = {100, 500, 2000, 5000};
  return kBuckets;
}

void LatencyDistributions::ObserveRequest(std::uint64_t request, std::uint64_t queue, std::uint64_t input,
                                          std::uint64_t infer, std::uint64_t output) {
  if (!state_->summaries[0]) return;
  const std::array<std::uint64_t, 5> nanos = {request, queue, input, infer, output};
  for (std::size_t i = 0; i < nanos.size(); ++i) state_->summaries[i]->Observe(static_cast<double>(nanos[i] / 1000));
}

void LatencyDistributions::ObserveFirstResponse(std::uint64_t nanos) {
  if (state_->first_response) state_->first_response->Observe(static_cast<double>(nanos / 1'000'000));
}

void LatencyDistributions::ObserveCacheHit(std::uint64_t nanos) {
  if (!state_->summaries[0]) return;
  state_->summaries[static_cast<std::size_t>(Phase::kQueue)]->Observe(0);
  state_->summaries[static_cast<std::size_t>(Phase::kCacheHit)]->Observe(static_cast<double>(nanos / 1000));
}

void LatencyDistributions::ObserveCacheMiss(std::uint64_t nanos) {
  if (!state_->summaries[0]) return;
  state_->summaries[static_cast<std::size_t>(Phase::kCacheMiss)]->Observe(static_cast<double>(nanos / 1000));
}

std::unique_ptr<prometheus::ClientMetric> LatencyDistributions::FirstResponse() const {
  if (!state_->first_response) return nullptr;
  return std::make_unique<prometheus::ClientMetric>(state_->first_response->Collect());
}

std::unique_ptr<prometheus::ClientMetric> LatencyDistributions::Summary(Phase phase) const {
  const auto& summary = state_->summaries.at(static_cast<std::size_t>(phase));
  if (!summary) return nullptr;
  return std::make_unique<prometheus::ClientMetric>(summary->Collect());
}

}  // namespace tidemark
