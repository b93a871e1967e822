#include "backends/onnxruntime/onnxruntime_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "repository/config_finding.h"
#include "tests/support/onnx_builder.h"
#include "tests/support/process_state.h"
#include "tests/support/real_platform.h"

namespace tidemark {
namespace {

// The thread sanitizer has a thread of its own, and does not see how the engine's pool hands memory from thread to thread.
#ifdef TIDEMARK_SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::OnnxAddSub;
using testing::OnnxBuilder;
using testing::OnnxIdentity;
using testing::OnnxMatMulChain;
using ::testing::StartsWith;

// Keeps outputs in memory, 64-byte aligned.
class MemorySink final : public OutputSink {
 public:
  bool Wants(std::size_t index) const override { return index != unwanted; }
  absl::StatusOr<std::span<std::byte>> Allocate(std::size_t index, DataType data_type,
                                                std::span<const std::int64_t> shape, std::size_t bytes) override {
    EXPECT_FALSE(shapes.contains(index)) << "asked twice";
    types[index] = data_type;
    shapes[index] = Shape(shape.begin(), shape.end());
    storage[index].resize(bytes + 64);
    auto* begin = storage[index].data();
    begin += (64 - reinterpret_cast<std::uintptr_t>(begin) % 64) % 64;
    outputs[index] = {begin, bytes};
    return outputs[index];
  }
  absl::Status Give(std::size_t index, DataType data_type, std::span<const std::int64_t> shape, Buffer data) override {
    types[index] = data_type;
    shapes[index] = Shape(shape.begin(), shape.end());
    outputs[index] = data.bytes();
    given[index] = std::move(data);
    return absl::OkStatus();
  }
  template <typename T>
  std::vector<T> Values(std::size_t index) const {
    const auto bytes = outputs.at(index);
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  std::string Text(std::size_t index) const {
    const auto bytes = outputs.at(index);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  std::size_t unwanted = SIZE_MAX;
  std::map<std::size_t, DataType> types;
  std::map<std::size_t, Shape> shapes;
  std::map<std::size_t, std::vector<std::byte>> storage;
  std::map<std::size_t, std::span<std::byte>> outputs;
  std::map<std::size_t, Buffer> given;
};

template <typename T>
std::span<const std::byte> BytesOf(const T& values) {
  return std::as_bytes(std::span(values.data(), values.size()));
}

// One engine for all tests of the process, as in a server.
class Engine {
 public:
  static Engine& Get() {
    static auto* engine = new Engine();  // NOLINT: the engine's memory is resident by declaration
    return *engine;
  }
  std::unique_ptr<Platform> platform = CreateLinuxPlatform();
  Ledger ledger;
  Scope resident{ledger, *platform, "backend/onnxruntime", {.resident = true}};
  absl::StatusOr<std::unique_ptr<Backend>> backend =
      CreateOnnxRuntimeBackend(BackendContext{resident, {}, TIDEMARK_ENGINE_DIR});
};

class OnnxRuntimeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(Engine::Get().backend.ok()) << Engine::Get().backend.status();
    std::string pattern = (fs::temp_directory_path() / "tidemark_ort_test_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    fs::create_directories(directory_ / "1");
    config_.set_name("m");
  }
  void TearDown() override {
    Unload();
    EXPECT_EQ(ledger().Totals().rows, 0U);
    fs::remove_all(directory_);
  }

  static Backend& backend() { return **Engine::Get().backend; }
  static Ledger& ledger() { return Engine::Get().ledger; }
  void Write(const std::string& bytes, const char* name = "1/model.onnx") const {
    fs::create_directories((directory_ / name).parent_path());
    std::ofstream(directory_ / name, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  void AddInput(const char* name, DataType type, const std::vector<std::int64_t>& dims) {
    auto* input = config_.add_input();
    input->set_name(name);
    input->set_data_type(static_cast<inference::DataType>(type));
    for (const std::int64_t dim : dims) input->add_dims(dim);
  }
  void AddOutput(const char* name, DataType type, const std::vector<std::int64_t>& dims) {
    auto* output = config_.add_output();
    output->set_name(name);
    output->set_data_type(static_cast<inference::DataType>(type));
    for (const std::int64_t dim : dims) output->add_dims(dim);
  }
  void SetParameter(const char* key, const char* value) {
    (*config_.mutable_parameters())[key].set_string_value(value);
  }

  absl::Status Load(bool auto_complete = true, CancelFlag* cancel = nullptr) {
    Unload();
    scope_ = std::make_unique<Scope>(ledger(), *Engine::Get().platform, "model/m/1",
                                     Scope::Options{.cancel = cancel, .reservations = nullptr, .resident = false});
    ModelArtifact artifact;
    artifact.model_name = "m";
    artifact.version = 1;
    artifact.model_directory = directory_;
    artifact.version_directory = directory_ / "1";
    artifact.auto_complete = auto_complete;
    artifact.cancel = cancel;
    auto model = backend().CreateModel(artifact, config_, *scope_);
    if (!model.ok()) return model.status();
    model_ = *std::move(model);
    instance_scope_ = std::make_unique<Scope>(*scope_, "instance/0");
    auto instance = model_->CreateInstance(*instance_scope_, {}, "m_0", kHost);
    if (!instance.ok()) return instance.status();
    instance_ = *std::move(instance);
    return absl::OkStatus();
  }
  void Unload() {
    instance_.reset();
    instance_scope_.reset();
    model_.reset();
    scope_.reset();
  }

  absl::Status Infer(const std::vector<InputTensor>& inputs, MemorySink* sink, CancelFlag* cancel = nullptr) {
    static const Parameters none;
    Execution request;
    request.inputs = inputs;
    request.outputs = sink;
    request.parameters = &none;
    request.cancel = cancel;
    request.buffers = &pool_;
    Execution* requests[] = {&request};
    instance_->Execute(requests);
    return request.status;
  }

  BufferPool pool_{*Engine::Get().platform};
  fs::path directory_;
  inference::ModelConfig config_;
  std::unique_ptr<Scope> scope_;
  std::unique_ptr<BackendModel> model_;
  std::unique_ptr<Scope> instance_scope_;
  std::unique_ptr<BackendInstance> instance_;
};

TEST_F(OnnxRuntimeTest, CompletesAddSubAndServesIt) {
  Write(OnnxAddSub(testing::kOnnxInt32, {"batch", 4}));
  ASSERT_TRUE(Load().ok());
  EXPECT_EQ(model_->config().max_batch_size(), 4);
  EXPECT_TRUE(model_->config().has_dynamic_batching());
  ASSERT_EQ(model_->config().input_size(), 2);
  EXPECT_EQ(model_->config().input(1).name(), "INPUT1");
  EXPECT_EQ(model_->config().input(1).data_type(), inference::TYPE_INT32);
  EXPECT_EQ(model_->config().output(0).dims(0), 4);
  const std::vector<std::int32_t> a = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<std::int32_t> b = {10, 20, 30, 40, 50, 60, 70, 80};
  for (int run = 0; run < 3; ++run) {  // copied first, in place later
    MemorySink sink;
    const absl::Status status = Infer(
        {{0, "INPUT0", DataType::kInt32, {2, 4}, BytesOf(a)}, {1, "INPUT1", DataType::kInt32, {2, 4}, BytesOf(b)}},
        &sink);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(sink.Values<std::int32_t>(0), (std::vector<std::int32_t>{11, 22, 33, 44, 55, 66, 77, 88}));
    EXPECT_EQ(sink.Values<std::int32_t>(1), (std::vector<std::int32_t>{-9, -18, -27, -36, -45, -54, -63, -72}));
    EXPECT_EQ(sink.shapes[1], (Shape{2, 4}));
  }
  MemorySink half;
  half.unwanted = 0;
  ASSERT_TRUE(
      Infer({{0, "INPUT0", DataType::kInt32, {2, 4}, BytesOf(a)}, {1, "INPUT1", DataType::kInt32, {2, 4}, BytesOf(b)}},
            &half)
          .ok());
  EXPECT_EQ(half.outputs.size(), 1U);
}

TEST_F(OnnxRuntimeTest, ServesEveryDatatypeThatTheEngineHas) {
  for (int onnx = 1; onnx <= 16; ++onnx) {
    if (onnx == 8 || onnx == 14 || onnx == 15) continue;
    Write(OnnxIdentity(onnx, {"n"}));
    ASSERT_TRUE(Load().ok()) << onnx;
    const auto type = static_cast<DataType>(model_->config().input(0).data_type());
    const std::size_t size = ElementByteSize(type);
    ASSERT_GT(size, 0U);
    const std::string data(3 * size, '\1');
    MemorySink sink;
    ASSERT_TRUE(Infer({{0, "INPUT0", type, {3}, BytesOf(data)}}, &sink).ok()) << onnx;
    EXPECT_EQ(sink.Text(0), data);
    EXPECT_EQ(sink.types[0], type);
  }
}

TEST_F(OnnxRuntimeTest, ServesStringsWithEveryByteInThem) {
  Write(OnnxIdentity(testing::kOnnxString, {"n"}));
  ASSERT_TRUE(Load().ok());
  const std::string data("\3\0\0\0a\0b\0\0\0\0\2\0\0\0\xff\n", 17);
  for (int run = 0; run < 2; ++run) {
    MemorySink sink;
    const absl::Status status = Infer({{0, "INPUT0", DataType::kBytes, {3}, BytesOf(data)}}, &sink);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(sink.Text(0), data);
  }
  MemorySink sink;
  const std::string cut = data.substr(0, 16);
  EXPECT_EQ(Infer({{0, "INPUT0", DataType::kBytes, {3}, BytesOf(cut)}}, &sink).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Infer({{0, "INPUT0", DataType::kBytes, {std::int64_t{1} << 40}, BytesOf(data)}}, &sink).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(OnnxRuntimeTest, ServesScalarsAndEmptyTensors) {
  Write(OnnxIdentity(testing::kOnnxFloat, {}));
  ASSERT_TRUE(Load().ok());
  EXPECT_EQ(model_->config().max_batch_size(), 0);
  ASSERT_EQ(model_->config().input(0).dims_size(), 1);
  const std::vector<float> one = {2.5F};
  for (int run = 0; run < 2; ++run) {
    MemorySink sink;
    const absl::Status status = Infer({{0, "INPUT0", DataType::kFp32, {1}, BytesOf(one)}}, &sink);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(sink.Values<float>(0), one);
    EXPECT_EQ(sink.shapes[0], (Shape{1}));
  }
  Write(OnnxIdentity(testing::kOnnxFloat, {"n", "m"}));
  ASSERT_TRUE(Load().ok());
  for (int run = 0; run < 2; ++run) {
    MemorySink sink;
    const absl::Status status = Infer({{0, "INPUT0", DataType::kFp32, {0, 3}, {}}}, &sink);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(sink.shapes[0], (Shape{0, 3}));
  }
}

TEST_F(OnnxRuntimeTest, GivesOutputsWhoseShapeOnlyTheRunShows) {
  Write(OnnxBuilder()
            .Input("X", testing::kOnnxFloat, {"n"})
            .Node("NonZero", {"X"}, {"Y"})
            .Output("Y", testing::kOnnxInt64, {1, ""})
            .Build());
  ASSERT_TRUE(Load().ok()) << Load();
  const std::vector<float> values = {0, 1, 0, 2};
  for (int run = 0; run < 2; ++run) {
    MemorySink sink;
    ASSERT_TRUE(Infer({{0, "X", DataType::kFp32, {4}, BytesOf(values)}}, &sink).ok());
    EXPECT_EQ(sink.Values<std::int64_t>(0), (std::vector<std::int64_t>{1, 3}));
    EXPECT_EQ(sink.shapes[0], (Shape{1, 2}));
  }
}

TEST_F(OnnxRuntimeTest, AModelThatLiesAboutItsShapesIsServedAllTheSame) {
  // Declared [n, n] for an input [n, m].
  Write(OnnxBuilder()
            .Input("X", testing::kOnnxFloat, {"n", "m"})
            .Node("Identity", {"X"}, {"Y"})
            .Output("Y", testing::kOnnxFloat, {"n", "n"})
            .Build());
  ASSERT_TRUE(Load().ok());
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  for (int run = 0; run < 3; ++run) {
    MemorySink sink;
    const absl::Status status = Infer({{0, "X", DataType::kFp32, {2, 3}, BytesOf(values)}}, &sink);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(sink.Values<float>(0), values);
  }
}

TEST_F(OnnxRuntimeTest, RefusesWhatDoesNotFitWithTritonsTextsAllOfThem) {
  Write(OnnxAddSub(testing::kOnnxFloat, {4}));
  AddInput("INPUT0", DataType::kFp32, {-1});
  AddInput("INPUT1", DataType::kInt32, {4});
  AddOutput("OUTPUT0", DataType::kFp32, {4});
  AddOutput("OUTPUT1", DataType::kInt64, {4});
  AddOutput("OUTPUT2", DataType::kFp32, {4});
  const absl::Status status = Load();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  std::vector<std::string> messages;
  for (const Finding& finding : FindingsOf(status)) messages.push_back(finding.field + ": " + finding.message);
  EXPECT_EQ(messages,
            (std::vector<std::string>{
                "input[0].dims: model 'm', tensor 'INPUT0': the model expects 1 dimensions (shape [4]) but the model "
                "configuration specifies 1 dimensions (shape [-1])",
                "input[1].data_type: unable to load model 'm', configuration expects datatype TYPE_INT32 for input "
                "'INPUT1', model provides TYPE_FP32",
                "output[1].data_type: unable to load model 'm', configuration expects datatype TYPE_INT64 for output "
                "'OUTPUT1', model provides TYPE_FP32",
                "output[2].name: unexpected inference output 'OUTPUT2', allowed outputs are: OUTPUT0, OUTPUT1"}));
  EXPECT_EQ(SuggestionOf(FindingsOf(status)[1]), "data_type: TYPE_FP32");
}

TEST_F(OnnxRuntimeTest, RefusesAShapeThatOnlyTheEngineKnows) {
  Write(OnnxAddSub(testing::kOnnxFloat, {"n", 4}));
  config_.set_max_batch_size(8);
  AddInput("INPUT0", DataType::kFp32, {4});
  AddInput("INPUT1", DataType::kFp32, {4});
  AddOutput("OUTPUT0", DataType::kFp32, {7});
  AddOutput("OUTPUT1", DataType::kFp32, {4});
  EXPECT_EQ(HeadOf(Load()),
            "model 'm', tensor 'OUTPUT0': the model expects 2 dimensions (shape [-1,4]) but the model configuration "
            "specifies 2 dimensions (an initial batch dimension because max_batch_size > 0 followed by the explicit "
            "tensor shape, making complete shape [-1,7])");
}

TEST_F(OnnxRuntimeTest, RefusesSequencesByName) {
  Write(OnnxBuilder()
            .Input("X", testing::kOnnxFloat, {"n"})
            .Node("SequenceConstruct", {"X"}, {"Y"})
            .SequenceOutput("Y", testing::kOnnxFloat)
            .Build());
  const absl::Status status = Load();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(MessageOf(status), "Unsupported ONNX Type 'ONNX_TYPE_SEQUENCE' for I/O 'Y', expected 'ONNX_TYPE_TENSOR'.");
}

TEST_F(OnnxRuntimeTest, OptionalInputsAreWeightsThatARequestMayReplace) {
  const std::vector<float> two = {2, 2};
  const std::string_view raw(reinterpret_cast<const char*>(two.data()), 8);
  Write(OnnxBuilder()
            .Input("X", testing::kOnnxFloat, {2})
            .Input("W", testing::kOnnxFloat, {2})
            .Weights("W", testing::kOnnxFloat, {2}, raw)
            .Node("Mul", {"X", "W"}, {"Y"})
            .Output("Y", testing::kOnnxFloat, {2})
            .Build());
  AddInput("X", DataType::kFp32, {2});
  AddInput("W", DataType::kFp32, {2});
  config_.mutable_input(1)->set_optional(true);
  AddOutput("Y", DataType::kFp32, {2});
  ASSERT_TRUE(Load().ok()) << Load();
  const std::vector<float> x = {3, 4};
  MemorySink without;
  ASSERT_TRUE(Infer({{0, "X", DataType::kFp32, {2}, BytesOf(x)}}, &without).ok());
  EXPECT_EQ(without.Values<float>(0), (std::vector<float>{6, 8}));
  MemorySink with;
  ASSERT_TRUE(
      Infer({{0, "X", DataType::kFp32, {2}, BytesOf(x)}, {1, "W", DataType::kFp32, {2}, BytesOf(x)}}, &with).ok());
  EXPECT_EQ(with.Values<float>(0), (std::vector<float>{9, 16}));
}

TEST_F(OnnxRuntimeTest, WrongRequestsAreTheCallersFault) {
  Write(OnnxAddSub(testing::kOnnxFloat, {"n", 4}));
  ASSERT_TRUE(Load().ok());
  const std::vector<float> three = {1, 2, 3};
  MemorySink sink;
  const absl::Status shape = Infer(
      {{0, "INPUT0", DataType::kFp32, {1, 3}, BytesOf(three)}, {1, "INPUT1", DataType::kFp32, {1, 3}, BytesOf(three)}},
      &sink);
  EXPECT_EQ(shape.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(MessageOf(shape)), StartsWith("onnx runtime error 2: "));
  EXPECT_EQ(Infer({{0, "INPUT0", DataType::kFp32, {1, 3}, BytesOf(three)}}, &sink).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Infer({{0, "INPUT0", DataType::kFp32, {1, 4}, BytesOf(three)}}, &sink).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(OnnxRuntimeTest, WeightsInsideTheFileGiveTheSameAnswersMappedAsCopiedAndBesideIt) {
  const std::vector<float> x(256, 0.5F);
  std::vector<std::vector<float>> answers;
  for (const bool external : {false, true}) {
    std::string weights;
    Write(OnnxMatMulChain(256, 3, "w/weights.bin", external ? &weights : nullptr));
    if (external) Write(weights, "1/w/weights.bin");
    ASSERT_TRUE(Load().ok()) << Load();
    std::uint64_t mapped = 0;
    for (const LedgerRow& row : ledger().Rows()) {
      if (row.kind == ResourceKind::kFileMapping) mapped += row.bytes;
    }
    EXPECT_EQ(mapped, 3U * 256 * 256 * 4);
    MemorySink sink;
    ASSERT_TRUE(Infer({{0, "X", DataType::kFp32, {1, 256}, BytesOf(x)}}, &sink).ok());
    answers.push_back(sink.Values<float>(0));
  }
  EXPECT_EQ(answers[0], answers[1]);
  EXPECT_NE(answers[0][0], 0.0F);
}

TEST_F(OnnxRuntimeTest, WeightsThatLeadOutOfTheModelAreRefused) {
  std::string weights;
  Write(OnnxMatMulChain(64, 1, "../../secret", &weights));
  EXPECT_THAT(std::string(HeadOf(Load())), HasSubstr("'../../secret', which leads out of the model's directory"));
  weights.clear();
  Write(OnnxMatMulChain(64, 1, "link", &weights));
  fs::create_symlink("/etc/hostname", directory_ / "1/link");
  EXPECT_THAT(std::string(HeadOf(Load())), HasSubstr("'link', which leads out of the model's directory"));
  weights.clear();
  Write(OnnxMatMulChain(64, 1, "missing", &weights));
  EXPECT_EQ(Load().code(), absl::StatusCode::kNotFound);
}

TEST_F(OnnxRuntimeTest, AFolderAndAnotherFileNameAreFound) {
  Write(OnnxIdentity(testing::kOnnxFloat, {"n"}), "1/model.onnx/model.onnx");
  ASSERT_TRUE(Load().ok()) << Load();
  Write(OnnxIdentity(testing::kOnnxFloat, {"n"}), "1/other.onnx");
  config_.set_default_model_filename("other.onnx");
  ASSERT_TRUE(Load().ok()) << Load();
}

TEST_F(OnnxRuntimeTest, MoreThreadsAreRowsAndEndWithTheModel) {
  Write(OnnxMatMulChain(256, 2));
  const ProcessState before = ReadProcessState();
  SetParameter("intra_op_thread_count", "3");
  SetParameter("execution_mode", "1");
  SetParameter("inter_op_thread_count", "2");
  ASSERT_TRUE(Load().ok()) << Load();
  int threads = 0;
  for (const LedgerRow& row : ledger().Rows()) threads += row.kind == ResourceKind::kThread ? 1 : 0;
  EXPECT_GE(threads, 3);
  if (!kSanitized) {
    EXPECT_EQ(ReadProcessStateWithThreads(before.threads + threads).threads, before.threads + threads);
    const std::vector<float> x(256, 0.5F);
    MemorySink sink;
    EXPECT_TRUE(Infer({{0, "X", DataType::kFp32, {1, 256}, BytesOf(x)}}, &sink).ok());
  }
  Unload();
  if (!kSanitized) {
    EXPECT_EQ(ReadProcessStateWithThreads(before.threads).threads, before.threads);
  }
}

TEST_F(OnnxRuntimeTest, ParametersAreCheckedWithTritonsTexts) {
  Write(OnnxIdentity(testing::kOnnxFloat, {"n"}));
  const auto refusal = [&](const char* key, const char* value) {
    SetParameter(key, value);
    const absl::Status status = Load();
    config_.clear_parameters();
    return HeadOf(status);
  };
  EXPECT_EQ(refusal("execution_mode", "2"),
            "Invalid configuration value provided. Expected values for  execution_mode are 0 or 1 but got 2 .");
  EXPECT_EQ(refusal("enable_mem_pattern", "maybe"), "failed to convert 'maybe' to boolean");
  EXPECT_EQ(refusal("intra_op_thread_count", "many"), "failed to convert 'many' to integral number");
  EXPECT_THAT(refusal("session.use_env_allocators", "0"), HasSubstr("cannot be set"));
  auto* accelerator = config_.mutable_optimization()->mutable_execution_accelerators()->add_cpu_execution_accelerator();
  accelerator->set_name("magic");
  EXPECT_EQ(HeadOf(Load()), "unknown Execution Accelerator 'magic' is requested");
}

TEST_F(OnnxRuntimeTest, CancellingEndsALoadAndARun) {
  Write(OnnxMatMulChain(1024, 4));
  CancelFlag before;
  before.Cancel();
  EXPECT_EQ(Load(true, &before).code(), absl::StatusCode::kCancelled);
  ASSERT_TRUE(Load().ok());
  const std::vector<float> x(std::size_t{256} * 1024, 0.5F);
  absl::Status status;
  for (int i = 0; i < 200 && status.ok();
       ++i) {  // on a busy machine the run may end before the canceller gets its turn
    CancelFlag cancel;
    std::thread canceller([&] { cancel.Cancel(); });
    MemorySink sink;
    status = Infer({{0, "X", DataType::kFp32, {256, 1024}, BytesOf(x)}}, &sink, &cancel);
    canceller.join();
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  MemorySink next;  // the instance goes on serving
  EXPECT_TRUE(Infer({{0, "X", DataType::kFp32, {1, 1024}, BytesOf(x).subspan(0, 4096)}}, &next).ok());
}

TEST_F(OnnxRuntimeTest, AKindOfGpuIsRefused) {
  Write(OnnxIdentity(testing::kOnnxFloat, {"n"}));
  ASSERT_TRUE(Load().ok());
  inference::ModelInstanceGroup group;
  group.set_kind(inference::ModelInstanceGroup::KIND_GPU);
  EXPECT_EQ(model_->CreateInstance(*instance_scope_, group, "m_1", 0).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(OnnxRuntimeTest, SteadyRunsOpenNoRows) {
  Write(OnnxMatMulChain(512, 4));
  ASSERT_TRUE(Load().ok());
  const std::vector<float> x(std::size_t{64} * 512, 0.5F);
  const auto run = [&] {
    MemorySink sink;
    ASSERT_TRUE(Infer({{0, "X", DataType::kFp32, {64, 512}, BytesOf(x)}}, &sink).ok());
  };
  for (int i = 0; i < 3; ++i) run();
  const std::vector<LedgerRow> before = ledger().Rows();
  for (int i = 0; i < 5; ++i) run();
  const std::vector<LedgerRow> after = ledger().Rows();
  ASSERT_EQ(before.size(), after.size());
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i].id, after[i].id);
}

TEST_F(OnnxRuntimeTest, OutputsOfKnownShapeGoStraightIntoTheAnswer) {
  Write(OnnxAddSub(testing::kOnnxFloat, {"n"}));
  const std::vector<float> large(std::size_t{1} << 20, 0.5F);
  const auto run = [&](std::size_t count) {
    const auto bytes = BytesOf(large).subspan(0, count * sizeof(float));
    const auto n = static_cast<std::int64_t>(count);
    MemorySink sink;
    ASSERT_TRUE(
        Infer({{0, "INPUT0", DataType::kFp32, {n}, bytes}, {1, "INPUT1", DataType::kFp32, {n}, bytes}}, &sink).ok());
    EXPECT_EQ(sink.Values<float>(0), std::vector<float>(count, 1.0F));
  };
  const auto engine_memory = [] { return ledger().Totals().BytesOf(kHost); };
  ASSERT_TRUE(Load().ok());
  run(4);
  const std::uint64_t before = engine_memory();
  run(large.size());
  EXPECT_EQ(engine_memory(), before);
  EXPECT_EQ(pool_.adopted(), 0U);
  ASSERT_TRUE(Load().ok());
  run(large.size());  // the first run finds out: the engine makes the outputs itself
  EXPECT_EQ(pool_.adopted(), 2U);
}

TEST_F(OnnxRuntimeTest, LargeOutputsThatOnlyTheRunShapesBecomeTheAnswersWithoutACopy) {
  Write(OnnxBuilder()
            .Input("X", testing::kOnnxFloat, {"n"})
            .Node("NonZero", {"X"}, {"Y"})
            .Output("Y", testing::kOnnxInt64, {1, ""})
            .Build());
  ASSERT_TRUE(Load().ok());
  const std::vector<float> ones(std::size_t{1} << 18, 1.0F);
  const auto run = [&](MemorySink* sink, std::size_t count) {
    const auto input = BytesOf(ones).subspan(0, count * sizeof(float));
    ASSERT_TRUE(Infer({{0, "X", DataType::kFp32, {static_cast<std::int64_t>(count)}, input}}, sink).ok());
    EXPECT_EQ(sink->shapes[0], (Shape{1, static_cast<std::int64_t>(count)}));
    EXPECT_EQ(sink->Values<std::int64_t>(0).back(), static_cast<std::int64_t>(count) - 1);
  };
  {
    MemorySink small;
    run(&small, 100);
    EXPECT_TRUE(small.given.empty()) << "less than 64 KiB: a copy costs less";
  }
  MemorySink kept;
  run(&kept, ones.size());
  EXPECT_EQ(kept.given.size(), 1U);
  EXPECT_EQ(pool_.adopted(), 1U);
  EXPECT_GE(pool_.used_bytes(), ones.size() * sizeof(std::int64_t));

  // Later answers take turns with memory that went back: no row is opened.
  const auto answer = [&] {
    MemorySink sink;
    run(&sink, ones.size());
  };
  for (int i = 0; i < 3; ++i) answer();
  const std::vector<LedgerRow> before = ledger().Rows();
  for (int i = 0; i < 5; ++i) answer();
  EXPECT_EQ(pool_.adopted(), 9U);
  const std::vector<LedgerRow> after = ledger().Rows();
  ASSERT_EQ(before.size(), after.size());
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i].id, after[i].id);

  Unload();
  EXPECT_EQ(ledger().Totals().rows, 0U) << "an answer that is still on its way holds nothing of the model";
  EXPECT_EQ(kept.Values<std::int64_t>(0)[1000], 1000);
}

TEST_F(OnnxRuntimeTest, OutputsOfAnySizeShareAFewRowsAndFitABudgetOfTwo) {
  constexpr std::size_t kLargest = std::size_t{1} << 18;  // elements; 2 MiB of answer
  constexpr std::size_t kMostRows = 4 * 5 + 1;            // sizes from 64 KiB to 2 MiB that blocks can have
  Write(OnnxBuilder()
            .Input("X", testing::kOnnxFloat, {"n"})
            .Node("NonZero", {"X"}, {"Y"})
            .Output("Y", testing::kOnnxInt64, {1, ""})
            .Build());
  const std::vector<float> ones(kLargest, 1.0F);
  for (const bool budget : {false, true}) {
    ASSERT_TRUE(Load().ok());
    pool_.Trim();
    const std::uint64_t rows = ledger().Totals().rows;
    const std::uint64_t used = ledger().Totals().memory[kHost].now;
    if (budget) ledger().SetBudget(kHost, used + 2 * (kLargest * sizeof(std::int64_t) + 4096));
    for (int round = 0; round < 2; ++round) {
      std::minstd_rand random(20261130);
      for (int i = 0; i < 200; ++i) {
        const std::size_t count = i == 100 ? kLargest : 1 + random() % kLargest;
        MemorySink sink;
        const absl::Status status = Infer({{0,
                                            "X",
                                            DataType::kFp32,
                                            {static_cast<std::int64_t>(count)},
                                            BytesOf(ones).subspan(0, count * sizeof(float))}},
                                          &sink);
        ASSERT_TRUE(status.ok()) << status << " budget " << budget << " round " << round << " request " << i;
        EXPECT_EQ(sink.Values<std::int64_t>(0).back(), static_cast<std::int64_t>(count) - 1);
        EXPECT_LE(ledger().Totals().rows, rows + kMostRows);
        EXPECT_LE(pool_.cached_bytes(), std::uint64_t{64} << 20);
      }
    }
    ledger().SetBudget(kHost, std::nullopt);
    Unload();
    EXPECT_EQ(ledger().Totals().rows, 0U);
  }
}

TEST_F(OnnxRuntimeTest, InstancesRunAtTheSameTime) {
  Write(OnnxAddSub(testing::kOnnxInt32, {"n"}));
  ASSERT_TRUE(Load().ok());
  const auto work = [&](BackendInstance* instance, std::int32_t value) {
    static const Parameters none;
    for (int run = 0; run < 100; ++run) {
      const std::vector<std::int32_t> data(64, value + run);
      const std::vector<InputTensor> inputs = {{0, "INPUT0", DataType::kInt32, {64}, BytesOf(data)},
                                               {1, "INPUT1", DataType::kInt32, {64}, BytesOf(data)}};
      MemorySink sink;
      Execution request;
      request.inputs = inputs;
      request.outputs = &sink;
      request.parameters = &none;
      Execution* requests[] = {&request};
      instance->Execute(requests);
      EXPECT_TRUE(request.status.ok()) << request.status;
      EXPECT_EQ(sink.Values<std::int32_t>(0), std::vector<std::int32_t>(64, 2 * (value + run)));
    }
  };
  Scope second_scope(*scope_, "instance/1");
  auto second = model_->CreateInstance(second_scope, {}, "m_1", kHost);
  ASSERT_TRUE(second.ok());
  std::thread other([&] { work(second->get(), 1000); });
  work(instance_.get(), 5);
  other.join();
  second->reset();
}

TEST_F(OnnxRuntimeTest, ManyLoadsAndFailuresComeBackToTheMark) {
  const std::vector<float> x(512, 0.5F);
  struct Case {
    const char* name;
    std::string model;
    bool good;
    int cycles;
  };
  const std::string chain = OnnxMatMulChain(512, 4);   // 4 MiB
  const std::string large = OnnxMatMulChain(2048, 4);  // 64 MiB
  const std::string broken =
      OnnxBuilder().Input("X", 1, {"n"}).Node("NoSuchOp", {"X"}, {"Y"}).Output("Y", 1, {"n"}).Build();
#ifdef TIDEMARK_SANITIZED
  const int many = 20;
#else
  const int many = 1000;
#endif
  const std::vector<Case> cases = {{"tiny", OnnxMatMulChain(512, 1), true, many},
                                   {"chain", chain, true, std::max(2, many / 10)},
                                   {"large", large, true, std::max(2, many / 100)},
                                   {"truncated", chain.substr(0, chain.size() / 2), false, many},
                                   {"empty", "", false, many},
                                   {"unknown op", broken, false, many}};
  for (const Case& one : cases) {
    Write(one.model);
    ProcessState mark;
    for (int cycle = -2; cycle < one.cycles; ++cycle) {
      if (cycle == 0) {
        ::malloc_trim(0);
        mark = ReadProcessState();
      }
      const absl::Status status = Load();
      ASSERT_EQ(status.ok(), one.good) << one.name << status;
      if (one.good && one.model.size() < chain.size()) {
        MemorySink sink;
        ASSERT_TRUE(Infer({{0, "X", DataType::kFp32, {1, 512}, BytesOf(x)}}, &sink).ok());
      }
      Unload();
      ASSERT_EQ(ledger().Totals().rows, 0U);
    }
    ::malloc_trim(0);
    const ProcessState after = ReadProcessState();
    EXPECT_EQ(Difference(mark, after), "") << one.name;
#ifndef TIDEMARK_SANITIZED
    EXPECT_LT(after.anonymous_bytes - mark.anonymous_bytes, 1 << 20) << one.name;
#endif
  }
}

TEST_F(OnnxRuntimeTest, ARefusedDatatypeComesBackToTheMark) {
  Write(OnnxMatMulChain(512, 1));
  config_.set_max_batch_size(4);
  AddInput("X", DataType::kFp32, {512});
  AddOutput("Y", DataType::kFp32, {511});  // found only when the session is there
  ProcessState mark;
  for (int cycle = -2; cycle < 200; ++cycle) {
    if (cycle == 0) {
      ::malloc_trim(0);
      mark = ReadProcessState();
    }
    ASSERT_EQ(Load().code(), absl::StatusCode::kInvalidArgument);
    Unload();
    ASSERT_EQ(ledger().Totals().rows, 0U);
  }
  ::malloc_trim(0);
  const ProcessState after = ReadProcessState();
  EXPECT_EQ(Difference(mark, after), "");
#ifndef TIDEMARK_SANITIZED
  EXPECT_LT(after.anonymous_bytes - mark.anonymous_bytes, 1 << 20);
#endif
}

TEST(OnnxRuntimeOpenTest, AMissingLibraryIsNamedWithTheRemedy) {
  const auto platform = CreateLinuxPlatform();
  Ledger ledger;
  Scope resident(ledger, *platform, "backend/onnxruntime", {.resident = true});
  const auto backend = CreateOnnxRuntimeBackend(BackendContext{resident, {}, "/nowhere"});
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(MessageOf(backend.status())),
              ::testing::AllOf(HasSubstr("/nowhere/onnxruntime/libonnxruntime.so"), HasSubstr("tools/setup.sh")));
  EXPECT_EQ(ledger.Totals().resident_rows, 0U);
}

// Runs before the other tests make the engine (gtest keeps the order of definition within a file, suites of one name
// together; the death test's child is a process of its own either way).
TEST(OnnxRuntimeOpenDeathTest, TheEnvironmentStartsNoThreadAndOpensNothing) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        std::string home = (fs::temp_directory_path() / "tidemark_ort_home_XXXXXX").string();
        if (::mkdtemp(home.data()) == nullptr) std::exit(3);
        ::setenv("HOME", home.c_str(), 1);
        ::setenv("XDG_CACHE_HOME", home.c_str(), 1);
        const ProcessState before = ReadProcessState();
        const Engine engine;
        const ProcessState after = ReadProcessState();
        const bool good = engine.backend.ok() && after.threads == before.threads &&
                          after.descriptors == before.descriptors && EntriesOf(home) == 0;
        if (!good) {
          std::fprintf(stderr, "threads %d -> %d, descriptors %d -> %d, files %d\n", before.threads, after.threads,
                       before.descriptors, after.descriptors, EntriesOf(home));
        }
        fs::remove_all(home);
        std::_Exit(good ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tidemark
