// The promise on a GPU, inside one process: the sweep, the cycles with NVML as witness, and the steady request path. In
// CI over the fake libraries; with TIDEMARK_GPU_LIBRARY (a libnvinfer) and TIDEMARK_GPU_PLANS (a folder of plans) over
// the real ones, which tests/gpu/run.py does.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <thread>

#include "absl/synchronization/notification.h"
#include "backends/tensorrt/tensorrt_backend.h"
#include "base/status.h"
#include "platform/nvml.h"
#include "tests/support/core_harness.h"
#include "tests/support/gpu_fakes/fake_gpu.h"
#include "tests/support/gpu_fakes/fake_plan.h"

namespace tidemark {
namespace {

using testing::FakePlan;
using ::testing::HasSubstr;

constexpr int kTooMany = 400;
constexpr std::int64_t kMiB = 1 << 20;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool Real() { return !Environment("TIDEMARK_GPU_LIBRARY").empty(); }
int Cycles() { return Real() ? 200 : 60; }

std::string ReadPlan(const std::string& family) {
  for (const char* suffix : {".vconly", ".plain", ""}) {
    std::ifstream file(Environment("TIDEMARK_GPU_PLANS") + "/" + family + suffix + ".plan", std::ios::binary);
    if (file) return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  ADD_FAILURE() << "no plan " << family << " in '" << Environment("TIDEMARK_GPU_PLANS") << "'";
  return "";
}

// A model of one input and one output, FP32.
struct Subject {
  std::string name;
  std::string plan;
  std::string config;
  Shape shape;  // of a request, complete
  std::string Broken() const {
    return fmt::format(R"({{"platform":"tensorrt_plan","max_batch_size":{},"input":[{{"name":"INPUT",)"
                       R"("data_type":"TYPE_FP32","dims":[{}]}}],"output":[{{"name":"OUTPUT","data_type":"TYPE_INT32",)"
                       R"("dims":[{}]}}]}})",
                       shape.size() == 1 ? 0 : 8, shape.back(), shape.back());
  }
};

std::string Config(int max_batch, std::int64_t dims) {
  return fmt::format(
      "platform: \"tensorrt_plan\"\nmax_batch_size: {}\ninput {{ name: \"INPUT\" data_type: TYPE_FP32 dims: {} }}\n"
      "output {{ name: \"OUTPUT\" data_type: TYPE_FP32 dims: {} }}\n",
      max_batch, dims, dims);
}

// The network of the reported leak, without weights and with large buffers (larger than what the request pool takes from the
// C library: the warm-up's are acquisitions of the sweep, too); and one with weights.
Subject Identity() {
  const std::int64_t elements = Real() ? 16777216 : 524288;
  return {"identity",
          Real() ? ReadPlan("identity") : FakePlan::Identity(elements).Build(),
          Config(0, elements),
          {elements}};
}
Subject Affine() {
  const std::int64_t elements = Real() ? 524288 : 4096;
  FakePlan plan("identity");
  plan.Input("INPUT", FakePlan::kFloat, fmt::format("-1,{}", elements));
  plan.Output("OUTPUT", FakePlan::kFloat, fmt::format("-1,{}", elements));
  plan.Profile(0, "INPUT", fmt::format("1,{}", elements), fmt::format("2,{}", elements), fmt::format("8,{}", elements));
  plan.Weights(4 << 20).Bytes("scratch", 1 << 20);
  return {"affine", Real() ? ReadPlan("affine524288") : plan.Build(), Config(8, elements), {2, elements}};
}

CoreHarness::Options GpuOptions() {
  CoreHarness::Options options;
  options.backends.emplace_back("tensorrt", &CreateTensorRtBackend);
  if (Real()) {
    options.cuda_library = "libcuda.so.1";
    options.settings["tensorrt"]["library"] = Environment("TIDEMARK_GPU_LIBRARY");
  } else {
    OpenFakeGpu();
    options.cuda_library = FakeGpuFolder() + "/libcuda.so.1";
    options.settings["tensorrt"]["library"] = FakeGpuFolder() + "/libnvinfer.so.11";
  }
  return options;
}

class Gpu : public ::testing::TestWithParam<Subject (*)()> {
 protected:
  void SetUp() override {
    subject_ = GetParam()();
    core_ = std::make_unique<CoreHarness>(GpuOptions());
    core_->folder.AddModel(subject_.name, subject_.config, {1}, "model.plan", subject_.plan);
    const absl::Status started = core_->Start();
    ASSERT_TRUE(started.ok()) << started;
    absl::StatusOr<std::unique_ptr<Nvml>> nvml = OpenNvml();
    ASSERT_TRUE(nvml.ok()) << nvml.status();
    nvml_ = *std::move(nvml);
    ASSERT_TRUE(core_->gpus->Use(0).ok());
  }
  void TearDown() override {
    if (!Real()) {
      EXPECT_EQ(FakeGpuViolationText(), "");
    }
    core_.reset();
    if (!Real()) {
      EXPECT_EQ(FakeGpuLiveText(), "");
    }
  }

  absl::Status LoadAgain() {
    TestFolder::Write(core_->folder.repository() / subject_.name / "touched", fmt::format("{}", ++edits_));
    return core_->Load(subject_.name);
  }
  absl::Status LoadBroken() {
    LoadOverrides overrides;
    overrides.config_json = subject_.Broken();
    return core_->Load(subject_.name, std::move(overrides));
  }
  // Until only one version of the model has rows: the one that a load replaced goes after the load's answer.
  void Settle() {
    for (std::size_t versions = 2; versions > 1; std::this_thread::yield()) {
      std::set<std::string> owners;
      for (const LedgerRow& row : core_->ledger.RowsOf("model/" + subject_.name)) {
        const std::size_t at = row.owner.find("/load-");
        if (at != std::string::npos) owners.insert(row.owner.substr(0, row.owner.find('/', at + 1)));
      }
      versions = owners.size();
    }
  }

  // What the model makes of a pattern; empty with a failed expectation when it answers an error.
  std::vector<float> Ask() {
    std::int64_t count = 1;
    for (const std::int64_t d : subject_.shape) count *= d;
    absl::StatusOr<ModelHandle> handle = core_->registry.Find(subject_.name, -1);
    EXPECT_TRUE(handle.ok()) << handle.status();
    if (!handle.ok()) return {};
    auto request = std::make_unique<InferenceRequest>();
    RequestInput& input = request->inputs.emplace_back();
    input.name = "INPUT";
    input.data_type = DataType::kFp32;
    input.shape = subject_.shape;
    input.owned = *core_->buffers.Allocate(static_cast<std::size_t>(count) * sizeof(float));
    for (std::int64_t i = 0; i < count; ++i) {
      const auto value = static_cast<float>(i % 17 - 8);
      std::memcpy(input.owned.data() + static_cast<std::size_t>(i) * sizeof value, &value, sizeof value);
    }
    input.data = input.owned.bytes();
    absl::Notification answered;
    std::vector<float> values;
    request->on_complete = [&](std::unique_ptr<InferenceRequest> done) {
      EXPECT_TRUE(done->response.status.ok()) << done->response.status;
      if (done->response.status.ok()) {
        const Buffer& data = done->response.outputs.at(0).data;
        values.resize(data.size() / sizeof(float));
        std::memcpy(values.data(), data.data(), data.size());
      }
      done.reset();
      answered.Notify();
    };
    Model& model = **handle;
    request->set_model(*std::move(handle));
    model.Submit(std::move(request), false);
    answered.WaitForNotification();
    return values;
  }
  void ExpectRightAnswer() { ExpectRight(Ask()); }
  void ExpectRight(const std::vector<float>& values) {
    const std::int64_t row = subject_.shape.back();
    int wrong = 0;
    for (std::size_t i = 0; i < values.size() && wrong < 5; ++i) {
      const auto x = static_cast<float>(static_cast<std::int64_t>(i) % 17 - 8);
      const std::int64_t c = static_cast<std::int64_t>(i) % row;
      const bool affine = Real() && subject_.name == "affine";
      const float expected = affine ? x * static_cast<float>((3 * c) % 7 - 3) + static_cast<float>(c % 5 - 2) : x;
      if (values[i] != expected) {
        ++wrong;
        ADD_FAILURE() << "element " << i << " is " << values[i] << ", not " << expected;
      }
    }
    EXPECT_FALSE(values.empty());
  }

  std::int64_t DriverBytes() {
    const auto processes = nvml_->Processes(0);
    if (!processes.ok()) return -1;
    for (const NvmlProcess& process : *processes) {
      if (process.pid == getpid()) return process.bytes;
    }
    return -1;
  }
  // A request that no device can fulfil makes the driver drop its caches first.
  void Flush() {
    ASSERT_TRUE(core_->gpus->Use(0).ok());
    cuda::Pointer block = 0;
    ASSERT_EQ(core_->gpus->api().allocate(&block, std::size_t{1} << 42), cuda::kOutOfMemory);
  }

  struct Figures {
    std::uint64_t rows = 0, device_bytes = 0;
    std::size_t buffers = 0;
    std::string objects;  // of the fakes
  };
  Figures Now() const {
    const LedgerTotals totals = core_->ledger.Totals();
    return {totals.rows, totals.BytesOf(0), static_cast<std::size_t>(core_->buffers.used_bytes()),
            Real() ? "" : FakeGpuLiveText()};
  }
  static void ExpectEqual(const Figures& before, const Figures& now) {
    EXPECT_EQ(before.rows, now.rows);
    EXPECT_EQ(before.device_bytes, now.device_bytes);
    EXPECT_EQ(before.buffers, now.buffers);
    EXPECT_EQ(before.objects, now.objects);
  }

  Subject subject_;
  std::unique_ptr<CoreHarness> core_;
  std::unique_ptr<Nvml> nvml_;
  int edits_ = 0;
};

TEST_P(Gpu, EveryAcquisitionOfALoadMayFailAndNothingIsLeft) {
  int points = 0;
  for (const Fault fault : {Fault::kOnce, Fault::kFromThenOn, Fault::kThrow}) {
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(LoadAgain().ok());
    Settle();
    ExpectRightAnswer();
    const Figures before = Now();
    // The first failure may leave what an error path needs once; after that the driver's figure stands still.
    std::int64_t driver = -1;
    int n = 0;
    for (; n < kTooMany; ++n) {
      SCOPED_TRACE(fmt::format("fault {}, n = {}", static_cast<int>(fault), n));
      core_->platform.Arm(fault, n);
      const absl::Status status = LoadAgain();
      const bool fired = core_->platform.fired();
      core_->platform.Disarm();
      if (!fired) {
        EXPECT_TRUE(status.ok()) << status;
        break;
      }
      EXPECT_FALSE(status.ok()) << "a load that was refused something succeeded";
      EXPECT_THAT(std::string(MessageOf(status)), HasSubstr("injected failure"));
      ExpectEqual(before, Now());
      if (n == 0) driver = DriverBytes();
      if (n % 8 == 1) ExpectRightAnswer();
      if (HasFailure()) return;
    }
    EXPECT_LT(n, kTooMany);
    EXPECT_LE(DriverBytes(), driver + 2 * kMiB + static_cast<std::int64_t>(before.device_bytes) * 2)
        << "beside the version that replaced the old one";
    points = std::max(points, n);
    Settle();
    ASSERT_TRUE(core_->Unload(subject_.name).ok());
    EXPECT_EQ(core_->rows(), 0u);
    EXPECT_EQ(core_->ledger.Totals().BytesOf(0), 0u);
  }
  EXPECT_GE(points, 12) << "device memory, pinned memory, streams, events, runtime, engine, context, threads";
  RecordProperty("acquisitions", points);
}

TEST_P(Gpu, FailedAndGoodCyclesEndAtTheMarkAfterAFlush) {
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(core_->Load(subject_.name).ok());
    ExpectRightAnswer();
    ASSERT_TRUE(core_->Unload(subject_.name).ok());
    ASSERT_FALSE(LoadBroken().ok());
  }
  Flush();
  const std::int64_t mark = DriverBytes();
  ASSERT_GT(mark, 0) << "NVML does not list this process";
  ASSERT_EQ(core_->rows(), 0u);
  std::int64_t first = 0, last = 0, highest = 0;
  for (int i = 0; i < Cycles(); ++i) {
    const absl::Status status = LoadBroken();
    ASSERT_THAT(std::string(MessageOf(status)),
                HasSubstr("unexpected datatype TYPE_FP32 for inference output 'OUTPUT', expecting TYPE_INT32"));
    ASSERT_EQ(core_->rows(), 0u);
    last = DriverBytes();
    highest = std::max(highest, last);
    if (i == 0) first = last;
  }
  EXPECT_EQ(first, last) << "failed loads";
  RecordProperty("failed_first_last_highest", fmt::format("{} {} {}", first, last, highest));
  for (int i = 0; i < Cycles(); ++i) {
    ASSERT_TRUE(core_->Load(subject_.name).ok());
    if (i % 10 == 0) ExpectRightAnswer();
    ASSERT_TRUE(core_->Unload(subject_.name).ok());
    ASSERT_EQ(core_->rows(), 0u);
    last = DriverBytes();
    if (i == 0) first = last;
  }
  EXPECT_EQ(first, last) << "good loads";
  Flush();
  EXPECT_EQ(DriverBytes(), mark) << "to the byte, after a flush";
  RecordProperty("mark", std::to_string(mark));
  RecordProperty("after_flush", std::to_string(DriverBytes()));
  RecordProperty("cycles", 2 * Cycles());
}

TEST_P(Gpu, RequestsTakeNothing) {
  ASSERT_TRUE(core_->Load(subject_.name).ok());
  for (int i = 0; i < 3; ++i) ExpectRightAnswer();
  const std::uint64_t taken = core_->gpus->acquisitions();
  const Figures before = Now();
  for (int i = 0; i < (Real() ? 20 : 100); ++i) ExpectRightAnswer();
  EXPECT_EQ(core_->gpus->acquisitions(), taken);
  ExpectEqual(before, Now());
  ASSERT_TRUE(core_->Unload(subject_.name).ok());
}

// What a client registers as CUDA shared memory, and nobody may read or write by way of the host.
class DeviceRegion final : public SharedMemoryRegion {
 public:
  absl::Status Check() const override { return absl::OkStatus(); }
  absl::Status Read(std::span<const std::byte> /*region*/, std::span<std::byte> /*host*/) const override {
    return absl::InternalError("read by way of the host");
  }
  absl::Status Write(std::span<const std::byte> /*host*/, std::span<std::byte> /*region*/) const override {
    return absl::InternalError("written by way of the host");
  }
};

TEST_P(Gpu, TensorsThatClientsKeepOnTheGpuNeverPassTheHost) {
  ASSERT_TRUE(core_->Load(subject_.name).ok());
  std::int64_t count = 1;
  for (const std::int64_t d : subject_.shape) count *= d;
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = static_cast<float>(i % 17 - 8);
  Scope client(core_->ledger, core_->platform, "client");
  const absl::StatusOr<GpuMemory> in = core_->gpus->Allocate(client, 0, bytes, "input");
  const absl::StatusOr<GpuMemory> out = core_->gpus->Allocate(client, 0, bytes, "output");
  ASSERT_TRUE(in.ok() && out.ok());
  const cuda::Api& api = core_->gpus->api();
  ASSERT_EQ(api.copy_to_device(in->address, values.data(), bytes, nullptr), cuda::kSuccess);
  ASSERT_EQ(api.synchronize_stream(nullptr), cuda::kSuccess);
  const auto lease = [&](const GpuMemory& memory) {
    return SharedMemoryLease{
        {reinterpret_cast<std::byte*>(memory.address), bytes}, 0, std::make_shared<DeviceRegion>()};
  };
  for (int round = 0; round < 3; ++round) {
    absl::StatusOr<ModelHandle> handle = core_->registry.Find(subject_.name, -1);
    ASSERT_TRUE(handle.ok());
    Model& model = **handle;
    auto request = std::make_unique<InferenceRequest>();
    request->set_model(*std::move(handle));
    RequestInput& input = request->inputs.emplace_back();
    input.name = "INPUT";
    input.data_type = DataType::kFp32;
    input.shape = subject_.shape;
    ASSERT_TRUE(LendInput(lease(*in), core_->buffers, *request, input).ok());
    request->outputs.push_back(RequestedOutput{.name = "OUTPUT", .destination = lease(*out)});
    absl::Notification answered;
    request->on_complete = [&](std::unique_ptr<InferenceRequest> done) {
      EXPECT_TRUE(done->response.status.ok()) << done->response.status;
      if (done->response.status.ok()) {
        EXPECT_TRUE(done->response.outputs.at(0).shared);
        EXPECT_TRUE(done->response.outputs.at(0).data.empty());
      }
      done.reset();
      answered.Notify();
    };
    model.Submit(std::move(request), false);
    answered.WaitForNotification();
    ASSERT_TRUE(core_->gpus->Use(0).ok());
    ASSERT_EQ(api.copy_to_host(values.data(), out->address, bytes, nullptr), cuda::kSuccess);
    ASSERT_EQ(api.fill(out->address, 0, bytes, nullptr), cuda::kSuccess);
    ASSERT_EQ(api.synchronize_stream(nullptr), cuda::kSuccess);
    ExpectRight(values);
  }
  client.ReleaseAll();
  ASSERT_TRUE(core_->Unload(subject_.name).ok());
  EXPECT_EQ(core_->rows(), 0u);
}

// The control: a leak of device memory is seen by the same figures.
TEST_P(Gpu, ALeakWouldBeSeen) {
  for (int i = 0; i < 3; ++i) ASSERT_FALSE(LoadBroken().ok());
  Flush();
  const std::int64_t mark = DriverBytes();
  std::vector<cuda::Pointer> lost(5, 0);
  ASSERT_TRUE(core_->gpus->Use(0).ok());
  for (cuda::Pointer& block : lost) {
    ASSERT_EQ(core_->gpus->api().allocate(&block, 3 * kMiB), cuda::kSuccess);
    ASSERT_FALSE(LoadBroken().ok());
  }
  ASSERT_TRUE(core_->gpus->Use(0).ok());
  Flush();
  EXPECT_GE(DriverBytes() - mark, 5 * 3 * kMiB);
  for (const cuda::Pointer block : lost) EXPECT_EQ(core_->gpus->api().free(block), cuda::kSuccess);
}

INSTANTIATE_TEST_SUITE_P(Plans, Gpu, ::testing::Values(&Identity, &Affine),
                         [](const auto& test) { return std::string(test.index == 0 ? "Identity" : "Affine"); });

}  // namespace
}  // namespace tidemark
