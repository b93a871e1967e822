#include "inference/response_cache.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "inference/output_sink.h"

namespace tidemark {
namespace {

// SHA-256 over values that cannot run into one another: everything of variable length has its length in front.
class Digest {
 public:
  Digest() : context_(EVP_MD_CTX_new()) {
    good_ = context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1;
  }
  void Bytes(const void* data, std::size_t size) {
    Number(size);
    Raw(data, size);
  }
  void Text(std::string_view text) { Bytes(text.data(), text.size()); }
  template <typename T>
  void Number(T value) {
    static_assert(std::is_arithmetic_v<T>);
    Raw(&value, sizeof value);
  }
  std::optional<ResponseCache::Key> Finish() {
    ResponseCache::Key key{};
    good_ = good_ && EVP_DigestFinal_ex(context_.get(), key.data(), nullptr) == 1;
    return good_ ? std::optional(key) : std::nullopt;
  }

 private:
  void Raw(const void* data, std::size_t size) {
    if (size != 0) good_ = good_ && EVP_DigestUpdate(context_.get(), data, size) == 1;
  }
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
  bool good_ = false;
};

std::string Hex(const ResponseCache::Key& key) {
  std::string text;
  for (const std::uint8_t byte : key) text += fmt::format("{:02x}", byte);
  return text;
}

std::size_t ParameterBytes(const Parameters& parameters) {
  std::size_t bytes = 0;
  for (const auto& [name, value] : parameters) {
    bytes += sizeof(Parameters::value_type) + name.size();
    if (const auto* text = std::get_if<std::string>(&value); text != nullptr) bytes += text->size();
  }
  return bytes;
}

// Memory that belongs to a client may change between the look-up and the execution: whoever did that on purpose would
// plant his answer under another one's question. And what was written straight into a client's memory is not here.
bool MayBeKept(const InferenceRequest& request) {
  return std::none_of(request.inputs.begin(), request.inputs.end(),
                      [](const RequestInput& input) { return static_cast<bool>(input.region); }) &&
         std::none_of(request.response.outputs.begin(), request.response.outputs.end(),
                      [](const ResponseOutput& output) { return output.shared; });
}

}  // namespace

struct ResponseCache::Answer {
  struct Output {
    std::size_t index = 0;
    DataType data_type = DataType::kInvalid;
    Shape shape;  // as the client sees it
    std::string data;
  };
  std::vector<Output> outputs;
  Parameters parameters;
};

std::size_t ResponseCache::KeyHash::operator()(const Key& key) const {
  std::size_t hash = 0;
  static_assert(sizeof hash <= sizeof(Key));
  std::memcpy(&hash, key.data(), sizeof hash);
  return hash;
}

ResponseCache::Figures ResponseCache::figures() const {
  absl::MutexLock lock(&mutex_);
  Figures figures = figures_;
  figures.capacity = capacity_;
  figures.entries = entries_.size();
  return figures;
}

void ResponseCache::Drop(Entries::iterator entry, Entries& dropped) {
  ModelAnswers& owner = *entry->owner;
  figures_.used -= entry->bytes;
  owner.bytes_ -= entry->bytes;
  owner.index_.erase(entry->key);
  owner.scope_.Resize(owner.row_, owner.bytes_);
  dropped.splice(dropped.begin(), entries_, entry);
}

ModelAnswers::ModelAnswers(Private /*only Create*/, ResponseCache& cache, Ledger& ledger, Platform& platform,
                           std::string_view owner, const ModelInfo& info, BufferPool& buffers)
    : cache_(cache), info_(info), buffers_(buffers), scope_(ledger, platform, fmt::format("{}/answers", owner)) {}

absl::StatusOr<std::unique_ptr<ModelAnswers>> ModelAnswers::Create(ResponseCache& cache, Ledger& ledger,
                                                                   Platform& platform, std::string_view owner,
                                                                   const ModelInfo& info, BufferPool& buffers) {
  auto answers = std::make_unique<ModelAnswers>(Private(), cache, ledger, platform, owner, info, buffers);
  ASSIGN_OR_RETURN(answers->row_, answers->scope_.Acquire(
                                      ResourceKind::kHostMemory, kHost, 0, "response cache",
                                      [] { return absl::OkStatus(); }, [] { return absl::OkStatus(); }));
  return answers;
}

ModelAnswers::~ModelAnswers() {
  constexpr int kAtOnce = 64;  // requests of other models wait for the mutex
  for (bool more = true; more;) {
    ResponseCache::Entries dropped;  // freed without the mutex
    absl::MutexLock lock(&cache_.mutex_);
    for (int i = 0; i < kAtOnce && !index_.empty(); ++i) cache_.Drop(index_.begin()->second, dropped);
    more = !index_.empty();
  }
}

MemoryFigures ModelAnswers::memory() const {
  const std::map<DeviceId, MemoryFigures> figures = scope_.MemoryUse();
  const auto host = figures.find(kHost);
  return host == figures.end() ? MemoryFigures() : host->second;
}

std::optional<ModelAnswers::Key> ModelAnswers::KeyOf(const ScheduledRequest& scheduled) const {
  Digest digest;
  digest.Number(scheduled.tensors.size());
  for (const InputTensor& tensor : scheduled.tensors) {
    digest.Number(tensor.index);
    digest.Number(static_cast<int>(tensor.data_type));
    digest.Bytes(tensor.shape.data(), tensor.shape.size() * sizeof(std::int64_t));
    digest.Bytes(tensor.data.data(), tensor.data.size());
  }
  const InferenceRequest& request = *scheduled.request;
  if (request.outputs.empty()) {
    for (const TensorInfo& output : info_.outputs()) digest.Text(output.name);
  } else {
    for (const RequestedOutput& output : request.outputs) digest.Text(output.name);
  }
  digest.Number(request.parameters.size());
  for (const auto& [name, value] : request.parameters) {
    digest.Text(name);
    digest.Number(value.index());
    std::visit(
        [&](const auto& content) {
          if constexpr (std::is_arithmetic_v<std::decay_t<decltype(content)>>) {
            digest.Number(content);
          } else {
            digest.Text(content);
          }
        },
        value);
  }
  return digest.Finish();
}

std::shared_ptr<const ResponseCache::Answer> ModelAnswers::LookUp(const Key& key) {
  absl::MutexLock lock(&cache_.mutex_);
  const auto found = index_.find(key);
  if (found == index_.end()) return nullptr;
  cache_.entries_.splice(cache_.entries_.begin(), cache_.entries_, found->second);
  return found->second->answer;
}

bool ModelAnswers::Fill(const ResponseCache::Answer& answer, InferenceRequest& request) const {
  ResponseSink sink(info_, request, buffers_);
  absl::Status status;
  for (const ResponseCache::Answer::Output& output : answer.outputs) {
    const absl::StatusOr<std::span<std::byte>> target =
        sink.Allocate(output.index, output.data_type, AsSpan(output.shape), output.data.size());
    if (!target.ok()) {
      status = target.status();
      break;
    }
    if (!target->empty()) std::memcpy(target->data(), output.data.data(), target->size());
    request.response.outputs.back().shape = output.shape;
  }
  status = sink.Finish(status);
  if (!status.ok()) {
    request.response.outputs.clear();
    return false;
  }
  request.response.parameters = answer.parameters;
  return true;
}

bool ModelAnswers::Find(ScheduledRequest& scheduled) {
  InferenceRequest& request = *scheduled.request;
  const std::int64_t start = NowNanos();
  const std::optional<Key> key = KeyOf(scheduled);
  if (!key.has_value()) return false;
  const std::shared_ptr<const ResponseCache::Answer> answer = LookUp(*key);
  const bool hit = answer != nullptr && Fill(*answer, request);
  const std::int64_t end = NowNanos();
  {
    absl::MutexLock lock(&cache_.mutex_);
    ++(hit ? cache_.figures_.hits : cache_.figures_.misses);
    cache_.figures_.lookup_ns += static_cast<std::uint64_t>(end - start);
  }
  if (hit) {
    request.times.queued = start;
    statistics_->RecordCacheHit(request.times, end - start, end);
    return true;
  }
  request.on_complete = [this, key = *key, lookup = end - start,
                         next = std::move(request.on_complete)](std::unique_ptr<InferenceRequest> done) mutable {
    if (done->response.status.ok()) Keep(key, lookup, *done);
    next(std::move(done));  // may let the model go: nothing of it is touched any more
  };
  return false;
}

void ModelAnswers::Keep(const Key& key, std::int64_t lookup_nanos, const InferenceRequest& done) {
  const std::int64_t start = NowNanos();
  if (MayBeKept(done)) Insert(key, done.response);
  statistics_->RecordCacheMiss(lookup_nanos + NowNanos() - start);
}

void ModelAnswers::Insert(const Key& key, const InferenceResponse& response) {
  // What lists, maps and blocks of the heap take beside the data, roughly.
  constexpr std::uint64_t kEntryBytes = 320;
  constexpr std::uint64_t kOutputBytes = sizeof(ResponseCache::Answer::Output) + 32;
  const std::int64_t start = NowNanos();
  std::uint64_t bytes = kEntryBytes + ParameterBytes(response.parameters);
  for (const ResponseOutput& output : response.outputs) {
    bytes += kOutputBytes + output.shape.size() * sizeof(std::int64_t) + output.data.size();
  }
  const std::uint64_t capacity = cache_.capacity();
  if (bytes > capacity) {
    LOG_ERROR(
        "Failed to insert key [{}] into response cache: the answer of model '{}' version {} takes {} bytes, the "
        "cache has {}",
        Hex(key), info_.name(), info_.version(), bytes, capacity);
    return;
  }
  auto answer = std::make_shared<ResponseCache::Answer>();
  answer->parameters = response.parameters;
  for (const ResponseOutput& output : response.outputs) {
    const auto* const data = reinterpret_cast<const char*>(output.data.data());
    answer->outputs.push_back(
        {output.index, output.data_type, output.shape, std::string(data, data + output.data.size())});
  }
  if (!Insert(key, std::move(answer), bytes)) return;
  absl::MutexLock lock(&cache_.mutex_);
  cache_.figures_.insertion_ns += static_cast<std::uint64_t>(NowNanos() - start);
}

bool ModelAnswers::Insert(const Key& key, std::shared_ptr<const ResponseCache::Answer> answer, std::uint64_t bytes) {
  ResponseCache::Entries evicted;
  absl::MutexLock lock(&cache_.mutex_);
  if (index_.contains(key)) return false;  // another one asked the same meanwhile
  ResponseCache::Figures& figures = cache_.figures_;
  while (figures.used + bytes > cache_.capacity_) {
    cache_.Drop(std::prev(cache_.entries_.end()), evicted);
    ++figures.evictions;
  }
  cache_.entries_.push_front({key, std::move(answer), bytes, this});
  index_.emplace(key, cache_.entries_.begin());
  figures.used += bytes;
  bytes_ += bytes;
  scope_.Resize(row_, bytes_);
  return true;
}

}  // namespace tidemark
