#include "platform/machine.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "absl/status/status.h"

namespace tidemark {
namespace {

class MachineTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "machine-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    std::filesystem::create_directories(root_ / "self");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& name, const std::string& text) { std::ofstream(root_ / name) << text; }
  std::filesystem::path root_;
};

TEST_F(MachineTest, AnonymousMemoryCountsWhatIsSwappedOut) {
  Write("self/smaps_rollup",
        "00400000-7fff r--p 00000000 00:00 0 [rollup]\nRss:   900 kB\nAnonymous:     100 kB\nSwap:  7 kB\n");
  const auto memory = ReadProcessMemory(root_);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->anonymous, 107U * 1024);
  EXPECT_EQ(memory->resident, 900U * 1024);
}

TEST_F(MachineTest, TheStatusFileIsAskedWhereThereIsNoRollup) {
  Write("self/status", "Name:\tx\nVmRSS:\t  50 kB\nRssAnon:\t 20 kB\n");
  const auto memory = ReadProcessMemory(root_);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->anonymous, 20U * 1024);
}

TEST_F(MachineTest, WhatTheKernelDoesNotTellIsAnError) {
  EXPECT_TRUE(absl::IsUnavailable(ReadProcessMemory(root_).status()));
  EXPECT_TRUE(absl::IsUnavailable(ReadMachineMemory(root_).status()));
  EXPECT_TRUE(absl::IsUnavailable(ReadProcessorTime(root_).status()));
}

TEST_F(MachineTest, WaitingForADiskIsNotBusy) {
  Write("stat", "cpu  10 1 5 100 50 2 3 4 0 0\ncpu0 1 1 1 1\n");
  const auto time = ReadProcessorTime(root_);
  ASSERT_TRUE(time.ok()) << time.status();
  EXPECT_EQ(time->busy, 25U);
  EXPECT_EQ(time->total, 175U);
}

TEST_F(MachineTest, TheCountersCountWhatIsSwappedOut) {
  Write("self/status", "Name:\tx\nVmRSS:\t  50 kB\nRssAnon:\t 20 kB\nVmSwap:\t 3 kB\n");
  Write("self/statm", "90 50 8 3 0 9 0\n");  // knows of no swap
  const auto anonymous = ReadAnonymousCounters(root_, /*swaps=*/true);
  ASSERT_TRUE(anonymous.ok()) << anonymous.status();
  EXPECT_EQ(*anonymous, 23U * 1024);
  Write("self/status", "Name:\tx\n");
  EXPECT_TRUE(absl::IsUnavailable(ReadAnonymousCounters(root_, /*swaps=*/true).status()));
}

TEST_F(MachineTest, WithoutSwapTheShortListOfPagesIsEnough) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  Write("self/status", "RssAnon:\t 20 kB\n");
  Write("self/statm", "90 50 8 3 0 9 0\n");
  EXPECT_EQ(*ReadAnonymousCounters(root_, /*swaps=*/false), 42 * page);
  for (const char* broken : {"", "90 50", "90 8 50 3 0 9 0", "90 x 1"}) {
    Write("self/statm", broken);
    EXPECT_EQ(*ReadAnonymousCounters(root_, /*swaps=*/false), 20U * 1024) << broken;
  }
}

TEST_F(MachineTest, ExactCountersSayWhatAWalkOverThePagesSays) {
  if (!AnonymousCountersAreExact()) GTEST_SKIP() << "this kernel gathers its counters now and then";
  constexpr std::size_t kBytes = 32U << 20;
  const std::unique_ptr<char[]> block(new char[kBytes]);
  for (const std::size_t bytes : {std::size_t{5} << 12, std::size_t{77} << 12, kBytes}) {
    for (std::size_t i = 0; i < bytes; i += 1024) block[i] = 1;
    const auto before = ReadAnonymousCounters();
    const auto walked = ReadProcessMemory();  // takes memory itself, a sanitizer's more than anyone's
    const auto after = ReadAnonymousCounters();
    ASSERT_TRUE(before.ok() && walked.ok() && after.ok()) << before.status() << walked.status() << after.status();
    constexpr std::uint64_t kNear = 32 * 1024;
    EXPECT_GE(walked->anonymous + kNear, *before);
    EXPECT_LE(walked->anonymous, *after + kNear);
  }
}

TEST_F(MachineTest, MemoryThatIsTakenAppears) {
  const auto before = ReadProcessMemory();
  ASSERT_TRUE(before.ok()) << before.status();
  constexpr std::size_t kBytes = 32U << 20;
  const std::unique_ptr<char[]> block(new char[kBytes]);
  for (std::size_t i = 0; i < kBytes; i += 1024) block[i] = 1;
  const auto after = ReadProcessMemory();
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_GE(after->anonymous, before->anonymous + kBytes * 9 / 10);
}

}  // namespace
}  // namespace tidemark
