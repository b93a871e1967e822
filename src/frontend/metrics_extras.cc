// The parts of /metrics that not every server has: the response cache, and what backends add.

#include <fmt/format.h>

#include <limits>
#include <map>

#include "frontend/metrics_writer.h"

namespace tidemark {

void MetricsPage::AddCache(Writer& writer) const {
  if (parts_.cache == nullptr) return;
  const ResponseCache::Figures figures = parts_.cache->figures();
  const auto add = [&](std::string_view name, std::string_view help, double value) {
    writer.Gauge(name, help);
    writer.Add({}, value);
  };
  add("nv_cache_util", "Cache utilization [0.0 - 1.0]", Number(figures.used) / Number(figures.capacity));
  add("nv_cache_num_entries", "Number of responses stored in response cache", Number(figures.entries));
  add("nv_cache_num_hits", "Number of cache hits in response cache", Number(figures.hits));
  add("nv_cache_num_misses", "Number of cache misses in response cache", Number(figures.misses));
  add("nv_cache_num_lookups", "Number of cache lookups in response cache", Number(figures.hits + figures.misses));
  add("nv_cache_num_evictions", "Number of cache evictions in response cache", Number(figures.evictions));
  add("nv_cache_lookup_duration", "Total cache lookup duration (hit and miss), in microseconds",
      Number(figures.lookup_ns / 1000));
  add("nv_cache_insertion_duration", "Total cache insertion duration, in microseconds",
      Number(figures.insertion_ns / 1000));
}

namespace {

MetricType TypeOf(ModelMetrics::Kind kind) {
  switch (kind) {
    case ModelMetrics::Kind::kCounter:
      return MetricType::Counter;
    case ModelMetrics::Kind::kGauge:
      return MetricType::Gauge;
    case ModelMetrics::Kind::kHistogram:
      return MetricType::Histogram;
  }
  return MetricType::Untyped;
}

ClientMetric MetricOf(const ModelMetrics::Sample& sample) {
  ClientMetric metric;
  metric.counter.value = metric.gauge.value = sample.value;
  std::uint64_t cumulative = 0;
  for (std::size_t i = 0; i < sample.counts.size(); ++i) {
    cumulative += sample.counts[i];
    const double bound = i < sample.bounds.size() ? sample.bounds[i] : std::numeric_limits<double>::infinity();
    metric.histogram.bucket.push_back({cumulative, bound});
  }
  metric.histogram.sample_count = cumulative;
  metric.histogram.sample_sum = sample.value;
  return metric;
}

}  // namespace

void MetricsPage::AddCustom(Writer& writer, const RegistrySnapshot& snapshot) const {
  struct Family {
    std::string help;
    ModelMetrics::Kind kind = ModelMetrics::Kind::kCounter;
    std::vector<std::pair<Labels, ClientMetric>> samples;
  };
  std::map<std::string, Family> families;
  for (const auto& [key, model] : snapshot) {
    for (const auto& [number, entry] : model->versions) {
      ModelHandle handle = ModelHandle::Enter(entry.published);
      if (!handle || handle->metrics() == nullptr) continue;
      for (const ModelMetrics::Sample& sample : handle->metrics()->Collect()) {
        const auto [family, is_new] = families.try_emplace(sample.family, Family{sample.help, sample.kind, {}});
        if (family->second.kind != sample.kind) continue;
        Labels labels(sample.labels.begin(), sample.labels.end());
        labels.emplace_back("model", model->name);
        labels.emplace_back("version", fmt::format("{}", number));
        if (options_.namespaces) labels.emplace_back("namespace", NamespaceOf(model->key));
        family->second.samples.emplace_back(std::move(labels), MetricOf(sample));
      }
    }
  }
  for (auto& [name, family] : families) {
    if (writer.Has(name)) continue;
    writer.Begin(name, TypeOf(family.kind), family.help);
    for (auto& [labels, metric] : family.samples) writer.Add(std::move(labels), std::move(metric));
  }
}

}  // namespace tidemark
