#include "audit/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "audit/report_chart.h"
#include "audit/report_html.h"
#include "audit/results_json.h"
#include "audit/statistics.h"

namespace tidemark::audit {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kMiB = 1024 * kKiB;

void AddReading(Record& record, Phase phase, int cycle, std::int64_t value) {
  Reading reading;
  reading.phase = phase;
  reading.cycle = cycle;
  reading.samples = {{value, value, value}};
  reading.medians = {value};
  record.readings.push_back(reading);
}

// A record whose only quantity is anonymous memory: the mark, the levels after each failed load, the end.
Record MakeRecord(std::int64_t mark, const std::vector<std::int64_t>& failed, std::int64_t end) {
  Record record;
  record.settings.model = "m";
  record.settings.fault = "output-datatype";
  record.quantities = {{"anonymous", "anonymous memory", Unit::kBytes, true, 4.0 * kKiB, 1.0 * kMiB, 0}};
  AddReading(record, Phase::kBaseline, 1, mark);
  for (std::size_t i = 0; i < failed.size(); ++i) {
    AddReading(record, Phase::kFailed, static_cast<int>(i) + 1, failed[i]);
    Cycle cycle;
    cycle.phase = Phase::kFailed;
    cycle.load_text = "<b>TYPE_INT32</b>";
    record.cycles.push_back(cycle);
  }
  AddReading(record, Phase::kRestored, 1, end);
  record.verdict = MakeVerdict(record);
  return record;
}

std::vector<std::int64_t> Levels(std::int64_t first, std::int64_t step, int count) {
  std::vector<std::int64_t> levels;
  for (int i = 0; i < count; ++i) levels.push_back(first + step * i);
  return levels;
}

TEST(Statistics, MedianIsAValueThatWasRead) {
  EXPECT_EQ(Median(std::vector<std::int64_t>{5, 1, 9}), 5);
  EXPECT_EQ(Median(std::vector<std::int64_t>{5, 1, 9, 7}), 5);
  EXPECT_EQ(Median({}), 0);
}

TEST(Statistics, IntervalOfStepsIsStudents) {
  // Steps 1, 2, 3: mean 2, standard error 1/sqrt(3), t(2) = 4.303.
  const Interval interval = MeanStep(std::vector<std::int64_t>{0, 1, 3, 6});
  EXPECT_DOUBLE_EQ(interval.mean, 2);
  EXPECT_NEAR(interval.high - interval.mean, 4.303 / std::sqrt(3.0), 1e-6);
  EXPECT_NEAR(StudentT975(40), 2.021, 5e-4);
  EXPECT_TRUE(std::isinf(MeanStep(std::vector<std::int64_t>{0, 1}).high));
}

TEST(Statistics, TheilSenIgnoresAnOutlier) {
  EXPECT_DOUBLE_EQ(TheilSenSlope(std::vector<std::int64_t>{0, 2, 4, 1000, 8, 10, 12}), 2);
  EXPECT_DOUBLE_EQ(TheilSenSlope(std::vector<std::int64_t>{7}), 0);
}

TEST(Verdict, SteadyGrowthPastTheToleranceIsALeak) {
  // The figures of the report: 66 MiB with each failed load, 70 with the first.
  const Record record = MakeRecord(595 * kMiB, Levels(665 * kMiB, 66 * kMiB, 6), 997 * kMiB);
  EXPECT_EQ(record.verdict.outcome, Outcome::kLeak);
  EXPECT_DOUBLE_EQ(record.verdict.judgements[0].growth, 66.0 * kMiB);
}

TEST(Verdict, OneTimeCostOfAnErrorPathIsNoLeak) {
  EXPECT_EQ(MakeRecord(10 * kMiB, Levels(10 * kMiB + 800 * kKiB, 0, 6), 10 * kMiB + 800 * kKiB).verdict.outcome,
            Outcome::kNoLeak);
}

TEST(Verdict, OneJumpAmongFlatLevelsIsNotGrowth) {
  const std::vector<std::int64_t> levels = {kMiB, kMiB, kMiB, kMiB + 900 * kKiB, kMiB + 900 * kKiB, kMiB + 900 * kKiB};
  EXPECT_EQ(MakeRecord(kMiB, levels, levels.back()).verdict.outcome, Outcome::kNoLeak);
}

TEST(Verdict, AllocatorNoiseIsNoLeak) {
  std::mt19937 random(1);
  int leaks = 0;
  for (int run = 0; run < 500; ++run) {
    std::vector<std::int64_t> levels;
    for (int i = 0; i < 6; ++i) levels.push_back(50 * kMiB + static_cast<std::int64_t>(random() % (600 * kKiB)));
    if (MakeRecord(50 * kMiB, levels, levels.back()).verdict.outcome != Outcome::kNoLeak) ++leaks;
  }
  EXPECT_LE(leaks, 12);  // growth in the interval's upper tail, 2.5 % at most
}

TEST(Verdict, SmallSteadyGrowthAsksForMoreCyclesUntilItIsProven) {
  Record record = MakeRecord(10 * kMiB, Levels(10 * kMiB + 61 * kKiB, 61 * kKiB, 6), 10 * kMiB + 366 * kKiB);
  EXPECT_TRUE(NeedsMoreCycles(record));
  EXPECT_EQ(record.verdict.outcome, Outcome::kCouldNotTell);
  record = MakeRecord(10 * kMiB, Levels(10 * kMiB + 61 * kKiB, 61 * kKiB, 30), 10 * kMiB + 30 * 61 * kKiB);
  EXPECT_FALSE(NeedsMoreCycles(record));
  EXPECT_EQ(record.verdict.outcome, Outcome::kLeak);
  EXPECT_FALSE(NeedsMoreCycles(MakeRecord(10 * kMiB, Levels(10 * kMiB, 0, 6), 10 * kMiB)));
}

TEST(Verdict, WarmUpThatComesToRestIsNoLeakAndEndsTheExtraCycles) {
  std::vector<std::int64_t> levels = Levels(10 * kMiB, 30 * kKiB, 20);
  for (int i = 0; i < 20; ++i) levels.push_back(levels.back() + kKiB);
  const Record record = MakeRecord(10 * kMiB, levels, levels.back());
  EXPECT_FALSE(NeedsMoreCycles(record));
  EXPECT_EQ(record.verdict.outcome, Outcome::kNoLeak);
}

TEST(Verdict, RetainedMemoryWithoutGrowthIsUndecided) {
  EXPECT_EQ(MakeRecord(10 * kMiB, Levels(18 * kMiB, 0, 6), 18 * kMiB).verdict.outcome, Outcome::kCouldNotTell);
}

TEST(Verdict, ReadingsThatScatterTooMuchAreUndecided) {
  Record record = MakeRecord(10 * kMiB, Levels(10 * kMiB, 0, 6), 10 * kMiB);
  for (Reading& reading : record.readings) reading.samples = {{8 * kMiB, 10 * kMiB, 12 * kMiB}};
  EXPECT_EQ(MakeVerdict(record).outcome, Outcome::kCouldNotTell);
}

TEST(Verdict, AProblemOfTheScenarioOutweighsEverything) {
  Record record = MakeRecord(0, Levels(66 * kMiB, 66 * kMiB, 6), 500 * kMiB);
  record.problems = {"the server died"};
  EXPECT_EQ(MakeVerdict(record).outcome, Outcome::kCouldNotTell);
  EXPECT_EQ(MakeVerdict(Record()).outcome, Outcome::kCouldNotTell);
}

TEST(Verdict, MissingReadingsAreUndecided) {
  Record record = MakeRecord(10 * kMiB, Levels(10 * kMiB, 0, 6), 10 * kMiB);
  record.readings[2].medians[0] = kNotRead;
  EXPECT_EQ(MakeVerdict(record).outcome, Outcome::kCouldNotTell);
}

TEST(Verdict, AmountsReadWell) {
  EXPECT_EQ(FormatAmount(66.2 * kMiB, Unit::kBytes, true), "+66.20 MiB");
  EXPECT_EQ(FormatAmount(-61.0 * kKiB, Unit::kBytes), "−61.0 KiB");
  EXPECT_EQ(FormatAmount(0, Unit::kBytes, true), "0 B");
  EXPECT_EQ(FormatAmount(2, Unit::kCount, true), "+2");
}

TEST(ResultsJson, HoldsEverySampleAndParses) {
  Record record = MakeRecord(10 * kMiB, Levels(10 * kMiB, 0, 6), 10 * kMiB);
  record.cycles[0].load_text = "not UTF-8: \xFF";
  record.readings[1].samples[0][1] = kNotRead;
  const auto json = nlohmann::json::parse(ResultsJson(record));
  EXPECT_EQ(json["version"], kResultsVersion);
  EXPECT_EQ(json["readings"].size(), record.readings.size());
  EXPECT_EQ(json["readings"][0]["samples"]["anonymous"].size(), 3U);
  EXPECT_TRUE(json["readings"][1]["samples"]["anonymous"][1].is_null());
  EXPECT_EQ(json["verdict"]["exit_code"], 0);
}

TEST(ReportHtml, IsSelfContainedEscapedAndShowsMarkAndFailures) {
  const Record record = MakeRecord(10 * kMiB, Levels(12 * kMiB, 2 * kMiB, 6), 22 * kMiB);
  const std::string html = ReportHtml(record);
  EXPECT_THAT(html, HasSubstr("Leak: anonymous memory +2.00 MiB with each of 6 failed loads."));
  EXPECT_THAT(html, HasSubstr("class=\"mark\""));
  EXPECT_THAT(html, HasSubstr("&lt;b&gt;TYPE_INT32&lt;/b&gt;"));
  EXPECT_THAT(html, Not(HasSubstr("<b>TYPE_INT32")));
  EXPECT_THAT(html, Not(HasSubstr("http")));
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  std::size_t crosses = 0;
  for (std::size_t at = 0; (at = html.find("class=\"failed-point\"", at)) != std::string::npos; ++at) ++crosses;
  EXPECT_EQ(crosses, 6U);
}

TEST(ReportHtml, RecordWithoutReadingsStillRenders) {
  Record record;
  record.quantities = {{"anonymous", "anonymous memory", Unit::kBytes, true, 4096, 1048576, 0}};
  record.problems = {"the server did not start"};
  record.verdict = MakeVerdict(record);
  EXPECT_THAT(ReportHtml(record), HasSubstr("the server did not start"));
}

TEST(Escape, KeepsUtf8AndReplacesWhatIsNone) {
  EXPECT_EQ(Escape("ä<&>\"'"), "ä&lt;&amp;&gt;&quot;&#39;");
  EXPECT_EQ(Escape("\xFFx\xC3"), "\xEF\xBF\xBDx\xEF\xBF\xBD");
}

}  // namespace
}  // namespace tidemark::audit
