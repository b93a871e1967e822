#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tidemark::testing {

// ONNX element types (TensorProto.DataType) that the tests use.
inline constexpr int kOnnxFloat = 1;
inline constexpr int kOnnxUint8 = 2;
inline constexpr int kOnnxInt32 = 6;
inline constexpr int kOnnxInt64 = 7;
inline constexpr int kOnnxString = 8;
inline constexpr int kOnnxBool = 9;
inline constexpr int kOnnxFloat16 = 10;
inline constexpr int kOnnxDouble = 11;
inline constexpr int kOnnxBfloat16 = 16;

// A dimension: fixed, or named ("batch"), or free ("").
struct OnnxTestDim {
  OnnxTestDim(int dim) : value(dim) {}                        // NOLINT: reads well in a list of dimensions
  OnnxTestDim(std::int64_t dim) : value(dim) {}               // NOLINT
  OnnxTestDim(const char* name) : value(-1), symbol(name) {}  // NOLINT
  std::int64_t value;
  std::string symbol;
};
using OnnxTestShape = std::vector<OnnxTestDim>;

// Writes ONNX models in protobuf's wire form, for tests and benches. Not thread-safe.
//
//   std::string bytes = OnnxBuilder().Input("A", kOnnxFloat, {"batch", 4}).Node("Relu", {"A"}, {"B"})
//                           .Output("B", kOnnxFloat, {"batch", 4}).Build();
class OnnxBuilder {
 public:
  OnnxBuilder& Input(std::string_view name, int type, const OnnxTestShape& shape);
  OnnxBuilder& Output(std::string_view name, int type, const OnnxTestShape& shape);
  // A sequence of tensors of `type` as output.
  OnnxBuilder& SequenceOutput(std::string_view name, int type);
  OnnxBuilder& Node(std::string_view op, const std::vector<std::string>& inputs,
                    const std::vector<std::string>& outputs, std::string_view domain = "");
  // Weights with `raw` as their bytes in the file.
  OnnxBuilder& Weights(std::string_view name, int type, const std::vector<std::int64_t>& dims, std::string_view raw);
  // Weights that lie in the file `location` beside the model.
  OnnxBuilder& ExternalWeights(std::string_view name, int type, const std::vector<std::int64_t>& dims,
                               std::string_view location, std::uint64_t offset, std::uint64_t length);
  std::string Build() const;

 private:
  std::string graph_;
};

// Y = X for one tensor of the shape.
std::string OnnxIdentity(int type, const OnnxTestShape& shape, std::string_view input = "INPUT0",
                         std::string_view output = "OUTPUT0");

// OUTPUT0 = INPUT0 + INPUT1, OUTPUT1 = INPUT0 - INPUT1, all of `shape`.
std::string OnnxAddSub(int type, const OnnxTestShape& shape);

// A chain of MatMuls, [batch, width] -> [batch, width], `layers` distinct FP32 matrices of width * width; "X" -> "Y".
// With a `location` the weights are left out and appended to `external`, to be written to that file.
std::string OnnxMatMulChain(std::int64_t width, int layers, std::string_view location = "",
                            std::string* external = nullptr);

}  // namespace tidemark::testing
