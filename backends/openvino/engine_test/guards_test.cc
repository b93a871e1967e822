#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <string>
#include <thread>

#include "backends/openvino/adapter.h"
#include "backends/openvino/engine_test/engine_fixture.h"
#include "backends/openvino/openvino_backend.h"
#include "backends/openvino/openvino_instance.h"
#include "backends/openvino/openvino_model.h"
#include "base/clock.h"
#include "base/status.h"

namespace tidemark::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Guards : public EngineTest {
 protected:
  void WriteIdentity(const std::string& type, const IrModel::Dims& dims) {
    IrModel ir;
    ir.Result(ir.Node("Relu", "", {ir.Parameter("X", type, dims)}, "Y", type, dims));
    ir.Write(version());
  }
  // Pass-through without any calculation.
  void WritePass(const std::string& type, const IrModel::Dims& dims) {
    IrModel ir;
    ir.Result(ir.Parameter("X", type, dims));
    ir.Write(version());
  }
};

std::string Text(const absl::Status& status) { return std::string(MessageOf(status)); }

std::string PropertyOf(Loaded& loaded, const std::string& name) {
  std::string value;
  const auto outcome = dynamic_cast<OpenVinoModel&>(*loaded.model).compiled().Property(name, &value);
  return outcome.ok() ? value : "error: " + outcome.text;
}

TEST_F(Guards, EveryCompiledModelHasFp32OneStreamOneThreadNoPinningNoCache) {
  WriteIdentity("f32", {-1, 4});
  auto loaded = MustLoad(Config(""));
  ASSERT_NE(loaded, nullptr);
  EXPECT_EQ(PropertyOf(*loaded, "INFERENCE_PRECISION_HINT"), "f32");
  EXPECT_EQ(PropertyOf(*loaded, "NUM_STREAMS"), "1");
  EXPECT_EQ(PropertyOf(*loaded, "INFERENCE_NUM_THREADS"), "1");
  EXPECT_EQ(PropertyOf(*loaded, "ENABLE_CPU_PINNING"), "NO");
}

TEST_F(Guards, ParametersReachTheEngine) {
  WriteIdentity("f32", {-1, 4});
  auto loaded = MustLoad(Config(R"(parameters { key: "CPU_THREADS_NUM" value { string_value: "2" } }
                                   parameters { key: "NUM_STREAMS" value { string_value: "2" } })"));
  ASSERT_NE(loaded, nullptr);
  EXPECT_EQ(PropertyOf(*loaded, "NUM_STREAMS"), "2");
  EXPECT_EQ(PropertyOf(*loaded, "INFERENCE_NUM_THREADS"), "2");
}

TEST_F(Guards, StringTensorsAreRefusedByName) {
  WritePass("string", {-1, 4});
  const absl::Status status = LoadError(Config(""));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(Text(status), AllOf(HasSubstr("input 'X'"), HasSubstr("TYPE_STRING"), HasSubstr("onnxruntime")));
}

TEST_F(Guards, Outputs64BitsWideAreRefusedByNameUnlessAllowed) {
  for (const std::string type : {"i64", "u64", "f64"}) {
    WritePass(type, {-1, 4});
    const absl::Status status = LoadError(Config(""));
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << type;
    EXPECT_THAT(Text(status), AllOf(HasSubstr("output 'X'"), HasSubstr("allow_narrow_integers")));
  }
  WritePass("i64", {-1, 4});
  EXPECT_NE(MustLoad(Config(R"(parameters { key: "allow_narrow_integers" value { string_value: "true" } })")), nullptr);
}

// The engine itself reports success and writes nothing: the guard is all there is.
TEST_F(Guards, MemoryForADynamicOutputOrOfAnotherSizeNeverReachesTheEngine) {
  std::vector<float> memory(64);
  const auto request_of = [&](Loaded& loaded, std::unique_ptr<OpenVinoRequest>* request) {
    ASSERT_TRUE(dynamic_cast<OpenVinoModel&>(*loaded.model).compiled().CreateRequest(request).ok());
  };
  WriteIdentity("f32", {-1, 4});
  {
    auto loaded = MustLoad(Config(""));
    std::unique_ptr<OpenVinoRequest> request;
    request_of(*loaded, &request);
    EXPECT_THAT(request->SetOutput(0, memory.data(), 16).text, HasSubstr("only known after"));
  }
  WriteIdentity("f32", {1, 4});
  {
    auto loaded = MustLoad(Config(""));
    std::unique_ptr<OpenVinoRequest> request;
    request_of(*loaded, &request);
    EXPECT_THAT(request->SetOutput(0, memory.data(), 12).text, HasSubstr("takes 16 bytes, got 12"));
    EXPECT_THAT(request->SetOutput(0, memory.data(), 20).text, HasSubstr("takes 16 bytes, got 20"));
    EXPECT_TRUE(request->SetOutput(0, memory.data(), 16).ok());
  }
}

// A chain of multiplications that takes seconds.
void WriteSlow(const std::filesystem::path& directory) {
  constexpr std::int64_t kWidth = 1024;
  IrModel ir;
  const IrModel::Dims dims = {kWidth, kWidth};
  const int x = ir.Parameter("X", "f32", dims);
  int layer = x;
  for (int i = 0; i < 64; ++i) {
    layer =
        ir.Node("MatMul", R"(transpose_a="false" transpose_b="false")", {layer, x}, i == 63 ? "Y" : "", "f32", dims);
  }
  ir.Result(layer);
  ir.Write(directory);
}

// Processor time of this process: unlike the clock's, what other processes take is not in it.
std::int64_t ProcessorNanos() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

Value SlowInput() { return Value::Of(DataType::kFp32, {1024, 1024}, std::vector<float>(1024 * 1024)); }

TEST_F(Guards, ARunningInferenceIsStoppedByCancelAndByDeadlineAndTheInstanceGoesOn) {
  WriteSlow(version());
  auto loaded = MustLoad(Config(""));
  ASSERT_NE(loaded, nullptr);
  const Value input = SlowInput();
  const std::int64_t start = ProcessorNanos();
  ASSERT_TRUE(Run(*loaded, {input}).status.ok());
  const std::int64_t whole = ProcessorNanos() - start;

  // The flag is set from another thread once the inference has had a tenth of its time.
  CancelFlag cancel;
  std::int64_t began = ProcessorNanos();
  std::thread canceller([&] {
    while (ProcessorNanos() - began < whole / 10) std::this_thread::yield();
    cancel.Cancel();
  });
  EXPECT_EQ(Run(*loaded, {input}, &cancel).status.code(), absl::StatusCode::kCancelled);
  EXPECT_LT(ProcessorNanos() - began, whole * 7 / 10);
  canceller.join();

  began = ProcessorNanos();
  EXPECT_EQ(Run(*loaded, {input}, nullptr, NowNanos() + whole / 10).status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_LT(ProcessorNanos() - began, whole * 7 / 10);

  EXPECT_EQ(Run(*loaded, {input}, nullptr, 1).status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Run(*loaded, {input}, &cancel).status.code(), absl::StatusCode::kCancelled);
  CancelFlag unset;
  EXPECT_TRUE(Run(*loaded, {input}, &unset).status.ok());
}

TEST_F(Guards, CancelledLoadStopsBeforeTheCompilationAndLeavesNothing) {
  WriteIdentity("f32", {-1, 4});
  CancelFlag cancel;
  cancel.Cancel();
  EXPECT_EQ(LoadError(Config(""), &cancel).code(), absl::StatusCode::kCancelled);
}

TEST_F(Guards, ConfigurationThatDoesNotFitTheModelIsRefusedWithTritonsTexts) {
  WriteIdentity("f32", {-1, 4});
  const std::string good_out = R"(output { name: "Y" data_type: TYPE_FP32 dims: 4 })";
  // The first line is Triton's; what was found, with a repair, follows it.
  const auto load = [&](const std::string& text) {
    const std::string answer = Text(LoadError(Config(text)));
    return answer.substr(0, answer.find('\n'));
  };
  EXPECT_EQ(load("max_batch_size: 2 input { name: 'Z' data_type: TYPE_FP32 dims: 4 }" + good_out),
            "unexpected inference input 'Z', allowed inputs are: X");
  EXPECT_EQ(
      load("max_batch_size: 2 input { name: 'X' data_type: TYPE_INT32 dims: 4 }" + good_out),
      "unable to load model 'm', configuration expects datatype TYPE_INT32 for input 'X', model provides TYPE_FP32");
  EXPECT_EQ(
      load("max_batch_size: 2 input { name: 'X' data_type: TYPE_FP32 dims: 5 }" + good_out),
      "model 'm', tensor 'X': the model expects 2 dimensions (shape [-1,4]) but the model configuration specifies 2 "
      "dimensions (an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, "
      "making complete shape [-1,5])");
}

TEST_F(Guards, BrokenFilesAreRefusedAndNamed) {
  EXPECT_THAT(Text(LoadError(Config(""))), HasSubstr("failed to stat file"));
  std::ofstream(version() / "model.xml") << "this is no model";
  EXPECT_THAT(Text(LoadError(Config(""))),
              AllOf(HasSubstr("unable to load model 'm' from"), HasSubstr("model.xml"), HasSubstr("no OpenVINO IR")));
  std::ofstream(version() / "model.onnx") << "neither is this";
  auto config = Config("");
  config.set_default_model_filename("model.onnx");
  EXPECT_THAT(Text(LoadError(config)), AllOf(HasSubstr("model.onnx"), HasSubstr("no ONNX model")));
  config.set_default_model_filename("../../model.xml");
  EXPECT_EQ(LoadError(config).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(Guards, GpuInstancesAreRefused) {
  WriteIdentity("f32", {-1, 4});
  auto loaded = MustLoad(Config(""));
  ASSERT_NE(loaded, nullptr);
  inference::ModelInstanceGroup group;
  group.set_kind(inference::ModelInstanceGroup::KIND_GPU);
  Scope scope(*loaded->scope, "instance/gpu");
  EXPECT_EQ(loaded->model->CreateInstance(scope, group, "gpu", 0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(Guards, MissingEngineSaysWhereItWasLookedForAndHowToGetIt) {
  Ledger other;
  {
    Scope resident(other, platform(), "backend/openvino");
    const auto backend = CreateOpenVinoBackend(BackendContext{resident, {}, directory_ / "engines"});
    EXPECT_EQ(backend.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(Text(backend.status()),
                AllOf(HasSubstr("engines/openvino/libtidemark_openvino_adapter.so"), HasSubstr("tools/setup.sh")));
  }
  // An adapter that is no library.
  std::filesystem::create_directories(directory_ / "engines" / "openvino");
  std::ofstream(directory_ / "engines" / "openvino" / "libtidemark_openvino_adapter.so") << "not ELF";
  {
    Scope resident(other, platform(), "backend/openvino");
    const auto backend = CreateOpenVinoBackend(BackendContext{resident, {}, directory_ / "engines"});
    EXPECT_EQ(backend.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(Text(backend.status()), HasSubstr("cannot be opened"));
  }
  EXPECT_TRUE(other.Rows().empty());
}

}  // namespace
}  // namespace tidemark::testing
