#pragma once

#include <cstdint>

#include "backends/tensorrt/nvinfer_abi.h"
#include "base/data_type.h"

// Typed views of TensorRT's objects: a shell and the table that fits its library. A view owns nothing and is copied
// freely; TrtLibrary says who deletes. Nothing here throws.
namespace tidemark::nv {

// What every view has.
class Object {
 public:
  Object() = default;
  Object(const Abi& abi, int version, void* shell) : abi_(&abi), version_(version), shell_(shell) {
    impl_ = shell != nullptr ? ImplOf(shell) : nullptr;
  }
  void* shell() const { return shell_; }
  explicit operator bool() const { return shell_ != nullptr; }

 protected:
  template <typename Result, typename... Arguments>
  Result Call(const Slot& slot, Arguments... arguments) const noexcept {
    return CallSlot<Result>(impl_, slot.index, arguments...);
  }

  const Abi* abi_ = nullptr;
  int version_ = 0;
  void* shell_ = nullptr;
  void* impl_ = nullptr;
};

inline Shape ToShape(const Dims& dims) {
  const std::int32_t rank = dims.rank < 0 ? 0 : dims.rank > 8 ? 8 : dims.rank;
  return Shape(dims.d, dims.d + rank);
}
inline Dims ToDims(const Shape& shape) {
  Dims dims;
  dims.rank = static_cast<std::int32_t>(shape.size());
  for (std::size_t i = 0; i < shape.size() && i < 8; ++i) dims.d[i] = shape[i];
  return dims;
}

class Context : public Object {
 public:
  using Object::Object;
  const void* engine() const { return Call<const void*>(abi_->context.engine); }
  void set_name(const char* name) const { Call<void>(abi_->context.set_name, name); }
  void set_error_recorder(ErrorRecorder* recorder) const { Call<void>(abi_->context.set_error_recorder, recorder); }
  bool set_profile(int profile, void* stream) const {
    return Call<bool>(abi_->context.set_profile, std::int32_t{profile}, stream);
  }
  bool set_input_shape(const char* name, const Dims& dims) const {
    return Call<bool>(abi_->context.set_input_shape, name, &dims);
  }
  Dims tensor_shape(const char* name) const { return Call<Dims>(abi_->context.tensor_shape, name); }
  bool set_address(const char* name, void* address) const {
    return Call<bool>(abi_->context.set_address, name, address);
  }
  // How many inputs lack a shape or values; their names, `count` at most, go to `names`. < 0: an error.
  int infer_shapes(int count, const char** names) const {
    return Call<std::int32_t>(abi_->context.infer_shapes, std::int32_t{count}, names);
  }
  bool set_output_allocator(const char* name, OutputAllocator* allocator) const {
    return Call<bool>(abi_->context.set_output_allocator, name, allocator);
  }
  std::int64_t max_output_bytes(const char* name) const {
    return Call<std::int64_t>(abi_->context.max_output_bytes, name);
  }
  bool set_temporary_allocator(GpuAllocator* allocator) const {
    return Call<bool>(abi_->context.set_temporary_allocator, allocator);
  }
  void set_device_memory(void* block, std::int64_t bytes) const {
    Call<void>(abi_->context.set_device_memory, block, bytes);
  }
  bool enqueue(void* stream) const { return Call<bool>(abi_->context.enqueue, stream); }
};

class Engine : public Object {
 public:
  using Object::Object;
  void* create_context(Strategy strategy) const { return Call<void*>(abi_->engine.create_context, strategy); }
  int profiles() const { return Call<std::int32_t>(abi_->engine.profiles); }
  void set_error_recorder(ErrorRecorder* recorder) const { Call<void>(abi_->engine.set_error_recorder, recorder); }
  int tensors() const { return Call<std::int32_t>(abi_->engine.tensors); }
  const char* tensor_name(int index) const { return Call<const char*>(abi_->engine.tensor_name, std::int32_t{index}); }
  Dims tensor_shape(const char* name) const { return Call<Dims>(abi_->engine.tensor_shape, name); }
  DataType tensor_type(const char* name) const { return Call<DataType>(abi_->engine.tensor_type, name); }
  Location tensor_location(const char* name) const { return Call<Location>(abi_->engine.tensor_location, name); }
  IoMode tensor_mode(const char* name) const { return Call<IoMode>(abi_->engine.tensor_mode, name); }
  bool is_shape_io(const char* name) const { return Call<bool>(abi_->engine.is_shape_io, name); }
  Dims profile_shape(const char* name, int profile, Selector selector) const {
    return Call<Dims>(abi_->engine.profile_shape, name, std::int32_t{profile}, selector);
  }
  Format tensor_format(const char* name, int profile) const {
    return Call<Format>(abi_->engine.tensor_format, name, std::int32_t{profile});
  }
  const char* format_text(const char* name, int profile) const {
    return Call<const char*>(abi_->engine.format_text, name, std::int32_t{profile});
  }
  int bytes_per_component(const char* name, int profile) const {
    return Call<std::int32_t>(abi_->engine.bytes_per_component, name, std::int32_t{profile});
  }
  int components_per_element(const char* name, int profile) const {
    return Call<std::int32_t>(abi_->engine.components_per_element, name, std::int32_t{profile});
  }
  int vectorized_dim(const char* name, int profile) const {
    return Call<std::int32_t>(abi_->engine.vectorized_dim, name, std::int32_t{profile});
  }
  std::int64_t device_memory_of(int profile) const {
    return Call<std::int64_t>(abi_->engine.device_memory_of, std::int32_t{profile});
  }
  // Values that an input on the host may have in a profile, element by element. To be asked for shape inputs only: the
  // library records an error for others. Before 10.11 they are 32 bit wide and come through another slot.
  Shape profile_values(const char* name, int profile, Selector selector, std::size_t count) const {
    Shape values;
    if (abi_->engine.profile_values.In(version_)) {
      const auto* wide = Call<const std::int64_t*>(abi_->engine.profile_values, name, std::int32_t{profile}, selector);
      if (wide != nullptr) values.assign(wide, wide + count);
    } else if (abi_->engine.profile_values_32.In(version_)) {
      const auto* narrow =
          Call<const std::int32_t*>(abi_->engine.profile_values_32, name, std::int32_t{profile}, selector);
      if (narrow != nullptr) values.assign(narrow, narrow + count);
    }
    return values;
  }
  // Bytes of all weights, -1 where the library does not tell (before 10.14).
  std::int64_t weight_bytes() const {
    return abi_->engine.stat.In(version_) ? Call<std::int64_t>(abi_->engine.stat, std::int32_t{0}) : -1;
  }
  // The input whose memory an output must share; null for an ordinary output.
  const char* aliased_input(const char* name) const {
    return abi_->engine.aliased_input.In(version_) ? Call<const char*>(abi_->engine.aliased_input, name) : nullptr;
  }
};

class Runtime : public Object {
 public:
  using Object::Object;
  void* deserialize(const void* plan, std::uint64_t bytes) const {
    return Call<void*>(abi_->runtime.deserialize, plan, bytes);
  }
  int dla_cores() const { return Call<std::int32_t>(abi_->runtime.dla_cores); }
  void set_gpu_allocator(GpuAllocator* allocator) const { Call<void>(abi_->runtime.set_gpu_allocator, allocator); }
  void set_error_recorder(ErrorRecorder* recorder) const { Call<void>(abi_->runtime.set_error_recorder, recorder); }
  const void* error_recorder() const { return Call<const void*>(abi_->runtime.error_recorder); }
  const void* logger() const { return Call<const void*>(abi_->runtime.logger); }
  bool set_max_threads(int threads) const { return Call<bool>(abi_->runtime.set_max_threads, std::int32_t{threads}); }
  int max_threads() const { return Call<std::int32_t>(abi_->runtime.max_threads); }
  void set_tempfile_flags(std::uint32_t flags) const { Call<void>(abi_->runtime.set_tempfile_flags, flags); }
  void* plugin_registry() const { return Call<void*>(abi_->runtime.plugin_registry); }
  void set_host_code_allowed(bool allowed) const { Call<void>(abi_->runtime.set_host_code_allowed, allowed); }
  bool host_code_allowed() const { return Call<bool>(abi_->runtime.host_code_allowed); }
};

}  // namespace tidemark::nv
