#pragma once

#include <cstdint>
#include <string>

namespace tidemark {

// Two tiny models without weights, Y = A x B + A of FP32 [-1,-1] tensors, in the two formats that the engine reads. Run
// once when the engine is opened, so that its front ends, kernels and tables are loaded before any load is measured.
// Every input takes a [kBuiltInWidth, kBuiltInWidth] tensor.
inline constexpr std::int64_t kBuiltInWidth = 8;
std::string BuiltInIr();
std::string BuiltInOnnx();

}  // namespace tidemark
