#include "backend/model_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"

namespace tidemark {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

TEST(ModelMetricsTest, SeriesAreThereFromTheBeginningAndCount) {
  ModelMetrics metrics;
  MetricCounter* const counter = *metrics.Counter("tokens_total", "Tokens");
  MetricGauge* const gauge = *metrics.Gauge("cache_blocks", "Blocks", {{"state", "used"}});
  ASSERT_TRUE(metrics.Gauge("cache_blocks", "Blocks", {{"state", "free"}}).ok());
  MetricHistogram* const histogram = *metrics.Histogram("step_seconds", "Steps", {0.1, 1});
  counter->Increment();
  counter->Increment(2.5);
  counter->Increment(-7);  // it only grows
  gauge->Set(5);
  gauge->Add(-2);
  for (const double value : {0.05, 0.1, 0.5, 3.0}) histogram->Observe(value);
  const std::vector<ModelMetrics::Sample> samples = metrics.Collect();
  ASSERT_THAT(samples, SizeIs(4));
  EXPECT_EQ(samples[0].family, "cache_blocks");
  EXPECT_EQ(samples[0].labels.at("state"), "free");
  EXPECT_EQ(samples[0].value, 0);
  EXPECT_EQ(samples[1].value, 3);
  EXPECT_EQ(samples[2].family, "step_seconds");
  EXPECT_THAT(samples[2].counts, ElementsAre(2, 1, 1));
  EXPECT_DOUBLE_EQ(samples[2].value, 3.65);
  EXPECT_EQ(samples[3].value, 3.5);
  EXPECT_EQ(samples[3].help, "Tokens");
}

TEST(ModelMetricsTest, WhoAsksAgainSharesTheSeries) {
  ModelMetrics metrics;
  EXPECT_EQ(*metrics.Counter("c", "help"), *metrics.Counter("c", "help"));
  EXPECT_NE(*metrics.Counter("c", "help", {{"a", "1"}}), *metrics.Counter("c", "help"));
}

TEST(ModelMetricsTest, WhatPrometheusOrTheServerWouldNotTakeIsRefused) {
  ModelMetrics metrics;
  const auto error = [](const auto& result) { return std::string(MessageOf(result.status())); };
  EXPECT_THAT(error(metrics.Counter("no name", "")), HasSubstr("is no name for a backend's metric"));
  EXPECT_THAT(error(metrics.Counter("9c", "")), HasSubstr("is no name"));
  EXPECT_THAT(error(metrics.Counter("tidemark_ready", "")), HasSubstr("is no name"));
  EXPECT_THAT(error(metrics.Counter("c", "", {{"model", "other"}})), HasSubstr("'model' is no label"));
  EXPECT_THAT(error(metrics.Counter("c", "", {{"a-b", ""}})), HasSubstr("'a-b' is no label"));
  EXPECT_THAT(error(metrics.Histogram("h", "", {2, 1})), HasSubstr("do not ascend"));
  ASSERT_TRUE(metrics.Counter("vllm:tokens", "help").ok());
  EXPECT_THAT(error(metrics.Gauge("vllm:tokens", "help")), HasSubstr("is there already"));
  EXPECT_THAT(error(metrics.Counter("vllm:tokens", "other help")), HasSubstr("is there already"));
}

}  // namespace
}  // namespace tidemark
