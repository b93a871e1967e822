#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "platform/platform.h"

namespace tidemark {
namespace {

namespace fs = std::filesystem;

TEST(LinuxPlatform, PipeInAFilesPlaceIsRefusedAtOnce) {
  const auto platform = CreateLinuxPlatform();
  const fs::path folder = *platform->MakeTempDirectory("tidemark-test-");
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(platform->MapFile(folder / "pipe").status()));  // and does not wait for a writer
  EXPECT_TRUE(absl::IsInvalidArgument(platform->MapFile("/dev/zero").status()));
  EXPECT_TRUE(platform->RemoveTree(folder).ok());
}

TEST(LinuxPlatform, TemporaryFoldersAreGoneWithTheirContents) {
  const auto platform = CreateLinuxPlatform();
  const fs::path one = *platform->MakeTempDirectory("tidemark-test-");
  const fs::path two = *platform->MakeTempDirectory("tidemark-test-");
  EXPECT_NE(one, two);
  fs::create_directories(one / "a/b");
  std::ofstream(one / "a/b/c") << "x";
  EXPECT_TRUE(platform->RemoveTree(one).ok());
  EXPECT_FALSE(fs::exists(one));
  platform->RemoveTempDirectories();
  EXPECT_FALSE(fs::exists(two));
}

TEST(LinuxPlatform, OnlyFoldersThatNobodyHoldsAreStale) {
  const auto platform = CreateLinuxPlatform();
  const std::string prefix = "tidemark-test-stale" + std::to_string(getpid()) + "-";
  const fs::path held = *platform->MakeTempDirectory(prefix);
  const fs::path left = fs::temp_directory_path() / (prefix + "1-load-aB3dEf");
  fs::create_directory(left);
  std::vector<fs::path> of_others;  // a user's own folder may begin like ours
  for (const char* name : {"models", "gpu", "1-load-models7", "-load-aB3dEf", "1-work-aB3dEf"}) {
    of_others.push_back(fs::temp_directory_path() / (prefix + name));
    fs::create_directory(of_others.back());
  }
  EXPECT_EQ(CreateLinuxPlatform()->RemoveStaleTempDirectories(prefix), 1);
  EXPECT_TRUE(fs::exists(held));
  EXPECT_FALSE(fs::exists(left));
  for (const fs::path& folder : of_others) {
    EXPECT_TRUE(fs::exists(folder)) << folder;
    fs::remove(folder);
  }
  EXPECT_TRUE(platform->RemoveTree(held).ok());
}

TEST(LinuxPlatform, ThreadsThatALoweredThreadStartsAreNotLowered) {
  const auto platform = CreateLinuxPlatform();
  const auto nice = [] { return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())); };
  const int mine = nice();
  int lowered = 0, child = 99;
  Platform::Thread* load = *platform->StartThread("load", [&] {
    platform->LowerThreadPriority();
    lowered = nice();
    Platform::Thread* instance = *platform->StartThread("instance", [&] { child = nice(); });
    EXPECT_TRUE(platform->JoinThread(instance).ok());
  });
  ASSERT_TRUE(platform->JoinThread(load).ok());
  EXPECT_EQ(lowered, std::min(mine + 10, 19));
  EXPECT_EQ(child, mine) << "it will serve requests";
}

TEST(LinuxPlatform, LoweredThreadsStartAnyNumberOfThreadsAtOnce) {
  const auto platform = CreateLinuxPlatform();
  std::atomic<int> ran{0};
  std::vector<Platform::Thread*> loads;
  for (int i = 0; i < 3; ++i) {
    loads.push_back(*platform->StartThread("load", [&] {
      platform->LowerThreadPriority();
      for (int round = 0; round < 100; ++round) {
        std::vector<Platform::Thread*> instances;
        for (int j = 0; j < 3; ++j) instances.push_back(*platform->StartThread("instance", [&] { ran.fetch_add(1); }));
        for (Platform::Thread* instance : instances) EXPECT_TRUE(platform->JoinThread(instance).ok());
      }
    }));
  }
  for (Platform::Thread* load : loads) EXPECT_TRUE(platform->JoinThread(load).ok());
  EXPECT_EQ(ran.load(), 900);
}

TEST(LinuxPlatform, TwoThreadsAtATimeAreTheSameTwoForEveryLoad) {
  const auto platform = CreateLinuxPlatform();
  Platform::Thread* load = *platform->StartThread("load", [&] {
    platform->LowerThreadPriority();
    // The first may come before the two are made; its starter makes them first.
    const auto run_two = [&] {
      std::array<pid_t, 2> ids{};
      std::array<Platform::Thread*, 2> threads{};
      for (std::size_t i = 0; i < 2; ++i)
        threads[i] = *platform->StartThread("instance", [&ids, i] { ids[i] = gettid(); });
      for (Platform::Thread* thread : threads) EXPECT_TRUE(platform->JoinThread(thread).ok());
      return std::set<pid_t>(ids.begin(), ids.end());
    };
    run_two();
    const std::set<pid_t> first = run_two();
    EXPECT_EQ(first.size(), 2U);
    for (int round = 0; round < 20; ++round) EXPECT_EQ(run_two(), first);
  });
  ASSERT_TRUE(platform->JoinThread(load).ok());
}

TEST(LinuxPlatform, WhatABodyHoldsIsGoneWhenItsThreadIsJoined) {
  const auto platform = CreateLinuxPlatform();
  Platform::Thread* load = *platform->StartThread("load", [&] {
    platform->LowerThreadPriority();
    for (int round = 0; round < 10; ++round) {
      auto held = std::make_shared<int>(1);
      const std::weak_ptr<int> watch = held;
      Platform::Thread* thread = *platform->StartThread("instance", [held = std::move(held)] {});
      EXPECT_TRUE(platform->JoinThread(thread).ok());
      EXPECT_TRUE(watch.expired());
    }
  });
  ASSERT_TRUE(platform->JoinThread(load).ok());
}

TEST(LinuxPlatform, ErrorsNameTheThingAndTheReason) {
  const auto platform = CreateLinuxPlatform();
  EXPECT_EQ(platform->MapFile("/no/such/file").status().ToString(),
            "NOT_FOUND: cannot open '/no/such/file': No such file or directory");
  EXPECT_TRUE(absl::IsNotFound(platform->OpenLibrary("libno-such.so").status()));
  EXPECT_TRUE(absl::IsResourceExhausted(platform->MapMemory(std::size_t{1} << 60).status()));
}

}  // namespace
}  // namespace tidemark
