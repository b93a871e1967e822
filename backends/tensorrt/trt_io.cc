#include "backends/tensorrt/trt_io.h"

#include <algorithm>
#include <set>

#include "base/status.h"

namespace tidemark {
namespace {

constexpr int kMostTensors = 4096;
constexpr int kMostProfiles = 1024;

absl::StatusOr<TrtTensor> ReadTensor(const nv::Engine& engine, int index, int profiles) {
  const char* const name = engine.tensor_name(index);
  if (name == nullptr || *name == '\0') {
    return absl::InternalError(fmt::format("the TensorRT engine has no name for tensor {}", index));
  }
  TrtTensor tensor;
  tensor.name = name;
  const nv::IoMode mode = engine.tensor_mode(name);
  if (mode != nv::IoMode::kInput && mode != nv::IoMode::kOutput) {
    return absl::InternalError(fmt::format("the TensorRT engine's tensor '{}' is neither input nor output", name));
  }
  tensor.input = mode == nv::IoMode::kInput;
  tensor.type = engine.tensor_type(name);
  tensor.dims = nv::ToShape(engine.tensor_shape(name));
  tensor.shape = engine.is_shape_io(name);
  tensor.host = engine.tensor_location(name) == nv::Location::kHost || (tensor.input && tensor.shape);
  if (!tensor.input) {
    if (const char* alias = engine.aliased_input(name); alias != nullptr) tensor.aliased_input = alias;
  }
  for (int profile = 0; profile < profiles; ++profile) {
    TrtFormat format;
    format.linear = engine.tensor_format(name, profile) == nv::Format::kLinear;
    if (!format.linear) {
      format.vectorized_dim = engine.vectorized_dim(name, profile);
      format.components = std::max(1, engine.components_per_element(name, profile));
      if (const char* text = engine.format_text(name, profile); text != nullptr) format.text = text;
    }
    tensor.formats.push_back(std::move(format));
    if (!tensor.input) continue;
    TrtRange range;
    range.min = nv::ToShape(engine.profile_shape(name, profile, nv::Selector::kMin));
    range.opt = nv::ToShape(engine.profile_shape(name, profile, nv::Selector::kOpt));
    range.max = nv::ToShape(engine.profile_shape(name, profile, nv::Selector::kMax));
    tensor.dim_range.push_back(std::move(range));
    if (!tensor.shape || tensor.length() < 0) continue;
    const auto count = static_cast<std::size_t>(tensor.length());
    TrtRange values;
    values.min = engine.profile_values(name, profile, nv::Selector::kMin, count);
    values.opt = engine.profile_values(name, profile, nv::Selector::kOpt, count);
    values.max = engine.profile_values(name, profile, nv::Selector::kMax, count);
    tensor.values.push_back(std::move(values));
  }
  return tensor;
}

}  // namespace

bool TrtTensor::linear() const {
  return std::all_of(formats.begin(), formats.end(), [](const TrtFormat& format) { return format.linear; });
}

const TrtTensor* TrtIo::Find(std::string_view name) const {
  const auto it = std::find_if(tensors.begin(), tensors.end(), [&](const TrtTensor& t) { return t.name == name; });
  return it == tensors.end() ? nullptr : &*it;
}

std::string TrtIo::Names(bool inputs) const {
  std::set<std::string_view> names;
  for (const TrtTensor& tensor : tensors) {
    if (tensor.input == inputs) names.insert(tensor.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

absl::StatusOr<TrtIo> ReadTrtIo(const nv::Engine& engine) {
  TrtIo io;
  const int count = engine.tensors();
  io.profiles = engine.profiles();
  if (count < 1 || count > kMostTensors || io.profiles < 0 || io.profiles > kMostProfiles) {
    return absl::InternalError(
        fmt::format("the TensorRT engine has {} inputs and outputs and {} optimization profiles", count, io.profiles));
  }
  io.profiles = std::max(io.profiles, 1);
  for (int i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(TrtTensor tensor, ReadTensor(engine, i, io.profiles));
    io.tensors.push_back(std::move(tensor));
  }
  return io;
}

DataType DataTypeOf(nv::DataType type) {
  switch (type) {
    case nv::DataType::kFloat:
      return DataType::kFp32;
    case nv::DataType::kHalf:
      return DataType::kFp16;
    case nv::DataType::kInt8:
      return DataType::kInt8;
    case nv::DataType::kInt32:
      return DataType::kInt32;
    case nv::DataType::kBool:
      return DataType::kBool;
    case nv::DataType::kUint8:
    case nv::DataType::kFp8:
    case nv::DataType::kE8m0:
      return DataType::kUint8;
    case nv::DataType::kBf16:
      return DataType::kBf16;
    case nv::DataType::kInt64:
      return DataType::kInt64;
    default:
      return DataType::kInvalid;
  }
}

bool Carries(DataType type, nv::DataType engine_type) {
  const bool bytes = engine_type == nv::DataType::kFp8 || engine_type == nv::DataType::kE8m0;
  return type == DataTypeOf(engine_type) || (bytes && type == DataType::kInt8);
}

std::string TypeNameOf(nv::DataType type) {
  switch (type) {
    case nv::DataType::kFp8:
      return "TYPE_FP8";
    case nv::DataType::kInt4:
      return "TYPE_INT4";
    case nv::DataType::kFp4:
      return "TYPE_FP4";
    case nv::DataType::kE8m0:
      return "TYPE_E8M0";
    default:
      return std::string(ConfigName(DataTypeOf(type)));
  }
}

std::size_t ElementBytes(nv::DataType type) {
  const DataType ours = DataTypeOf(type);
  return ours == DataType::kInvalid ? 0 : ElementByteSize(ours);
}

std::int64_t MemoryBytes(const TrtTensor& tensor, const TrtFormat& format, const Shape& shape) {
  std::int64_t bytes = static_cast<std::int64_t>(ElementBytes(tensor.type));
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 0) return -1;
    std::int64_t dim = shape[i];
    if (!format.linear && static_cast<int>(i) == format.vectorized_dim) {
      dim = (dim + format.components - 1) / format.components * format.components;
    }
    if (__builtin_mul_overflow(bytes, dim, &bytes)) return -1;
  }
  return bytes;
}

}  // namespace tidemark
