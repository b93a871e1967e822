#include "observe/statistics_book.h"

#include <limits>
#include <utility>

namespace tidemark {

std::shared_ptr<ModelStatistics> StatisticsBook::Open(std::string_view key, std::int64_t version,
                                                      const std::vector<double>& buckets, Tags tags, bool cached) {
  Id id(key, version);
  std::shared_ptr<LatencyDistributions> distributions;
  {
    absl::MutexLock lock(&mutex_);
    Record& record = records_[id];
    if (record.distributions == nullptr && (options_.histograms || options_.summaries)) {
      record.distributions = std::make_shared<LatencyDistributions>(options_, buckets);
    }
    distributions = record.distributions;
    record.tags = std::move(tags);
    record.cached = cached;
    record.forgotten = false;
  }
  // Made without the lock: should this fail, the deleter runs and takes it.
  auto statistics = std::make_unique<ModelStatistics>(std::move(distributions));
  std::shared_ptr<ModelStatistics> opened(statistics.release(), [this, id](ModelStatistics* ended) {
    const std::unique_ptr<ModelStatistics> owned(ended);
    Close(id, ended);
  });
  absl::MutexLock lock(&mutex_);
  records_[id].living.push_back(opened.get());
  return opened;
}

void StatisticsBook::Close(const Id& id, const ModelStatistics* statistics) noexcept {
  absl::MutexLock lock(&mutex_);
  const auto it = records_.find(id);
  if (it == records_.end()) return;  // forgotten meanwhile: Open failed half-way
  it->second.past.Add(statistics->Totals());
  std::erase(it->second.living, statistics);
  if (it->second.forgotten && it->second.living.empty()) records_.erase(it);
}

void StatisticsBook::Forget(std::string_view key) {
  absl::MutexLock lock(&mutex_);
  auto it = records_.lower_bound(Id(key, std::numeric_limits<std::int64_t>::min()));
  while (it != records_.end() && it->first.first == key) {
    it->second.forgotten = true;
    it = it->second.living.empty() ? records_.erase(it) : std::next(it);
  }
}

std::vector<StatisticsBook::Entry> StatisticsBook::Collect(absl::FunctionRef<bool(std::string_view key)> known) {
  std::vector<Entry> entries;
  absl::MutexLock lock(&mutex_);
  for (auto it = records_.begin(); it != records_.end();) {
    const auto& [id, record] = *it;
    if (record.living.empty()) {
      it = known(id.first) ? std::next(it) : records_.erase(it);
      continue;
    }
    Entry entry{id.first, id.second, record.tags, record.cached, record.past, 0, record.distributions};
    for (const ModelStatistics* statistics : record.living) {
      entry.totals.Add(statistics->Totals());
      entry.pending += statistics->pending();
    }
    entries.push_back(std::move(entry));
    ++it;
  }
  return entries;
}

}  // namespace tidemark
