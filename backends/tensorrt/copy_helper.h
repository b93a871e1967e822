#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "resource/scope.h"

namespace tidemark {

// A second thread for large copies in host memory: one alone moves about 9 GB/s where the bus to a GPU moves 55. While
// copies follow each other closely it waits for the next one without going to sleep. One caller at a time.
class CopyHelper {
 private:
  struct Private {};  // only a member function can name it

 public:
  // The thread is taken on `scope`, which gives it back; the helper may die before.
  static absl::StatusOr<std::shared_ptr<CopyHelper>> Create(Scope& scope);
  explicit CopyHelper(Private /*only Create*/) {}
  CopyHelper(const CopyHelper&) = delete;
  CopyHelper& operator=(const CopyHelper&) = delete;

  // As memcpy; the two halves by the two threads where that pays, and where the other one is there in time.
  void Copy(std::byte* to, const std::byte* from, std::size_t bytes);

  // Copies whose second half the helper did.
  std::uint64_t shared_copies() const { return shared_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kWorthIt = std::size_t{256} << 10;
  enum State : int { kNothing, kOffered, kTaken };

  void Run();
  void Stop();
  // True when there is something to do (or to stop for); sleeps when nothing came for a while.
  void AwaitOffer();

  std::atomic<int> state_{kNothing};
  std::atomic<bool> asleep_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t> shared_{0};
  absl::Mutex mutex_;
  absl::CondVar wake_;
  // Of the offer; written before state_ says kOffered.
  std::byte* to_ = nullptr;
  const std::byte* from_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace tidemark
