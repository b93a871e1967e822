#include "backends/tensorrt/copy_helper.h"

#include <cstdint>
#include <cstring>
#include <thread>

#include "base/clock.h"
#include "base/status.h"

namespace tidemark {
namespace {

// Longer than the bus needs for a chunk, so that the thread stays awake within one transfer.
constexpr std::int64_t kPatienceNanos = 100'000;

}  // namespace

absl::StatusOr<std::shared_ptr<CopyHelper>> CopyHelper::Create(Scope& scope) {
  auto helper = std::make_shared<CopyHelper>(Private());  // last owner: the thread's entry on the scope, or the copier
  RETURN_IF_ERROR(scope
                      .StartThread(
                          "copy", [helper] { helper->Run(); }, [helper] { helper->Stop(); }, "copy thread")
                      .status());
  return helper;
}

void CopyHelper::Stop() {
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
  wake_.Signal();
}

void CopyHelper::AwaitOffer() {
  const std::int64_t until = NowNanos() + kPatienceNanos;
  while (state_ != kOffered && !stopping_) {
    if (NowNanos() < until) continue;
    absl::MutexLock lock(&mutex_);
    asleep_ = true;  // before the last look: whoever offers after that sees it
    while (state_ != kOffered && !stopping_) wake_.Wait(&mutex_);
    asleep_ = false;
  }
}

void CopyHelper::Run() {
  for (;;) {
    AwaitOffer();
    int offered = kOffered;
    if (state_.compare_exchange_strong(offered, kTaken)) {
      std::memcpy(to_, from_, bytes_);
      state_ = kNothing;
    } else if (stopping_) {
      return;
    }
  }
}

void CopyHelper::Copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes < kWorthIt) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return;
  }
  constexpr std::size_t kPage = 4096;
  const std::size_t half = bytes / 2 / kPage * kPage;
  to_ = to + half;
  from_ = from + half;
  bytes_ = bytes - half;
  state_ = kOffered;
  if (asleep_) {
    absl::MutexLock lock(&mutex_);
    wake_.Signal();
  }
  std::memcpy(to, from, half);
  int offered = kOffered;
  if (state_.compare_exchange_strong(offered, kNothing)) {  // it did not come in time
    std::memcpy(to_, from_, bytes_);
    return;
  }
  while (state_ != kNothing) std::this_thread::yield();
  shared_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace tidemark
