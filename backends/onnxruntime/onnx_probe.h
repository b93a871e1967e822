#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/data_type.h"

namespace tidemark {

// One dimension of a declared shape.
struct OnnxDim {
  std::int64_t value = -1;  // -1: not fixed
  std::string symbol;       // the name of a dimension that is not fixed; may be empty
};

// What kind of value a graph input or output is; the numbers are those of ort::Kind.
enum class OnnxKind : int { kUnknown = 0, kTensor, kSequence, kMap, kOpaque, kSparseTensor, kOptional };
std::string_view OnnxKindName(OnnxKind kind);  // "ONNX_TYPE_TENSOR", …

// A graph input or output as the model declares it.
struct OnnxValue {
  std::string name;
  OnnxKind kind = OnnxKind::kUnknown;
  int element_type = 0;  // of a tensor: the number in TensorProto.DataType
  bool has_shape = false;
  std::vector<OnnxDim> dims;

  Shape DeclaredShape() const;  // -1 for what is not fixed
};

// The data type for an ONNX element type; kInvalid when the protocol has none for it.
DataType DataTypeOfOnnx(int element_type);
// The reverse; 0 when there is none.
int OnnxOfDataType(DataType type);
std::string OnnxElementTypeName(int element_type);  // "FLOAT", "INT4", …; "<n>" when unknown

// Weights that lie in the file itself, large enough to be used from there.
struct OnnxInlineWeights {
  std::size_t entry_begin = 0;   // the graph's field that holds the TensorProto, with tag and length
  std::size_t tensor_begin = 0;  // the TensorProto's content
  std::size_t tensor_end = 0;
  std::size_t field_begin = 0;  // its raw_data field with tag and length
  std::size_t data_begin = 0;   // its bytes
  std::size_t data_end = 0;     // = end of the field
};

// Inputs and outputs of a model and where its weights are.
struct OnnxFacts {
  std::vector<OnnxValue> inputs;       // that a caller must give
  std::vector<OnnxValue> overridable;  // inputs with a default in the file
  std::vector<OnnxValue> outputs;
  std::vector<std::string> external_files;        // as written, without repetition
  bool nested_external = false;                   // some are named by weights inside nodes or sub-graphs
  std::vector<OnnxInlineWeights> inline_weights;  // of the main graph, in file order
  std::size_t graph_field = 0;                    // the model's field that holds the graph, with tag and length
  std::size_t graph_begin = 0;                    // the GraphProto's content
  std::size_t graph_end = 0;
};

inline constexpr std::size_t kLargeWeights = 64 << 10;

// Reads the outline of an ONNX file without its weights: a few microseconds, whatever the size of the file; nothing
// is copied but names. INTERNAL, naming `file` and the offset, when the bytes are no ONNX model.
absl::StatusOr<OnnxFacts> ProbeOnnx(std::span<const std::byte> bytes, std::string_view file);

// The same model with each of `facts.inline_weights` replaced by a reference to external data: file `location`, offset
// and length as in `bytes`.
std::string MoveWeightsOut(std::span<const std::byte> bytes, const OnnxFacts& facts, std::string_view location);

}  // namespace tidemark
