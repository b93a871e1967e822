#pragma once

#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

#include "inference/model_info.h"
#include "inference/request.h"
#include "resource/buffer_pool.h"

namespace tidemark {

// Gives the response the model's output `index`, with a copy of these bytes: what an execution would have left there.
inline void AddOutput(InferenceResponse& response, const ModelInfo& model, BufferPool& pool, std::size_t index,
                      DataType type, Shape shape, std::string_view bytes) {
  ResponseOutput& output = response.outputs.emplace_back();
  output.index = index;
  output.name = model.outputs()[index].name;
  output.data_type = type;
  output.shape = std::move(shape);
  output.data = *pool.Allocate(bytes.size());
  if (!bytes.empty()) std::memcpy(output.data.data(), bytes.data(), bytes.size());
}

}  // namespace tidemark
