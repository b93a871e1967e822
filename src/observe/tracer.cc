#include "observe/tracer.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <variant>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"

namespace tidemark {
namespace {

constexpr std::size_t kMostQueueBytes = 64 << 20;
constexpr std::size_t kFileQueueSize = 8192;
constexpr absl::Duration kSendTimeout = absl::Seconds(10);
constexpr absl::Duration kLastSendTimeout = absl::Seconds(2);
constexpr absl::Duration kDropLogInterval = absl::Seconds(10);

// Unix time minus NowNanos().
std::int64_t UnixOffset() { return absl::GetCurrentTimeNanos() - NowNanos(); }

}  // namespace

// What waits for the thread. Items are records, and ends of streams (their numbers).
class Tracer::Queue final : public TraceSink {
 public:
  using Item = std::variant<TraceRecord, std::uint64_t>;

  Queue(std::size_t limit, TraceSettings* settings) : limit_(limit), settings_(settings) {}

  void Take(TraceRecord record) override {
    const std::size_t bytes = record.bytes();
    absl::MutexLock lock(&mutex_);
    if (ended_) return;
    if (records_ >= limit_ || bytes_ + bytes > kMostQueueBytes) {
      ++dropped_;
      return;
    }
    ++records_;
    bytes_ += bytes;
    items_.emplace_back(std::move(record));
  }
  void CloseStream(std::uint64_t stream) {
    absl::MutexLock lock(&mutex_);
    if (!ended_) items_.emplace_back(stream);
  }
  std::uint64_t NextId() override {
    absl::MutexLock lock(&mutex_);
    return settings_ == nullptr ? 0 : settings_->NextId();
  }

  void Stop() {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  // No further item is taken, the settings are not asked any more.
  void End() {
    absl::MutexLock lock(&mutex_);
    ended_ = true;
    settings_ = nullptr;
    items_.clear();
  }
  // Waits for items, for `timeout` at most. What `keep` records elsewhere wait for a second try counts as queued.
  std::deque<Item> Wait(absl::Duration timeout, std::size_t keep) {
    absl::MutexLock lock(&mutex_);
    const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !items_.empty(); };
    mutex_.AwaitWithTimeout(absl::Condition(&ready), timeout);
    records_ = keep;
    bytes_ = 0;
    return std::exchange(items_, {});
  }
  // Waits until somebody stops, or `timeout`.
  bool WaitForStop(absl::Duration timeout) {
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&stopping_), timeout);
  }
  bool stopping() const {
    absl::MutexLock lock(&mutex_);
    return stopping_;
  }
  std::uint64_t dropped() const {
    absl::MutexLock lock(&mutex_);
    return dropped_;
  }

 private:
  const std::size_t limit_;
  mutable absl::Mutex mutex_;
  TraceSettings* settings_ ABSL_GUARDED_BY(mutex_);
  std::deque<Item> items_ ABSL_GUARDED_BY(mutex_);
  std::size_t records_ ABSL_GUARDED_BY(mutex_) = 0;
  std::size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

// Triton's trace files. Without a log frequency one file that is a complete JSON array after every write; with one, a
// file for each so many traces that gets its name (FILE.0, FILE.1, …) when it is complete.
class Tracer::Files {
 public:
  explicit Files(std::string path) : path_(std::move(path)) {}

  void Write(const TraceRecord& record) {
    const std::string text = TritonTraceJson(record);
    if (record.sample.log_frequency == 0) return Append(path_, whole_, text);
    Part& part = parts_[record.sample.stream];
    if (part.count == 0) part.index = next_index_++;
    Append(DraftOf(part), part.file, text);
    if (++part.count >= record.sample.log_frequency) Finish(record.sample.stream);
  }
  void Finish(std::uint64_t stream) {
    const auto it = parts_.find(stream);
    if (it == parts_.end()) return;
    if (it->second.count > 0) {
      it->second.file.out.reset();
      std::error_code error;
      std::filesystem::rename(DraftOf(it->second), fmt::format("{}.{}", path_, it->second.index), error);
      if (error) LOG_ERROR("cannot write trace file '{}.{}': {}", path_, it->second.index, error.message());
    }
    parts_.erase(it);
  }
  void FinishAll() {
    while (!parts_.empty()) Finish(parts_.begin()->first);
    whole_.out.reset();
  }

 private:
  struct File {
    std::unique_ptr<std::ofstream> out;
    std::int64_t end = 0;  // where the closing bracket is
    bool failed = false;
  };
  struct Part {
    std::uint64_t index = 0;
    std::uint64_t count = 0;
    File file;
  };
  std::string DraftOf(const Part& part) const { return fmt::format("{}.{}.part", path_, part.index); }

  static void Append(const std::string& path, File& file, std::string_view text) {
    if (file.out == nullptr) {
      file.out = std::make_unique<std::ofstream>(path, std::ios::binary | std::ios::trunc);
      file.end = 0;
    }
    file.out->seekp(file.end);
    *file.out << (file.end == 0 ? "[" : ",") << text;
    file.end = file.out->tellp();
    *file.out << "]" << std::flush;
    if (!*file.out && !std::exchange(file.failed, true)) LOG_ERROR("cannot write trace file '{}'", path);
  }

  const std::string path_;
  File whole_;
  std::map<std::uint64_t, Part> parts_;  // by stream
  std::uint64_t next_index_ = 0;
};

Tracer::Tracer(Options options, Export send)
    : options_(std::move(options)),
      send_(send ? std::move(send)
                 : [url = options_.url](const std::string& body,
                                        absl::Duration timeout) { return SendOtlp(url, body, timeout); }),
      settings_(options_.start),
      queue_(std::make_shared<Queue>(
          options_.start.mode == TraceMode::kOpenTelemetry ? options_.max_queue_size : kFileQueueSize, &settings_)),
      files_(std::make_unique<Files>(options_.start.file)) {
  settings_.set_on_closed([queue = queue_](std::uint64_t stream) { queue->CloseStream(stream); });
}

Tracer::~Tracer() { queue_->End(); }

std::uint64_t Tracer::dropped() const { return queue_->dropped(); }

void Tracer::Stop() { queue_->Stop(); }

std::shared_ptr<RequestTrace> Tracer::StartTrace(const Begin& begin) {
  const bool otel = options_.start.mode == TraceMode::kOpenTelemetry;
  std::optional<TraceContext> context;
  if (otel && !begin.traceparent.empty()) context = ParseTraceParent(begin.traceparent, begin.tracestate);
  const std::optional<TraceSample> sample = settings_.Sample(begin.model, context.has_value());
  if (!sample) return nullptr;
  TraceRecord record;
  record.sample = *sample;
  record.model = begin.model;
  record.version = begin.version;
  record.request_id = begin.request_id;
  if (otel) {
    if (context) {
      record.context = *std::move(context);
    } else {
      const auto high = RandomSpanId();
      const auto low = RandomSpanId();
      std::copy(high.begin(), high.end(), record.context.trace_id.begin());
      std::copy(low.begin(), low.end(), record.context.trace_id.begin() + 8);
    }
    record.request_span = RandomSpanId();
    record.model_span = RandomSpanId();
    record.compute_span = RandomSpanId();
  }
  return std::make_shared<RequestTrace>(queue_, std::move(record), begin.http);
}

void Tracer::ExportBatch(std::vector<TraceRecord>& waiting, bool last) {
  const std::int64_t offset = UnixOffset();
  while (!waiting.empty()) {
    std::string spans;
    std::size_t count = 0;
    std::size_t taken = 0;
    while (taken < waiting.size()) {
      const auto more = static_cast<std::size_t>(OtlpSpanCount(waiting[taken]));
      if (taken > 0 && count + more > options_.max_export_batch_size) break;
      if (taken > 0) spans += ',';
      spans += OtlpSpansJson(waiting[taken++], offset);
      count += more;
    }
    const absl::Status status =
        send_(OtlpRequestJson(options_.resource, spans), last ? kLastSendTimeout : kSendTimeout);
    if (!status.ok()) {
      const bool again = !last && !absl::IsInvalidArgument(status);
      LOG_WARNING("{} spans did not reach '{}'{}: {}", count, options_.url, again ? ", they are kept" : "",
                  MessageOf(status));
      if (again) return;
      if (last) {
        waiting.clear();
        return;
      }
    }
    waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(taken));
  }
}

void Tracer::Run() {
  const bool otel = options_.start.mode == TraceMode::kOpenTelemetry;
  std::vector<TraceRecord> waiting;  // for the collector
  std::uint64_t told = 0;
  absl::Time next_tell = absl::InfinitePast();
  for (bool last = false; !last;) {
    // Collectors get batches; files are written as traces come.
    if (otel) queue_->WaitForStop(options_.schedule_delay);
    last = queue_->stopping();
    std::deque<Queue::Item> items =
        queue_->Wait(otel ? absl::ZeroDuration() : absl::InfiniteDuration(), waiting.size());
    for (Queue::Item& item : items) {
      if (auto* record = std::get_if<TraceRecord>(&item); record == nullptr) {
        files_->Finish(std::get<std::uint64_t>(item));
      } else if (otel) {
        waiting.push_back(std::move(*record));
      } else {
        files_->Write(*record);
      }
    }
    if (otel && !waiting.empty()) ExportBatch(waiting, last);
    const std::uint64_t dropped = queue_->dropped();
    if (dropped > told && absl::Now() >= next_tell) {
      LOG_WARNING("{} traces were dropped because too many waited", dropped - told);
      told = dropped;
      next_tell = absl::Now() + kDropLogInterval;
    }
  }
  files_->FinishAll();
}

}  // namespace tidemark
