#include "lifecycle/load_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "inference/registry.h"
#include "resource/witness.h"
#include "tests/support/core_harness.h"

namespace tidemark {
namespace {

constexpr std::int64_t kMib = 1 << 20;

UnloadRecord Unloaded(std::int64_t returned, std::int64_t fell) {
  UnloadRecord record;
  record.held[kHost] = record.returned[kHost] = returned;
  record.witness[kHost] = fell;
  return record;
}

TEST(UnloadVerdict, AFigureThatFellWithTheRowsIsReturned) {
  EXPECT_EQ(Judge(Unloaded(100 * kMib, 100 * kMib)), UnloadVerdict::kReturned);
  EXPECT_EQ(Judge(Unloaded(100 * kMib, 96 * kMib)), UnloadVerdict::kReturned) << "a twentieth is tolerated";
  EXPECT_EQ(Judge(Unloaded(kMib, 10)), UnloadVerdict::kReturned) << "1 MiB is tolerated";
}

TEST(UnloadVerdict, AFigureThatStayedIsRetained) {
  EXPECT_EQ(Judge(Unloaded(100 * kMib, 90 * kMib)), UnloadVerdict::kRetained);
  EXPECT_EQ(Judge(Unloaded(100 * kMib, -kMib)), UnloadVerdict::kRetained);
}

TEST(UnloadVerdict, RowsThatAreLeftAreStranded) {
  UnloadRecord record = Unloaded(100 * kMib, 100 * kMib);
  record.rows_left = 1;
  EXPECT_EQ(Judge(record), UnloadVerdict::kStranded);
}

TEST(UnloadVerdict, WithoutAWitnessTheRowsDecide) {
  UnloadRecord record = Unloaded(100 * kMib, 0);
  record.witness.clear();
  EXPECT_EQ(Judge(record), UnloadVerdict::kReturned);
}

TEST(SecondsHistogram, BoundsAreInclusive) {
  SecondsHistogram histogram;
  histogram.Add(0.01);
  histogram.Add(0.011);
  histogram.Add(1e9);
  EXPECT_EQ(histogram.counts[0], 1U);
  EXPECT_EQ(histogram.counts[1], 1U);
  EXPECT_EQ(histogram.counts.back(), 1U);
}

std::uint64_t FailuresOf(const LoadHistory::Counts& counts) {
  return std::accumulate(counts.failed.begin(), counts.failed.end(), std::uint64_t{0});
}

TEST(LoadHistory, EveryAnswerOfALoadIsCountedWithItsCause) {
  CoreHarness core;
  core.folder.AddModel("m", CopyConfig("fake"));
  ASSERT_TRUE(core.Start().ok());
  ASSERT_TRUE(core.Load("m").ok());
  EXPECT_FALSE(core.Load("nobody").ok());
  LoadOverrides wrong;
  wrong.config_json = "{";
  EXPECT_FALSE(core.Load("m", wrong).ok());
  const LoadHistory::Sums sums = core.lifecycle->history().Totals();
  EXPECT_EQ(sums.counts.good, 1U);
  EXPECT_EQ(FailuresOf(sums.counts), 2U);
  EXPECT_EQ(sums.counts.failed[static_cast<std::size_t>(LoadFailure::kNotFound)], 1U);
  EXPECT_EQ(sums.counts.failed[static_cast<std::size_t>(LoadFailure::kInvalid)], 1U);
  const auto models = core.lifecycle->history().Models([](std::string_view) { return true; });
  ASSERT_EQ(models.size(), 1U) << "a name that a client made up is no model";
  EXPECT_EQ(models.at("m").good, 1U);
  EXPECT_EQ(FailuresOf(models.at("m")), 1U);
}

}  // namespace
}  // namespace tidemark
