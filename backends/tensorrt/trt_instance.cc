#include "backends/tensorrt/trt_instance.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backends/tensorrt/trt_config.h"
#include "backends/tensorrt/trt_graph_spec.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"

namespace tidemark {
namespace {

constexpr std::size_t kAlignment = 512;

std::size_t Aligned(std::size_t bytes) {
  return (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
}
void* ToAddress(cuda::Pointer pointer) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(pointer)); }
cuda::Pointer ToPointer(const std::byte* data) { return reinterpret_cast<std::uintptr_t>(data); }

}  // namespace

TrtInstance::TrtInstance(Private /*only Create*/, const TrtModel& model, TrtEngine& engine, const TrtIo& io,
                         Scope& scope, std::string_view name)
    : model_(model),
      config_(model.config()),
      engine_(engine),
      io_(io),
      gpus_(engine.gpus()),
      device_(engine.device()),
      scope_(scope),
      name_(name) {}

absl::StatusOr<std::unique_ptr<TrtInstance>> TrtInstance::Create(const TrtModel& model, TrtEngine& engine,
                                                                 const TrtIo& io, Scope& scope,
                                                                 const inference::ModelInstanceGroup& group,
                                                                 std::string_view name) {
  auto instance = std::make_unique<TrtInstance>(Private(), model, engine, io, scope, name);
  RETURN_IF_ERROR(instance->Open(group));
  return instance;
}

// Graphs before the contexts that they were captured from, contexts before the memory that they use. What is left on the
// scope (streams, events, buffers) follows with it, newest first.
TrtInstance::~TrtInstance() {
  for (auto& [key, captured] : graphs_) scope_.Release(captured.graph.handle);
  while (!profiles_.empty()) {
    scope_.Release(profiles_.back().handle);
    profiles_.pop_back();
  }
}

absl::Status TrtInstance::Health() const {
  RETURN_IF_ERROR(gpus_.Health(device_));
  if (!unhealthy_.load(std::memory_order_acquire)) return absl::OkStatus();
  return absl::UnavailableError("TensorRT reported that its own state is broken; load the model again");
}

absl::Status TrtInstance::Open(const inference::ModelInstanceGroup& group) {
  const std::int64_t start = NowNanos();
  RETURN_IF_ERROR(gpus_.Use(device_));
  spin_ = config_.optimization().cuda().busy_wait_events();
  auto priority = StreamPriority::kDefault;
  if (config_.optimization().priority() == inference::ModelOptimizationPolicy::PRIORITY_MAX) {
    priority = StreamPriority::kMax;
  } else if (config_.optimization().priority() == inference::ModelOptimizationPolicy::PRIORITY_MIN) {
    priority = StreamPriority::kMin;
  }
  ASSIGN_OR_RETURN(stream_, gpus_.CreateStream(scope_, device_, priority, "stream"));
  ASSIGN_OR_RETURN(done_, gpus_.CreateEvent(scope_, device_, /*blocking=*/!spin_, "event"));
  temporaries_ = std::make_unique<TrtTemporaries>(gpus_, scope_, device_);
  for (std::size_t i = 0; i < io_.tensors.size(); ++i) {
    const TrtTensor& tensor = io_.tensors[i];
    Binding binding;
    binding.tensor = &tensor;
    const auto find = [&](const auto& tensors) {
      for (int k = 0; k < tensors.size(); ++k) {
        if (tensors.Get(k).name() == tensor.name) binding.config_index = k;
      }
    };
    if (tensor.input) {
      find(config_.input());
      inputs_.push_back(i);
    } else {
      find(config_.output());
      if (binding.config_index >= 0) outputs_.push_back(i);
    }
    bindings_.push_back(std::move(binding));
  }
  const std::int64_t streams = NowNanos();
  RETURN_IF_ERROR(MakeContexts(group));
  const std::int64_t contexts = NowNanos();
  RETURN_IF_ERROR(MakeContextMemory());
  RETURN_IF_ERROR(SizeBindings());
  const std::int64_t sizes = NowNanos();
  RETURN_IF_ERROR(MakeBuffers());
  RETURN_IF_ERROR(BindBuffers());
  const std::int64_t buffers = NowNanos();
  RETURN_IF_ERROR(CaptureGraphs());
  LOG_VERBOSE(1, "timing of an instance: stream {} us, contexts {} us, sizes {} us, buffers {} us, graphs {} us",
              (streams - start) / 1000, (contexts - streams) / 1000, (sizes - contexts) / 1000,
              (buffers - sizes) / 1000, (NowNanos() - buffers) / 1000);
  std::string profiles;
  for (const Profile& profile : profiles_) profiles += fmt::format(" {}[{}];", profile.index, profile.index);
  if (group.profile().empty()) profiles = " default[0];";
  LOG_INFO("Created instance {} on GPU {} with stream priority {} and optimization profile{}", name_, device_,
           priority == StreamPriority::kMax   ? "max"
           : priority == StreamPriority::kMin ? "min"
                                              : "0",
           profiles);
  return absl::OkStatus();
}

absl::Status TrtInstance::MakeContexts(const inference::ModelInstanceGroup& group) {
  for (const int index : ProfilesOf(group)) {
    ASSIGN_OR_RETURN(const TrtEngine::Context made, engine_.CreateContext(scope_, errors_));
    Profile profile;
    profile.index = index;
    profile.context = made.context;
    profile.handle = made.handle;
    profiles_.push_back(profile);
    const nv::Context& context = profiles_.back().context;
    context.set_name(name_.c_str());
    errors_.Clear();
    if (!context.set_profile(index, stream_.stream)) {
      return absl::InvalidArgumentError(fmt::format("Can not set the specified optimization profile {}[{}] for {}: {}",
                                                    index, index, name_, errors_.Text("the library gave no reason")));
    }
    if (!context.set_temporary_allocator(temporaries_.get())) {
      return absl::InternalError(
          fmt::format("unable to create TensorRT context: no allocator of temporaries for {}: {}", name_,
                      errors_.Text("the library gave no reason")));
    }
  }
  return gpus_.Check(device_, gpus_.api().synchronize_stream(stream_.stream), "wait for the optimization profiles");
}

absl::Status TrtInstance::MakeContextMemory() {
  // Never without any: a context that was told nothing would have to be trusted to need nothing.
  std::int64_t bytes = kAlignment;
  for (const Profile& profile : profiles_) bytes = std::max(bytes, engine_.engine().device_memory_of(profile.index));
  ASSIGN_OR_RETURN(const GpuMemory memory,
                   gpus_.Allocate(scope_, device_, static_cast<std::size_t>(bytes), "activation memory"));
  for (const Profile& profile : profiles_) {
    profile.context.set_device_memory(ToAddress(memory.address), static_cast<std::int64_t>(memory.bytes));
  }
  return absl::OkStatus();
}

// The largest that configuration and profile let an input be.
Shape TrtInstance::LargestShape(const Binding& binding, const Profile& profile) const {
  Shape shape = binding.tensor->dim_range[static_cast<std::size_t>(profile.index)].max;
  if (binding.config_index < 0) return shape;
  Shape declared = EngineDims(config_.input(binding.config_index));
  if (batching()) declared.insert(declared.begin(), config_.max_batch_size());
  for (std::size_t i = 0; i < shape.size() && i < declared.size(); ++i) {
    if (declared[i] >= 0) shape[i] = std::min(shape[i], declared[i]);
  }
  return shape;
}

absl::Status TrtInstance::SizeBindings() {
  batch_limit_ = 1;
  for (Profile& profile : profiles_) RETURN_IF_ERROR(SizeFor(profile));
  splits_ = batching() && std::all_of(outputs_.begin(), outputs_.end(), [&](std::size_t i) {
              const Binding& binding = bindings_[i];
              return binding.grows == nullptr && !binding.tensor->shape && !binding.tensor->dims.empty() &&
                     binding.tensor->dims[0] == -1;
            });
  return absl::OkStatus();
}

absl::Status TrtInstance::SizeFor(Profile& profile) {
  const nv::Context& context = profile.context;
  const auto p = static_cast<std::size_t>(profile.index);
  std::int64_t batch = config_.max_batch_size();
  bool shape_inputs = false;
  std::vector<std::vector<std::int64_t>> values(bindings_.size());
  for (const std::size_t i : inputs_) {
    Binding& binding = bindings_[i];
    const TrtTensor& tensor = *binding.tensor;
    errors_.Clear();
    const Shape shape = LargestShape(binding, profile);
    const std::int64_t bytes = MemoryBytes(tensor, tensor.formats[p], shape);
    if (bytes < 0) {
      return absl::InternalError(fmt::format("unable to calculate size for input '{}' for {}", tensor.name, name_));
    }
    if (!context.set_input_shape(tensor.name.c_str(), nv::ToDims(shape))) {
      return absl::InternalError(fmt::format("trt failed to set binding dimension to {} for input '{}' for {}: {}",
                                             ShapeText(AsSpan(shape)), tensor.name, name_,
                                             errors_.Text("the library gave no reason")));
    }
    binding.capacity = std::max(binding.capacity, static_cast<std::size_t>(bytes));
    if (!tensor.shape) {
      if (!shape.empty()) batch = std::min(batch, shape[0]);
      continue;
    }
    shape_inputs = true;
    values[i].assign(static_cast<std::size_t>(std::max<std::int64_t>(tensor.length(), 1)), 0);
    for (std::size_t k = 0; k < values[i].size() && p < tensor.values.size() && k < tensor.values[p].max.size(); ++k) {
      const std::int64_t value = tensor.values[p].max[k];
      const std::size_t element = ElementBytes(tensor.type);
      std::memcpy(reinterpret_cast<std::byte*>(values[i].data()) + k * element, &value, element);  // little-endian
    }
    if (!context.set_address(tensor.name.c_str(), values[i].data())) {
      return absl::InternalError(
          fmt::format("trt failed to set the input shape binding for '{}' for {}", tensor.name, name_));
    }
  }
  batch_limit_ = std::max(batch_limit_, batch);
  errors_.Clear();
  const char* missing[4] = {};
  const int inferred = context.infer_shapes(4, missing);
  // The largest values of a shape input need not make sense together: then only the execution tells.
  if (inferred != 0 && !shape_inputs) {
    return absl::InternalError(
        fmt::format("failed to specify the dimensions of all input tensors or values of all input "
                    "shape tensors{}{} for {}: {}",
                    inferred > 0 ? ", missing: " : "", inferred > 0 ? missing[0] : "", name_,
                    errors_.Text("the library gave no reason")));
  }
  for (std::size_t i = 0; i < bindings_.size(); ++i) {
    Binding& binding = bindings_[i];
    if (binding.tensor->input) continue;
    const char* const output = binding.tensor->name.c_str();
    const Shape shape = nv::ToShape(context.tensor_shape(output));
    const bool known = inferred == 0 && std::none_of(shape.begin(), shape.end(), [](auto d) { return d < 0; });
    std::int64_t bytes = inferred == 0 ? context.max_output_bytes(output) : 0;
    if (known) bytes = std::max(bytes, MemoryBytes(*binding.tensor, binding.tensor->formats[p], shape));
    binding.capacity = std::max(binding.capacity, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 0)));
    if ((!known || shape_inputs) && binding.grows == nullptr && !binding.tensor->host) {
      binding.grows = std::make_unique<TrtOutputMemory>(gpus_, scope_, device_);
    }
  }
  errors_.Clear();
  return absl::OkStatus();
}

absl::Status TrtInstance::MakeBuffers() {
  std::size_t device_bytes[2] = {0, 0};  // inputs, outputs
  std::size_t host_bytes = 0;
  std::size_t grown_bytes = 0;
  for (const Binding& binding : bindings_) {
    if (binding.tensor->host) {
      host_bytes += Aligned(binding.capacity);
    } else if (binding.grows != nullptr) {
      grown_bytes += Aligned(binding.capacity);
    } else {
      device_bytes[binding.tensor->input ? 0 : 1] += Aligned(binding.capacity);
    }
  }
  const bool zero_copy = device_bytes[0] + device_bytes[1] + grown_bytes <= model_.settings().zero_copy_bytes;
  if (zero_copy) host_bytes += device_bytes[0] + device_bytes[1];
  std::byte* host = nullptr;
  if (host_bytes > 0) {
    ASSIGN_OR_RETURN(
        const PinnedMemory memory,
        gpus_.AllocatePinned(scope_, device_, host_bytes, zero_copy ? "input and output memory" : "shape tensors"));
    host = memory.data;
  }
  cuda::Pointer next[2] = {0, 0};
  for (const int side : {0, 1}) {
    if (zero_copy || device_bytes[side] == 0) continue;
    ASSIGN_OR_RETURN(const GpuMemory memory, gpus_.Allocate(scope_, device_, device_bytes[side],
                                                            side == 0 ? "input buffers" : "output buffers"));
    next[side] = memory.address;
  }
  for (Binding& binding : bindings_) {
    if (binding.grows != nullptr) {
      RETURN_IF_ERROR(binding.grows->Reserve(binding.capacity));
    } else if (binding.tensor->host || zero_copy) {
      binding.host = host;
      binding.address = ToPointer(host);
      host += Aligned(binding.capacity);
    } else {
      const std::size_t side = binding.tensor->input ? 0 : 1;
      binding.address = next[side];
      next[side] += Aligned(binding.capacity);
    }
  }
  if (!zero_copy || grown_bytes > 0) {
    const auto& optimization = config_.optimization();
    const std::size_t moved = std::max(device_bytes[0], device_bytes[1] + grown_bytes);
    TrtCopier::Options options;
    options.staging_bytes = std::min(std::max<std::size_t>(moved, 16 << 10), model_.settings().staging_bytes);
    options.stage_in = optimization.input_pinned_memory().enable();
    options.stage_out = optimization.output_pinned_memory().enable();
    ASSIGN_OR_RETURN(copier_, TrtCopier::Create(gpus_, scope_, device_, stream_.stream, options));
  }
  return absl::OkStatus();
}

absl::Status TrtInstance::BindBuffers() {
  for (Binding& binding : bindings_) {
    if (binding.tensor->aliased_input.empty()) continue;
    const auto input = std::find_if(bindings_.begin(), bindings_.end(), [&](const Binding& other) {
      return other.tensor->name == binding.tensor->aliased_input;
    });
    if (input == bindings_.end()) continue;
    binding.address = input->address;
    binding.host = input->host;
  }
  shape_values_.resize(bindings_.size());
  targets_.resize(bindings_.size());
  for (Profile& profile : profiles_) {
    for (Binding& binding : bindings_) {
      const char* const tensor = binding.tensor->name.c_str();
      errors_.Clear();
      const bool bound = binding.grows != nullptr ? profile.context.set_output_allocator(tensor, binding.grows.get())
                                                  : profile.context.set_address(tensor, ToAddress(binding.address));
      if (!bound) {
        return absl::InvalidArgumentError(fmt::format("'{}' does not map to an input or output tensor: {}", tensor,
                                                      errors_.Text("the library gave no reason")));
      }
    }
  }
  return absl::OkStatus();
}

TrtInstance::GraphKey TrtInstance::KeyOf(std::size_t position, const std::vector<Shape>& shapes) const {
  GraphKey key = {static_cast<std::int64_t>(position)};
  for (const std::size_t i : inputs_) key.insert(key.end(), shapes[i].begin(), shapes[i].end());
  return key;
}

absl::Status TrtInstance::CaptureGraphs() {
  if (!config_.optimization().cuda().graphs()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<TrtGraphSpec> specs, GraphSpecsOf(config_));
  const bool unfit = std::any_of(bindings_.begin(), bindings_.end(), [](const Binding& binding) {
    return binding.tensor->shape || binding.grows != nullptr;
  });
  if (unfit) {
    LOG_WARNING("Detected shape tensor, CUDA graph is not captured for {}", name_);
    return absl::OkStatus();
  }
  for (std::size_t position = 0; position < profiles_.size(); ++position) {
    for (const TrtGraphSpec& spec : specs) {
      std::vector<Shape> shapes(bindings_.size());
      bool complete = true;
      for (const std::size_t i : inputs_) {
        const Binding& binding = bindings_[i];
        if (binding.config_index < 0) {
          complete = false;
          continue;
        }
        const auto given = spec.shapes.find(binding.tensor->name);
        shapes[i] = given != spec.shapes.end() ? given->second : EngineDims(config_.input(binding.config_index));
        if (batching()) shapes[i].insert(shapes[i].begin(), spec.batch_size);
        complete = complete && std::none_of(shapes[i].begin(), shapes[i].end(), [](auto d) { return d < 0; });
      }
      if (!complete || Distance(profiles_[position], shapes) < 0) continue;
      RETURN_IF_ERROR(CaptureGraph(profiles_[position], position, shapes, spec.lowest_batch));
    }
  }
  return absl::OkStatus();
}

absl::Status TrtInstance::CaptureGraph(Profile& profile, std::size_t position, const std::vector<Shape>& shapes,
                                       std::int64_t lowest_batch) {
  GraphKey key = KeyOf(position, shapes);
  if (graphs_.contains(key)) return absl::OkStatus();
  const auto refuse = [&](const absl::Status& status) {
    LOG_ERROR("unable to record CUDA graph for {}: {}", name_, MessageOf(status));
  };
  if (absl::Status status = SetShapes(profile, shapes); !status.ok()) {
    refuse(status);
    return absl::OkStatus();
  }
  // Once without a capture, so that what the library does at the first execution of a shape is done.
  errors_.Clear();
  const bool enqueued = profile.context.enqueue(stream_.stream);
  RETURN_IF_ERROR(gpus_.Check(device_, gpus_.api().synchronize_stream(stream_.stream), "wait for an execution"));
  if (!enqueued) {
    refuse(absl::InternalError(errors_.Text("the library gave no reason")));
    return absl::OkStatus();
  }
  auto& captured = graphs_[key];
  captured.shapes = profile.shapes;
  captured.lowest_batch = lowest_batch;
  temporaries_->set_capturing(true);
  absl::StatusOr<GpuGraph> graph = gpus_.Capture(
      scope_, device_, stream_.stream,
      [&]() -> absl::Status {
        if (profile.context.enqueue(stream_.stream)) return absl::OkStatus();
        return absl::InternalError(errors_.Text("the library gave no reason"));
      },
      "CUDA graph");
  temporaries_->set_capturing(false);
  if (graph.ok()) {
    captured.graph = *graph;
    LOG_VERBOSE(1, "captured CUDA graph for {}, batch size {}", name_, batching() ? shapes[inputs_[0]][0] : 0);
    return absl::OkStatus();
  }
  graphs_.erase(key);
  // A plan that cannot be captured still serves; a load that was refused something, or cancelled, fails.
  if (!absl::IsInternal(graph.status())) return graph.status();
  refuse(graph.status());
  return absl::OkStatus();
}

}  // namespace tidemark
