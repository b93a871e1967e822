#include "server/engines.h"

#include <system_error>

#include "backends/identity/identity_backend.h"
#include "backends/onnxruntime/onnxruntime_backend.h"
#include "backends/openvino/openvino_backend.h"
#include "backends/tensorrt/tensorrt_backend.h"

namespace tidemark {

void AddEngines(BackendRegistry& registry) {
  registry.Add("identity", &CreateIdentityBackend);
  registry.Add("onnxruntime", &CreateOnnxRuntimeBackend);
  registry.Add("openvino", &CreateOpenVinoBackend);
  registry.Add("tensorrt", &CreateTensorRtBackend);
}

std::filesystem::path DefaultEngineDirectory() {
  std::error_code error;
  const std::filesystem::path binary = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path installed = binary.parent_path().parent_path() / "lib" / "tidemark" / "engines";
  const std::filesystem::path built = binary.parent_path() / "engines";
  return std::filesystem::is_directory(built, error) ? built : installed;
}

}  // namespace tidemark
