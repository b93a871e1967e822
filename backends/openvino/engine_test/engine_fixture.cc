#include "backends/openvino/engine_test/engine_fixture.h"

#include <fmt/format.h>
#include <google/protobuf/text_format.h>

#include <cstring>
#include <fstream>

#include "backends/openvino/openvino_backend.h"
#include "base/status.h"
#include "tests/support/real_platform.h"

namespace tidemark::testing {
namespace {

// Lives as long as the program, as the server's does.
struct Engine {
  Ledger ledger;
  std::unique_ptr<Platform> platform = CreateLinuxPlatform();
  FaultPlatform faults{*platform};
  Scope resident{ledger, *platform, "backend/openvino", Scope::Options{.resident = true}};
  std::unique_ptr<Backend> backend;
};

Engine& TheEngine() {
  static Engine* const engine = [] {
    auto made = std::make_unique<Engine>();
    auto backend = CreateOpenVinoBackend(BackendContext{made->resident, {}, TIDEMARK_ENGINES});
    if (!backend.ok()) {
      fmt::print(stderr, "{}\n", MessageOf(backend.status()));
      std::abort();  // the package was there at configure time: no engine is no reason to skip
    }
    made->backend = *std::move(backend);
    return made.release();
  }();
  return *engine;
}

}  // namespace

absl::StatusOr<std::span<std::byte>> TestSink::Allocate(std::size_t index, DataType data_type,
                                                        std::span<const std::int64_t> shape, std::size_t bytes) {
  EXPECT_TRUE(Wants(index)) << index;
  EXPECT_FALSE(memory_.contains(index)) << "output " << index << " was allocated twice";
  std::vector<std::byte>& memory = memory_[index];
  memory.assign(bytes, std::byte{0xAB});
  values_[index] = Value{data_type, Shape(shape.begin(), shape.end()), {}};
  return std::span<std::byte>(memory);
}

const std::map<std::size_t, Value>& TestSink::values() {
  for (auto& [index, value] : values_) {
    value.bytes.assign(reinterpret_cast<const char*>(memory_[index].data()), memory_[index].size());
  }
  return values_;
}

Ledger& EngineTest::ledger() { return TheEngine().ledger; }
FaultPlatform& EngineTest::platform() { return TheEngine().faults; }
Backend& EngineTest::backend() { return *TheEngine().backend; }

void EngineTest::SetUp() {
  TheEngine();
  const auto made = platform().MakeTempDirectory("tidemark_openvino_test");
  ASSERT_TRUE(made.ok()) << made.status();
  directory_ = *made;
  std::filesystem::create_directory(version());
}

void EngineTest::TearDown() {
  EXPECT_TRUE(platform().RemoveTree(directory_).ok());
  EXPECT_EQ(ledger().Totals().rows, 0u);
  EXPECT_EQ(ledger().stranded_rows(), 0u);
}

inference::ModelConfig EngineTest::Config(const std::string& text) {
  inference::ModelConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  config.set_name("m");
  config.set_backend("openvino");
  return config;
}

absl::StatusOr<std::unique_ptr<Loaded>> EngineTest::Load(const inference::ModelConfig& config, CancelFlag* cancel) {
  auto loaded = std::make_unique<Loaded>();
  loaded->scope = std::make_unique<Scope>(ledger(), platform(), "model/m/1", Scope::Options{.cancel = cancel});
  const ModelArtifact artifact{.model_name = "m",
                               .version = 1,
                               .model_directory = directory_,
                               .version_directory = version(),
                               .auto_complete = true,
                               .cancel = cancel};
  ASSIGN_OR_RETURN(loaded->model, backend().CreateModel(artifact, config, *loaded->scope));
  loaded->instance_scope = std::make_unique<Scope>(*loaded->scope, "instance/m_0");
  inference::ModelInstanceGroup group;
  group.set_kind(inference::ModelInstanceGroup::KIND_CPU);
  ASSIGN_OR_RETURN(loaded->instance, loaded->model->CreateInstance(*loaded->instance_scope, group, "m_0", kHost));
  loaded->scope->EndLoad();
  return loaded;
}

std::unique_ptr<Loaded> EngineTest::MustLoad(const inference::ModelConfig& config) {
  auto loaded = Load(config);
  EXPECT_TRUE(loaded.ok()) << MessageOf(loaded.status());
  return loaded.ok() ? *std::move(loaded) : nullptr;
}

absl::Status EngineTest::LoadError(const inference::ModelConfig& config, CancelFlag* cancel) {
  auto loaded = Load(config, cancel);
  EXPECT_FALSE(loaded.ok()) << "the load went well";
  const absl::Status status = loaded.status();
  loaded = absl::UnknownError("dropped");
  EXPECT_EQ(ledger().Totals().rows, 0u);
  return status;
}

EngineTest::Answer EngineTest::Run(Loaded& loaded, const std::vector<Value>& inputs, CancelFlag* cancel,
                                   std::int64_t deadline_nanos, std::vector<bool> wanted) {
  std::vector<InputTensor> tensors;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    tensors.push_back({.index = i,
                       .name = "input",
                       .data_type = inputs[i].data_type,
                       .shape = inputs[i].shape,
                       .data = std::as_bytes(std::span(inputs[i].bytes))});
  }
  wanted.resize(static_cast<std::size_t>(loaded.model->config().output_size()));
  auto sink = std::make_unique<TestSink>(std::move(wanted));
  const Parameters parameters;
  Execution execution;
  execution.inputs = tensors;
  execution.outputs = sink.get();
  execution.cancel = cancel;
  execution.deadline_nanos = deadline_nanos;
  execution.parameters = &parameters;
  Execution* const batch[] = {&execution};
  loaded.instance->Execute(batch);
  std::map<std::size_t, Value> values = sink->values();
  return {execution.status, std::move(values), std::move(sink)};
}

}  // namespace tidemark::testing
