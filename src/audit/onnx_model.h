#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/data_type.h"

namespace tidemark::audit {

// What test model to make. Its tensors have the shape [elements], or [batch, elements] with a free first dimension.
struct OnnxModelSpec {
  enum class Kind {
    kIdentity,  // OUTPUT0 = INPUT0
    kAddSub,    // OUTPUT0 = INPUT0 + INPUT1, OUTPUT1 = INPUT0 - INPUT1
  };
  Kind kind = Kind::kIdentity;
  std::int64_t elements = 16;
  DataType dtype = DataType::kFp32;
  bool batch = false;
};

// The bytes of an ONNX file (IR version 7, opset 14, which every ONNX Runtime of the last years reads). Written by hand
// in protobuf's wire format: field numbers and enumerations are those of the public onnx.proto. INVALID_ARGUMENT for no
// elements, and for types without addition.
absl::StatusOr<std::string> MakeOnnxModel(const OnnxModelSpec& spec);

// The complete config.pbtxt that goes with it.
std::string MakeOnnxConfig(const OnnxModelSpec& spec, const std::string& name);

}  // namespace tidemark::audit
