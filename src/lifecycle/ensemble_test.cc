// Ensembles: what is checked at load, how requests flow, and how they live with their members.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/barrier.h"
#include "absl/synchronization/notification.h"
#include "base/status.h"
#include "lifecycle/load_cause.h"
#include "tests/support/core_harness.h"
#include "tests/support/decoupled_backends.h"

namespace tidemark {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Tensor(std::string_view kind, std::string_view name, std::string_view dims = "4",
                   std::string_view type = "FP32") {
  return fmt::format("{} {{ name: \"{}\" data_type: TYPE_{} dims: [ {} ] }} ", kind, name, type, dims);
}

std::string Step(std::string_view model, std::string_view from, std::string_view to, int version = -1) {
  return fmt::format(
      "step {{ model_name: \"{}\" model_version: {} input_map {{ key: \"INPUT0\" value: \"{}\" }} output_map {{ key: "
      "\"OUTPUT0\" value: \"{}\" }} }} ",
      model, version, from, to);
}

std::string Ensemble(std::string_view steps, std::string_view io = "", int max_batch = 0) {
  const std::string own = Tensor("input", "IN") + Tensor("output", "OUT");
  return fmt::format("platform: \"ensemble\" max_batch_size: {} {} ensemble_scheduling {{ {} }}", max_batch,
                     io.empty() ? own : std::string(io), steps);
}

class EnsembleTest : public testing::Test {
 protected:
  EnsembleTest() {
    core_.script.warms_up_unasked = false;
    core_.folder.AddModel("a", CopyConfig("fake"));
    core_.folder.AddModel("b", CopyConfig("fake"));
  }
  static CoreHarness::Options WithBackends() {
    CoreHarness::Options options;
    options.backends = {{"repeat", &CreateRepeatBackend}, {"square", &CreateSquareBackend}};
    return options;
  }
  void AddChain() { core_.folder.AddModel("e", Ensemble(Step("a", "IN", "middle") + Step("b", "middle", "OUT"))); }
  std::string LoadError(std::string_view name) {
    const absl::Status status = core_.Load(name);
    return status.ok() ? "OK" : std::string(MessageOf(status));
  }

  struct Answer {
    absl::Status status;
    std::vector<std::string> outputs;  // "NAME[shape]=first float"
  };
  // Sends floats to the ensemble's inputs and waits.
  Answer Infer(std::string_view model, const std::map<std::string, std::pair<Shape, std::vector<float>>>& inputs,
               bool may_run_inline = false, std::vector<std::string> wanted = {},
               std::shared_ptr<CancelFlag> cancel = nullptr) {
    auto request = std::make_unique<InferenceRequest>();
    request->id = "r";
    request->cancel = std::move(cancel);
    for (const auto& [name, value] : inputs) {
      RequestInput& input = request->inputs.emplace_back();
      input.name = name;
      input.data_type = DataType::kFp32;
      input.shape = value.first;
      input.owned = *core_.buffers.Allocate(value.second.size() * sizeof(float));
      std::memcpy(input.owned.data(), value.second.data(), value.second.size() * sizeof(float));
      input.data = input.owned.bytes();
    }
    for (std::string& name : wanted) request->outputs.emplace_back().name = std::move(name);
    Answer answer;
    absl::Notification answered;
    request->on_complete = [&](std::unique_ptr<InferenceRequest> back) {
      answer.status = back->response.status;
      for (const ResponseOutput& output : back->response.outputs) {
        float first = 0;
        std::memcpy(&first, output.data.data(), sizeof first);
        answer.outputs.push_back(fmt::format("{}{}={}", output.name, ShapeText(AsSpan(output.shape)), first));
      }
      back.reset();
      answered.Notify();
    };
    auto found = core_.registry.Find(model, -1);
    if (!found.ok()) return {found.status(), {}};
    ModelHandle handle = *std::move(found);
    Model& target = *handle;
    request->set_model(std::move(handle));
    target.Submit(std::move(request), may_run_inline);
    answered.WaitForNotification();
    return answer;
  }
  ModelStatisticsSnapshot Statistics(std::string_view model) {
    return (*core_.registry.Find(model, -1))->statistics().Snapshot();
  }

  CoreHarness core_{WithBackends()};
};

TEST_F(EnsembleTest, LoadBringsTheMembersAndRequestsFlowThroughThem) {
  AddChain();
  ASSERT_TRUE(core_.Start().ok());
  ASSERT_EQ(LoadError("e"), "OK");
  EXPECT_EQ(core_.StateOf("a"), "1:READY;");
  for (const bool inline_too : {false, true}) {
    for (int i = 0; i < 8; ++i) {  // from the fourth on the members run on this thread
      EXPECT_THAT(Infer("e", {{"IN", {{4}, {7, 1, 2, 3}}}}, inline_too).outputs, ElementsAre("OUT[4]=7"));
    }
  }
  const ModelStatisticsSnapshot ensemble = Statistics("e");
  EXPECT_EQ(ensemble.success.count, 16u);
  EXPECT_EQ(ensemble.execution_count, 16u);
  EXPECT_GE(ensemble.success.ns, ensemble.compute_infer.ns);
  EXPECT_EQ(Statistics("b").success.count, 16u);
  EXPECT_TRUE(core_.Unload("e").ok());
  EXPECT_EQ(core_.StateOf("a"), "1:READY;") << "members stay";
}

TEST_F(EnsembleTest, IndependentStepsRunSideBySide) {
  core_.folder.AddModel("e", Ensemble(Step("a", "IN", "OUT") + Step("b", "IN", "OTHER"),
                                      Tensor("input", "IN") + Tensor("output", "OUT") + Tensor("output", "OTHER")));
  ASSERT_TRUE(core_.Start().ok());
  ASSERT_EQ(LoadError("e"), "OK");
  absl::Barrier* both = new absl::Barrier(2);  // passed only when both executions are inside
  core_.script.on_execute = [both](const Execution&, std::string_view) {
    if (both->Block()) delete both;
    return absl::OkStatus();
  };
  EXPECT_THAT(Infer("e", {{"IN", {{4}, {5, 0, 0, 0}}}}).outputs, ElementsAre("OUT[4]=5", "OTHER[4]=5"));
}

TEST_F(EnsembleTest, StepsThatFeedNothingWantedDoNotRun) {
  core_.folder.AddModel("e", Ensemble(Step("a", "IN", "OUT") + Step("b", "IN", "OTHER"),
                                      Tensor("input", "IN") + Tensor("output", "OUT") + Tensor("output", "OTHER")));
  ASSERT_TRUE(core_.Start().ok());
  ASSERT_EQ(LoadError("e"), "OK");
  EXPECT_THAT(Infer("e", {{"IN", {{4}, {5, 0, 0, 0}}}}, false, {"OTHER"}).outputs, ElementsAre("OTHER[4]=5"));
  EXPECT_EQ(Statistics("a").success.count, 0u);
}

TEST_F(EnsembleTest, FirstErrorWinsWithTheEnsemblesName) {
  AddChain();
  ASSERT_TRUE(core_.Start().ok());
  ASSERT_EQ(LoadError("e"), "OK");
  core_.script.on_execute = [](const Execution&, std::string_view) { return absl::InternalError("broken"); };
  const Answer answer = Infer("e", {{"IN", {{4}, {7, 1, 2, 3}}}});
  EXPECT_EQ(answer.status, absl::InternalError("in ensemble 'e', broken"));
  EXPECT_EQ(Statistics("e").failures[static_cast<std::size_t>(FailureReason::kOther)], 1u);
  EXPECT_EQ(Statistics("b").fail.count, 0u) << "no step after the error";
}

TEST_F(EnsembleTest, CancelledRequestStartsNoMoreSteps) {
  AddChain();
  ASSERT_TRUE(core_.Start().ok());
  ASSERT_EQ(LoadError("e"), "OK");
  const auto cancel = std::make_shared<CancelFlag>();
  core_.script.on_execute = [&](const Execution&, std::string_view) {
    cancel->Cancel();
    return absl::OkStatus();
  };
  EXPECT_TRUE(absl::IsCancelled(Infer("e", {{"IN", {{4}, {7, 1, 2, 3}}}}, false, {}, cancel).status));
  EXPECT_EQ(Statistics("b").success.count, 0u);
}

TEST_F(EnsembleTest, BatchDimensionIsAddedAndTakenWhereAMemberNeedsIt) {
  core_.folder.AddModel(
      "batches", "backend: \"fake\" max_batch_size: 4 " + Tensor("input", "INPUT0") + Tensor("output", "OUTPUT0"));
  core_.folder.AddModel("e", Ensemble(Step("batches", "IN", "OUT")));
  core_.folder.AddModel("f", Ensemble(Step("batches", "IN", "m") + Step("a", "m", "OUT")));
  ASSERT_TRUE(core_.Start().ok());
  ASSERT_EQ(LoadError("e"), "OK");
  ASSERT_EQ(LoadError("f"), "OK");
  EXPECT_THAT(Infer("e", {{"IN", {{4}, {3, 0, 0, 0}}}}).outputs, ElementsAre("OUT[4]=3"));
  EXPECT_THAT(Infer("f", {{"IN", {{4}, {3, 0, 0, 0}}}}).outputs, ElementsAre("OUT[4]=3"));
}

TEST_F(EnsembleTest, DecoupledMemberMakesADecoupledEnsemble) {
  const std::string repeat = R"(backend: "repeat" model_transaction_policy { decoupled: true } )" +
                             Tensor("input", "IN", "-1", "INT32") + Tensor("input", "DELAY", "-1", "UINT32") +
                             Tensor("input", "WAIT", "1", "UINT32") + Tensor("output", "OUT", "1", "INT32") +
                             Tensor("output", "IDX", "1", "UINT32");
  core_.folder.AddModel("repeat", repeat);
  core_.folder.AddModel("square", "backend: \"square\" model_transaction_policy { decoupled: true } " +
                                      Tensor("input", "IN", "1", "INT32") + Tensor("output", "OUT", "1", "INT32"));
  core_.folder.AddModel("e",
                        Ensemble(R"(
      step { model_name: "repeat" model_version: -1 input_map { key: "IN" value: "IN" } input_map { key: "DELAY" value: "DELAY" }
             input_map { key: "WAIT" value: "WAIT" } output_map { key: "OUT" value: "m" } }
      step { model_name: "square" model_version: -1 input_map { key: "IN" value: "m" } output_map { key: "OUT" value: "OUT" } })",
                                 Tensor("input", "IN", "-1", "INT32") + Tensor("input", "DELAY", "-1", "UINT32") +
                                     Tensor("input", "WAIT", "1", "UINT32") + Tensor("output", "OUT", "1", "INT32")));
  ASSERT_TRUE(core_.Start().ok());
  ASSERT_EQ(LoadError("e"), "OK");
  ModelHandle handle = *core_.registry.Find("e", -1);
  EXPECT_TRUE(handle->info().decoupled());
  auto request = std::make_unique<InferenceRequest>();
  const std::vector<std::int32_t> in = {1, 3, 2};
  const std::vector<std::uint32_t> zeros = {0, 0, 0};
  const auto add = [&](const char* name, DataType type, Shape shape, const void* data) {
    RequestInput& input = request->inputs.emplace_back();
    input.name = name;
    input.data_type = type;
    input.shape = std::move(shape);
    input.data = {static_cast<const std::byte*>(data), static_cast<std::size_t>(input.shape[0]) * 4};
  };
  add("IN", DataType::kInt32, {3}, in.data());
  add("DELAY", DataType::kUint32, {3}, zeros.data());
  add("WAIT", DataType::kUint32, {1}, zeros.data());
  std::vector<std::int32_t> values;
  absl::Notification ended;
  request->on_response = [&](InferenceResponse response) {
    std::memcpy(&values.emplace_back(), response.outputs.at(0).data.data(), sizeof(std::int32_t));
  };
  request->on_complete = [&](std::unique_ptr<InferenceRequest> back) {
    EXPECT_TRUE(back->response.status.ok()) << back->response.status;
    EXPECT_TRUE(back->response.outputs.empty());
    back.reset();
    ended.Notify();
  };
  Model& model = *handle;
  request->set_model(std::move(handle));
  model.Submit(std::move(request), true);
  ended.WaitForNotification();
  EXPECT_THAT(values, testing::UnorderedElementsAre(1, 3, 3, 3, 2, 2));
}

TEST_F(EnsembleTest, InflightLimitMakesRequestsWaitWithoutLosingOne) {
  core_.folder.AddModel("a", CopyConfig("fake", 4));
  core_.folder.AddModel("e", Ensemble("max_inflight_requests: 1 " + Step("a", "IN", "OUT")));
  ASSERT_TRUE(core_.Start().ok());
  ASSERT_EQ(LoadError("e"), "OK");
  std::atomic<int> inside{0}, most{0};
  core_.script.on_execute = [&](const Execution&, std::string_view) {
    const int now = ++inside;
    if (now > most) most = now;
    --inside;
    return absl::OkStatus();
  };
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&] {
      for (int k = 0; k < 25; ++k) {
        EXPECT_TRUE(Infer("e", {{"IN", {{4}, {7, 1, 2, 3}}}}).status.ok());
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(most, 1);
}

TEST_F(EnsembleTest, ChecksHaveTritonsTexts) {
  core_.folder.AddModel("ints", "backend: \"fake\" " + Tensor("input", "INPUT0", "4", "INT32") +
                                    Tensor("output", "OUTPUT0", "4", "INT32"));
  core_.folder.AddModel("wide",
                        "backend: \"fake\" " + Tensor("input", "INPUT0", "5") + Tensor("output", "OUTPUT0", "5"));
  const std::map<std::string, std::pair<std::string, std::string>> cases = {
      {"missing",
       {Ensemble(Step("nobody", "IN", "OUT")),
        "ensemble missing contains models that are not available or ambiguous: nobody"}},
      {"version",
       {Ensemble(Step("a", "IN", "OUT", 7)),
        "ensemble 'version' depends on 'a' whose required version 7 is not loaded."}},
      {"type",
       {Ensemble(Step("ints", "IN", "OUT")),
        "in ensemble type, ensemble tensor IN: inconsistent data type: TYPE_FP32 is inferred from model type "
        "while TYPE_INT32 is inferred from model ints"}},
      {"shape",
       {Ensemble(Step("wide", "IN", "OUT")),
        "in ensemble shape, ensemble tensor IN: inconsistent shape: [4] is inferred from model shape while [5] "
        "is inferred from model wide"}},
      {"input",
       {Ensemble("step { model_name: \"a\" model_version: -1 input_map { key: \"X\" value: \"IN\" } output_map { "
                 "key: \"OUTPUT0\" value: \"OUT\" } }"),
        "in ensemble input, ensemble tensor IN is mapping to non-existing input X in model a"}},
      {"output",
       {Ensemble("step { model_name: \"a\" model_version: -1 input_map { key: \"INPUT0\" value: \"IN\" } "
                 "output_map { key: \"X\" value: \"OUT\" } }"),
        "in ensemble output, ensemble tensor OUT is mapped from non-existing output X in model a"}},
      {"round", {Ensemble(Step("trip", "IN", "OUT")), "circular dependency between ensembles: round -> trip -> round"}},
  };
  core_.folder.AddModel("trip", Ensemble(Step("round", "IN", "OUT")));
  for (const auto& [name, expected] : cases) core_.folder.AddModel(name, expected.first);
  ASSERT_TRUE(core_.Start().ok());
  for (const auto& [name, expected] : cases) {
    EXPECT_EQ(LoadError(name), fmt::format("load failed for model '{}': {}\n", name, expected.second));
  }
}

TEST_F(EnsembleTest, MemberThatFailedIsNamedWithItsError) {
  AddChain();
  core_.script.at_step = [](std::string_view step, std::string_view model) {
    return model == "b" && step == "model" ? absl::InternalError("no engine") : absl::OkStatus();
  };
  ASSERT_TRUE(core_.Start().ok());
  EXPECT_THAT(LoadError("e"), HasSubstr("ensemble 'e' depends on 'b' which has no loaded version. Model 'b' loading "
                                        "failed with error: version 1 is at UNAVAILABLE state: Internal: no engine;"));
  EXPECT_EQ(core_.StateOf("a"), "1:READY;");
}

TEST_F(EnsembleTest, MemberWithoutRoomIsTheCauseThatTravelsWithTheAnswer) {
  AddChain();
  ASSERT_TRUE(core_.Start().ok());
  core_.ledger.SetBudget(kHost, 1);
  const absl::Status status = core_.Load("e");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_EQ(CauseOf(status), absl::StatusCode::kResourceExhausted);
}

TEST_F(EnsembleTest, GoesWithItsMemberAndComesBackWithIt) {
  AddChain();
  core_.folder.AddModel(
      "outer",
      Ensemble("step { model_name: \"e\" model_version: -1 input_map { key: \"IN\" value: \"IN\" } output_map { "
               "key: \"OUT\" value: \"OUT\" } }"));
  ASSERT_TRUE(core_.Start().ok());
  ASSERT_EQ(LoadError("outer"), "OK");
  EXPECT_THAT(Infer("outer", {{"IN", {{4}, {7, 1, 2, 3}}}}).outputs, ElementsAre("OUT[4]=7"));
  ASSERT_TRUE(core_.Unload("b").ok());
  EXPECT_FALSE(core_.registry.Find("e", -1).ok());
  EXPECT_FALSE(core_.registry.Find("outer", -1).ok()) << "answered when those that depend on it are gone, too";
  EXPECT_TRUE(core_.registry.Find("a", -1).ok());
  ASSERT_TRUE(core_.Load("b").ok());
  EXPECT_THAT(Infer("outer", {{"IN", {{4}, {7, 1, 2, 3}}}}).outputs, ElementsAre("OUT[4]=7"));
  ASSERT_TRUE(core_.Unload("outer").ok());
  ASSERT_TRUE(core_.Unload("b").ok());
  ASSERT_TRUE(core_.Load("b").ok());
  EXPECT_TRUE(core_.registry.Find("e", -1).ok());
  EXPECT_FALSE(core_.registry.Find("outer", -1).ok()) << "that was unloaded on purpose";
}

TEST_F(EnsembleTest, MemberThatNoLongerFitsEndsTheEnsemble) {
  AddChain();
  ASSERT_TRUE(core_.Start().ok());
  ASSERT_EQ(LoadError("e"), "OK");
  core_.folder.AddModel("b", "backend: \"fake\" " + Tensor("input", "INPUT0", "5") + Tensor("output", "OUTPUT0", "5"));
  ASSERT_TRUE(core_.Load("b").ok());
  EXPECT_FALSE(core_.registry.Find("e", -1).ok());
  core_.folder.AddModel("b", CopyConfig("fake"));
  ASSERT_TRUE(core_.Load("b").ok());
  EXPECT_TRUE(core_.registry.Find("e", -1).ok());
}

TEST_F(EnsembleTest, UnloadDependentsTakesTheMembersThatNobodyAskedFor) {
  AddChain();
  ASSERT_TRUE(core_.Start().ok());
  ASSERT_TRUE(core_.Load("a").ok());
  ASSERT_EQ(LoadError("e"), "OK");
  absl::Notification answered;
  core_.lifecycle->Unload("e", true, [&](const absl::Status& status) {
    EXPECT_TRUE(status.ok()) << status;
    answered.Notify();
  });
  answered.WaitForNotification();
  EXPECT_EQ(core_.StateOf("a"), "1:READY;") << "asked for";
  EXPECT_EQ(core_.StateOf("b"), "1:UNAVAILABLE(unloaded);");
  ASSERT_TRUE(core_.Unload("a").ok());
  EXPECT_EQ(core_.rows(), 0u);
}

TEST_F(EnsembleTest, RequestInsideEndsAlthoughAMemberIsUnloaded) {
  AddChain();
  ASSERT_TRUE(core_.Start().ok());
  ASSERT_EQ(LoadError("e"), "OK");
  absl::Notification inside, go;
  core_.script.on_execute = [&](const Execution&, std::string_view) {
    if (!inside.HasBeenNotified()) {
      inside.Notify();
      go.WaitForNotification();
    }
    return absl::OkStatus();
  };
  Answer answer;
  std::thread client([&] { answer = Infer("e", {{"IN", {{4}, {7, 1, 2, 3}}}}); });
  inside.WaitForNotification();
  absl::Notification unloaded;
  core_.lifecycle->Unload("b", false, [&](const absl::Status&) { unloaded.Notify(); });
  while (core_.registry.Find("b", -1).ok()) {
  }
  go.Notify();
  client.join();
  EXPECT_THAT(answer.outputs, ElementsAre("OUT[4]=7"));
  unloaded.WaitForNotification();
}

}  // namespace
}  // namespace tidemark
