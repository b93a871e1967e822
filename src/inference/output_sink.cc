#include "inference/output_sink.h"

#include <algorithm>

#include "base/status.h"

namespace tidemark {

bool ResponseSink::Wants(std::size_t index) const {
  if (request_.outputs.empty()) return true;
  const std::string& name = info_.outputs()[index].name;
  return std::any_of(request_.outputs.begin(), request_.outputs.end(),
                     [&](const RequestedOutput& output) { return output.name == name; });
}

// `shape` is what the engine made. With a reshape the client sees the declared dims, their variable ones taken from the
// engine's variable ones, left to right; the batch dimension stays in front.
Shape ResponseSink::ClientShape(const TensorInfo& info, std::span<const std::int64_t> shape) const {
  if (!info.reshaped || shape.size() != info.backend_dims.size()) return Shape(shape.begin(), shape.end());
  Shape result = info.dims;
  std::size_t from = 0;
  for (std::int64_t& dim : result) {
    if (dim >= 0) continue;
    while (from < shape.size() && info.backend_dims[from] >= 0) ++from;
    dim = from < shape.size() ? shape[from++] : 1;
  }
  return result;
}

absl::StatusOr<std::span<std::byte>> ResponseSink::Allocate(std::size_t index, DataType data_type,
                                                            std::span<const std::int64_t> shape, std::size_t bytes) {
  ASSIGN_OR_RETURN(Buffer buffer, buffers_.Allocate(bytes));
  const TensorInfo& info = info_.outputs()[index];
  ResponseOutput& output = request_.response.outputs.emplace_back();
  output.index = index;
  output.name = info.name;
  output.data_type = data_type;
  output.shape = ClientShape(info, shape);
  output.data = std::move(buffer);
  return output.data.bytes();
}

absl::Status ResponseSink::Finish() {
  std::vector<ResponseOutput>& made = request_.response.outputs;
  const std::size_t wanted = request_.outputs.empty() ? info_.outputs().size() : request_.outputs.size();
  for (std::size_t place = 0; place < wanted; ++place) {
    const std::string& name = request_.outputs.empty() ? info_.outputs()[place].name : request_.outputs[place].name;
    const auto it = std::find_if(made.begin() + static_cast<std::ptrdiff_t>(std::min(place, made.size())), made.end(),
                                 [&](const ResponseOutput& output) { return output.name == name; });
    if (it == made.end()) {
      return absl::InternalError(
          fmt::format("model '{}' version {} made no output '{}'", info_.name(), info_.version(), name));
    }
    std::iter_swap(made.begin() + static_cast<std::ptrdiff_t>(place), it);
  }
  made.resize(wanted);
  return absl::OkStatus();
}

}  // namespace tidemark
