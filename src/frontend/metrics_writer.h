#pragma once

#include <prometheus/client_metric.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "frontend/metrics_page.h"

// For the metrics_*.cc files.

namespace tidemark {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<std::pair<std::string, std::string>>;

inline double Number(std::uint64_t value) { return static_cast<double>(value); }

// "namespace/…/name" of a registry key, taken apart.
inline std::string NameOf(std::string_view key) { return std::string(key.substr(key.rfind('/') + 1)); }
inline std::string NamespaceOf(std::string_view key) {
  const std::size_t slash = key.rfind('/');
  return slash == std::string_view::npos ? "" : std::string(key.substr(0, slash));
}

// Families in the order in which they are written.
class MetricsPage::Writer {
 public:
  void Begin(std::string_view name, MetricType type, std::string_view help) {
    families_.push_back({std::string(name), std::string(help), type, {}});
  }
  void Counter(std::string_view name, std::string_view help) { Begin(name, MetricType::Counter, help); }
  void Gauge(std::string_view name, std::string_view help) { Begin(name, MetricType::Gauge, help); }
  // A sample of the family that was begun last.
  void Add(Labels labels, double value) {
    ClientMetric metric;
    metric.counter.value = metric.gauge.value = value;
    Add(std::move(labels), std::move(metric));
  }
  void Add(Labels labels, ClientMetric metric) {
    std::sort(labels.begin(), labels.end());
    for (auto& [name, value] : labels) metric.label.push_back({std::move(name), std::move(value)});
    families_.back().metric.push_back(std::move(metric));
  }
  bool Has(std::string_view name) const {
    return std::any_of(families_.begin(), families_.end(),
                       [&](const MetricFamily& family) { return family.name == name; });
  }
  std::string Text() const {
    std::ostringstream out;
    prometheus::TextSerializer().Serialize(out, families_);
    return std::move(out).str();
  }

 private:
  std::vector<MetricFamily> families_;
};

}  // namespace tidemark
