#include "resource/engine_heap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "base/status.h"
#include "tests/support/fault_platform.h"

namespace tidemark {
namespace {

class EngineHeapTest : public testing::Test {
 protected:
  std::uint64_t RowsOfKind(ResourceKind kind) const {
    std::uint64_t count = 0;
    for (const LedgerRow& row : ledger_.Rows()) count += row.kind == kind ? 1 : 0;
    return count;
  }

  std::unique_ptr<Platform> real_ = CreateLinuxPlatform();
  FaultPlatform platform_{*real_};
  Ledger ledger_;
};

TEST_F(EngineHeapTest, EveryBlockIsAlignedAndWritable) {
  Scope scope(ledger_, platform_, "s");
  auto heap = *EngineHeap::Create(scope, 0);
  for (const std::size_t bytes : {0UL, 1UL, 63UL, 4096UL, 65471UL, 65472UL, 65536UL, 1UL << 20}) {
    void* block = heap->Allocate(bytes);
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0u);
    std::memset(block, 0xAB, bytes);
    EngineHeap::Free(block);
  }
  EngineHeap::Free(nullptr);
  EXPECT_EQ(heap->live_blocks(), 0u);
  EXPECT_EQ(heap->live_bytes(), 0u);
}

TEST_F(EngineHeapTest, LargeBlocksAreRowsAndSmallOnesShareOne) {
  Scope scope(ledger_, platform_, "s");
  auto heap = *EngineHeap::Create(scope, 0);
  void* small1 = heap->Allocate(100);
  void* small2 = heap->Allocate(200);
  void* large = heap->Allocate(1 << 20);
  EXPECT_EQ(RowsOfKind(ResourceKind::kSmallHeap), 1u);
  EXPECT_EQ(RowsOfKind(ResourceKind::kHostMemory), 1u);
  EXPECT_GE(ledger_.Totals().BytesOf(kHost), (1u << 20) + 300u);
  EXPECT_GE(heap->peak_bytes(), (1u << 20) + 300u);
  for (void* block : {small1, small2, large}) EngineHeap::Free(block);
  EXPECT_EQ(RowsOfKind(ResourceKind::kHostMemory), 0u) << "nothing is kept without a cache";
  heap.reset();
  EXPECT_TRUE(ledger_.Rows().empty());
}

TEST_F(EngineHeapTest, FreedLargeBlocksAreReusedUpToTheCapWithoutNewRows) {
  Scope scope(ledger_, platform_, "s");
  auto heap = *EngineHeap::Create(scope, 1 << 20);
  EngineHeap::Free(heap->Allocate(512 << 10));
  platform_.Arm(Fault::kNone, 0);
  EngineHeap::Free(heap->Allocate(500 << 10));
  EXPECT_EQ(platform_.acquisitions(), 0) << "a block of about that size was there";
  void* tiny = heap->Allocate(70 << 10);  // far smaller: not wasted on it
  EXPECT_EQ(platform_.acquisitions(), 1);
  EngineHeap::Free(tiny);
  EngineHeap::Free(heap->Allocate(4 << 20));  // above the cap: goes back at once
  EXPECT_EQ(RowsOfKind(ResourceKind::kHostMemory), 2u);
  heap->Trim();
  EXPECT_EQ(RowsOfKind(ResourceKind::kHostMemory), 0u);
}

// 200 sizes from 64 KiB to 4 MiB, the same each time.
std::vector<std::size_t> AnySizes() {
  std::minstd_rand random(20260730);
  std::vector<std::size_t> sizes(200);
  for (std::size_t& size : sizes) {
    const std::size_t least = std::size_t{64} << (10 + random() % 6);
    size = least + random() % least;
  }
  return sizes;
}

TEST_F(EngineHeapTest, AnswersOfAnySizeShareAFewRows) {
  constexpr std::uint64_t kClasses = 4 * 6 + 1;  // of the sizes with their headers
  BufferPool pool(platform_);
  Scope scope(ledger_, platform_, "s");
  auto heap = *EngineHeap::Create(scope, 64 << 20);
  platform_.Arm(Fault::kNone, 0);
  std::vector<RowId> rows;
  for (int round = 0; round < 3; ++round) {
    for (const std::size_t size : AnySizes()) {
      void* const block = heap->Allocate(size);
      ASSERT_NE(block, nullptr);
      ASSERT_TRUE(heap->Claim(block));
      EngineHeap::Free(block);
      EXPECT_TRUE(heap->Move(block, size, pool).ok());
      EXPECT_LE(RowsOfKind(ResourceKind::kHostMemory), kClasses);
    }
    std::vector<RowId> now;
    for (const LedgerRow& row : ledger_.Rows()) now.push_back(row.id);
    if (round == 2) {
      EXPECT_EQ(now, rows) << "the heap and the pool have one of each size that comes";
    }
    rows = std::move(now);
  }
  EXPECT_LE(platform_.acquisitions(), static_cast<std::int64_t>(2 * kClasses));
  EXPECT_LE(pool.cached_bytes(), std::uint64_t{64} << 20);
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST_F(EngineHeapTest, UnderABudgetWhatIsKeptMakesRoomForWhatIsAskedFor) {
  constexpr std::size_t kLargest = 1 << 20;
  constexpr std::size_t kMapped = kLargest + 4096;  // with the header
  Scope scope(ledger_, platform_, "s");
  auto heap = *EngineHeap::Create(scope, 64 << 20);
  ledger_.SetBudget(kHost, 2 * kMapped);
  for (const std::size_t size : AnySizes()) {
    void* const other = heap->Allocate(kLargest);
    void* const block = heap->Allocate(std::min(size, kLargest));
    EXPECT_NE(other, nullptr) << heap->last_error();
    EXPECT_NE(block, nullptr) << heap->last_error();
    EngineHeap::Free(block);
    EngineHeap::Free(other);
  }
  EXPECT_LE(ledger_.Totals().memory[kHost].high_water, 2 * kMapped);
  EXPECT_EQ(heap->Allocate(2 * kMapped), nullptr);
  ledger_.SetBudget(kHost, std::nullopt);
}

TEST_F(EngineHeapTest, BlocksOfALoadAreAsLargeAsAskedFor) {
  CancelFlag cancel;
  Scope scope(ledger_, platform_, "s", Scope::Options{&cancel, nullptr, false});
  auto heap = *EngineHeap::Create(scope, 64 << 20);
  const auto mapped = [&](std::size_t bytes) {
    void* const block = heap->Allocate(bytes);
    const std::uint64_t rows = ledger_.Totals().BytesOf(kHost);
    EngineHeap::Free(block);
    heap->Trim();
    return rows;
  };
  EXPECT_EQ(mapped(1'100'000), 269u * 4096);
  scope.EndLoad();
  EXPECT_EQ(mapped(65 << 20), (std::uint64_t{65} << 20) + 4096) << "is not kept";
}

// So that a ledger that is compared with the kernel's figures claims no page that nobody has touched.
TEST_F(EngineHeapTest, ARowHasTheMostThatItsUsersCouldTouch) {
  BufferPool pool(platform_);
  Scope scope(ledger_, platform_, "s");
  auto heap = *EngineHeap::Create(scope, 64 << 20);
  const auto row_after = [&](std::size_t bytes) {
    EngineHeap::Free(heap->Allocate(bytes));
    return ledger_.Totals().BytesOf(kHost);
  };
  platform_.Arm(Fault::kNone, 0);
  EXPECT_EQ(row_after(1'100'000), 269u * 4096) << "of the 1.25 MiB that are mapped";
  EXPECT_EQ(row_after(1'200'000), 293u * 4096) << "the same block";
  EXPECT_EQ(row_after(1'100'000), 293u * 4096);
  EXPECT_EQ(row_after((5 << 18) - 4096), 5u << 18);
  EXPECT_EQ(platform_.acquisitions(), 1);
  EXPECT_EQ(heap->cached_bytes(), 5u << 18);
  heap->Trim();
  EXPECT_EQ(ledger_.Totals().BytesOf(kHost), 0u);
  for (int i = 0; i < 3; ++i) {  // a row that goes on with another block
    void* const block = heap->Allocate(1'100'000);
    ASSERT_TRUE(heap->Claim(block));
    EngineHeap::Free(block);
    EXPECT_TRUE(heap->Move(block, 1'100'000, pool).ok());
    EXPECT_EQ(ledger_.Totals().BytesOf(kHost), i == 0 ? 0u : 269u * 4096);
  }
}

TEST_F(EngineHeapTest, NullSaysWhy) {
  CancelFlag cancel;
  Scope scope(ledger_, platform_, "s", Scope::Options{&cancel, nullptr, false});
  auto heap = *EngineHeap::Create(scope, 0);
  EXPECT_TRUE(heap->last_error().ok());
  EXPECT_EQ(heap->Allocate(SIZE_MAX), nullptr);
  EXPECT_TRUE(absl::IsResourceExhausted(heap->last_error()));
  EXPECT_EQ(heap->Allocate(SIZE_MAX / 2 - 100), nullptr);
  EXPECT_TRUE(absl::IsResourceExhausted(heap->last_error()));
  platform_.Arm(Fault::kThrow, 0);
  EXPECT_EQ(heap->Allocate(1 << 20), nullptr) << "no exception enters the engine";
  EXPECT_NE(MessageOf(heap->last_error()).find("injected failure"), std::string_view::npos);
  ledger_.SetBudget(kHost, 1 << 20);
  EXPECT_EQ(heap->Allocate(2 << 20), nullptr);
  EXPECT_NE(MessageOf(heap->last_error()).find("limit of 1048576 bytes"), std::string_view::npos);
  cancel.Cancel();
  EXPECT_EQ(heap->Allocate(1), nullptr);
  EXPECT_TRUE(absl::IsCancelled(heap->last_error()));
  EXPECT_EQ(heap->live_blocks(), 0u);
}

TEST_F(EngineHeapTest, BlocksThatTheEngineForgotGoWithTheHeap) {
  Scope scope(ledger_, platform_, "s");
  auto heap = *EngineHeap::Create(scope, 1 << 20);
  ASSERT_NE(heap->Allocate(100), nullptr);  // LeakSanitizer sees it when it is not given back
  ASSERT_NE(heap->Allocate(1 << 20), nullptr);
  EngineHeap::Free(heap->Allocate(50));
  heap.reset();
  EXPECT_TRUE(ledger_.Rows().empty());
}

TEST_F(EngineHeapTest, FailingCreateLeavesNoRow) {
  Scope scope(ledger_, platform_, "s");
  platform_.Arm(Fault::kOnce, 0);
  EXPECT_FALSE(EngineHeap::Create(scope, 0).ok());
  EXPECT_TRUE(ledger_.Rows().empty());
}

TEST_F(EngineHeapTest, ThreadsMayFreeWhatOthersAllocated) {
  Scope scope(ledger_, platform_, "s");
  auto heap = *EngineHeap::Create(scope, 4 << 20);
  absl::Mutex mutex;
  std::vector<void*> blocks;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 1000; ++i) {
        void* mine = heap->Allocate(static_cast<std::size_t>((i * 7919 + t * 104729) % 200'000));
        ASSERT_NE(mine, nullptr);
        {
          absl::MutexLock lock(&mutex);
          blocks.push_back(mine);
          std::swap(blocks[blocks.size() / 2], blocks.back());
          mine = blocks.back();
          blocks.pop_back();
        }
        EngineHeap::Free(mine);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(heap->live_blocks(), 0u);
  heap.reset();
  EXPECT_TRUE(ledger_.Rows().empty());
}

TEST_F(EngineHeapTest, AFreedBlockMovesToThePoolWithoutACopy) {
  constexpr std::size_t kBytes = 300'000;
  BufferPool pool(platform_);
  Scope scope(ledger_, platform_, "s");
  auto heap = *EngineHeap::Create(scope, 0);
  void* const block = heap->Allocate(kBytes);
  std::memset(block, 7, kBytes);
  ASSERT_TRUE(heap->Claim(block));
  EngineHeap::Free(block);
  EXPECT_EQ(RowsOfKind(ResourceKind::kHostMemory), 1u) << "a claimed block stays where it is";
  absl::StatusOr<Buffer> moved = heap->Move(block, kBytes, pool);
  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_EQ(moved->data(), block);
  EXPECT_EQ(moved->size(), kBytes);
  EXPECT_EQ(pool.adopted(), 1u);
  EXPECT_GT(pool.used_bytes(), kBytes);
  EXPECT_EQ(RowsOfKind(ResourceKind::kHostMemory), 0u) << "it is the model's no more";
  EXPECT_EQ(heap->live_bytes(), 0u);
  heap.reset();
  scope.ReleaseAll();
  EXPECT_TRUE(ledger_.Rows().empty());
  EXPECT_EQ(moved->data()[kBytes - 1], std::byte{7}) << "it outlives the heap";
  std::memset(moved->data() + kBytes, 1, 64);  // a buffer's padding
  platform_.Arm(Fault::kNone, 0);
  moved->Reset();
  EXPECT_EQ(pool.used_bytes(), 0u);
  pool.Trim();
  EXPECT_EQ(pool.cached_bytes(), 0u);
}

TEST_F(EngineHeapTest, OneBlockOfThePoolTakesThePlaceOfTheMovedOneInItsRow) {
  constexpr std::size_t kBytes = 300'000;
  BufferPool pool(platform_);
  Scope scope(ledger_, platform_, "s");
  auto heap = *EngineHeap::Create(scope, 1 << 20);
  const auto run = [&] {
    void* const block = heap->Allocate(kBytes);
    EXPECT_TRUE(heap->Claim(block));
    EngineHeap::Free(block);
    return *heap->Move(block, kBytes, pool);
  };
  run().Reset();  // the pool keeps its block
  run().Reset();  // which goes to the heap in exchange for this one
  EXPECT_EQ(RowsOfKind(ResourceKind::kHostMemory), 1u);
  const std::vector<LedgerRow> before = ledger_.Rows();
  platform_.Arm(Fault::kNone, 0);
  for (int i = 0; i < 5; ++i) run().Reset();
  EXPECT_EQ(platform_.acquisitions(), 0) << "nothing is mapped";
  const std::vector<LedgerRow> after = ledger_.Rows();
  ASSERT_EQ(after.size(), before.size());
  for (std::size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i].id, before[i].id);
  heap.reset();
  EXPECT_TRUE(ledger_.Rows().empty());
}

TEST_F(EngineHeapTest, ABlockThatTheEngineKeepsIsCopied) {
  constexpr std::size_t kBytes = 300'000;
  BufferPool pool(platform_);
  Scope scope(ledger_, platform_, "s");
  auto heap = *EngineHeap::Create(scope, 0);
  void* const block = heap->Allocate(kBytes);
  std::memset(block, 7, kBytes);
  ASSERT_TRUE(heap->Claim(block));
  const absl::StatusOr<Buffer> copy = heap->Move(block, kBytes, pool);
  ASSERT_TRUE(copy.ok());
  EXPECT_NE(copy->data(), block);
  EXPECT_EQ(std::memcmp(copy->data(), block, kBytes), 0);
  EXPECT_EQ(pool.adopted(), 0u);
  EXPECT_EQ(heap->live_blocks(), 1u);
  EngineHeap::Free(block);
  EXPECT_EQ(heap->live_blocks(), 0u) << "the claim has ended";
}

TEST_F(EngineHeapTest, APoolWithoutRoomLeavesTheBlockWithTheHeap) {
  BufferPool pool(platform_, BufferPool::Options{.limit_bytes = 100'000});
  Scope scope(ledger_, platform_, "s");
  auto heap = *EngineHeap::Create(scope, 0);
  void* const block = heap->Allocate(300'000);
  ASSERT_TRUE(heap->Claim(block));
  EngineHeap::Free(block);
  EXPECT_TRUE(absl::IsResourceExhausted(heap->Move(block, 300'000, pool).status()));
  EXPECT_EQ(pool.used_bytes(), 0u);
  EXPECT_EQ(heap->live_blocks(), 0u);
  EXPECT_EQ(RowsOfKind(ResourceKind::kHostMemory), 0u);
}

TEST_F(EngineHeapTest, OnlyItsOwnLargeBlocksAreClaimed) {
  Scope scope(ledger_, platform_, "s");
  auto heap = *EngineHeap::Create(scope, 0);
  auto other = *EngineHeap::Create(scope, 0);
  void* const small = heap->Allocate(100);
  void* const large = heap->Allocate(1 << 20);
  void* const foreign = other->Allocate(1 << 20);
  EXPECT_FALSE(heap->Claim(small));
  EXPECT_FALSE(heap->Claim(foreign));
  EXPECT_FALSE(heap->Claim(static_cast<std::byte*>(large) + 4096)) << "the inside of a block";
  EXPECT_FALSE(heap->Claim(nullptr));
  for (void* block : {small, large, foreign}) EngineHeap::Free(block);
}

}  // namespace
}  // namespace tidemark
