// Bodies of generate requests: whatever is accepted are whole tensors in the shape that goes with them.

#include <google/protobuf/text_format.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "inference/registry.h"
#include "protocol/generate.h"
#include "tests/support/real_platform.h"

namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

inference::ModelConfig Config() {
  inference::ModelConfig config;
  Require(google::protobuf::TextFormat::ParseFromString(
      R"(name: "m" max_batch_size: 4
         input { name: "t" data_type: TYPE_STRING dims: [ -1 ] }
         input { name: "i" data_type: TYPE_INT32 dims: [ 2, -1 ] }
         input { name: "f" data_type: TYPE_FP64 dims: [ -1, 3, -1 ] }
         input { name: "b" data_type: TYPE_BOOL dims: [ 1 ] })",
      &config));
  return config;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::unique_ptr<tidemark::Platform> platform = tidemark::CreateLinuxPlatform();
  static tidemark::BufferPool pool(*platform);
  static const tidemark::ModelInfo model(Config(), 1, {});
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  tidemark::InferenceRequest request;
  constexpr std::size_t kLimit = 1 << 20;
  if (!tidemark::DecodeGenerate(body, model, kLimit, pool, request).ok()) return 0;
  std::size_t bytes = 0;
  for (const tidemark::RequestInput& input : request.inputs) {
    bytes += input.data.size();
    const auto shape = tidemark::AsSpan(input.shape);
    if (input.shape.empty()) {
      Require(input.data.empty());
      continue;
    }
    Require(tidemark::ElementCount(shape).has_value() && request.inputs.size() <= size);
    if (input.data_type != tidemark::DataType::kBytes) {
      Require(tidemark::TensorByteSize(input.data_type, shape) == static_cast<std::int64_t>(input.data.size()));
    }
  }
  Require(bytes <= kLimit + size * 2);
  for (const auto& [key, value] : request.parameters) Require(!key.starts_with("triton_"));
  return 0;
}
