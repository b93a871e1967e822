#include "backend/ragged_plan.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/status.h"

namespace tidemark {
namespace {

std::size_t PositionOf(const inference::ModelConfig& config, const std::string& input) {
  const auto it = std::find_if(config.input().begin(), config.input().end(),
                               [&](const inference::ModelInput& candidate) { return candidate.name() == input; });
  return static_cast<std::size_t>(it - config.input().begin());
}

// Null when the request does not give it.
const InputTensor* Find(const Execution& request, std::size_t index) {
  const auto it = std::find_if(request.inputs.begin(), request.inputs.end(),
                               [&](const InputTensor& tensor) { return tensor.index == index; });
  return it == request.inputs.end() ? nullptr : &*it;
}

}  // namespace

RaggedPlan::RaggedPlan(const inference::ModelConfig& config)
    : batching_(config.max_batch_size() > 0), inputs_(static_cast<std::size_t>(config.input_size())) {
  for (const inference::ModelInput& input : config.input()) {
    ragged_.push_back(input.allow_ragged_batch());
    any_ragged_ = any_ragged_ || input.allow_ragged_batch();
  }
  for (const inference::BatchInput& input : config.batch_input()) {
    if (input.source_input().empty()) continue;  // refused by the validation
    for (const std::string& name : input.target_name()) {
      made_.push_back({name, static_cast<DataType>(input.data_type())});
      sources_.push_back({input.kind(), PositionOf(config, input.source_input(0))});
    }
  }
  for (const inference::BatchOutput& output : config.batch_output()) {
    if (output.source_input().empty()) continue;
    const std::size_t source = PositionOf(config, output.source_input(0));
    std::vector<std::size_t> variable;
    if (source < inputs_) {
      const auto& dims = config.input(static_cast<int>(source)).dims();
      for (int axis = 0; axis < dims.size(); ++axis) {
        if (dims[axis] < 0) variable.push_back(static_cast<std::size_t>(axis) + (batching_ ? 1 : 0));
      }
    }
    for (const std::string& name : output.target_name()) {
      for (int i = 0; i < config.output_size(); ++i) {
        if (config.output(i).name() != name) continue;
        const auto& dims = config.output(i).dims();
        scattered_.push_back({static_cast<std::size_t>(i), source, Shape(dims.begin(), dims.end()), variable});
      }
    }
  }
}

void RaggedPlan::Count(const Source& source, std::span<Execution* const> requests, std::vector<std::int64_t>& values,
                       Shape& shape) const {
  std::int64_t sum = 0;
  std::int64_t most = 0;
  std::int64_t items = 0;
  std::size_t rank = 0;
  if (source.kind == inference::BatchInput::BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO) values.push_back(0);
  for (const Execution* request : requests) {
    const InputTensor* const tensor = Find(*request, source.input);
    const std::int64_t elements = tensor == nullptr ? 0 : ElementCount(AsSpan(tensor->shape)).value_or(0);
    sum += elements;
    most = std::max(most, elements);
    switch (source.kind) {
      case inference::BatchInput::BATCH_ELEMENT_COUNT:
        values.push_back(elements);
        break;
      case inference::BatchInput::BATCH_ACCUMULATED_ELEMENT_COUNT:
      case inference::BatchInput::BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO:
        values.push_back(sum);
        break;
      case inference::BatchInput::BATCH_ITEM_SHAPE:
      case inference::BatchInput::BATCH_ITEM_SHAPE_FLATTEN: {
        if (tensor == nullptr) break;
        const std::size_t own = batching_ && !tensor->shape.empty() ? 1 : 0;
        const std::int64_t rows = own == 1 ? tensor->shape[0] : 1;
        rank = tensor->shape.size() - own;
        items += rows;
        for (std::int64_t row = 0; row < rows; ++row) {
          values.insert(values.end(), tensor->shape.begin() + static_cast<std::ptrdiff_t>(own), tensor->shape.end());
        }
        break;
      }
      default:
        break;  // a shape only
    }
  }
  if (source.kind == inference::BatchInput::BATCH_MAX_ELEMENT_COUNT_AS_SHAPE) {
    shape = {most};
  } else if (source.kind == inference::BatchInput::BATCH_ITEM_SHAPE) {
    shape = {items, static_cast<std::int64_t>(rank)};
  } else {
    shape = {static_cast<std::int64_t>(values.size())};
  }
}

absl::Status RaggedPlan::Make(std::span<Execution* const> requests, BufferPool& buffers,
                              std::vector<InputTensor>& inputs, std::vector<Buffer>& memory) const {
  for (std::size_t i = 0; i < made_.size(); ++i) {
    std::vector<std::int64_t> values;
    InputTensor tensor;
    tensor.index = inputs_ + i;
    tensor.name = made_[i].name;
    tensor.data_type = made_[i].data_type;
    Count(sources_[i], requests, values, tensor.shape);
    const std::optional<std::int64_t> bytes = TensorByteSize(tensor.data_type, AsSpan(tensor.shape));
    const bool fits = std::all_of(values.begin(), values.end(),
                                  [](std::int64_t value) { return value <= std::numeric_limits<std::int32_t>::max(); });
    if (!bytes.has_value() || !fits) {
      return absl::InvalidArgumentError(fmt::format("batch input '{}' cannot count the elements of this batch in {}",
                                                    tensor.name, ProtocolName(tensor.data_type)));
    }
    ASSIGN_OR_RETURN(Buffer buffer, buffers.Allocate(static_cast<std::size_t>(*bytes)));
    if (*bytes > 0) std::memset(buffer.data(), 0, buffer.size());
    std::byte* at = buffer.data();
    for (const std::int64_t value : values) {
      const auto integer = static_cast<std::int32_t>(value);
      const auto real = static_cast<float>(value);
      static_assert(sizeof integer == sizeof real);
      std::memcpy(at, tensor.data_type == DataType::kFp32 ? static_cast<const void*>(&real) : &integer, sizeof real);
      at += sizeof real;
    }
    tensor.data = buffer.bytes();
    memory.push_back(std::move(buffer));
    inputs.push_back(std::move(tensor));
  }
  return absl::OkStatus();
}

std::optional<Shape> RaggedPlan::PartShape(std::size_t output, const Execution& request) const {
  const auto found = std::find_if(scattered_.begin(), scattered_.end(),
                                  [&](const Scattered& entry) { return entry.output == output; });
  if (found == scattered_.end()) return std::nullopt;
  const InputTensor* const source = Find(request, found->input);
  if (source == nullptr) return std::nullopt;
  Shape shape = found->dims;
  std::size_t next = 0;
  for (std::int64_t& dim : shape) {
    if (dim >= 0) continue;
    const std::size_t axis = next < found->variable.size() ? found->variable[next++] : source->shape.size();
    dim = axis < source->shape.size() ? source->shape[axis] : 1;
  }
  if (batching_) shape.insert(shape.begin(), source->shape.empty() ? 1 : source->shape[0]);
  return shape;
}

}  // namespace tidemark
