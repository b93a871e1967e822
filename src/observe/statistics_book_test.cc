#include "observe/statistics_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/client_metric.h>

namespace tidemark {
namespace {

constexpr RequestTimes kTimes{.received = 1'000,
                              .queued = 2'500,
                              .compute_start = 5'000,
                              .infer_start = 7'999,
                              .infer_end = 20'000,
                              .compute_end = 31'999};

bool Everything(std::string_view /*key*/) { return true; }
bool Nothing(std::string_view /*key*/) { return false; }

TEST(StatisticsBook, AForgottenModelLeavesAtOnceOrWithItsLastLoad) {
  StatisticsBook book;
  book.Open("gone", 1).reset();
  auto living = book.Open("living", 1);
  auto again = book.Open("again", 1);
  for (const std::string_view key : {"gone", "living", "again", "nobody"}) book.Forget(key);
  auto reopened = book.Open("again", 1);
  again->RecordSuccess(kTimes, 1);
  living.reset();
  again.reset();
  reopened.reset();
  std::vector<std::string> asked;
  book.Collect([&](std::string_view key) {
    asked.emplace_back(key);
    return true;
  });
  EXPECT_EQ(asked, std::vector<std::string>{"again"}) << "only this one is kept";
}

TEST(ModelStatistics, MicrosecondsAreCutForEachRequest) {
  ModelStatistics statistics;
  statistics.RecordSuccess(kTimes, 1);
  statistics.RecordSuccess(kTimes, 1);
  const StatisticsTotals totals = statistics.Totals();
  EXPECT_EQ(totals.compute_input.ns, 2U * 2'999);
  EXPECT_EQ(totals.compute_input.us, 4U);
  EXPECT_EQ(totals.success.us, 60U);
}

TEST(ModelStatistics, TheReasonsAddUpToTheFailures) {
  ModelStatistics statistics;
  statistics.RecordFailure(kTimes, 40'000, FailureReason::kRejected);
  statistics.RecordFailure(kTimes, 40'000, FailureReason::kCanceled);
  statistics.RecordFailure(kTimes, 40'000, ReasonOfExecution(absl::CancelledError("")));
  statistics.RecordFailure(kTimes, 40'000, ReasonOfExecution(absl::InternalError("x")));
  const StatisticsTotals totals = statistics.Totals();
  EXPECT_THAT(totals.failures, testing::ElementsAre(1, 2, 1, 0));
  EXPECT_EQ(totals.fail.count, 4U);
}

TEST(ModelStatistics, ResponsesAreCountedByIndexAndOutcome) {
  ModelStatistics statistics;
  statistics.RecordResponse(0, ResponseOutcome::kSuccess, 10, 30, 35);
  statistics.RecordResponse(1, ResponseOutcome::kFail, 10, 30, 35);
  statistics.RecordResponse(1, ResponseOutcome::kEmpty, 10, 35, 35);
  statistics.RecordResponse(1, ResponseOutcome::kCancel, 10, 35, 35);
  const ModelStatisticsSnapshot snapshot = statistics.Snapshot();
  ASSERT_EQ(snapshot.response_stats.size(), 2U);
  const auto& first = snapshot.response_stats.at(0);
  EXPECT_EQ(first.compute_infer.ns, 20U);
  EXPECT_EQ(first.compute_output.ns, 5U);
  EXPECT_EQ(first.success.ns, 25U);
  const auto& second = snapshot.response_stats.at(1);
  EXPECT_EQ(second.success.count, 0U);
  EXPECT_EQ(second.fail.count, 1U);
  EXPECT_EQ(second.empty_response.count, 1U);
  EXPECT_EQ(second.cancel.count, 1U);
}

TEST(StatisticsBook, CountersSurviveAReload) {
  StatisticsBook book;
  auto first = book.Open("m", 1);
  first->RecordSuccess(kTimes, 2);
  auto second = book.Open("m", 1);  // beside the old one, as at an update
  second->RecordSuccess(kTimes, 3);
  EXPECT_EQ(book.Collect(Everything).at(0).totals.inference_count, 5U);
  first.reset();
  second->RecordFailure(kTimes, 40'000, FailureReason::kBackend);
  const auto entries = book.Collect(Everything);
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries[0].totals.inference_count, 5U);
  EXPECT_EQ(entries[0].totals.success.count, 2U);
  EXPECT_THAT(entries[0].totals.failures, testing::ElementsAre(0, 0, 1, 0));
  EXPECT_EQ(second->Snapshot().success.count, 1U) << "the statistics extension begins anew";
}

TEST(StatisticsBook, AnUnloadedVersionIsHiddenAndCountsOnAfterwards) {
  StatisticsBook book;
  book.Open("m", 1)->RecordSuccess(kTimes, 1);
  EXPECT_TRUE(book.Collect(Everything).empty());
  const auto again = book.Open("m", 1);
  EXPECT_EQ(book.Collect(Everything).at(0).totals.success.count, 1U);
}

TEST(StatisticsBook, WhatNobodyKnowsIsForgotten) {
  StatisticsBook book;
  book.Open("m", 1)->RecordSuccess(kTimes, 1);
  EXPECT_TRUE(book.Collect(Nothing).empty());
  const auto again = book.Open("m", 1);
  EXPECT_EQ(book.Collect(Nothing).at(0).totals.success.count, 0U);
}

TEST(StatisticsBook, PendingRequestsOfAllLoadsAreAddedUp) {
  StatisticsBook book;
  const auto first = book.Open("m", 1);
  const auto second = book.Open("m", 1);
  first->AddPending(2);
  second->AddPending(1);
  first->AddPending(-1);
  EXPECT_EQ(book.Collect(Everything).at(0).pending, 2);
}

TEST(StatisticsBook, DistributionsAreMadeWhenAskedForAndSurviveAReload) {
  StatisticsBook plain;
  const auto counted = plain.Open("m", 1);
  EXPECT_EQ(plain.Collect(Everything).at(0).distributions, nullptr);

  LatencyOptions options;
  options.histograms = options.summaries = true;
  StatisticsBook book(options);
  auto first = book.Open("m", 1, {1, 10});
  first->RecordFirstResponse(999'999);    // 0 ms
  first->RecordFirstResponse(5'000'000);  // 5 ms
  first->RecordSuccess(kTimes, 1);
  const auto second = book.Open("m", 1, {7});
  first.reset();
  second->RecordFirstResponse(50'000'000);
  const auto distributions = book.Collect(Everything).at(0).distributions;
  ASSERT_NE(distributions, nullptr);
  const auto histogram = distributions->FirstResponse()->histogram;
  EXPECT_EQ(histogram.sample_count, 3U);
  EXPECT_DOUBLE_EQ(histogram.sample_sum, 55);
  ASSERT_EQ(histogram.bucket.size(), 3U);
  EXPECT_EQ(histogram.bucket[0].cumulative_count, 1U);
  EXPECT_EQ(histogram.bucket[1].cumulative_count, 2U);
  const auto summary = distributions->Summary(LatencyDistributions::Phase::kInput)->summary;
  EXPECT_EQ(summary.sample_count, 1U);
  EXPECT_DOUBLE_EQ(summary.sample_sum, 2);
  EXPECT_EQ(summary.quantile.size(), 5U);
}

}  // namespace
}  // namespace tidemark
