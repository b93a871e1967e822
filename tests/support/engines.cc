#include "tests/support/engines.h"

#include "backends/identity/identity_backend.h"
#include "backends/onnxruntime/onnxruntime_backend.h"
#include "backends/openvino/openvino_backend.h"
#include "tests/support/onnx_builder.h"

namespace tidemark {

std::string TestEngine::Config(int instances) const { return CopyConfig(name, instances); }

void TestEngine::AddModel(TestFolder& folder, std::string_view model, int instances) const {
  folder.AddModel(model, Config(instances), {1}, file, contents);
}

LoadOverrides TestEngine::Overrides() const {
  LoadOverrides overrides;
  overrides.config_json = fmt::format(
      R"({{"backend":"{}","input":[{{"name":"INPUT0","data_type":"TYPE_FP32","dims":[4]}}],)"
      R"("output":[{{"name":"OUTPUT0","data_type":"TYPE_FP32","dims":[4]}}],"instance_group":[{{"kind":"KIND_CPU","count":1}}]}})",
      name);
  overrides.files["1/" + file] = contents;
  return overrides;
}

CoreHarness::Options TestEngine::Options() const {
  CoreHarness::Options options;
  if (factory != nullptr) options.backends.emplace_back(name, factory);
  options.engine_directory = TIDEMARK_ENGINES;
  return options;
}

std::vector<TestEngine> AllEngines() {
  const std::string onnx = testing::OnnxIdentity(testing::kOnnxFloat, {4});
  return {
      {"fake", nullptr, "model.fake", "weights", &FakeAcquisitions},
      {"identity", &CreateIdentityBackend, "nothing", "", [](int instances) { return instances; }},
      {"onnxruntime", &CreateOnnxRuntimeBackend, "model.onnx", onnx, [](int instances) { return 1 + 2 * instances; }},
      {"openvino", &CreateOpenVinoBackend, "model.onnx", onnx, [](int instances) { return 1 + 2 * instances; }},
  };
}

}  // namespace tidemark
