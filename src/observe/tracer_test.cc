#include "observe/tracer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/synchronization/notification.h"
#include "base/status.h"

namespace tidemark {
namespace {

constexpr std::string_view kParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
constexpr RequestTimes kTimes{.received = 1000,
                              .queued = 1001,
                              .compute_start = 1002,
                              .infer_start = 1003,
                              .infer_end = 1004,
                              .compute_end = 1005};

class TracerTest : public testing::Test {
 protected:
  TracerTest() : folder_(std::filesystem::temp_directory_path() / ("tracer-test-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
    options_.start.file = folder_ / "trace";
    options_.start.timestamps = true;
    options_.start.rate = 1;
  }
  ~TracerTest() override {
    Stop();
    std::filesystem::remove_all(folder_);
  }
  void Start(Tracer::Export send = nullptr) {
    tracer_ = std::make_unique<Tracer>(options_, std::move(send));
    thread_ = std::thread([this] { tracer_->Run(); });
  }
  void Stop() {
    if (tracer_ != nullptr) tracer_->Stop();
    if (thread_.joinable()) thread_.join();
  }
  // One request; true when it was traced.
  bool Request(std::string_view model = "m", std::string_view parent = {}) {
    const auto trace = tracer_->Start({.model = model,
                                       .version = 3,
                                       .request_id = "q",
                                       .traceparent = parent,
                                       .tracestate = parent.empty() ? "" : "x=y"});
    if (trace == nullptr) return false;
    trace->Mark(TraceEvent::kHttpRecvStart, 900);
    const float values[] = {1.5F, -2};
    const std::int64_t shape[] = {2};
    trace->AddTensor("TENSOR_QUEUE_INPUT", "IN", DataType::kFp32, shape, std::as_bytes(std::span(values)));
    trace->MarkTimes(kTimes);
    trace->Mark(TraceEvent::kHttpSendStart, 1010);
    return true;
  }
  int Requests(int count, std::string_view model = "m") {
    int traced = 0;
    for (int i = 0; i < count; ++i) traced += Request(model) ? 1 : 0;
    return traced;
  }
  nlohmann::json Read(const std::string& name) const {
    std::ifstream file(folder_ / name);
    return nlohmann::json::parse(file, nullptr, false);
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
  static int Traces(const nlohmann::json& file) {
    return static_cast<int>(
        std::count_if(file.begin(), file.end(), [](const auto& item) { return item.contains("model_name"); }));
  }

  const std::filesystem::path folder_;
  Tracer::Options options_;
  std::unique_ptr<Tracer> tracer_;
  std::thread thread_;
};

TEST_F(TracerTest, AFileHoldsWhatTritonsHolds) {
  options_.start.tensors = true;
  Start();
  EXPECT_TRUE(Request());
  Stop();
  const nlohmann::json file = Read("trace");
  ASSERT_TRUE(file.is_array());
  EXPECT_EQ(file[0].dump(), R"({"id":1,"timestamps":[{"name":"HTTP_RECV_START","ns":900}]})");
  EXPECT_EQ(file[1].dump(), R"({"id":1,"model_name":"m","model_version":3,"request_id":"q"})");
  EXPECT_EQ(
      file[2].dump(),
      R"({"activity":"TENSOR_QUEUE_INPUT","id":1,"tensor":{"data":"1.5,-2","dtype":"FP32","name":"IN","shape":"2"}})");
  std::vector<std::string> names;
  for (std::size_t i = 3; i < file.size(); ++i) names.push_back(file[i]["timestamps"][0]["name"]);
  EXPECT_EQ(names, (std::vector<std::string>{"REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END",
                                             "COMPUTE_OUTPUT_START", "COMPUTE_END", "INFER_RESPONSE_COMPLETE",
                                             "REQUEST_END", "HTTP_SEND_START", "HTTP_SEND_END"}));
}

TEST_F(TracerTest, RateAndCountChooseRequests) {
  options_.start.rate = 3;
  options_.start.count = 2;
  Start();
  EXPECT_FALSE(Request());
  EXPECT_FALSE(Request());
  EXPECT_TRUE(Request());
  EXPECT_EQ(tracer_->settings().Global().count, 1);
  EXPECT_EQ(Requests(3), 1);
  EXPECT_EQ(tracer_->settings().Global().count, 0);
  EXPECT_FALSE(tracer_->settings().active());
  EXPECT_EQ(Requests(30), 0);
  Stop();
  EXPECT_EQ(Traces(Read("trace")), 2);
}

TEST_F(TracerTest, ALogFrequencyCutsFilesAndAChangeEndsThem) {
  options_.start.log_frequency = 2;
  Start();
  EXPECT_EQ(Requests(5), 5);
  ASSERT_TRUE(tracer_->settings().UpdateGlobal({.level = {}, .rate = {}, .count = {}, .log_frequency = {3}}).ok());
  EXPECT_EQ(Requests(1), 1);
  Stop();
  EXPECT_EQ(Files(), (std::vector<std::string>{"trace.0", "trace.1", "trace.2", "trace.3"}));
  EXPECT_EQ(Traces(Read("trace.0")), 2);
  EXPECT_EQ(Traces(Read("trace.1")), 2);
  EXPECT_EQ(Traces(Read("trace.2")), 1);
  EXPECT_EQ(Traces(Read("trace.3")), 1);
}

TEST_F(TracerTest, ModelsHaveSettingsOfTheirOwnUntilTheyAreCleared) {
  options_.start.timestamps = false;
  Start();
  EXPECT_FALSE(tracer_->settings().active());
  TraceUpdate on;
  on.level = TraceUpdate::Level{.timestamps = true, .tensors = false};
  ASSERT_TRUE(tracer_->settings().UpdateModel("m", on).ok());
  EXPECT_TRUE(Request("m"));
  EXPECT_FALSE(Request("other"));
  TraceUpdate clear;
  clear.level = std::optional<TraceUpdate::Level>();
  ASSERT_TRUE(tracer_->settings().UpdateModel("m", clear).ok());
  EXPECT_FALSE(Request("m"));
  EXPECT_FALSE(tracer_->settings().active());
}

TEST_F(TracerTest, AForgottenModelTracesAsAllOthersDo) {
  options_.start.timestamps = false;
  Start();
  TraceUpdate on;
  on.level = TraceUpdate::Level{.timestamps = true, .tensors = false};
  ASSERT_TRUE(tracer_->settings().UpdateModel("m", on).ok());
  tracer_->settings().Forget("other");
  EXPECT_TRUE(Request("m"));
  tracer_->settings().Forget("m");
  EXPECT_FALSE(Request("m"));
  EXPECT_FALSE(tracer_->settings().active());
}

TEST_F(TracerTest, WhatCannotTraceIsRefused) {
  options_.start = {};
  Start();
  TraceUpdate on;
  on.level = TraceUpdate::Level{.timestamps = true, .tensors = false};
  EXPECT_EQ(MessageOf(tracer_->settings().UpdateGlobal(on)),
            "Attempting to set invalid trace setting :trace file name is not given");
  EXPECT_FALSE(tracer_->usable());
}

class OpenTelemetryTest : public TracerTest {
 protected:
  OpenTelemetryTest() {
    options_.start.mode = TraceMode::kOpenTelemetry;
    options_.schedule_delay = absl::Hours(1);  // exports come at the stop
    options_.resource = {{"service.name", "svc"}};
  }
  // Spans by name, of all messages.
  std::map<std::string, nlohmann::json> Spans() const {
    std::map<std::string, nlohmann::json> spans;
    for (const std::string& body : bodies_) {
      const auto message = nlohmann::json::parse(body);
      for (const auto& span : message["resourceSpans"][0]["scopeSpans"][0]["spans"]) spans[span["name"]] = span;
    }
    return spans;
  }
  std::vector<std::string> bodies_;  // of the thread until Stop
};

TEST_F(OpenTelemetryTest, SpansGoOnWithTheCallersTrace) {
  options_.start.rate = 1000;
  Start([this](const std::string& body, absl::Duration) {
    bodies_.push_back(body);
    return absl::OkStatus();
  });
  EXPECT_FALSE(Request());
  EXPECT_TRUE(Request("m", kParent));  // whatever the rate
  Stop();
  auto spans = Spans();
  ASSERT_EQ(spans.size(), 3u);
  for (const auto& [name, span] : spans) {
    EXPECT_EQ(span["traceId"], "0af7651916cd43dd8448eb211c80319c");
    EXPECT_EQ(span["traceState"], "x=y");
  }
  EXPECT_EQ(spans["InferRequest"]["parentSpanId"], "b7ad6b7169203331");
  EXPECT_EQ(spans["m"]["parentSpanId"], spans["InferRequest"]["spanId"]);
  EXPECT_EQ(spans["compute"]["parentSpanId"], spans["m"]["spanId"]);
  EXPECT_EQ(spans["compute"]["events"].size(), 4u);
  EXPECT_EQ(spans["m"]["attributes"][0]["value"]["stringValue"], "m");
}

TEST_F(OpenTelemetryTest, StepsOfAnEnsembleAreChildrenOfItsSpan) {
  Start([this](const std::string& body, absl::Duration) {
    bodies_.push_back(body);
    return absl::OkStatus();
  });
  {
    const auto whole =
        tracer_->Start({.model = "ensemble", .version = 1, .request_id = {}, .traceparent = {}, .tracestate = {}});
    const auto step = whole->MakeChild("step", 1);
    step->MarkTimes(kTimes);
    whole->MarkTimes(kTimes);
  }
  Stop();
  auto spans = Spans();
  EXPECT_EQ(spans["step"]["parentSpanId"], spans["ensemble"]["spanId"]);
  EXPECT_EQ(spans["step"]["traceId"], spans["ensemble"]["traceId"]);
  EXPECT_EQ(spans["step"]["attributes"][3]["value"]["intValue"], "1");
}

TEST_F(OpenTelemetryTest, ACollectorThatIsAwayCostsTracesBeyondTheQueueAndNothingElse) {
  options_.max_queue_size = 4;
  options_.schedule_delay = absl::Milliseconds(1);
  absl::Notification failed;
  std::atomic<bool> away{true};
  Start([&](const std::string& body, absl::Duration) -> absl::Status {
    if (away) {
      if (!failed.HasBeenNotified()) failed.Notify();
      return absl::UnavailableError("nobody there");
    }
    bodies_.push_back(body);
    return absl::OkStatus();
  });
  EXPECT_TRUE(Request());
  failed.WaitForNotification();
  EXPECT_EQ(Requests(100), 100);
  // As much as the queue holds, and once more where the exporter took out of it meanwhile.
  EXPECT_GE(tracer_->dropped(), 101u - 2 * 4u);
  away = false;
  Stop();
  EXPECT_FALSE(bodies_.empty());  // what was kept arrived
}

TEST_F(OpenTelemetryTest, BatchesHoldNoMoreSpansThanAllowed) {
  options_.max_export_batch_size = 7;  // two requests of three spans
  Start([this](const std::string& body, absl::Duration) {
    bodies_.push_back(body);
    return absl::OkStatus();
  });
  EXPECT_EQ(Requests(5), 5);
  Stop();
  EXPECT_EQ(bodies_.size(), 3u);
}

TEST(TraceParentTest, OnlyWellFormedOnesAreTaken) {
  EXPECT_TRUE(ParseTraceParent(kParent, ""));
  EXPECT_TRUE(ParseTraceParent("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", ""));
  for (const char* bad : {"", "00", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
                          "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                          "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                          "00-00000000000000000000000000000000-b7ad6b7169203331-01",
                          "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
                          "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
                          "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-zz",
                          "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}) {
    EXPECT_FALSE(ParseTraceParent(bad, "")) << bad;
  }
}

TEST(TraceJsonTest, TensorsOfEveryTypeAreWrittenAndLongOnesCut) {
  TraceRecord record;
  record.sample.tensors = true;
  struct Sink : TraceSink {
    std::vector<TraceRecord> records;
    void Take(TraceRecord taken) override { records.push_back(std::move(taken)); }
    std::uint64_t NextId() override { return 7; }
  };
  const auto sink = std::make_shared<Sink>();
  {
    RequestTrace trace(sink, record, true);
    const std::uint16_t halves[] = {0x3e00, 0xc000, 0x0001, 0x7c00};
    trace.AddTensor("A", "half", DataType::kFp16, {}, std::as_bytes(std::span(halves)));
    const std::uint16_t brains[] = {0x3fc0};
    trace.AddTensor("A", "bf16", DataType::kBf16, {}, std::as_bytes(std::span(brains)));
    const std::string strings("\x02\0\0\0a\"\x01\0\0\0\xff\x09\0\0\0cut", 15);
    trace.AddTensor("A", "bytes", DataType::kBytes, {}, std::as_bytes(std::span(strings)));
    const std::vector<std::int64_t> many(100000, 123456789);
    trace.AddTensor("A", "long", DataType::kInt64, {}, std::as_bytes(std::span(many)));
  }
  const auto& tensors = sink->records.at(0).tensors;
  EXPECT_EQ(tensors[0].data, "1.5,-2,5.9604645e-08,inf");
  EXPECT_EQ(tensors[1].data, "1.5");
  EXPECT_EQ(tensors[2].data.substr(0, 9), "\"a\"\",\"\xff\",");
  EXPECT_TRUE(tensors[3].data.ends_with(",..."));
  EXPECT_LT(tensors[3].data.size(), 70000u);
  EXPECT_TRUE(nlohmann::json::accept("[" + TritonTraceJson(sink->records[0]) + "]"));
}

}  // namespace
}  // namespace tidemark
