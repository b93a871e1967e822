#include "bench/gpu/bare_loop.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <vector>

#include "backends/tensorrt/nvinfer_abi.h"
#include "platform/cuda.h"

namespace tidemark::bench {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void Die(const std::string& text) {
  fmt::print(stderr, "bare loop: {}\n", text);
  std::exit(1);
}

void Say(nv::Severity severity, const char* text) {
  if (severity <= nv::Severity::kError) fmt::print(stderr, "TensorRT: {}\n", text);
}
class Log11 final : public nv::Logger11 {
 public:
  void log(nv::Severity severity, const char* text) noexcept override { Say(severity, text); }
};
class Log10 final : public nv::Logger10 {
 public:
  void log(nv::Severity severity, const char* text) noexcept override { Say(severity, text); }
};

double Microseconds(Clock::duration time) { return std::chrono::duration<double, std::micro>(time).count(); }

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The median of `count` runs in microseconds, after some that do not count.
double Time(int count, const std::function<void()>& run) {
  for (int i = 0; i < std::max(2, count / 20); ++i) run();
  std::vector<double> times;
  for (int i = 0; i < count; ++i) {
    const auto start = Clock::now();
    run();
    times.push_back(Microseconds(Clock::now() - start));
  }
  return Median(std::move(times));
}

std::size_t ElementBytes(nv::DataType type) {
  switch (type) {
    case nv::DataType::kInt64:
      return 8;
    case nv::DataType::kFloat:
    case nv::DataType::kInt32:
      return 4;
    case nv::DataType::kHalf:
    case nv::DataType::kBf16:
      return 2;
    default:
      return 1;
  }
}

struct Tensor {
  std::string name;
  bool input = false;
  nv::Dims dims;
  std::size_t bytes = 0;  // at the profile's maximum
  std::size_t item_bytes = 0;
  std::size_t element_bytes = 0;
  cuda::Pointer device = 0;
  void* host = nullptr;
};

class Loop {
 public:
  Loop(const std::string& library, const std::string& cuda_library) {
    void* driver = dlopen(cuda_library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (driver == nullptr) Die(dlerror());
    const auto api = cuda::ResolveApi([driver](const char* name) -> absl::StatusOr<void*> {
      void* symbol = dlsym(driver, name);
      if (symbol == nullptr) return absl::NotFoundError(name);
      return symbol;
    });
    if (!api.ok()) Die(api.status().ToString());
    api_ = *api;
    cuda::Context context = nullptr;
    Must(api_.init(0), "cuInit");
    Must(api_.retain_context(&context, 0), "context");
    Must(api_.set_context(context), "set context");
    nvinfer_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (nvinfer_ == nullptr) Die(dlerror());
    auto* version = reinterpret_cast<nv::LibraryVersion*>(dlsym(nvinfer_, "getInferLibVersion"));
    if (version == nullptr) Die("no getInferLibVersion");
    version_ = version();
    abi_ = version_ >= 110000 ? &nv::kAbi11 : &nv::kAbi10;
  }

  void Must(cuda::Result result, const char* what) const {
    if (result != cuda::kSuccess) Die(fmt::format("{}: {}", what, cuda::ErrorText(api_, result)));
  }

  void* MakeRuntime() {
    auto* create = reinterpret_cast<nv::CreateRuntime*>(dlsym(nvinfer_, "createInferRuntime_INTERNAL"));
    void* logger = abi_->major == 11 ? static_cast<void*>(&log11_) : static_cast<void*>(&log10_);
    return Sound(create(logger, version_), "createInferRuntime");
  }
  void* Deserialize(void* runtime, const std::string& plan) const {
    return Sound(nv::CallSlot<void*>(nv::ImplOf(runtime), abi_->runtime.deserialize.index,
                                     static_cast<const void*>(plan.data()), static_cast<std::uint64_t>(plan.size())),
                 "deserializeCudaEngine");
  }
  void* MakeContext(void* engine) const {
    return Sound(nv::CallSlot<void*>(nv::ImplOf(engine), abi_->engine.create_context.index, nv::Strategy::kStatic),
                 "createExecutionContext");
  }

  // `side`: the size of every free dimension but the first.
  void Prepare(const std::string& plan, std::int64_t side = 1) {
    side_ = side;
    runtime_ = MakeRuntime();
    engine_ = Deserialize(runtime_, plan);
    context_ = MakeContext(engine_);
    Must(api_.create_stream(&stream_, cuda::kStreamNonBlocking, 0), "stream");
    void* table = nv::ImplOf(engine_);
    const auto count = nv::CallSlot<std::int32_t>(table, abi_->engine.tensors.index);
    std::vector<std::string> names;
    for (std::int32_t i = 0; i < count; ++i) {
      names.emplace_back(nv::CallSlot<const char*>(table, abi_->engine.tensor_name.index, i));
    }
    for (const std::string& name : names) tensors_.push_back(Describe(table, name));
    SetBatch(most_);  // what an output's free dimensions are then, the context knows
    for (Tensor& tensor : tensors_) Measure(&tensor);
    for (Tensor& tensor : tensors_) {
      Must(api_.allocate(&tensor.device, tensor.bytes), "device memory");
      Must(api_.allocate_host(&tensor.host, tensor.bytes, cuda::kHostPortable), "pinned memory");
      if (!nv::CallSlot<bool>(nv::ImplOf(context_), abi_->context.set_address.index, tensor.name.c_str(),
                              reinterpret_cast<void*>(tensor.device))) {
        Die("setTensorAddress " + tensor.name);
      }
    }
  }

  // Shapes are those of the inputs' profile with another first dimension where that is free.
  void SetBatch(std::int64_t batch) {
    batch_ = batch;
    for (const Tensor& tensor : tensors_) {
      if (!tensor.input) continue;
      nv::Dims dims = tensor.dims;
      for (std::int32_t i = 1; i < dims.rank; ++i) {
        if (dims.d[i] < 0) dims.d[i] = side_;
      }
      if (free_batch_) dims.d[0] = batch;
      if (!nv::CallSlot<bool>(nv::ImplOf(context_), abi_->context.set_input_shape.index, tensor.name.c_str(),
                              static_cast<const nv::Dims*>(&dims))) {
        Die("setInputShape " + tensor.name);
      }
    }
  }

  std::size_t BytesNow(const Tensor& tensor) const {
    return free_batch_ ? tensor.item_bytes * static_cast<std::size_t>(batch_) : tensor.bytes;
  }

  void PutWork() {
    for (const Tensor& tensor : tensors_) {
      if (tensor.input) Must(api_.copy_to_device(tensor.device, tensor.host, BytesNow(tensor), stream_), "copy in");
    }
    if (!nv::CallSlot<bool>(nv::ImplOf(context_), abi_->context.enqueue.index, static_cast<void*>(stream_))) {
      Die("enqueueV3");
    }
    for (const Tensor& tensor : tensors_) {
      if (!tensor.input) Must(api_.copy_to_host(tensor.host, tensor.device, BytesNow(tensor), stream_), "copy out");
    }
  }
  void Run() {
    PutWork();
    Must(api_.synchronize_stream(stream_), "wait");
  }

  double GraphMicroseconds(int count) {
    cuda::Graph graph = nullptr;
    cuda::GraphExec exec = nullptr;
    Must(api_.begin_capture(stream_, cuda::kCaptureThreadLocal), "begin capture");
    PutWork();
    if (api_.end_capture(stream_, &graph) != cuda::kSuccess) return -1;
    Must(api_.instantiate(&exec, graph, 0), "instantiate");
    const double time = Time(count, [&] {
      Must(api_.launch(exec, stream_), "launch");
      Must(api_.synchronize_stream(stream_), "wait");
    });
    api_.destroy_exec(exec);
    api_.destroy_graph(graph);
    return time;
  }

  // GB/s of the largest input in and the largest output out.
  std::pair<double, double> Bandwidth() {
    const auto largest = [&](bool input) {
      const Tensor* found = nullptr;
      for (const Tensor& tensor : tensors_) {
        if (tensor.input == input && (found == nullptr || tensor.bytes > found->bytes)) found = &tensor;
      }
      return found;
    };
    const Tensor& in = *largest(true);
    const Tensor& out = *largest(false);
    const double to = Time(20, [&] {
      Must(api_.copy_to_device(in.device, in.host, in.bytes, stream_), "copy");
      Must(api_.synchronize_stream(stream_), "wait");
    });
    const double from = Time(20, [&] {
      Must(api_.copy_to_host(out.host, out.device, out.bytes, stream_), "copy");
      Must(api_.synchronize_stream(stream_), "wait");
    });
    return {static_cast<double>(in.bytes) / to / 1000, static_cast<double>(out.bytes) / from / 1000};
  }

  // Deserialize, context and deletes in milliseconds, on a warm process; the first two together ("load"), and the least of it.
  std::string LoadTimes(const std::string& plan, int count) {
    std::vector<double> deserialize, context, both_gone, load;
    for (int i = 0; i < count; ++i) {
      const auto t0 = Clock::now();
      void* engine = Deserialize(runtime_, plan);
      const auto t1 = Clock::now();
      void* made = MakeContext(engine);
      const auto t2 = Clock::now();
      nv::DeleteShell(made);
      nv::DeleteShell(engine);
      deserialize.push_back(Microseconds(t1 - t0) / 1000);
      context.push_back(Microseconds(t2 - t1) / 1000);
      both_gone.push_back(Microseconds(Clock::now() - t2) / 1000);
      load.push_back(Microseconds(t2 - t0) / 1000);
    }
    return fmt::format(
        R"({{"deserialize": {:.3f}, "context": {:.3f}, "delete": {:.3f}, "load": {:.3f}, "least": {:.3f}}})",
        Median(deserialize), Median(context), Median(both_gone), Median(load),
        *std::min_element(load.begin(), load.end()));
  }

  // What single steps of a load cost on a warm process, in microseconds: medians, each with its undoing.
  std::string Costs(const std::string& plan, int count) {
    std::string figures;
    const auto add = [&](const char* name, double us) {
      figures += fmt::format(R"({}"{}": {:.1f})", figures.empty() ? "" : ", ", name, us);
    };
    add("runtime", Time(count, [&] { nv::DeleteShell(MakeRuntime()); }));
    add("stream", Time(count, [&] {
          cuda::Stream stream = nullptr;
          Must(api_.create_stream(&stream, cuda::kStreamNonBlocking, 0), "stream");
          Must(api_.destroy_stream(stream), "stream");
        }));
    add("event", Time(count, [&] {
          cuda::Event event = nullptr;
          Must(api_.create_event(&event, cuda::kEventDisableTiming), "event");
          Must(api_.destroy_event(event), "event");
        }));
    for (const auto& [name, bytes] : {std::pair{"device 16 KiB", 16 << 10}, std::pair{"device 64 MiB", 64 << 20}}) {
      add(name, Time(count, [&, size = static_cast<std::size_t>(bytes)] {
            cuda::Pointer block = 0;
            Must(api_.allocate(&block, size), "device memory");
            Must(api_.free(block), "device memory");
          }));
    }
    for (const auto& [name, bytes] : {std::pair{"pinned 16 KiB", 16 << 10}, std::pair{"pinned 8 MiB", 8 << 20}}) {
      add(name, Time(count, [&, size = static_cast<std::size_t>(bytes)] {
            void* block = nullptr;
            Must(api_.allocate_host(&block, size, cuda::kHostPortable | cuda::kHostDeviceMap), "pinned memory");
            Must(api_.free_host(block), "pinned memory");
          }));
    }
    add("first enqueue", FirstEnqueue(plan, count));
    add("enqueue and wait", Time(count, [&] { Enqueue(context_), Must(api_.synchronize_stream(stream_), "wait"); }));
    add("shape and enqueue and wait", Time(count, [&] {
          SetBatch(free_batch_ && batch_ == 1 ? 2 : 1);
          Enqueue(context_);
          Must(api_.synchronize_stream(stream_), "wait");
        }));
    SetBatch(1);
    AddHostCosts(count, add);
    return figures;
  }

  bool free_batch() const { return free_batch_; }
  std::int64_t most() const { return most_; }
  int version() const { return version_; }

 private:
  void Enqueue(void* context) const {
    if (!nv::CallSlot<bool>(nv::ImplOf(context), abi_->context.enqueue.index, static_cast<void*>(stream_))) {
      Die("enqueueV3");
    }
  }

  // The first execution in a fresh context, which pays for what the library puts off until then.
  double FirstEnqueue(const std::string& plan, int count) {
    std::vector<double> times;
    void* const loaded = context_;
    for (int i = 0; i < count; ++i) {
      void* engine = Deserialize(runtime_, plan);
      context_ = MakeContext(engine);
      for (const Tensor& tensor : tensors_) {
        nv::CallSlot<bool>(nv::ImplOf(context_), abi_->context.set_address.index, tensor.name.c_str(),
                           reinterpret_cast<void*>(tensor.device));
      }
      SetBatch(1);
      const auto start = Clock::now();
      Enqueue(context_);
      Must(api_.synchronize_stream(stream_), "wait");
      times.push_back(Microseconds(Clock::now() - start));
      nv::DeleteShell(context_);
      nv::DeleteShell(engine);
    }
    context_ = loaded;
    return Median(std::move(times));
  }

  // What the host does around the device: pages that are touched for the first time, and copies into pinned memory.
  template <typename Add>
  void AddHostCosts(int count, const Add& add) const {
    constexpr std::size_t kBytes = std::size_t{64} << 20;
    const auto map = [] {
      void* data = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (data == MAP_FAILED) Die("mmap");
      return static_cast<char*>(data);
    };
    const auto touch = [](char* data) {
      for (std::size_t i = 0; i < kBytes; i += 4096) data[i] = 1;
    };
    const int few = std::max(3, count / 10);
    add("64 MiB of new pages", Time(few, [&] {
          char* const data = map();
          touch(data);
          munmap(data, kBytes);
        }));
    add("64 MiB of new huge pages", Time(few, [&] {
          char* const data = map();
          madvise(data, kBytes, MADV_HUGEPAGE);
          touch(data);
          munmap(data, kBytes);
        }));
    char* const pageable = map();
    touch(pageable);
    for (const auto& [name, bytes] :
         {std::pair{"64 MiB to pinned by 4 MiB", 4 << 20}, std::pair{"by 1 MiB", 1 << 20}}) {
      const auto step = static_cast<std::size_t>(bytes);
      void* ring = nullptr;
      Must(api_.allocate_host(&ring, step * 4, cuda::kHostPortable | cuda::kHostDeviceMap), "pinned memory");
      add(name, Time(few, [&] {
            for (std::size_t at = 0; at < kBytes; at += step) {
              std::memcpy(static_cast<char*>(ring) + at / step % 4 * step, pageable + at, step);
            }
          }));
      Must(api_.free_host(ring), "pinned memory");
    }
    add("page-lock 64 MiB", Time(few, [&] {
          Must(api_.register_host(pageable, kBytes, cuda::kHostPortable | cuda::kHostDeviceMap), "page-lock");
          Must(api_.unregister_host(pageable), "page-lock");
        }));
    munmap(pageable, kBytes);
  }

  static void* Sound(void* object, const char* what) {
    if (reinterpret_cast<std::uintptr_t>(object) < nv::kLowestPointer) Die(std::string(what) + " failed");
    return object;
  }

  Tensor Describe(void* table, const std::string& name) {
    Tensor tensor;
    tensor.name = name;
    tensor.input = nv::CallSlot<nv::IoMode>(table, abi_->engine.tensor_mode.index, name.c_str()) == nv::IoMode::kInput;
    const auto type = nv::CallSlot<nv::DataType>(table, abi_->engine.tensor_type.index, name.c_str());
    tensor.dims = nv::CallSlot<nv::Dims>(table, abi_->engine.tensor_shape.index, name.c_str());
    if (tensor.dims.rank > 0 && tensor.dims.d[0] < 0 && tensor.input) {
      const auto most = nv::CallSlot<nv::Dims>(table, abi_->engine.profile_shape.index, name.c_str(), std::int32_t{0},
                                               nv::Selector::kMax);
      free_batch_ = true;
      most_ = most.d[0];
    }
    tensor.element_bytes = ElementBytes(type);
    return tensor;
  }

  // Its bytes with the shapes that the inputs have now.
  void Measure(Tensor* tensor) const {
    const auto dims =
        nv::CallSlot<nv::Dims>(nv::ImplOf(context_), abi_->context.tensor_shape.index, tensor->name.c_str());
    tensor->bytes = tensor->element_bytes;
    for (std::int32_t i = 0; i < dims.rank; ++i) {
      if (dims.d[i] < 0) Die("the size of " + tensor->name + " depends on data");
      tensor->bytes *= static_cast<std::size_t>(dims.d[i]);
    }
    tensor->item_bytes = tensor->bytes / (free_batch_ ? static_cast<std::size_t>(most_) : 1);
  }

  cuda::Api api_;
  void* nvinfer_ = nullptr;
  int version_ = 0;
  const nv::Abi* abi_ = nullptr;
  Log11 log11_;
  Log10 log10_;
  void* runtime_ = nullptr;
  void* engine_ = nullptr;
  void* context_ = nullptr;
  cuda::Stream stream_ = nullptr;
  std::vector<Tensor> tensors_;
  bool free_batch_ = false;
  std::int64_t most_ = 1;
  std::int64_t batch_ = 1;
  std::int64_t side_ = 1;
};

}  // namespace

namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string LoopFigures(Loop& loop, const std::vector<std::int64_t>& batches, int count) {
  std::string figures = fmt::format(R"("library_version": {}, "loops": [)", loop.version());
  bool first = true;
  for (const std::int64_t batch : batches) {
    loop.SetBatch(batch);
    const double plain = Time(count, [&] { loop.Run(); });
    const double graph = loop.GraphMicroseconds(count);
    figures += fmt::format(R"({}{{"batch": {}, "us": {:.2f}, "items_per_second": {:.0f}, "graph_us": {:.2f}}})",
                           first ? "" : ", ", batch, plain, 1e6 * static_cast<double>(batch) / plain, graph);
    first = false;
  }
  return figures + "]";
}

}  // namespace

std::string BareLoop(const std::string& plan, const std::string& library, const std::string& cuda, bool quick) {
  const std::string bytes = ReadFile(plan);
  Loop loop(library, cuda);
  loop.Prepare(bytes);
  std::vector<std::int64_t> batches = {1};
  if (loop.free_batch()) batches = {1, 8, 32, loop.most()};
  std::string figures = "{" + LoopFigures(loop, batches, quick ? 20 : loop.free_batch() ? 2000 : 60);
  const auto [in, out] = loop.Bandwidth();
  figures += fmt::format(R"(, "h2d_gb_per_s": {:.2f}, "d2h_gb_per_s": {:.2f}, "load_ms": {}, "us": {{{}}}}})", in, out,
                         loop.LoadTimes(bytes, quick ? 5 : 30), loop.Costs(bytes, quick ? 5 : 40));
  return figures;
}

std::string BareLoads(const std::string& plan, const std::string& library, const std::string& cuda, int count) {
  const std::string bytes = ReadFile(plan);
  Loop loop(library, cuda);
  loop.Prepare(bytes);
  return loop.LoadTimes(bytes, count);
}

std::string BareRates(const std::string& plan, const std::string& library, const std::string& cuda,
                      const std::vector<std::int64_t>& batches, std::int64_t side, bool quick) {
  Loop loop(library, cuda);
  loop.Prepare(ReadFile(plan), side);
  return "{" + LoopFigures(loop, batches, quick ? 20 : 400) + "}";
}

}  // namespace tidemark::bench
