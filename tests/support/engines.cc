#include "tests/support/engines.h"

#include "backends/identity/identity_backend.h"
#include "backends/onnxruntime/onnxruntime_backend.h"
#ifndef TIDEMARK_SANITIZED
#include "backends/openvino/openvino_backend.h"
#endif
#include "backends/tensorrt/tensorrt_backend.h"
#include "tests/support/gpu_fakes/fake_gpu.h"
#include "tests/support/gpu_fakes/fake_plan.h"
#include "tests/support/onnx_builder.h"

namespace tidemark {

std::string TestEngine::Config(int instances) const {
  std::string config = CopyConfig(on_gpu ? "tensorrt" : name, instances);
  if (on_gpu) config.replace(config.find("KIND_CPU"), 8, "KIND_GPU");
  return config;
}

void TestEngine::AddModel(TestFolder& folder, std::string_view model, int instances) const {
  folder.AddModel(model, Config(instances), {1}, file, contents);
}

LoadOverrides TestEngine::Overrides() const {
  LoadOverrides overrides;
  overrides.config_json = fmt::format(
      R"({{"backend":"{}","input":[{{"name":"INPUT0","data_type":"TYPE_FP32","dims":[4]}}],)"
      R"("output":[{{"name":"OUTPUT0","data_type":"TYPE_FP32","dims":[4]}}],"instance_group":[{{"kind":"{}","count":1}}]}})",
      on_gpu ? "tensorrt" : name, on_gpu ? "KIND_GPU" : "KIND_CPU");
  overrides.files["1/" + file] = contents;
  return overrides;
}

CoreHarness::Options TestEngine::Options() const {
  CoreHarness::Options options;
  if (factory != nullptr) options.backends.emplace_back(on_gpu ? "tensorrt" : name, factory);
  if (on_gpu) {
    OpenFakeGpu();
    options.cuda_library = FakeGpuFolder() + "/libcuda.so.1";
    options.settings["tensorrt"]["library"] =
        FakeGpuFolder() + "/libnvinfer.so." + (name == "tensorrt10" ? "10" : "11");
  }
  options.engine_directory = TIDEMARK_ENGINES;
  return options;
}

std::vector<TestEngine> AllEngines() {
  // OUTPUT0 = INPUT0 + (INPUT0 x zeros) x zeros: copies its input, with two weights of 256 KiB, so that
  // engines ask for memory that has rows of its own.
  constexpr std::int64_t kWide = 16384;
  const std::string zeros(4 * kWide * sizeof(float), '\0');
  const std::string onnx = testing::OnnxBuilder()
                               .Input("INPUT0", testing::kOnnxFloat, {4})
                               .Weights("W", testing::kOnnxFloat, {4, kWide}, zeros)
                               .Weights("V", testing::kOnnxFloat, {kWide, 4}, zeros)
                               .Node("MatMul", {"INPUT0", "W"}, {"wide"})
                               .Node("MatMul", {"wide", "V"}, {"narrow"})
                               .Node("Add", {"INPUT0", "narrow"}, {"OUTPUT0"})
                               .Output("OUTPUT0", testing::kOnnxFloat, {4})
                               .Build();
  testing::FakePlan plan = testing::FakePlan::Identity(4, "INPUT0", "OUTPUT0");
  plan.Weights(256 << 10).Bytes("scratch", 128 << 10);
  const std::string plan11 = plan.Build();
  const std::string plan10 = plan.Version(10, 6, 0, 26).Build();
  return {
      {"fake", nullptr, "model.fake", "weights", &FakeAcquisitions},
      {"identity", &CreateIdentityBackend, "nothing", "", [](int instances) { return 1 + 2 * instances; }},
      {"onnxruntime", &CreateOnnxRuntimeBackend, "model.onnx", onnx, [](int instances) { return 7 + 2 * instances; }},
// OpenVINO opens libtbbbind with RTLD_DEEPBIND, at which the sanitizers end the process.
#ifndef TIDEMARK_SANITIZED
      {"openvino", &CreateOpenVinoBackend, "model.onnx", onnx, [](int instances) { return 3 + 2 * instances; }},
#endif
      {"tensorrt", &CreateTensorRtBackend, "model.plan", plan11, [](int instances) { return 4 + 7 * instances; }, true},
      {"tensorrt10", &CreateTensorRtBackend, "model.plan", plan10, [](int instances) { return 4 + 7 * instances; },
       true},
  };
}

}  // namespace tidemark
