#include "frontend/metrics_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "frontend/metrics_writer.h"
#include "observe/latency_distributions.h"

namespace tidemark {
namespace {

ClientMetric HistogramOf(const SecondsHistogram& seconds) {
  ClientMetric metric;
  std::uint64_t cumulative = 0;
  for (std::size_t i = 0; i < seconds.counts.size(); ++i) {
    cumulative += seconds.counts[i];
    const double bound =
        i < SecondsHistogram::kBounds.size() ? SecondsHistogram::kBounds[i] : std::numeric_limits<double>::infinity();
    metric.histogram.bucket.push_back({cumulative, bound});
  }
  metric.histogram.sample_count = cumulative;
  metric.histogram.sample_sum = seconds.sum;
  return metric;
}

}  // namespace

MetricsPage::MetricsPage(Options options, Parts parts)
    : options_(std::move(options)), parts_(std::move(parts)), start_seconds_(static_cast<double>(UnixMillis()) / 1000) {
  Poll();
}

void MetricsPage::Poll() {
  absl::MutexLock lock(&mutex_);
  const absl::Time now = absl::Now();
  if (now - polled_ < options_.interval) return;
  polled_ = now;
  if (options_.cpu) {
    if (const auto machine = parts_.witness->Machine(); machine.ok()) machine_ = *machine;
    if (const auto time = parts_.witness->Processor(); time.ok()) {
      if (processor_ && time->total > processor_->total) {
        utilization_ = Number(time->busy - processor_->busy) / Number(time->total - processor_->total);
      }
      processor_ = *time;
    }
  }
  if (options_.gpu) {
    gpus_ = parts_.witness->Gpus();
    for (const GpuWitness& gpu : gpus_) {
      if (gpu.vitals.energy_millijoules) first_energy_.emplace(gpu.vitals.uuid, *gpu.vitals.energy_millijoules);
    }
  }
}

std::string MetricsPage::Render() {
  Poll();
  const std::shared_ptr<const RegistrySnapshot> snapshot = parts_.registry->Snapshot();
  const auto known = [&](std::string_view key) { return snapshot->find(key) != snapshot->end(); };
  const std::vector<StatisticsBook::Entry> entries = parts_.statistics->Collect(known);
  const LedgerTotals totals = parts_.ledger->Totals();
  Writer writer;
  AddInference(writer, entries);
  AddDistributions(writer, entries);
  AddCache(writer);
  std::uint64_t pinned = 0;
  for (const auto& [device, kinds] : totals.kinds) {
    pinned += kinds[static_cast<std::size_t>(ResourceKind::kPinnedMemory)].now;
  }
  writer.Gauge("nv_pinned_memory_pool_total_bytes", "Pinned memory pool total memory size, in bytes");
  writer.Add({}, Number(pinned));  // there is no pool: memory is pinned when it is needed
  writer.Gauge("nv_pinned_memory_pool_used_bytes", "Pinned memory pool used memory size, in bytes");
  writer.Add({}, Number(pinned));
  AddGpus(writer);
  AddCpu(writer);
  AddServer(writer);
  AddMemory(writer, totals);
  AddLoads(writer);
  AddModels(writer, *snapshot);
  AddCustom(writer, *snapshot);
  return writer.Text();
}

namespace {

Labels LabelsOf(const StatisticsBook::Entry& entry, bool namespaces) {
  Labels labels(entry.tags.begin(), entry.tags.end());
  labels.emplace_back("model", NameOf(entry.key));
  labels.emplace_back("version", fmt::format("{}", entry.version));
  if (namespaces) labels.emplace_back("namespace", NamespaceOf(entry.key));
  return labels;
}

struct CountFamily {
  std::string_view name;
  std::string_view help;
  double (*value)(const StatisticsTotals&);
};

constexpr CountFamily kCounts[] = {
    {"nv_inference_count", "Number of inferences performed (does not include cached requests)",
     [](const StatisticsTotals& t) { return Number(t.inference_count); }},
    {"nv_inference_exec_count", "Number of model executions performed (does not include cached requests)",
     [](const StatisticsTotals& t) { return Number(t.execution_count); }},
};
constexpr CountFamily kDurations[] = {
    {"nv_inference_request_duration_us",
     "Cumulative inference request duration in microseconds (includes cached requests)",
     [](const StatisticsTotals& t) { return Number(t.success.us); }},
    {"nv_inference_queue_duration_us",
     "Cumulative inference queuing duration in microseconds (includes cached requests)",
     [](const StatisticsTotals& t) { return Number(t.queue.us); }},
    {"nv_inference_compute_input_duration_us",
     "Cumulative compute input duration in microseconds (does not include cached requests)",
     [](const StatisticsTotals& t) { return Number(t.compute_input.us); }},
    {"nv_inference_compute_infer_duration_us",
     "Cumulative compute inference duration in microseconds (does not include cached requests)",
     [](const StatisticsTotals& t) { return Number(t.compute_infer.us); }},
    {"nv_inference_compute_output_duration_us",
     "Cumulative inference compute output duration in microseconds (does not include cached requests)",
     [](const StatisticsTotals& t) { return Number(t.compute_output.us); }},
};

// Of versions with a response cache only.
constexpr CountFamily kCacheCounts[] = {
    {"nv_cache_num_hits_per_model", "Number of cache hits per model",
     [](const StatisticsTotals& t) { return Number(t.cache_hit.count); }},
    {"nv_cache_num_misses_per_model", "Number of cache misses per model",
     [](const StatisticsTotals& t) { return Number(t.cache_miss.count); }},
    {"nv_cache_hit_duration_per_model", "Total cache hit duration per model, in microseconds",
     [](const StatisticsTotals& t) { return Number(t.cache_hit.us); }},
    {"nv_cache_miss_duration_per_model", "Total cache miss (insert+lookup) duration per model, in microseconds",
     [](const StatisticsTotals& t) { return Number(t.cache_miss.us); }},
};

// Has a version the summary of that phase? Where hits take no time at all the one of whole requests would mislead.
bool HasSummary(const StatisticsBook::Entry& entry, LatencyDistributions::Phase phase) {
  switch (phase) {
    case LatencyDistributions::Phase::kRequest:
      return !entry.cached;
    case LatencyDistributions::Phase::kCacheHit:
    case LatencyDistributions::Phase::kCacheMiss:
      return entry.cached;
    default:
      return true;
  }
}

struct SummaryFamily {
  LatencyDistributions::Phase phase;
  std::string_view name;
  std::string_view help;
};
constexpr SummaryFamily kSummaries[] = {
    {LatencyDistributions::Phase::kRequest, "nv_inference_request_summary_us",
     "Summary of inference request duration in microseconds (includes cached requests)"},
    {LatencyDistributions::Phase::kQueue, "nv_inference_queue_summary_us",
     "Summary of inference queuing duration in microseconds (includes cached requests)"},
    {LatencyDistributions::Phase::kInput, "nv_inference_compute_input_summary_us",
     "Cumulative compute input duration in microseconds (does not include cached requests)"},
    {LatencyDistributions::Phase::kInfer, "nv_inference_compute_infer_summary_us",
     "Cumulative compute inference duration in microseconds (does not include cached requests)"},
    {LatencyDistributions::Phase::kOutput, "nv_inference_compute_output_summary_us",
     "Cumulative inference compute output duration in microseconds (does not include cached requests)"},
    {LatencyDistributions::Phase::kCacheHit, "nv_cache_hit_summary_per_model",
     "Summary of cache hit counts/durations per model, in microseconds."},
    {LatencyDistributions::Phase::kCacheMiss, "nv_cache_miss_summary_per_model",
     "Summary of cache miss counts/durations per model, in microseconds."},
};

}  // namespace

void MetricsPage::AddInference(Writer& writer, const std::vector<StatisticsBook::Entry>& entries) const {
  const auto add = [&](const CountFamily& family) {
    writer.Counter(family.name, family.help);
    for (const auto& entry : entries) writer.Add(LabelsOf(entry, options_.namespaces), family.value(entry.totals));
  };
  writer.Counter("nv_inference_request_success", "Number of successful inference requests, all batch sizes");
  for (const auto& entry : entries) {
    writer.Add(LabelsOf(entry, options_.namespaces), Number(entry.totals.success.count));
  }
  writer.Counter("nv_inference_request_failure", "Number of failed inference requests, all batch sizes");
  for (const auto& entry : entries) {
    for (std::size_t i = 0; i < kFailureReasons; ++i) {
      Labels labels = LabelsOf(entry, options_.namespaces);
      labels.emplace_back("reason", FailureReasonName(static_cast<FailureReason>(i)));
      writer.Add(std::move(labels), Number(entry.totals.failures[i]));
    }
  }
  for (const CountFamily& family : kCounts) add(family);
  if (parts_.statistics->options().counters) {
    for (const CountFamily& family : kDurations) add(family);
    if (std::any_of(entries.begin(), entries.end(), [](const auto& entry) { return entry.cached; })) {
      for (const CountFamily& family : kCacheCounts) {
        writer.Counter(family.name, family.help);
        for (const auto& entry : entries) {
          if (entry.cached) writer.Add(LabelsOf(entry, options_.namespaces), family.value(entry.totals));
        }
      }
    }
  }
  writer.Gauge("nv_inference_pending_request_count",
               "Instantaneous number of pending requests awaiting execution per-model.");
  for (const auto& entry : entries) {
    writer.Add(LabelsOf(entry, options_.namespaces), static_cast<double>(std::max<std::int64_t>(entry.pending, 0)));
  }
  writer.Gauge("nv_model_load_duration_secs", "Model load time in seconds");
  for (const auto& entry : entries) {
    const LoadHistory::ModelHistory history = parts_.lifecycle->history().Of(entry.key);
    const auto version = history.versions.find(entry.version);
    const bool timed = version != history.versions.end() && version->second.load.has_value();
    writer.Add(LabelsOf(entry, options_.namespaces), timed ? version->second.load->seconds : 0);
  }
}

void MetricsPage::AddDistributions(Writer& writer, const std::vector<StatisticsBook::Entry>& entries) const {
  const LatencyOptions& options = parts_.statistics->options();
  if (options.histograms) {
    writer.Begin("nv_inference_first_response_histogram_ms", MetricType::Histogram,
                 "Duration from request to first response in milliseconds");
    for (const auto& entry : entries) {
      writer.Add(LabelsOf(entry, options_.namespaces), *entry.distributions->FirstResponse());
    }
  }
  if (!options.summaries) return;
  for (const SummaryFamily& family : kSummaries) {
    const auto has = [&](const StatisticsBook::Entry& entry) { return HasSummary(entry, family.phase); };
    if (std::none_of(entries.begin(), entries.end(), has)) continue;
    writer.Begin(family.name, MetricType::Summary, family.help);
    for (const auto& entry : entries) {
      if (!has(entry)) continue;
      writer.Add(LabelsOf(entry, options_.namespaces), *entry.distributions->Summary(family.phase));
    }
  }
}

void MetricsPage::AddGpus(Writer& writer) {
  if (!options_.gpu) return;
  std::vector<GpuWitness> gpus;
  std::map<std::string, std::uint64_t> first_energy;
  {
    absl::MutexLock lock(&mutex_);
    gpus = gpus_;
    first_energy = first_energy_;
  }
  if (gpus.empty()) return;
  const auto add = [&](std::string_view name, std::string_view help, bool counter, auto value) {
    writer.Begin(name, counter ? MetricType::Counter : MetricType::Gauge, help);
    for (const GpuWitness& gpu : gpus) {
      const std::optional<double> number = value(gpu);
      if (number) writer.Add({{"gpu_uuid", gpu.vitals.uuid}}, *number);
    }
  };
  using Value = std::optional<double>;
  add("nv_gpu_utilization", "GPU utilization rate [0.0 - 1.0)", false,
      [](const GpuWitness& gpu) { return gpu.vitals.utilization; });
  add("nv_gpu_memory_total_bytes", "GPU total memory, in bytes", false,
      [](const GpuWitness& gpu) { return Value(static_cast<double>(gpu.vitals.total_bytes)); });
  add("nv_gpu_memory_used_bytes", "GPU used memory, in bytes", false,
      [](const GpuWitness& gpu) { return Value(static_cast<double>(gpu.vitals.used_bytes)); });
  add("nv_gpu_power_usage", "GPU power usage in watts", false,
      [](const GpuWitness& gpu) { return gpu.vitals.power_watts; });
  add("nv_gpu_power_limit", "GPU power management limit in watts", false,
      [](const GpuWitness& gpu) { return gpu.vitals.power_limit_watts; });
  add("nv_energy_consumption", "GPU energy consumption in joules since the Triton Server started", true,
      [&](const GpuWitness& gpu) -> Value {
        const auto first = first_energy.find(gpu.vitals.uuid);
        if (!gpu.vitals.energy_millijoules || first == first_energy.end()) return std::nullopt;
        return Number(*gpu.vitals.energy_millijoules - std::min(first->second, *gpu.vitals.energy_millijoules)) / 1000;
      });
}

void MetricsPage::AddCpu(Writer& writer) {
  if (!options_.cpu) return;
  absl::MutexLock lock(&mutex_);
  writer.Gauge("nv_cpu_utilization", "CPU utilization rate [0.0 - 1.0]");
  writer.Add({}, utilization_);
  writer.Gauge("nv_cpu_memory_total_bytes", "CPU total memory (RAM), in bytes");
  writer.Add({}, Number(machine_.total));
  writer.Gauge("nv_cpu_memory_used_bytes", "CPU used memory (RAM), in bytes");
  writer.Add({}, Number(machine_.total - std::min(machine_.total, machine_.available)));
}

void MetricsPage::AddServer(Writer& writer) const {
  writer.Gauge("tidemark_build_info", "1, with the version as a label");
  writer.Add({{"version", options_.server_version}}, 1);
  writer.Gauge("tidemark_start_time_seconds", "When this server started, in seconds since the Unix epoch");
  writer.Add({}, start_seconds_);
  writer.Gauge("tidemark_ready", "1 when /v2/health/ready answers 200");
  writer.Add({}, parts_.lifecycle->Ready() ? 1 : 0);
  writer.Gauge("tidemark_server_state", "1 for what the server is doing, 0 for the rest");
  const std::pair<std::string_view, ServerState> states[] = {
      {"starting", ServerState::kStarting}, {"ready", ServerState::kReady}, {"exiting", ServerState::kExiting}};
  for (const auto& [name, state] : states) {
    writer.Add({{"state", std::string(name)}}, parts_.lifecycle->state() == state ? 1 : 0);
  }
  if (parts_.connections) {
    writer.Gauge("tidemark_connections", "Open client connections");
    writer.Add({}, Number(parts_.connections()));
  }
}

void MetricsPage::AddMemory(Writer& writer, const LedgerTotals& totals) const {
  const std::vector<DevicePicture> devices = parts_.report->Devices(totals);
  const auto each_kind = [&](auto add) {
    for (const DevicePicture& picture : devices) {
      const auto kinds = totals.kinds.find(picture.device);
      for (std::size_t i = 0; i < kResourceKinds; ++i) {
        const auto kind = static_cast<ResourceKind>(i);
        const bool on_device = kind == ResourceKind::kDeviceMemory;
        if (on_device != (picture.device != kHost)) continue;  // series that could never be anything but 0
        const MemoryFigures figures = kinds == totals.kinds.end() ? MemoryFigures() : kinds->second[i];
        const auto resident = totals.resident_bytes.find(picture.device);
        add(DeviceName(picture.device), std::string(ResourceKindName(kind)), figures,
            resident == totals.resident_bytes.end() ? 0 : resident->second[i]);
      }
    }
  };
  writer.Gauge("tidemark_ledger_bytes", "Bytes in rows of the ledger that loads took and will give back");
  each_kind([&](const std::string& device, const std::string& kind, const MemoryFigures& figures, std::uint64_t kept) {
    writer.Add({{"device", device}, {"kind", kind}}, Number(figures.now - std::min(kept, figures.now)));
  });
  writer.Gauge("tidemark_ledger_resident_bytes", "Bytes in rows that live as long as the process, by declaration");
  each_kind([&](const std::string& device, const std::string& kind, const MemoryFigures&, std::uint64_t kept) {
    writer.Add({{"device", device}, {"kind", kind}}, Number(kept));
  });
  writer.Gauge("tidemark_ledger_high_water_bytes", "The most bytes that there were in rows at one time");
  each_kind([&](const std::string& device, const std::string& kind, const MemoryFigures& figures, std::uint64_t) {
    writer.Add({{"device", device}, {"kind", kind}}, Number(figures.high_water));
  });
  writer.Gauge("tidemark_ledger_rows", "Rows of the ledger");
  writer.Add({{"resident", "false"}}, Number(totals.rows));
  writer.Add({{"resident", "true"}}, Number(totals.resident_rows));
  writer.Gauge("tidemark_stranded_rows", "Rows whose release failed; more than 0 makes the server not ready");
  writer.Add({}, Number(totals.stranded_rows));

  const auto each_device = [&](std::string_view name, std::string_view help, auto value) {
    writer.Gauge(name, help);
    for (const DevicePicture& picture : devices) {
      writer.Add({{"device", DeviceName(picture.device)}}, value(picture));
    }
  };
  each_device("tidemark_attributed_bytes", "Memory that rows, and on the host requests and answers, account for",
              [](const DevicePicture& picture) { return Number(picture.ledger.now + picture.requests); });
  writer.Gauge("tidemark_witness_bytes", "Memory of this process as the kernel (host) or the driver (GPU) counts it");
  for (const DevicePicture& picture : devices) {
    if (picture.witness < 0) continue;
    writer.Add({{"device", DeviceName(picture.device)}, {"source", std::string(picture.source)}},
               static_cast<double>(picture.witness));
  }
  each_device("tidemark_unattributed_bytes", "Witness less attributed: what nobody accounts for",
              [](const DevicePicture& picture) { return static_cast<double>(picture.unattributed()); });
  each_device("tidemark_memory_high_water_bytes", "The most bytes of memory that there were in rows at one time",
              [](const DevicePicture& picture) { return Number(picture.ledger.high_water); });
  each_device("tidemark_memory_limit_bytes", "Budget of all rows of memory; +Inf without one",
              [&](const DevicePicture& picture) {
                const auto room = parts_.ledger->RoomOn(picture.device);
                return room ? Number(room->budget) : std::numeric_limits<double>::infinity();
              });
  each_device("tidemark_memory_free_bytes", "What of the budget is neither used nor claimed; +Inf without one",
              [&](const DevicePicture& picture) {
                const auto room = parts_.ledger->RoomOn(picture.device);
                return room ? Number(room->free) : std::numeric_limits<double>::infinity();
              });
  writer.Gauge("tidemark_request_memory_bytes", "Memory of requests and answers");
  writer.Add({{"state", "used"}}, Number(parts_.buffers->used_bytes()));
  writer.Add({{"state", "cached"}}, Number(parts_.buffers->cached_bytes()));
  writer.Gauge("tidemark_request_memory_limit_bytes", "Limit of used request memory");
  writer.Add({}, Number(options_.request_memory_limit));
}

namespace {

// Load results as labels, every one of them.
template <typename Add>
void EachResult(const LoadHistory::Counts& counts, Add add) {
  add("success", "", counts.good);
  for (std::size_t i = 0; i < kLoadFailures; ++i) {
    add("failure", LoadFailureName(static_cast<LoadFailure>(i)), counts.failed[i]);
  }
}

}  // namespace

void MetricsPage::AddLoads(Writer& writer) const {
  const LoadHistory::Sums sums = parts_.lifecycle->history().Totals();
  writer.Counter("tidemark_loads_total", "Load operations by result, and by reason where they failed");
  EachResult(sums.counts, [&](std::string_view result, std::string_view reason, std::uint64_t count) {
    writer.Add({{"result", std::string(result)}, {"reason", std::string(reason)}}, Number(count));
  });
  writer.Begin("tidemark_load_duration_seconds", MetricType::Histogram, "How long loads of single versions took");
  writer.Add({{"result", "failure"}}, HistogramOf(sums.load_seconds[0]));
  writer.Add({{"result", "success"}}, HistogramOf(sums.load_seconds[1]));
  writer.Counter("tidemark_unloads_total", "Versions that are gone, by what became of their memory");
  for (std::size_t i = 0; i < kUnloadVerdicts; ++i) {
    writer.Add({{"verdict", std::string(UnloadVerdictName(static_cast<UnloadVerdict>(i)))}},
               Number(sums.counts.unloads[i]));
  }
  writer.Begin("tidemark_unload_duration_seconds", MetricType::Histogram,
               "How long giving a version's memory back took, from its last request on");
  writer.Add({}, HistogramOf(sums.unload_seconds));
  writer.Counter("tidemark_unload_returned_bytes_total", "Bytes that versions gave back at their end");
  DeviceBytes returned = sums.returned;
  returned.try_emplace(kHost, 0);
  for (const auto& [device, bytes] : returned) {
    writer.Add({{"device", DeviceName(device)}}, static_cast<double>(bytes));
  }
}

void MetricsPage::AddModels(Writer& writer, const RegistrySnapshot& snapshot) const {
  const auto labels_of = [&](const RegistryModel& model) {
    Labels labels = {{"model", model.name}};
    if (options_.namespaces) labels.emplace_back("namespace", NamespaceOf(model.key));
    return labels;
  };
  const auto known = [&](std::string_view key) { return snapshot.find(key) != snapshot.end(); };
  const std::map<std::string, LoadHistory::Counts> counts = parts_.lifecycle->history().Models(known);
  const auto counts_of = [&](const std::string& key) {
    const auto it = counts.find(key);
    return it == counts.end() ? LoadHistory::Counts() : it->second;
  };
  writer.Counter("tidemark_model_loads_total", "Load operations of one model by result and reason");
  for (const auto& [key, model] : snapshot) {
    EachResult(counts_of(key),
               [&, &entry = *model](std::string_view result, std::string_view reason, std::uint64_t count) {
                 Labels labels = labels_of(entry);
                 labels.emplace_back("result", result);
                 labels.emplace_back("reason", reason);
                 writer.Add(std::move(labels), Number(count));
               });
  }
  const auto with_version = [&](const RegistryModel& model, std::int64_t version) {
    Labels labels = labels_of(model);
    labels.emplace_back("version", fmt::format("{}", version));
    return labels;
  };
  writer.Gauge("tidemark_model_ready", "1 when the version serves and is well");
  for (const auto& [key, model] : snapshot) {
    for (const auto& [number, entry] : model->versions) {
      writer.Add(with_version(*model, number), entry.state == VersionState::kReady && HealthOf(entry).ok() ? 1 : 0);
    }
  }
  struct Sample {
    Labels labels;
    MemoryUse use;
  };
  std::vector<Sample> samples;
  for (const auto& [key, model] : snapshot) {
    const LoadHistory::ModelHistory history = parts_.lifecycle->history().Of(key);
    for (const auto& [number, entry] : model->versions) {
      ModelHandle handle = ModelHandle::Enter(entry.published);
      if (!handle) continue;
      const auto version = history.versions.find(number);
      const auto uses =
          MemoryUseOf(*handle, version == history.versions.end() ? LoadHistory::VersionHistory() : version->second);
      for (const auto& [device, use] : uses) {
        Labels labels = with_version(*model, number);
        labels.emplace_back("device", DeviceName(device));
        samples.push_back({std::move(labels), use});
      }
    }
  }
  writer.Gauge("tidemark_model_memory_bytes", "What the rows of a version hold, by use; the uses add up");
  for (const Sample& sample : samples) {
    const std::pair<std::string, std::int64_t> uses[] = {
        {"weights", sample.use.weights}, {"working", sample.use.working}, {"cached", sample.use.cached}};
    for (const auto& [use, bytes] : uses) {
      Labels labels = sample.labels;
      labels.emplace_back("use", use);
      writer.Add(std::move(labels), static_cast<double>(bytes));
    }
  }
  writer.Gauge("tidemark_model_memory_high_water_bytes", "The most that the rows of a version held at one time");
  for (const Sample& sample : samples) writer.Add(sample.labels, static_cast<double>(sample.use.high_water));
}

void MetricsHandler::Handle(HttpRequest& request, ResponseSender sender) {
  if (request.method() != HttpMethod::kGet) {
    HttpResponse response = MakeErrorResponse(405, "Method Not Allowed");
    response.AddHeader("Allow", "GET");
    return sender.Send(std::move(response));
  }
  constexpr std::string_view kType = "text/plain; charset=utf-8";
  if (request.path() != "/metrics" && request.path() != "/metrics/") {
    HttpResponse response(200);
    response.SetContentType(kType);
    return sender.Send(std::move(response));
  }
  offload_([page = page_, answer = std::move(sender), kType]() mutable {
    HttpResponse response(200);
    response.SetContentType(kType);
    response.Append(page->Render());
    answer.Send(std::move(response));
  });
}

}  // namespace tidemark
