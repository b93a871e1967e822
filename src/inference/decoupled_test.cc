// Models that answer a request any number of times.

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/status.h"
#include "tests/support/core_harness.h"
#include "tests/support/decoupled_backends.h"

namespace tidemark {
namespace {

constexpr std::string_view kRepeat = R"(backend: "repeat" model_transaction_policy { decoupled: true }
  input { name: "IN" data_type: TYPE_INT32 dims: -1 }
  input { name: "DELAY" data_type: TYPE_UINT32 dims: -1 }
  input { name: "WAIT" data_type: TYPE_UINT32 dims: 1 }
  output { name: "OUT" data_type: TYPE_INT32 dims: 1 }
  output { name: "IDX" data_type: TYPE_UINT32 dims: 1 })";

CoreHarness::Options WithDecoupledBackends() {
  CoreHarness::Options options;
  options.backends = {{"repeat", &CreateRepeatBackend}, {"square", &CreateSquareBackend}};
  return options;
}

class DecoupledTest : public testing::Test {
 protected:
  void SetUp() override {
    core_.folder.AddModel("repeat", kRepeat);
    core_.folder.AddModel("one", CopyConfig("fake", 1, "model_transaction_policy { decoupled: true }"));
    ASSERT_TRUE(core_.Start().ok());
    ASSERT_TRUE(core_.Load("repeat").ok());
    ASSERT_TRUE(core_.Load("one").ok());
  }

  template <typename Element>
  void AddInput(InferenceRequest& request, const char* name, DataType type, const std::vector<Element>& values) {
    RequestInput& input = request.inputs.emplace_back();
    input.name = name;
    input.data_type = type;
    input.shape = {static_cast<std::int64_t>(values.size())};
    input.owned = *core_.buffers.Allocate(values.size() * sizeof(Element));
    if (!values.empty()) std::memcpy(input.owned.data(), values.data(), values.size() * sizeof(Element));
    input.data = input.owned.bytes();
  }
  std::unique_ptr<InferenceRequest> MakeRepeat(const std::vector<std::int32_t>& in, std::uint32_t delay_ms) {
    auto request = std::make_unique<InferenceRequest>();
    AddInput(*request, "IN", DataType::kInt32, in);
    AddInput(*request, "DELAY", DataType::kUint32, std::vector<std::uint32_t>(in.size(), delay_ms));
    AddInput(*request, "WAIT", DataType::kUint32, std::vector<std::uint32_t>{0});
    return request;
  }
  // Sends it and waits for the end; the responses go to `answers_`, the final status comes back.
  absl::Status Run(std::string_view model, std::unique_ptr<InferenceRequest> request) {
    absl::Notification ended;
    absl::Status status;
    if (!request->on_response) {
      request->on_response = [this](InferenceResponse response) { answers_.push_back(std::move(response)); };
    }
    request->on_complete = [&](std::unique_ptr<InferenceRequest> back) {
      status = back->response.status;
      EXPECT_TRUE(back->response.outputs.empty());
      back.reset();
      ended.Notify();
    };
    ModelHandle handle = *core_.registry.Find(model, -1);
    Model& target = *handle;
    request->set_model(std::move(handle));
    target.Submit(std::move(request), true);
    ended.WaitForNotification();
    return status;
  }
  ModelStatisticsSnapshot Statistics(std::string_view model) {
    return (*core_.registry.Find(model, -1))->statistics().Snapshot();
  }
  static std::int32_t Value(const InferenceResponse& response, std::size_t output = 0) {
    std::int32_t value = 0;
    std::memcpy(&value, response.outputs.at(output).data.data(), sizeof value);
    return value;
  }

  CoreHarness core_{WithDecoupledBackends()};
  std::vector<InferenceResponse> answers_;
};

TEST_F(DecoupledTest, EveryResponseComesInOrderBeforeTheFinalFlag) {
  ASSERT_TRUE(Run("repeat", MakeRepeat({5, 6, 7}, 0)).ok());
  ASSERT_EQ(answers_.size(), 3u);
  for (std::int32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(Value(answers_[static_cast<std::size_t>(i)]), 5 + i);
    EXPECT_EQ(Value(answers_[static_cast<std::size_t>(i)], 1), i);
  }
  const ModelStatisticsSnapshot statistics = Statistics("repeat");
  EXPECT_EQ(statistics.success.count, 1u);
  ASSERT_EQ(statistics.response_stats.size(), 4u);
  EXPECT_EQ(statistics.response_stats.at(2).success.count, 1u);
  EXPECT_EQ(statistics.response_stats.at(2).compute_output.count, 1u);
  EXPECT_EQ(statistics.response_stats.at(3).empty_response.count, 1u);
  EXPECT_EQ(statistics.response_stats.at(3).success.count, 0u);
}

TEST_F(DecoupledTest, NoResponseIsAnAnswer) {
  ASSERT_TRUE(Run("repeat", MakeRepeat({}, 0)).ok());
  EXPECT_TRUE(answers_.empty());
  EXPECT_EQ(Statistics("repeat").response_stats.at(0).empty_response.count, 1u);
}

TEST_F(DecoupledTest, OutputsComeAsTheRequestNamesThem) {
  auto request = MakeRepeat({5}, 0);
  request->outputs = {{"IDX", false, 0, {}}};
  ASSERT_TRUE(Run("repeat", std::move(request)).ok());
  ASSERT_EQ(answers_.size(), 1u);
  ASSERT_EQ(answers_[0].outputs.size(), 1u);
  EXPECT_EQ(answers_[0].outputs[0].name, "IDX");
}

TEST_F(DecoupledTest, ErrorComesAfterTheResponsesBeforeIt) {
  EXPECT_EQ(MessageOf(Run("repeat", MakeRepeat({5, -1, 7}, 0))), "negative element");
  EXPECT_EQ(answers_.size(), 1u);
  const ModelStatisticsSnapshot statistics = Statistics("repeat");
  EXPECT_EQ(statistics.fail.count, 1u);
  EXPECT_EQ(statistics.response_stats.at(0).success.count, 1u);
  EXPECT_EQ(statistics.response_stats.at(1).fail.count, 1u);
}

TEST_F(DecoupledTest, CancelEndsTheRequestBetweenTwoResponses) {
  auto request = MakeRepeat({5, 6}, 0);
  request->cancel = std::make_shared<CancelFlag>();
  request->on_response = [this, cancel = request->cancel](InferenceResponse response) {
    answers_.push_back(std::move(response));
    cancel->Cancel();
  };
  EXPECT_TRUE(absl::IsCancelled(Run("repeat", std::move(request))));
  EXPECT_EQ(answers_.size(), 1u);
  EXPECT_EQ(Statistics("repeat").response_stats.at(1).cancel.count, 1u);
}

TEST_F(DecoupledTest, EngineThatKnowsNothingOfItAnswersOnce) {
  auto request = std::make_unique<InferenceRequest>();
  AddInput(*request, "INPUT0", DataType::kFp32, std::vector<float>{1, 2, 3, 4});
  ASSERT_TRUE(Run("one", std::move(request)).ok());
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0].outputs.at(0).name, "OUTPUT0");
  EXPECT_EQ(Statistics("one").response_stats.size(), 1u) << "the last response carries the flag";
}

TEST(SendTest, IsRefusedForAModelThatAnswersOnce) {
  CoreHarness core;
  core.folder.AddModel("m", CopyConfig("fake"));
  core.script.warms_up_unasked = false;
  ASSERT_TRUE(core.Start().ok());
  ASSERT_TRUE(core.Load("m").ok());
  core.script.on_execute = [](const Execution& execution, std::string_view) { return execution.outputs->Send(); };
  EXPECT_EQ(MessageOf(core.Infer("m").status()),
            "the model is not decoupled: it answers once, when its execution ends");
}

}  // namespace
}  // namespace tidemark
