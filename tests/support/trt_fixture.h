#pragma once

#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "backends/tensorrt/tensorrt_backend.h"
#include "base/status.h"
#include "google/protobuf/text_format.h"
#include "repository/config_normalize.h"
#include "resource/gpu.h"
#include "tests/support/fault_platform.h"
#include "tests/support/gpu_fakes/fake_gpu.h"
#include "tests/support/gpu_fakes/fake_plan.h"
#include "tests/support/model_directory.h"
#include "tests/support/real_platform.h"

// For tests of the TensorRT backend: a backend over the fake GPU libraries, and requests for its instances.
namespace tidemark {

// The configuration of FakePlan::AddSub().
inline constexpr char kAddSub[] = R"(max_batch_size: 64
  input { name: "INPUT0" data_type: TYPE_FP32 dims: 16 } input { name: "INPUT1" data_type: TYPE_FP32 dims: 16 }
  output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 16 } output { name: "OUTPUT1" data_type: TYPE_FP32 dims: 16 })";

inline std::vector<float> Ramp(std::size_t count, float from) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), from);
  return values;
}

// What the fake libraries hold; a test that loses a device leaves something to those after it.
inline std::map<std::string, std::int64_t> Live() {
  std::map<std::string, std::int64_t> live;
  for (const char* kind : {"runtimes", "engines", "contexts", "device_blocks", "device_bytes", "pinned_blocks",
                           "streams", "events", "graphs", "graph_execs"}) {
    live[kind] = FakeGpuLive(kind);
  }
  return live;
}

class CollectingSink final : public OutputSink {
 public:
  bool Wants(std::size_t index) const override { return unwanted.count(index) == 0; }
  absl::StatusOr<std::span<std::byte>> Allocate(std::size_t index, DataType data_type,
                                                std::span<const std::int64_t> shape, std::size_t bytes) override {
    if (!refusal.ok()) return refusal;
    ++allocations;
    types[index] = data_type;
    shapes[index] = Shape(shape.begin(), shape.end());
    data[index].resize(bytes);
    return std::span<std::byte>(data[index]);
  }
  absl::StatusOr<Memory> AllocateOn(DeviceId device, std::size_t index, DataType data_type,
                                    std::span<const std::int64_t> shape, std::size_t bytes) override {
    ASSIGN_OR_RETURN(const std::span<std::byte> host, Allocate(index, data_type, shape, bytes));
    const auto target = on_device.find(index);
    if (target == on_device.end() || target->second.device != device) return Memory{host, kHost};
    return Memory{target->second.bytes.first(bytes), device};
  }
  template <typename T>
  std::vector<T> Values(std::size_t index) {
    std::vector<T> values(data[index].size() / sizeof(T));
    std::memcpy(values.data(), data[index].data(), data[index].size());
    return values;
  }

  absl::Status refusal;
  int allocations = 0;
  std::map<std::size_t, DataType> types;
  std::map<std::size_t, Shape> shapes;
  std::map<std::size_t, std::vector<std::byte>> data;
  std::map<std::size_t, bool> unwanted;
  std::map<std::size_t, Memory> on_device;  // where a client wants it
};

// One request with its memory.
struct TestRequest {
  template <typename T>
  TestRequest& Input(std::string name, DataType type, Shape shape, const std::vector<T>& values) {
    auto& bytes = owned.emplace_back(std::make_unique<std::vector<std::byte>>(values.size() * sizeof(T)));
    if (!values.empty()) std::memcpy(bytes->data(), values.data(), bytes->size());
    auto& kept = names.emplace_back(std::make_unique<std::string>(std::move(name)));
    inputs.push_back({inputs.size(), *kept, type, shape, *bytes});
    execution.inputs = inputs;
    execution.outputs = &sink;
    execution.parameters = &parameters;
    return *this;
  }
  // One that lies on a GPU.
  TestRequest& DeviceInput(std::string name, DataType type, Shape shape, std::span<const std::byte> memory,
                           DeviceId device) {
    auto& kept = names.emplace_back(std::make_unique<std::string>(std::move(name)));
    inputs.push_back({inputs.size(), *kept, type, shape, memory, device});
    execution.inputs = inputs;
    execution.outputs = &sink;
    execution.parameters = &parameters;
    return *this;
  }
  std::vector<std::unique_ptr<std::vector<std::byte>>> owned;
  std::vector<std::unique_ptr<std::string>> names;
  std::vector<InputTensor> inputs;
  Parameters parameters;
  CollectingSink sink;
  Execution execution;
};

class TrtFixture {
 public:
  explicit TrtFixture(int devices = 1) {
    OpenFakeGpu();
    FakeGpuMachine(devices, 8ULL << 30);
    FakeGpuHeal();
    FakeGpuForgetViolations();
    auto opened = Gpus::Open(resident, "libcuda.so.1");
    if (opened.ok()) gpus = *std::move(opened);
    for (int device = 0; gpus != nullptr && device < devices; ++device) static_cast<void>(gpus->Use(device));
  }
  ~TrtFixture() {
    backend.reset();
    resident.ReleaseAll();
    FakeGpuMachine(1, 8ULL << 30);
  }

  absl::Status Open(BackendSettings settings = {{"library", "libnvinfer.so.11;libnvinfer.so.10"}}) {
    ASSIGN_OR_RETURN(backend, CreateTensorRtBackend(BackendContext{resident, std::move(settings), {}, gpus.get()}));
    return absl::OkStatus();
  }

  // What the core does before it asks a backend.
  absl::StatusOr<std::unique_ptr<BackendModel>> Load(const std::string& plan, const std::string& config_text,
                                                     Scope& scope) {
    inference::ModelConfig config;
    if (!google::protobuf::TextFormat::ParseFromString(config_text, &config)) {
      return absl::InvalidArgumentError("bad test");
    }
    if (config.name().empty()) config.set_name("m");
    config.set_backend("tensorrt");
    config.set_platform("tensorrt_plan");
    NormalizeConfig(&config);
    InstanceDefaults defaults;
    defaults.gpus = {0};
    NormalizeInstanceGroups(defaults, &config);
    folder.Write(folder.repository() / "m/1/model.plan", plan);
    ModelArtifact artifact;
    artifact.model_name = config.name();
    artifact.version = 1;
    artifact.model_directory = folder.repository() / "m";
    artifact.version_directory = folder.repository() / "m/1";
    return backend->CreateModel(artifact, config, scope);
  }

  TestFolder folder;
  std::unique_ptr<Platform> real = CreateLinuxPlatform();
  FaultPlatform platform{*real};
  Ledger ledger;
  Scope resident{ledger, platform, "backend/tensorrt",
                 Scope::Options{.cancel = nullptr, .reservations = nullptr, .resident = true}};
  std::unique_ptr<Gpus> gpus;
  std::unique_ptr<Backend> backend;
};

// A loaded model and its instances, in the core's order.
struct LoadedPlan {
  static absl::StatusOr<std::unique_ptr<LoadedPlan>> Make(TrtFixture& fixture, const std::string& plan,
                                                          const std::string& config) {
    auto made = std::make_unique<LoadedPlan>();
    made->scope = std::make_unique<Scope>(fixture.ledger, fixture.platform, "model/m/1");
    ASSIGN_OR_RETURN(made->model, fixture.Load(plan, config, *made->scope));
    for (const auto& group : made->model->config().instance_group()) {
      std::vector<DeviceId> devices(group.gpus().begin(), group.gpus().end());
      if (devices.empty()) devices.push_back(0);
      for (const DeviceId device : devices) {
        for (const std::string& name : InstanceNames(group)) {
          made->scopes.push_back(std::make_unique<Scope>(*made->scope, "instance/" + name));
          ASSIGN_OR_RETURN(auto instance, made->model->CreateInstance(*made->scopes.back(), group, name, device));
          made->instances.push_back(std::move(instance));
        }
      }
    }
    return made;
  }
  ~LoadedPlan() {
    while (!instances.empty()) instances.pop_back();
    while (!scopes.empty()) scopes.pop_back();
    model.reset();
    scope.reset();
  }
  void Run(std::vector<TestRequest*> requests, std::size_t instance = 0) {
    std::vector<Execution*> executions;
    for (TestRequest* request : requests) executions.push_back(&request->execution);
    instances[instance]->Execute(executions);
  }

  std::unique_ptr<Scope> scope;
  std::unique_ptr<BackendModel> model;
  std::vector<std::unique_ptr<Scope>> scopes;
  std::vector<std::unique_ptr<BackendInstance>> instances;
};

}  // namespace tidemark
