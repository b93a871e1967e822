#include "backends/identity/identity_backend.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "tests/support/real_platform.h"

namespace tidemark {
namespace {

// Keeps outputs in memory.
class MemorySink final : public OutputSink {
 public:
  bool Wants(std::size_t index) const override { return index != unwanted; }
  absl::StatusOr<std::span<std::byte>> Allocate(std::size_t index, DataType data_type,
                                                std::span<const std::int64_t> shape, std::size_t bytes) override {
    types[index] = data_type;
    shapes[index] = Shape(shape.begin(), shape.end());
    data[index].resize(bytes);
    return std::span<std::byte>(data[index]);
  }

  std::size_t unwanted = SIZE_MAX;
  std::map<std::size_t, DataType> types;
  std::map<std::size_t, Shape> shapes;
  std::map<std::size_t, std::vector<std::byte>> data;
};

class IdentityTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto backend = CreateIdentityBackend(BackendContext{resident_, {}, {}});
    ASSERT_TRUE(backend.ok());
    backend_ = *std::move(backend);
    config_.set_name("identity");
    AddPair(DataType::kFp32, {-1});
  }

  void AddPair(DataType type, std::vector<std::int64_t> dims) {
    const int i = config_.input_size();
    auto* input = config_.add_input();
    auto* output = config_.add_output();
    input->set_name(fmt::format("INPUT{}", i));
    output->set_name(fmt::format("OUTPUT{}", i));
    input->set_data_type(static_cast<inference::DataType>(type));
    output->set_data_type(static_cast<inference::DataType>(type));
    for (const std::int64_t dim : dims) {
      input->add_dims(dim);
      output->add_dims(dim);
    }
  }
  void SetParameter(const char* key, const char* value) {
    (*config_.mutable_parameters())[key].set_string_value(value);
  }

  absl::Status Load(CancelFlag* cancel = nullptr) {
    ModelArtifact artifact;
    artifact.model_name = "identity";
    artifact.cancel = cancel;
    ASSIGN_OR_RETURN(model_, backend_->CreateModel(artifact, config_, scope_));
    ASSIGN_OR_RETURN(instance_, model_->CreateInstance(scope_, {}, "identity_0", kHost));
    return absl::OkStatus();
  }

  Execution MakeExecution(std::span<const InputTensor> inputs, OutputSink& sink) {
    Execution request;
    request.inputs = inputs;
    request.outputs = &sink;
    request.parameters = &parameters_;
    return request;
  }

  std::unique_ptr<Platform> platform_ = CreateLinuxPlatform();
  Ledger ledger_;
  Scope resident_{ledger_, *platform_, "backend/identity", {.resident = true}};
  std::unique_ptr<Backend> backend_;
  Scope scope_{ledger_, *platform_, "model/identity/1"};
  inference::ModelConfig config_;
  std::unique_ptr<BackendModel> model_;
  std::unique_ptr<BackendInstance> instance_;
  Parameters parameters_;
};

std::span<const std::byte> Bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
std::string Text(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST_F(IdentityTest, CopiesEveryPairOfEveryDataType) {
  config_.clear_input();
  config_.clear_output();
  std::vector<std::string> data;
  std::vector<InputTensor> inputs;
  for (int type = 1; type <= 14; ++type) {
    AddPair(static_cast<DataType>(type), {-1, 2});
    data.push_back(static_cast<DataType>(type) == DataType::kBytes
                       ? std::string("\3\0\0\0a\0b\0\0\0\0", 11)
                       : std::string(2 * ElementByteSize(static_cast<DataType>(type)), static_cast<char>(type)));
  }
  ASSERT_TRUE(Load().ok());
  for (std::size_t i = 0; i < data.size(); ++i) {
    inputs.push_back(
        {i, config_.input(static_cast<int>(i)).name(), static_cast<DataType>(i + 1), {1, 2}, Bytes(data[i])});
  }
  MemorySink sink;
  Execution request = MakeExecution(inputs, sink);
  Execution* requests[] = {&request};
  instance_->Execute(requests);
  ASSERT_TRUE(request.status.ok()) << request.status;
  EXPECT_GT(request.infer_start_nanos, 0);
  for (std::size_t i = 0; i < data.size(); ++i) {
    EXPECT_EQ(Text(sink.data[i]), data[i]) << i;
    EXPECT_EQ(sink.types[i], static_cast<DataType>(i + 1));
    EXPECT_EQ(sink.shapes[i], (Shape{1, 2}));
  }
}

TEST_F(IdentityTest, LeavesOutWhatIsNotWantedOrNotGiven) {
  AddPair(DataType::kInt32, {1});
  AddPair(DataType::kInt32, {1});
  ASSERT_TRUE(Load().ok());
  const std::string four = "abcd";
  const std::vector<InputTensor> inputs = {{0, "INPUT0", DataType::kFp32, {1}, Bytes(four)},
                                           {2, "INPUT2", DataType::kInt32, {1}, Bytes(four)}};
  MemorySink sink;
  sink.unwanted = 0;
  Execution request = MakeExecution(inputs, sink);
  Execution* requests[] = {&request};
  instance_->Execute(requests);
  EXPECT_TRUE(request.status.ok());
  EXPECT_EQ(sink.data.size(), 1U);
  EXPECT_EQ(Text(sink.data[2]), four);
}

TEST_F(IdentityTest, RefusesAnOutputOfAnotherDatatypeAndLeavesNoRows) {
  config_.mutable_output(0)->set_data_type(inference::TYPE_INT32);
  config_.mutable_output(0)->set_dims(0, 7);
  config_.mutable_input(0)->set_dims(0, 8);
  const absl::Status status = Load();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      std::string(MessageOf(status)),
      "unable to load model 'identity': output 'OUTPUT0' is a copy of input 'INPUT0', so its datatype must be "
      "TYPE_FP32, but the model configuration specifies datatype TYPE_INT32\n"
      "output[0].data_type: found TYPE_INT32, expected TYPE_FP32, as input 'INPUT0' has; write: data_type: "
      "TYPE_FP32\n"
      "output[0].dims: found [7], expected [8], as input 'INPUT0' has; unable to load model 'identity': output "
      "'OUTPUT0' is a copy of input 'INPUT0', so its shape must be [8], but the model configuration specifies shape "
      "[7]; write: dims: [ 8 ]");
  EXPECT_EQ(ledger_.Totals().rows, 0U);
}

TEST_F(IdentityTest, RefusesAnInputWithoutOutputAndParametersThatAreNoNumbers) {
  config_.add_input()->set_name("MORE");
  EXPECT_EQ(Load().code(), absl::StatusCode::kInvalidArgument);
  config_.mutable_input()->RemoveLast();
  for (const char* value : {"soon", "-1", "1e99", "", "nan"}) {
    SetParameter("execute_delay_ms", value);
    EXPECT_EQ(Load().code(), absl::StatusCode::kInvalidArgument) << value;
  }
}

TEST_F(IdentityTest, CancellingEndsALoadThatWaits) {
  SetParameter("creation_delay_sec", "3600");
  CancelFlag cancel;
  std::thread canceller([&] { cancel.Cancel(); });
  EXPECT_EQ(Load(&cancel).code(), absl::StatusCode::kCancelled);
  canceller.join();
  EXPECT_EQ(ledger_.Totals().rows, 0U);
}

TEST_F(IdentityTest, CancellingEveryRequestEndsAnExecutionThatWaits) {
  SetParameter("execute_delay_ms", "3600000");
  ASSERT_TRUE(Load().ok());
  EXPECT_TRUE(instance_->thread_bound());
  const std::string four = "abcd";
  const std::vector<InputTensor> inputs = {{0, "INPUT0", DataType::kFp32, {1}, Bytes(four)}};
  MemorySink sink;
  CancelFlag cancel;
  Execution first = MakeExecution(inputs, sink);
  first.cancel = &cancel;
  Execution second = MakeExecution(inputs, sink);
  second.deadline_nanos = NowNanos() + 1'000'000;
  Execution* requests[] = {&first, &second};
  std::thread canceller([&] { cancel.Cancel(); });
  instance_->Execute(requests);
  canceller.join();
  EXPECT_EQ(first.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(second.status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(IdentityTest, DelaysGrowWithTheInstanceAsTheMultiplierSays) {
  SetParameter("execute_delay_ms", "20");
  SetParameter("instance_wise_delay_multiplier", "3");
  ASSERT_TRUE(Load().ok());
  auto slow = model_->CreateInstance(scope_, {}, "identity_1", kHost);
  ASSERT_TRUE(slow.ok());
  MemorySink sink;
  Execution request = MakeExecution({}, sink);
  Execution* requests[] = {&request};
  const std::int64_t start = NowNanos();
  instance_->Execute(requests);
  EXPECT_GE(NowNanos() - start, 20'000'000);
  const std::int64_t middle = NowNanos();
  (*slow)->Execute(requests);
  EXPECT_GE(NowNanos() - middle, 60'000'000);
}

}  // namespace
}  // namespace tidemark
