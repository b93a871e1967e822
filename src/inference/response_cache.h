#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "inference/model_info.h"
#include "inference/request.h"
#include "inference/scheduler.h"
#include "observe/model_statistics.h"
#include "resource/buffer_pool.h"
#include "resource/scope.h"

namespace tidemark {

class ModelAnswers;

// The answers of all models with `response_cache { enable: true }`, by what they were asked: one budget of bytes, of which
// the answers that were not asked for longest make room (`--cache-config=local,size=N`). Thread-safe; one short mutex, and
// nothing is copied or hashed under it. Outlives its ModelAnswers.
class ResponseCache {
 public:
  // What two requests to one version must have in common to get the same answer: SHA-256, so that no client can make a
  // request that gets, or plants, another one's answer.
  using Key = std::array<std::uint8_t, 32>;

  // What the server-wide metrics show; sums since the start.
  struct Figures {
    std::uint64_t capacity = 0;  // bytes
    std::uint64_t used = 0;      // bytes
    std::uint64_t entries = 0;
    std::uint64_t hits = 0;
    std::uint64_t misses = 0;
    std::uint64_t evictions = 0;
    std::uint64_t lookup_ns = 0;     // hits and misses
    std::uint64_t insertion_ns = 0;  // of answers that are kept
  };

  explicit ResponseCache(std::uint64_t capacity) : capacity_(capacity) {}
  ResponseCache(const ResponseCache&) = delete;
  ResponseCache& operator=(const ResponseCache&) = delete;

  std::uint64_t capacity() const { return capacity_; }
  Figures figures() const;

 private:
  friend class ModelAnswers;

  struct Answer;
  struct Entry {
    Key key;
    // Last owner: the entry, or the look-up that copies from it while it is evicted.
    std::shared_ptr<const Answer> answer;
    std::uint64_t bytes = 0;
    ModelAnswers* owner = nullptr;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };
  using Entries = std::list<Entry>;

  // Moves the entry out of its owner's index into `dropped`, which is to be freed without the mutex.
  void Drop(Entries::iterator entry, Entries& dropped) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::uint64_t capacity_;
  mutable absl::Mutex mutex_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);  // the one asked for last in front
  Figures figures_ ABSL_GUARDED_BY(mutex_);
};

// The part of the cache that one loaded version fills: its answers die with it, and an unload brings their memory back.
// They are one row of host memory below the version's owner path, whose bytes follow them. Thread-safe.
class ModelAnswers {
 private:
  struct Private {};

 public:
  // `info`, `buffers`, the ledger and the platform outlive the object. `owner`: the version's.
  static absl::StatusOr<std::unique_ptr<ModelAnswers>> Create(ResponseCache& cache, Ledger& ledger, Platform& platform,
                                                              std::string_view owner, const ModelInfo& info,
                                                              BufferPool& buffers);
  ModelAnswers(Private, ResponseCache& cache, Ledger& ledger, Platform& platform, std::string_view owner,
               const ModelInfo& info, BufferPool& buffers);
  ~ModelAnswers();
  ModelAnswers(const ModelAnswers&) = delete;
  ModelAnswers& operator=(const ModelAnswers&) = delete;

  // The model is published: where hits and misses are counted. Called once, before the first Find.
  void Start(ModelStatistics& statistics) { statistics_ = &statistics; }

  // True: the request's response is filled, and it is counted as a hit; it must not be executed. False: the answer of the
  // execution will be kept when the request completes well.
  bool Find(ScheduledRequest& scheduled);

  // Bytes of its answers.
  MemoryFigures memory() const;

 private:
  friend class ResponseCache;
  using Key = ResponseCache::Key;

  std::optional<Key> KeyOf(const ScheduledRequest& scheduled) const;
  // Null: not there.
  std::shared_ptr<const ResponseCache::Answer> LookUp(const Key& key);
  // The answer goes into the request's response; false: it could not, and nothing of it is there.
  bool Fill(const ResponseCache::Answer& answer, InferenceRequest& request) const;
  // The request is done after `lookup_nanos` spent in vain.
  void Keep(const Key& key, std::int64_t lookup_nanos, const InferenceRequest& done);
  void Insert(const Key& key, const InferenceResponse& response);
  // False when it could not go in, whatever else went.
  bool Insert(const Key& key, std::shared_ptr<const ResponseCache::Answer> answer, std::uint64_t bytes);

  ResponseCache& cache_;
  const ModelInfo& info_;
  BufferPool& buffers_;
  ModelStatistics* statistics_ = nullptr;
  Scope scope_;  // outermost: what the cache took is nothing that the next load of the version will need
  Scope::Handle row_ = nullptr;
  // Both guarded by cache_.mutex_.
  std::unordered_map<Key, ResponseCache::Entries::iterator, ResponseCache::KeyHash> index_;
  std::uint64_t bytes_ = 0;
};

}  // namespace tidemark
