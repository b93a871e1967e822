#include "inference/model_info.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "base/status.h"
#include "repository/config_io.h"
#include "repository/config_text.h"

namespace tidemark {
namespace {

constexpr std::string_view kBatchNote =
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each "
    "input shape. If you want to specify the full shape including the batch dim in your input dims config, try setting "
    "max_batch_size to zero. See the model configuration docs for more info on max_batch_size.";

template <typename Declared>
TensorInfo MakeTensorInfo(const inference::ModelConfig& config, const Declared& declared) {
  TensorInfo info;
  info.name = declared.name();
  info.data_type = TypeOf(declared);
  info.shape_tensor = declared.is_shape_tensor();
  info.non_linear = declared.is_non_linear_format_io();
  info.dims = info.shape_tensor ? DimsOf(declared) : WithBatch(config, DimsOf(declared));
  info.backend_dims = info.shape_tensor ? BackendDimsOf(declared) : WithBatch(config, BackendDimsOf(declared));
  info.reshaped = declared.has_reshape();
  return info;
}

const TensorInfo* Find(const std::vector<TensorInfo>& tensors, std::string_view name) {
  const auto it = std::find_if(tensors.begin(), tensors.end(), [&](const TensorInfo& t) { return t.name == name; });
  return it == tensors.end() ? nullptr : &*it;
}

// "['A','B']", "[]": the list form of Triton's messages.
class NameList {
 public:
  void Add(std::string_view name) {
    fmt::format_to(std::back_inserter(text_), "{}'{}'", text_.empty() ? "" : ",", name);
  }
  std::string Text() const { return fmt::format("[{}]", text_); }

 private:
  std::string text_;
};

bool Fits(std::span<const std::int64_t> declared, std::span<const std::int64_t> given) {
  return std::equal(declared.begin(), declared.end(), given.begin(), given.end(),
                    [](std::int64_t want, std::int64_t have) { return want < 0 || want == have; });
}

// The shape that the backend sees: `reshape` with its variable dims taken from the given shape's, left to right.
Shape BackendShape(const TensorInfo& info, const Shape& given) {
  if (!info.reshaped) return given;
  Shape result = info.backend_dims;
  std::size_t from = 0;
  for (std::int64_t& dim : result) {
    if (dim >= 0) continue;
    while (from < info.dims.size() && info.dims[from] >= 0) ++from;
    dim = from < given.size() ? given[from++] : 1;
  }
  return result;
}

}  // namespace

ModelInfo::ModelInfo(const inference::ModelConfig& config, std::int64_t version,
                     const std::map<std::string, std::vector<std::string>>& labels)
    : config_(config), version_(version), version_text_(std::to_string(version)), decoupled_(IsDecoupled(config_)) {
  for (const inference::ModelInput& input : config_.input()) {
    TensorInfo& info = inputs_.emplace_back(MakeTensorInfo(config_, input));
    info.optional = input.optional();
    info.ragged = input.allow_ragged_batch();
    if (!info.optional) ++required_inputs_;
  }
  for (const inference::ModelOutput& output : config_.output()) {
    TensorInfo& info = outputs_.emplace_back(MakeTensorInfo(config_, output));
    if (const auto it = labels.find(info.name); it != labels.end()) info.labels = it->second;
  }
}

std::string ModelInfo::config_json() const { return ConfigJson(config_); }

const TensorInfo* ModelInfo::FindInput(std::string_view name) const { return Find(inputs_, name); }
const TensorInfo* ModelInfo::FindOutput(std::string_view name) const { return Find(outputs_, name); }

bool ModelInfo::TakesDeviceMemory(std::string_view input) const {
  if (!takes_device_memory_ || config_.response_cache().enable() || config_.has_sequence_batching()) return false;
  const TensorInfo* const info = FindInput(input);
  return info != nullptr && !info->shape_tensor;
}

absl::Status ModelInfo::DeduceRaw(InferenceRequest& request) const {
  const std::string prefix = request.Prefix();
  if (inputs_.size() != 1 || request.inputs.size() != 1) {
    return absl::InvalidArgumentError(fmt::format(
        "{}Raw request must only have 1 input (found {}) to be deduced but got {} inputs in '{}' model configuration",
        prefix, request.inputs.size(), inputs_.size(), name()));
  }
  const TensorInfo& info = inputs_[0];
  RequestInput& input = request.inputs[0];
  input.name = info.name;
  input.data_type = info.data_type;
  input.shape = info.dims;
  const std::span<std::int64_t> own(input.shape.data() + (max_batch_size() > 0 ? 1 : 0),
                                    input.shape.size() - (max_batch_size() > 0 ? 1 : 0));
  if (max_batch_size() > 0) input.shape[0] = 1;

  if (info.data_type == DataType::kBytes) {
    if (own.size() != 1 || own[0] != 1) {
      return absl::InvalidArgumentError(
          fmt::format("{}For BYTE datatype raw input '{}', the model must have input shape [1]", prefix, info.name));
    }
    return absl::OkStatus();
  }
  std::int64_t* variable = nullptr;
  std::int64_t fixed = 1;
  for (std::int64_t& dim : own) {
    if (dim >= 0) {
      if (__builtin_mul_overflow(fixed, dim, &fixed)) fixed = std::numeric_limits<std::int64_t>::max();
    } else if (variable == nullptr) {
      variable = &dim;
    } else {
      return absl::InvalidArgumentError(
          fmt::format("{}The shape of the raw input '{}' can not be deduced because there are more than one "
                      "variable-sized dimension",
                      prefix, info.name));
    }
  }
  if (variable != nullptr) {
    const auto element = static_cast<std::int64_t>(ElementByteSize(info.data_type));
    const auto bytes = static_cast<std::int64_t>(input.data.size());
    *variable = element > 0 && fixed > 0 ? bytes / element / fixed : 0;
  }
  return absl::OkStatus();
}

absl::Status ModelInfo::CheckCount(const InferenceRequest& request) const {
  const std::size_t got = request.inputs.size();
  if (got >= required_inputs_ && got <= inputs_.size()) return absl::OkStatus();
  NameList given;
  NameList missing;
  for (const RequestInput& input : request.inputs) given.Add(input.name);
  for (const TensorInfo& info : inputs_) {
    if (!info.optional && std::none_of(request.inputs.begin(), request.inputs.end(),
                                       [&](const RequestInput& input) { return input.name == info.name; })) {
      missing.Add(info.name);
    }
  }
  const std::string expected =
      required_inputs_ == inputs_.size()
          ? fmt::format("expected {} inputs", inputs_.size())
          : fmt::format("expected number of inputs between {} and {}", required_inputs_, inputs_.size());
  return absl::InvalidArgumentError(
      fmt::format("{}{} but got {} inputs for model '{}'. Got input(s) {}, but missing required input(s) {}. Please "
                  "provide all required input(s).",
                  request.Prefix(), expected, got, name(), given.Text(), missing.Text()));
}

absl::Status ModelInfo::CheckBatch(const InferenceRequest& request, std::int64_t& batch) const {
  batch = 1;
  if (max_batch_size() <= 0) return absl::OkStatus();
  bool first = true;
  for (const RequestInput& input : request.inputs) {
    if (const TensorInfo* info = FindInput(input.name); info != nullptr && info->shape_tensor) continue;
    if (input.shape.empty()) {
      return absl::InvalidArgumentError(
          fmt::format("{}input '{}' has no shape but model requires batch dimension for '{}'", request.Prefix(),
                      input.name, name()));
    }
    if (!first && input.shape[0] != batch) {
      return absl::InvalidArgumentError(fmt::format("{}input '{}' batch size does not match other inputs for '{}'",
                                                    request.Prefix(), input.name, name()));
    }
    batch = input.shape[0];
    first = false;
  }
  if (batch > max_batch_size()) {
    return absl::InvalidArgumentError(fmt::format("{}inference request batch-size must be <= {} for '{}'",
                                                  request.Prefix(), max_batch_size(), name()));
  }
  return absl::OkStatus();
}

absl::Status ModelInfo::CheckInput(const InferenceRequest& request, const RequestInput& input,
                                   const TensorInfo& info) const {
  if (input.data_type != info.data_type) {
    return absl::InvalidArgumentError(
        fmt::format("{}inference input '{}' data-type is '{}', but model '{}' expects '{}'", request.Prefix(),
                    input.name, ProtocolName(input.data_type), name(), ProtocolName(info.data_type)));
  }
  if (std::any_of(input.shape.begin(), input.shape.end(), [](std::int64_t dim) { return dim < 0; })) {
    return absl::InvalidArgumentError(
        fmt::format("{}All input dimensions should be specified for input '{}' for model '{}', got {}",
                    request.Prefix(), input.name, name(), ShapeText(AsSpan(input.shape))));
  }
  if (!Fits(AsSpan(info.dims), AsSpan(input.shape))) {
    return absl::InvalidArgumentError(fmt::format(
        "{}unexpected shape for input '{}' for model '{}'. Expected {}, got {}. {}", request.Prefix(), input.name,
        name(), ShapeText(AsSpan(info.dims)), ShapeText(AsSpan(input.shape)), max_batch_size() > 0 ? kBatchNote : ""));
  }
  const std::optional<std::int64_t> count = ElementCount(AsSpan(input.shape));
  if (!count) {
    return absl::InvalidArgumentError(fmt::format("element count for tensor '{}' exceeds maximum size of {}",
                                                  input.name, std::numeric_limits<std::int64_t>::max()));
  }
  if (info.data_type == DataType::kBytes) return CheckStrings(request, input, static_cast<std::uint64_t>(*count));
  const std::optional<std::int64_t> bytes = TensorByteSize(info.data_type, AsSpan(input.shape));
  if (!bytes) {
    return absl::InvalidArgumentError(fmt::format("byte size for tensor '{}' exceeds maximum size of {}", input.name,
                                                  std::numeric_limits<std::int64_t>::max()));
  }
  if (!info.non_linear && static_cast<std::uint64_t>(*bytes) != input.data.size()) {
    return absl::InvalidArgumentError(
        fmt::format("{}input byte size mismatch for input '{}' for model '{}'. Expected {}, got {}", request.Prefix(),
                    input.name, name(), *bytes, input.data.size()));
  }
  return absl::OkStatus();
}

absl::Status ModelInfo::CheckStrings(const InferenceRequest& request, const RequestInput& input,
                                     std::uint64_t expected) const {
  std::span<const std::byte> rest = input.data;
  std::uint64_t count = 0;
  while (!rest.empty()) {
    std::uint32_t length = 0;
    if (rest.size() < sizeof(length)) {
      return absl::InvalidArgumentError(fmt::format(
          "{}incomplete string length indicator for inference input '{}' for model '{}', expecting {} bytes but only "
          "{} bytes available. Please make sure the string length indicator is in one buffer.",
          request.Prefix(), input.name, name(), sizeof(length), rest.size()));
    }
    if (++count > expected) {
      return absl::InvalidArgumentError(
          fmt::format("{}unexpected number of string elements {} for inference input '{}' for model '{}', expecting {}",
                      request.Prefix(), count, input.name, name(), expected));
    }
    std::memcpy(&length, rest.data(), sizeof(length));
    rest = rest.subspan(sizeof(length));
    if (rest.size() < length) {
      return absl::InvalidArgumentError(
          fmt::format("{}incomplete string data for inference input '{}' for model '{}', expecting string of length {} "
                      "but only {} bytes available",
                      request.Prefix(), input.name, name(), length, rest.size()));
    }
    rest = rest.subspan(length);
  }
  if (count != expected) {
    return absl::InvalidArgumentError(
        fmt::format("{}expected {} string elements for inference input '{}' for model '{}', got {}", request.Prefix(),
                    expected, input.name, name(), count));
  }
  return absl::OkStatus();
}

absl::Status ModelInfo::Prepare(InferenceRequest& request, std::vector<InputTensor>& tensors,
                                std::int64_t& batch) const {
  tensors.clear();
  if (request.raw) RETURN_IF_ERROR(DeduceRaw(request));
  for (const RequestedOutput& output : request.outputs) {
    if (FindOutput(output.name) == nullptr) {
      return absl::InvalidArgumentError(
          fmt::format("unexpected inference output '{}' for model '{}'", output.name, name()));
    }
  }
  RETURN_IF_ERROR(CheckCount(request));
  tensors.reserve(request.inputs.size());
  for (const RequestInput& input : request.inputs) {
    const TensorInfo* info = FindInput(input.name);
    if (info == nullptr) {
      return absl::InvalidArgumentError(
          fmt::format("unexpected inference input '{}' for model '{}'", input.name, name()));
    }
    InputTensor& tensor = tensors.emplace_back();
    tensor.index = static_cast<std::size_t>(info - inputs_.data());
  }
  RETURN_IF_ERROR(CheckBatch(request, batch));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const RequestInput& input = request.inputs[i];
    InputTensor& tensor = tensors[i];
    const TensorInfo& info = inputs_[tensor.index];
    RETURN_IF_ERROR(CheckInput(request, input, info));
    tensor.name = info.name;
    tensor.data_type = info.data_type;
    tensor.shape = BackendShape(info, input.shape);
    tensor.data = input.data;
    tensor.device = input.device();
  }
  const auto by_index = [](const InputTensor& a, const InputTensor& b) { return a.index < b.index; };
  if (!std::is_sorted(tensors.begin(), tensors.end(), by_index)) std::sort(tensors.begin(), tensors.end(), by_index);
  const auto twice = std::adjacent_find(tensors.begin(), tensors.end(),
                                        [](const InputTensor& a, const InputTensor& b) { return a.index == b.index; });
  if (twice != tensors.end()) {
    return absl::InvalidArgumentError(
        fmt::format("{}input '{}' already exists in request", request.Prefix(), twice->name));
  }
  return absl::OkStatus();
}

}  // namespace tidemark
