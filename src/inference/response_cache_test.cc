#include "inference/response_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "absl/synchronization/notification.h"
#include "base/status.h"
#include "tests/support/core_harness.h"

namespace tidemark {
namespace {

using testing::ElementsAre;

constexpr std::string_view kCached = "response_cache { enable: true }\n";
constexpr std::uint64_t kPlenty = 1 << 20;

CoreHarness::Options WithCache(std::uint64_t bytes) {
  CoreHarness::Options options;
  options.response_cache_bytes = bytes;
  return options;
}

class ResponseCacheTest : public testing::Test {
 protected:
  explicit ResponseCacheTest(std::uint64_t bytes = kPlenty) : core_(WithCache(bytes)) {}

  void Load(std::string_view more = kCached, int instances = 1) {
    core_.folder.AddModel("m", CopyConfig("fake", instances, more));
    core_.script.warms_up_unasked = false;
    core_.script.on_execute = [this](const Execution& execution, std::string_view) {
      ++executions_;
      return on_execute_ ? on_execute_(execution) : absl::OkStatus();
    };
    ASSERT_TRUE(core_.Start().ok());
    ASSERT_TRUE(core_.Load("m").ok());
  }
  std::vector<float> Infer(float value) {
    const absl::StatusOr<std::vector<float>> answer = core_.Infer("m", -1, {value, 2, 3, 4});
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.value_or(std::vector<float>());
  }
  ModelStatisticsSnapshot Statistics() { return (*core_.registry.Find("m", -1))->statistics().Snapshot(); }
  std::uint64_t HostBytes() const {
    const LedgerTotals totals = core_.ledger.Totals();
    const auto host = totals.memory.find(kHost);
    return host == totals.memory.end() ? 0 : host->second.now;
  }

  std::atomic<int> executions_{0};
  std::function<absl::Status(const Execution&)> on_execute_;
  CoreHarness core_;
};

TEST_F(ResponseCacheTest, TheSameQuestionIsExecutedOnce) {
  Load();
  EXPECT_THAT(Infer(1), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Infer(1), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(executions_, 1);
  EXPECT_THAT(Infer(5), ElementsAre(5, 2, 3, 4)) << "other bytes are another question";
  EXPECT_EQ(executions_, 2);
  const ResponseCache::Figures figures = core_.cache->figures();
  EXPECT_EQ(figures.hits, 1U);
  EXPECT_EQ(figures.misses, 2U);
  EXPECT_EQ(figures.entries, 2U);
  EXPECT_GT(figures.lookup_ns, 0U);
  EXPECT_GT(figures.insertion_ns, 0U);
}

TEST_F(ResponseCacheTest, HitsCountAsSuccessesAndNotAsInferences) {
  Load();
  for (int i = 0; i < 5; ++i) Infer(1);
  const ModelStatisticsSnapshot statistics = Statistics();
  EXPECT_EQ(statistics.success.count, 5U);
  EXPECT_EQ(statistics.queue.count, 5U);
  EXPECT_EQ(statistics.cache_hit.count, 4U);
  EXPECT_EQ(statistics.cache_miss.count, 1U);
  EXPECT_EQ(statistics.compute_infer.count, statistics.success.count - statistics.cache_hit.count);
  EXPECT_EQ(statistics.inference_count, 1U);
  EXPECT_EQ(statistics.execution_count, 1U);
  EXPECT_GT(statistics.cache_hit.ns, 0U);
  EXPECT_GT(statistics.cache_miss.ns, 0U);
}

TEST_F(ResponseCacheTest, AnUnloadBringsTheMemoryOfItsAnswersBack) {
  Load();
  core_.folder.AddModel("other", CopyConfig("fake", 1, kCached));
  ASSERT_TRUE(core_.Load("other").ok());
  const std::uint64_t before = HostBytes();
  Infer(1);
  Infer(2);
  ASSERT_TRUE(core_.Infer("other").ok());
  const std::uint64_t used = core_.cache->figures().used;
  EXPECT_GE(used, 3 * 4 * sizeof(float));
  EXPECT_GE(HostBytes(), before + used) << "answers are in the ledger";
  const std::uint64_t of_other = (*core_.registry.Find("other", -1))->answer_memory().now;
  ASSERT_TRUE(core_.Unload("m").ok());
  EXPECT_EQ(core_.cache->figures().entries, 1U) << "only the other model's answer is left";
  EXPECT_EQ(core_.cache->figures().used, of_other);
  EXPECT_TRUE(core_.ledger.RowsOf("model/m").empty());
  const LoadHistory::ModelHistory history = core_.lifecycle->history().Of("m");
  EXPECT_EQ(history.versions.at(1).unload->rows_left, 0U);
  EXPECT_EQ(history.versions.at(1).unload->returned, history.versions.at(1).unload->held);
  ASSERT_TRUE(core_.Unload("other").ok());
  EXPECT_EQ(core_.cache->figures().used, 0U);
}

TEST_F(ResponseCacheTest, AReloadedModelBeginsWithoutAnswers) {
  Load();
  Infer(1);
  core_.folder.AddModel("m", CopyConfig("fake", 2, kCached));
  ASSERT_TRUE(core_.Load("m").ok());
  Infer(1);
  EXPECT_EQ(executions_, 2) << "whenever the old version goes";
}

TEST_F(ResponseCacheTest, ModelsThatDoNotAskForItAreExecutedEachTime) {
  Load("");
  Infer(1);
  Infer(1);
  EXPECT_EQ(executions_, 2);
  EXPECT_EQ(core_.cache->figures().misses, 0U);
  EXPECT_EQ(Statistics().cache_miss.count, 0U);
}

TEST_F(ResponseCacheTest, FailedAnswersAreNotKept) {
  Load();
  on_execute_ = [](const Execution&) { return absl::InternalError("no"); };
  EXPECT_FALSE(core_.Infer("m").ok());
  EXPECT_EQ(core_.cache->figures().entries, 0U);
  EXPECT_EQ(Statistics().cache_miss.count, 0U) << "failed requests change the failures only";
  on_execute_ = nullptr;
  EXPECT_TRUE(core_.Infer("m").ok());
  EXPECT_EQ(executions_, 2);
}

TEST_F(ResponseCacheTest, RequestsThatWaitForEachOtherGetAnswersOfTheirOwn) {
  Load();
  absl::Notification inside, go;
  on_execute_ = [&](const Execution&) {
    if (!inside.HasBeenNotified()) {
      inside.Notify();
      go.WaitForNotification();
    }
    return absl::OkStatus();
  };
  absl::Notification first, second;
  std::vector<float> answers(2);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(core_
                    .Submit("m", -1, {static_cast<float>(i), 0, 0, 0}, false,
                            [&, i](const auto& answer) {
                              answers[static_cast<std::size_t>(i)] = (*answer)[0];
                              (i == 0 ? first : second).Notify();
                            })
                    .ok());
    if (i == 0) inside.WaitForNotification();
  }
  go.Notify();
  first.WaitForNotification();
  second.WaitForNotification();
  EXPECT_THAT(answers, ElementsAre(0, 1));
  EXPECT_EQ(core_.cache->figures().entries, 2U);
}

TEST_F(ResponseCacheTest, AHitTakesItsTurnWhereTheModelKeepsTheOrder) {
  Load("dynamic_batching { preserve_ordering: true }\n" + std::string(kCached));
  Infer(1);
  absl::Notification inside, go, done;
  on_execute_ = [&](const Execution&) {
    inside.Notify();
    go.WaitForNotification();
    return absl::OkStatus();
  };
  absl::Mutex mutex;
  std::vector<float> order;
  const auto note = [&](const absl::StatusOr<std::vector<float>>& answer) {
    bool both = false;
    {
      absl::MutexLock lock(&mutex);
      order.push_back((*answer)[0]);
      both = order.size() == 2;
    }
    if (both) done.Notify();  // not under the mutex, which is gone as soon as the test has heard it
  };
  ASSERT_TRUE(core_.Submit("m", -1, {7, 0, 0, 0}, false, note).ok());
  inside.WaitForNotification();
  ASSERT_TRUE(core_.Submit("m", -1, {1, 2, 3, 4}, false, note).ok());  // a hit: no instance is free
  go.Notify();
  done.WaitForNotification();
  EXPECT_THAT(order, ElementsAre(7, 1));
  EXPECT_EQ(executions_, 2);
}

// Memory that a client may change between the look-up and the execution.
class ClientRegion final : public SharedMemoryRegion {
 public:
  absl::Status Check() const override { return absl::OkStatus(); }
  absl::Status Read(std::span<const std::byte> region, std::span<std::byte> host) const override {
    std::memcpy(host.data(), region.data(), host.size());
    return absl::OkStatus();
  }
  absl::Status Write(std::span<const std::byte> host, std::span<std::byte> region) const override {
    std::memcpy(region.data(), host.data(), host.size());
    return absl::OkStatus();
  }
};

TEST_F(ResponseCacheTest, WhatLiesInAClientsMemoryIsLookedUpButNeverKept) {
  Load();
  const auto region = std::make_shared<ClientRegion>();
  alignas(64) std::array<float, 4> input = {1, 2, 3, 4};
  alignas(64) std::array<float, 4> output = {};
  const auto infer = [&](bool shared_input, bool shared_output) {
    absl::Notification answered;
    auto request = std::make_unique<InferenceRequest>();
    RequestInput& tensor = request->inputs.emplace_back();
    tensor.name = "INPUT0";
    tensor.data_type = DataType::kFp32;
    tensor.shape = {4};
    tensor.data = std::as_bytes(std::span(input));
    if (shared_input) tensor.region = {std::as_writable_bytes(std::span(input)), kHost, region};
    RequestedOutput& wanted = request->outputs.emplace_back();
    wanted.name = "OUTPUT0";
    if (shared_output) wanted.destination = {std::as_writable_bytes(std::span(output)), kHost, region};
    request->on_complete = [&](std::unique_ptr<InferenceRequest> done) {
      EXPECT_TRUE(done->response.status.ok()) << done->response.status;
      EXPECT_EQ(done->response.outputs.at(0).shared, shared_output);
      done.reset();
      answered.Notify();
    };
    ModelHandle handle = *core_.registry.Find("m", -1);
    Model& model = *handle;
    request->set_model(std::move(handle));
    model.Submit(std::move(request), false);
    answered.WaitForNotification();
  };
  infer(true, false);
  infer(false, true);
  EXPECT_EQ(core_.cache->figures().entries, 0U);
  infer(false, false);
  EXPECT_EQ(core_.cache->figures().entries, 1U);
  EXPECT_EQ(executions_, 3);
  output = {};
  infer(true, true);
  EXPECT_EQ(executions_, 3) << "found";
  EXPECT_EQ(output, input) << "and put where the client wants it";
}

class SmallResponseCacheTest : public ResponseCacheTest {
 protected:
  SmallResponseCacheTest() : ResponseCacheTest(1100) {}  // two answers of four floats
};

TEST_F(SmallResponseCacheTest, WhatWasNotAskedForLongestMakesRoom) {
  Load();
  Infer(1);
  Infer(2);
  Infer(1);
  EXPECT_EQ(core_.cache->figures().entries, 2U);
  Infer(3);  // in place of 2
  EXPECT_EQ(core_.cache->figures().evictions, 1U);
  EXPECT_EQ(executions_, 3);
  Infer(1);
  Infer(3);
  EXPECT_EQ(executions_, 3);
  Infer(2);
  EXPECT_EQ(executions_, 4);
  EXPECT_LE(core_.cache->figures().used, core_.cache->capacity());
}

class TinyResponseCacheTest : public ResponseCacheTest {
 protected:
  TinyResponseCacheTest() : ResponseCacheTest(100) {}
};

TEST_F(TinyResponseCacheTest, AnAnswerThatIsLargerThanTheCacheIsNotKept) {
  Load();
  Infer(1);
  Infer(1);
  EXPECT_EQ(executions_, 2);
  EXPECT_EQ(core_.cache->figures().entries, 0U);
  EXPECT_EQ(Statistics().cache_miss.count, 2U);
}

}  // namespace
}  // namespace tidemark
