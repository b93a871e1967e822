#include "resource/buffer_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "base/status.h"
#include "tests/support/fault_platform.h"

namespace tidemark {
namespace {

class BufferPoolTest : public testing::Test {
 protected:
  std::unique_ptr<Platform> real_ = CreateLinuxPlatform();
  FaultPlatform platform_{*real_};
};

TEST_F(BufferPoolTest, BuffersAreAlignedWithRoomBehind) {
  BufferPool pool(platform_);
  for (const std::size_t bytes : {0UL, 1UL, 192UL, 193UL, 4096UL, (1UL << 20) - 64, (1UL << 20) - 63, 5UL << 20}) {
    absl::StatusOr<Buffer> buffer = pool.Allocate(bytes);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % 64, 0u);
    EXPECT_EQ(buffer->size(), bytes);
    std::memset(buffer->data(), 1, bytes + 64);
    EXPECT_GE(pool.used_bytes(), bytes + 64);
  }
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST_F(BufferPoolTest, FreedBuffersAreKeptUpToTheCapsAndTrimmed) {
  BufferPool pool(platform_,
                  BufferPool::Options{.limit_bytes = 1 << 30, .cached_per_class = 2, .cached_large_bytes = 4 << 20});
  {
    std::vector<Buffer> buffers;
    for (int i = 0; i < 5; ++i) buffers.push_back(*pool.Allocate(900));
    for (int i = 0; i < 5; ++i) buffers.push_back(*pool.Allocate(2 << 20));
  }
  EXPECT_EQ(pool.used_bytes(), 0u);
  EXPECT_EQ(pool.cached_bytes(), 2u * 1024 + (2 << 20) + 4096) << "two small ones and one large one";
  platform_.Arm(Fault::kNone, 0);
  EXPECT_TRUE(pool.Allocate(2 << 20).ok());
  EXPECT_EQ(platform_.acquisitions(), 0) << "from the cache";
  pool.Trim();
  EXPECT_EQ(pool.cached_bytes(), 0u);
  EXPECT_TRUE(pool.Allocate(10).ok()) << "still of use";
}

TEST_F(BufferPoolTest, LimitIsRefusedByNameAndHolds) {
  BufferPool pool(platform_, BufferPool::Options{.limit_bytes = 8192, .cached_per_class = 2, .cached_large_bytes = 0});
  EXPECT_EQ(MessageOf(pool.Allocate(9000).status()), "a request buffer of 9000 bytes exceeds the limit of 8192 bytes");
  absl::StatusOr<Buffer> first = pool.Allocate(4000);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(MessageOf(pool.Allocate(4100).status()),
            "a request buffer of 4100 bytes does not fit: 4096 of 8192 bytes are in use");
  first->Reset();
  EXPECT_TRUE(pool.Allocate(8000).ok());
}

TEST_F(BufferPoolTest, LargeBuffersLeaveRoomForSmallOnes) {
  constexpr std::size_t kLarge = std::size_t{4} << 20;
  BufferPool pool(platform_, BufferPool::Options{.limit_bytes = 4 * kLarge});
  std::vector<Buffer> held;
  for (int i = 0; i < 3; ++i) held.push_back(*pool.Allocate(kLarge - 4096));
  EXPECT_TRUE(absl::IsResourceExhausted(pool.Allocate(kLarge - 4096).status()))
      << "the last sixteenth is for small ones";
  for (int i = 0; i < 16; ++i) {
    absl::StatusOr<Buffer> small = pool.Allocate(60'000);
    ASSERT_TRUE(small.ok()) << small.status();
    held.push_back(*std::move(small));
  }
}

TEST_F(BufferPoolTest, RefusedOrThrowingMappingCountsNothing) {
  BufferPool pool(platform_);
  platform_.Arm(Fault::kOnce, 0);
  const absl::Status refused = pool.Allocate(2 << 20).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_NE(MessageOf(refused).find("injected failure"), std::string::npos) << "says why: " << refused;
  EXPECT_EQ(pool.used_bytes(), 0u);
  platform_.Arm(Fault::kThrow, 0);
  EXPECT_TRUE(absl::IsResourceExhausted(pool.Allocate(2 << 20).status()));
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST_F(BufferPoolTest, MoveLeavesNothingBehind) {
  BufferPool pool(platform_);
  Buffer a = *pool.Allocate(100);
  Buffer b = *pool.Allocate(5000);
  std::byte* const data = a.data();
  b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_TRUE(a.empty());
  Buffer c = std::move(b);
  EXPECT_EQ(c.size(), 100u);
  c.Reset();
  c.Reset();
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST_F(BufferPoolTest, ThreadsEndWithEverythingBack) {
  BufferPool pool(platform_,
                  BufferPool::Options{.limit_bytes = 64 << 20, .cached_per_class = 4, .cached_large_bytes = 8 << 20});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (int i = 0; i < 2000; ++i) {
        absl::StatusOr<Buffer> buffer = pool.Allocate(static_cast<std::size_t>((i * 7919 + t * 104729) % 3'000'000));
        ASSERT_TRUE(buffer.ok()) << buffer.status();
        buffer->data()[0] = std::byte{1};
        if (i % 500 == 0) pool.Trim();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.used_bytes(), 0u);
  pool.Trim();
  EXPECT_EQ(pool.cached_bytes(), 0u);
}

TEST_F(BufferPoolTest, AnAdoptedBlockIsABufferAndGoesBackAsOne) {
  constexpr std::size_t kBlock = std::size_t{1} << 17;
  BufferPool pool(platform_);
  std::byte* const block = *platform_.MapMemory(kBlock);
  Buffer buffer = *pool.Adopt({block, kBlock}, 64, 1000);
  EXPECT_EQ(buffer.data(), block + 64);
  EXPECT_EQ(buffer.size(), 1000u);
  EXPECT_EQ(buffer.capacity(), kBlock - 128);
  EXPECT_EQ(pool.used_bytes(), kBlock);
  Buffer moved = std::move(buffer);
  buffer = std::move(moved);
  buffer.Reset();
  EXPECT_EQ(pool.used_bytes(), 0u);
  EXPECT_EQ(pool.cached_bytes(), kBlock);
  EXPECT_EQ(pool.TakeCached(kBlock - 4096), nullptr) << "of another size";
  EXPECT_EQ(pool.TakeCached(kBlock), block);
  EXPECT_EQ(pool.TakeCached(kBlock), nullptr);
  EXPECT_EQ(pool.cached_bytes(), 0u);
  EXPECT_TRUE(platform_.UnmapMemory(block, kBlock).ok());
}

TEST_F(BufferPoolTest, AdoptionBeyondTheLimitIsRefusedAndCountsNothing) {
  BufferPool pool(platform_, BufferPool::Options{.limit_bytes = 8192});
  std::byte* const block = *platform_.MapMemory(16384);
  EXPECT_EQ(MessageOf(pool.Adopt({block, 16384}, 64, 9000).status()),
            "a request buffer of 9000 bytes does not fit: 0 of 8192 bytes are in use");
  EXPECT_EQ(pool.used_bytes(), 0u);
  EXPECT_TRUE(platform_.UnmapMemory(block, 16384).ok());
}

}  // namespace
}  // namespace tidemark
