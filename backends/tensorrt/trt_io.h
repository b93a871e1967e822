#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/tensorrt/nvinfer_objects.h"
#include "base/data_type.h"

namespace tidemark {

// The bounds of one input in one optimization profile: its dimensions, or for a shape input its values.
struct TrtRange {
  Shape min;
  Shape opt;
  Shape max;
};

// How a tensor lies in memory in one profile. Linear (row-major) unless `vectorized_dim` is set.
struct TrtFormat {
  bool linear = true;
  int vectorized_dim = -1;
  int components = 1;  // elements of the vectorised dimension that lie together
  std::string text;    // the library's description
};

// One input or output of an engine.
struct TrtTensor {
  std::string name;
  bool input = false;
  nv::DataType type = nv::DataType::kFloat;
  Shape dims;                       // -1 where it varies
  bool shape = false;               // takes part in shape inference: its values are needed on the host
  bool host = false;                // lives on the host
  std::string aliased_input;        // the input whose memory an output shares; "" for none
  std::vector<TrtRange> dim_range;  // inputs: for each profile
  std::vector<TrtRange> values;     // shape inputs: for each profile
  std::vector<TrtFormat> formats;   // for each profile

  bool linear() const;
  // Elements of a shape tensor: 1 for rank 0.
  std::int64_t length() const { return dims.empty() ? 1 : dims[0]; }
};

// What an engine takes and gives. Plain facts: everything that is decided about a configuration is decided on these.
struct TrtIo {
  std::vector<TrtTensor> tensors;  // in the engine's order
  int profiles = 1;

  const TrtTensor* Find(std::string_view name) const;
  // "a, b": names of inputs or outputs, sorted, as Triton lists them.
  std::string Names(bool inputs) const;
};

// INTERNAL when the engine does not answer as an engine should.
absl::StatusOr<TrtIo> ReadTrtIo(const nv::Engine& engine);

// The protocol's type for an engine's; kInvalid where there is none. 8-bit floats go as the bytes that they are (UINT8).
DataType DataTypeOf(nv::DataType type);
// May a configuration declare `type` for an engine's tensor of that type? (8-bit floats: INT8 or UINT8.)
bool Carries(DataType type, nv::DataType engine_type);
// "TYPE_FP32", also for types that no configuration knows ("TYPE_FP8").
std::string TypeNameOf(nv::DataType type);
// Bytes of one element. 4-bit types: 0, they are not served.
std::size_t ElementBytes(nv::DataType type);
// Bytes that a tensor of that shape takes in memory, padding of vectorised formats included; -1 when they do not fit or
// a dimension is negative.
std::int64_t MemoryBytes(const TrtTensor& tensor, const TrtFormat& format, const Shape& shape);

}  // namespace tidemark
