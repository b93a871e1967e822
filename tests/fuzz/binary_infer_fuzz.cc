#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "inference/model_info.h"
#include "protocol/http_infer.h"
#include "tests/support/real_platform.h"

// Arbitrary bytes as the body of an infer request with binary tensors; the first two are the length of its JSON. Whatever
// is accepted has its data inside the body or in memory of its own, and passes or fails the model's check in peace.

namespace {

void Check(bool ok, const char* claim) {
  if (ok) return;
  std::fprintf(stderr, "broken claim: %s\n", claim);
  std::abort();
}

tidemark::ModelInfo MakeModel() {
  inference::ModelConfig config;
  google::protobuf::TextFormat::ParseFromString(
      R"(name: "m" max_batch_size: 4
         input { name: "A" data_type: TYPE_INT32 dims: [ -1, 2 ] reshape { shape: [ 2, -1 ] } }
         input { name: "S" data_type: TYPE_STRING dims: [ -1 ] optional: true }
         output { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] })",
      &config);
  return tidemark::ModelInfo(config, 1, {});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || size > 65536) return 0;
  static const std::unique_ptr<tidemark::Platform> platform = tidemark::CreateLinuxPlatform();
  static tidemark::BufferPool pool(*platform);
  static const tidemark::ModelInfo model = MakeModel();
  const std::vector<std::byte> body(reinterpret_cast<const std::byte*>(data) + 2,
                                    reinterpret_cast<const std::byte*>(data) + size);
  const std::size_t json_bytes = std::min<std::size_t>(data[0] + std::size_t{256} * data[1], body.size());

  tidemark::InferenceRequest request;
  if (!tidemark::DecodeInfer(body, json_bytes, model, 32768, pool, request).ok()) return 0;
  for (const tidemark::RequestInput& input : request.inputs) {
    if (input.data.empty()) continue;
    const auto inside = [&](std::span<const std::byte> memory) {
      return input.data.data() >= memory.data() &&
             input.data.data() + input.data.size() <= memory.data() + memory.size();
    };
    Check(inside(body) || inside(input.owned.bytes()), "data lies in the body or in the input's own memory");
  }
  std::vector<tidemark::InputTensor> tensors;
  std::int64_t batch = 0;
  if (model.Prepare(request, tensors, batch).ok()) Check(batch >= 0 && batch <= 4, "the batch is within its bounds");
  return 0;
}
