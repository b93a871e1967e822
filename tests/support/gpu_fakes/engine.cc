#include "engine.h"

#include <algorithm>
#include <cstring>
#include <sstream>

#include "fake_plan.h"

namespace fake_trt {

using fake_gpu::AddLive;
using fake_gpu::Meet;
using fake_gpu::Violation;

namespace {

std::vector<std::int64_t> ParseDims(const std::string& text) {
  std::vector<std::int64_t> dims;
  std::istringstream list(text);
  for (std::string item; std::getline(list, item, ',');) dims.push_back(std::stoll(item));
  return dims;
}

std::string Text(const std::vector<std::int64_t>& dims) {
  std::string text = "[";
  for (const std::int64_t d : dims) text += (text.size() > 1 ? "," : "") + std::to_string(d);
  return text + "]";
}

Tensor* FindIn(Plan& plan, const std::string& name) { return const_cast<Tensor*>(plan.Find(name.c_str())); }

void ParseLine(Plan& plan, const std::string& line) {
  std::istringstream words(line);
  std::string word, name;
  words >> word;
  if (word == "op") {
    words >> plan.op;
  } else if (word == "tensor") {
    Tensor tensor;
    std::string mode, dims;
    words >> tensor.name >> mode >> tensor.type >> dims;
    tensor.input = mode == "in";
    tensor.dims = ParseDims(dims);
    plan.tensors.push_back(tensor);
  } else if (word == "host") {
    words >> name;
    FindIn(plan, name)->host = true;
  } else if (word == "format") {
    Format format;
    words >> name >> format.format >> format.vector_dim >> format.components >> format.bytes;
    FindIn(plan, name)->format = format;
  } else if (word == "profile" || word == "values") {
    std::size_t index = 0;
    words >> index >> name;
    if (plan.profiles.size() <= index) plan.profiles.resize(index + 1);
    for (int i = 0; i < 3; ++i) {
      std::string dims;
      words >> dims;
      const auto values = ParseDims(dims);
      Profile& profile = plan.profiles[index];
      (word == "profile" ? profile.dims : profile.values)[i][name] = values;
      if (word == "values") profile.narrow[i][name].assign(values.begin(), values.end());
    }
  } else {
    std::uint64_t number = 0;
    words >> number;
    if (word == "weights") plan.weights = number;
    if (word == "persistent") plan.persistent = number;
    if (word == "scratch") plan.scratch = number;
    if (word == "temporary") plan.temporary = number;
    if (word == "aux") plan.aux = static_cast<int>(number);
    if (word == "uncapturable") plan.uncapturable = number != 0;
  }
}

// Memory from the user's allocator, else from the driver; null when refused.
void* Take(GpuAllocator* allocator, std::uint64_t bytes, bool with_stream) {
  if (bytes == 0) return nullptr;
  if (allocator != nullptr) {
    void* block = with_stream ? allocator->allocateAsync(bytes, 512, 0, nullptr) : allocator->allocate(bytes, 512, 0);
    if (block != nullptr && !fake_gpu::FindBlock(block, bytes, nullptr))
      Violation("an allocator gave no device memory");
    if (reinterpret_cast<std::uintptr_t>(block) % 512 != 0)
      Violation("an allocator gave an address that is not aligned");
    return block;
  }
  int error = 0;
  if (Meet("TensorRT's own allocation", &error)) return nullptr;
  void* block = nullptr;
  return fake_gpu::Allocate(fake_gpu::Kind::kDevice, bytes, &block) == fake_gpu::kOk ? block : nullptr;
}

void Give(GpuAllocator* allocator, void* block, bool with_stream) {
  if (block == nullptr) return;
  if (allocator == nullptr) {
    fake_gpu::Free(fake_gpu::Kind::kDevice, block);
  } else if (!(with_stream ? allocator->deallocateAsync(block, nullptr) : allocator->deallocate(block))) {
    Violation("an allocator did not take its memory back");
  }
}

}  // namespace

const Tensor* Plan::Find(const char* name) const {
  if (name == nullptr) return nullptr;
  const auto at =
      std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& tensor) { return tensor.name == name; });
  return at == tensors.end() ? nullptr : &*at;
}

const Tensor* Plan::InputOf(const Tensor& output) const {
  std::vector<const Tensor*> inputs;
  std::size_t position = 0, outputs = 0;
  for (const Tensor& tensor : tensors) {
    if (tensor.input) {
      inputs.push_back(&tensor);
    } else {
      if (&tensor == &output) position = outputs;
      ++outputs;
    }
  }
  return op == "identity" ? inputs.at(std::min(position, inputs.size() - 1)) : inputs.at(0);
}

void Reporter::SetRecorder(ErrorRecorder* recorder) {
  if (recorder != nullptr) recorder->incRefCount();
  if (recorder_ != nullptr) recorder_->decRefCount();
  recorder_ = recorder;
}

void Reporter::Report(int code, const std::string& text) const {
  const std::string whole = "Error Code " + std::to_string(code) + ": " + text;
  if (recorder_ != nullptr) {
    recorder_->reportError(code, text.c_str());
  } else {
    log_(kError, whole.c_str());
  }
}

int BitsOf(int type) {
  static constexpr int kBits[] = {32, 16, 8, 32, 8, 8, 8, 16, 64, 4, 4, 8};
  return kBits[type];
}

std::uint64_t BytesOf(int type, const std::vector<std::int64_t>& dims) {
  std::uint64_t count = 1;
  for (const std::int64_t d : dims) count *= static_cast<std::uint64_t>(std::max<std::int64_t>(d, 0));
  return (count * static_cast<std::uint64_t>(BitsOf(type)) + 7) / 8;
}

Dims ToDims(const std::vector<std::int64_t>& dims) {
  Dims result;
  result.count = static_cast<std::int32_t>(dims.size());
  std::copy(dims.begin(), dims.end(), result.d);
  return result;
}

Plan Parse(const char* data, std::size_t bytes, const int version[4], const Reporter& reporter) {
  constexpr std::size_t kHeader = tidemark::testing::FakePlan::kHeader;
  Plan plan;
  if (bytes < kHeader || std::memcmp(data, "ftrt", 4) != 0) {
    reporter.Report(1, "Serialization assertion header.magicTag == kEXPECTED_MAGIC_TAG failed.");
    return plan;
  }
  std::uint64_t size = 0;
  std::memcpy(&size, data + 16, sizeof size);
  std::memcpy(plan.version, data + 24, 4);
  if (size > bytes) {
    reporter.Report(1, "Serialization assertion sizeRead == static_cast<uint64_t>(mEnd - mCurrent) failed.");
    return plan;
  }
  bool same = true;
  for (int i = 0; i < 4; ++i) same = same && plan.version[i] == version[i];
  if (!same) {
    reporter.Report(
        6, "The engine plan file is not compatible with this version of TensorRT, expecting library version " +
               std::to_string(version[0]) + "." + std::to_string(version[1]) + "." + std::to_string(version[2]) + "." +
               std::to_string(version[3]) + " got \v\x01, please rebuild.");
    return plan;
  }
  std::istringstream lines(std::string(data + kHeader, size - kHeader));
  bool ended = false;
  for (std::string line; std::getline(lines, line);) {
    if (line == "end") {
      ended = true;
      break;
    }
    ParseLine(plan, line);
  }
  if (!ended) {
    reporter.Report(1, "the toy plan has no end");
    return Plan();
  }
  if (plan.profiles.empty()) plan.profiles.resize(1);
  for (Profile& profile : plan.profiles) {
    for (const Tensor& tensor : plan.tensors) {
      if (!tensor.input) continue;
      for (auto& dims : profile.dims) dims.try_emplace(tensor.name, tensor.dims);
    }
  }
  return plan;
}

// --- runtime and engine --------------------------------------------------------------------------------------------

Runtime::Runtime(Reporter::Log log, const int its_version[4]) : reporter(std::move(log)) {
  std::copy(its_version, its_version + 4, version);
  AddLive("runtimes", 1);
}

Runtime::~Runtime() {
  if (engines != 0) Violation("a runtime destroyed before its engines");
  AddLive("runtimes", -1);
}

Engine::Engine(Runtime& of, Plan its_plan)
    : plan(std::move(its_plan)),
      runtime(of),
      reporter(of.reporter.log()),
      allocator(of.allocator),
      device(fake_gpu::CurrentDevice()) {
  reporter.SetRecorder(of.reporter.recorder());
  ++runtime.engines;
  AddLive("engines", 1);
}

std::unique_ptr<Engine> Engine::Create(Runtime& runtime, Plan plan) {
  std::unique_ptr<Engine> engine(new Engine(runtime, std::move(plan)));
  const std::uint64_t weights = engine->plan.weights;
  if (weights > 0) {
    engine->weights_ = Take(engine->allocator, weights, true);
    if (engine->weights_ == nullptr) {
      runtime.reporter.Report(
          kFailedAllocation,
          "[virtualMemoryBuffer.cpp::resizePhysical] readEngineFromArchive: OutOfMemory (Requested size was " +
              std::to_string(weights) + " bytes.)");
      return nullptr;
    }
  }
  return engine;
}

Engine::~Engine() {
  if (contexts != 0) Violation("an engine destroyed before its contexts");
  Give(allocator, weights_, true);
  --runtime.engines;
  AddLive("engines", -1);
}

Dims Engine::ProfileShape(const char* name, int profile, int selector) const {
  Dims none;
  none.count = -1;
  if (profile < 0 || static_cast<std::size_t>(profile) >= plan.profiles.size() || selector < 0 || selector > 2)
    return none;
  const auto& dims = plan.profiles[static_cast<std::size_t>(profile)].dims[selector];
  const auto at = dims.find(name);
  return at == dims.end() ? none : ToDims(at->second);
}

// --- context -------------------------------------------------------------------------------------------------------

// One thread at a time.
struct Context::Guard {
  explicit Guard(const Context& context) : of(context), mine(!context.in_use_.exchange(true)) {
    if (!mine) Violation("two threads in one execution context");
  }
  ~Guard() {
    if (mine) of.in_use_ = false;
  }
  const Context& of;
  const bool mine;
};

Context::Context(Engine& of, int its_strategy) : engine(of), reporter(of.reporter.log()), strategy(its_strategy) {
  reporter.SetRecorder(of.reporter.recorder());
  ++engine.contexts;
  AddLive("contexts", 1);
  fake_gpu::ChargeEngineContext(engine.device, 1);
}

std::unique_ptr<Context> Context::Create(Engine& engine, int strategy) {
  std::unique_ptr<Context> context(new Context(engine, strategy));
  const auto refused = [&](std::uint64_t bytes) {
    engine.reporter.Report(kFailedAllocation,
                           "[cachePolicy.cu] OutOfMemory (Requested size was " + std::to_string(bytes) + " bytes.)");
    return nullptr;
  };
  const std::uint64_t persistent = engine.plan.persistent;
  if (persistent > 0 && (context->persistent_ = Take(engine.allocator, persistent, false)) == nullptr)
    return refused(persistent);
  if (strategy != kUserManaged && engine.plan.scratch > 0 &&
      (context->scratch_ = Take(engine.allocator, engine.plan.scratch, false)) == nullptr) {
    return refused(engine.plan.scratch);
  }
  return context;
}

Context::~Context() {
  const Guard guard(*this);
  Give(engine.allocator, scratch_, false);
  Give(engine.allocator, persistent_, false);
  fake_gpu::ChargeEngineContext(engine.device, -1);
  --engine.contexts;
  AddLive("contexts", -1);
}

bool Context::Fail(int code, const std::string& text) const {
  reporter.Report(code, "IExecutionContext: " + text);
  return false;
}

bool Context::SetProfile(int index) {
  const Guard guard(*this);
  if (index < 0 || static_cast<std::size_t>(index) >= engine.plan.profiles.size()) {
    return Fail(kInvalidArgument, "optimization profile " + std::to_string(index) + " does not exist");
  }
  if (index != profile) shapes_.clear();
  profile = index;
  return true;
}

bool Context::SetInputShape(const char* tensor, const Dims& dims) {
  const Guard guard(*this);
  const Tensor* of = engine.plan.Find(tensor);
  if (of == nullptr || !of->input) return Fail(kInvalidArgument, std::string("Given invalid tensor name: ") + tensor);
  const std::vector<std::int64_t> shape(dims.d, dims.d + std::max(0, dims.count));
  const Profile& in = engine.plan.profiles[static_cast<std::size_t>(profile)];
  const auto& low = in.dims[0].at(of->name);
  const auto& high = in.dims[2].at(of->name);
  bool fits = shape.size() == of->dims.size();
  for (std::size_t i = 0; fits && i < shape.size(); ++i) fits = shape[i] >= low[i] && shape[i] <= high[i];
  if (!fits) {
    return Fail(kInvalidArgument, "setInputShape: Static dimension mismatch or outside of profile " +
                                      std::to_string(profile) + ": " + tensor + " " + Text(shape) + " not in " +
                                      Text(low) + " to " + Text(high));
  }
  shapes_[of->name] = shape;
  return true;
}

std::vector<std::int64_t> Context::Resolve(const Tensor& tensor) const {
  if (tensor.input) {
    const auto at = shapes_.find(tensor.name);
    return at == shapes_.end() ? tensor.dims : at->second;
  }
  const auto& op = engine.plan.op;
  if (op == "nonzero") return tensor.dims;
  if (op == "reshape") {
    const Tensor* shape = nullptr;
    for (const Tensor& each : engine.plan.tensors) {
      if (each.host) shape = &each;
    }
    const auto at = shape == nullptr ? addresses_.end() : addresses_.find(shape->name);
    if (at == addresses_.end() || at->second == nullptr) return tensor.dims;
    const auto* values = static_cast<const std::int64_t*>(at->second);
    return {values, values + Resolve(*shape).at(0)};
  }
  return Resolve(*engine.plan.InputOf(tensor));
}

Dims Context::TensorShape(const char* tensor) const {
  const Tensor* of = engine.plan.Find(tensor);
  if (of != nullptr) return ToDims(Resolve(*of));
  Dims none;
  none.count = -1;
  return none;
}

bool Context::SetAddress(const char* tensor, void* address, bool must_be_input, bool must_be_output) {
  const Guard guard(*this);
  const Tensor* of = engine.plan.Find(tensor);
  if (of == nullptr || (must_be_input && !of->input) || (must_be_output && of->input)) {
    return Fail(kInvalidArgument,
                std::string("setTensorAddress given invalid tensor name: ") + (tensor == nullptr ? "" : tensor));
  }
  addresses_[of->name] = address;
  return true;
}

void* Context::Address(const char* tensor) const {
  const auto at = addresses_.find(tensor);
  return at == addresses_.end() ? nullptr : at->second;
}

bool Context::SetOutputAllocator(const char* tensor, OutputAllocator* allocator) {
  const Guard guard(*this);
  const Tensor* of = engine.plan.Find(tensor);
  if (of == nullptr || of->input) return Fail(kInvalidArgument, "setOutputAllocator: no such output");
  output_allocators_[of->name] = allocator;
  return true;
}

OutputAllocator* Context::GetOutputAllocator(const char* tensor) const {
  const auto at = output_allocators_.find(tensor);
  return at == output_allocators_.end() ? nullptr : at->second;
}

bool Context::AllShapesGiven() const {
  for (const Tensor& tensor : engine.plan.tensors) {
    const auto shape = Resolve(tensor);
    if (tensor.input && std::any_of(shape.begin(), shape.end(), [](std::int64_t d) { return d < 0; })) return false;
  }
  return true;
}

int Context::InferShapes(int room, const char** missing) {
  const Guard guard(*this);
  int count = 0;
  for (const Tensor& tensor : engine.plan.tensors) {
    if (!tensor.input) continue;
    const auto shape = Resolve(tensor);
    const bool known = std::all_of(shape.begin(), shape.end(), [](std::int64_t d) { return d >= 0; });
    if (known && (!tensor.host || Address(tensor.name.c_str()) != nullptr)) continue;
    if (count < room && missing != nullptr) missing[count] = tensor.name.c_str();
    ++count;
  }
  if (count > 0 || engine.plan.op != "reshape") return count;
  const Tensor& input = engine.plan.tensors.front();
  for (const Tensor& tensor : engine.plan.tensors) {
    if (!tensor.input && BytesOf(tensor.type, Resolve(tensor)) != BytesOf(input.type, Resolve(input))) {
      Fail(kInvalidArgument, "reshape changes volume");
      return -1;
    }
  }
  return 0;
}

std::int64_t Context::MaxOutputSize(const char* tensor) const {
  const Tensor* of = engine.plan.Find(tensor);
  if (of == nullptr || of->input || !AllShapesGiven()) return -1;
  std::vector<std::int64_t> shape = Resolve(*of);
  if (engine.plan.op != "nonzero" && std::any_of(shape.begin(), shape.end(), [](std::int64_t d) { return d < 0; }))
    return -1;
  if (engine.plan.op == "nonzero") shape = {1, Resolve(*engine.plan.InputOf(*of)).at(0)};
  return static_cast<std::int64_t>((BytesOf(of->type, shape) + 511) / 512 * 512);
}

void Context::SetDeviceMemory(void* block, std::int64_t bytes) {
  const Guard guard(*this);
  if (strategy != kUserManaged) Violation("setDeviceMemoryV2 on a context that manages its own memory");
  user_memory_ = block;
  user_bytes_ = bytes;
}

bool Context::CheckAddresses() {
  for (const Tensor& tensor : engine.plan.tensors) {
    // An allocator is asked anew at each execution; what it gave before is nobody's business.
    if (!tensor.input && GetOutputAllocator(tensor.name.c_str()) != nullptr) continue;
    void* address = Address(tensor.name.c_str());
    if (address == nullptr) {
      return Fail(kInvalidState,
                  "Neither address or allocator is set for tensor " + tensor.name +
                      ". Call setOutputTensorAddress, setTensorAddress or setOutputAllocator before enqueue.");
    }
    const std::uint64_t bytes = BytesOf(tensor.type, Resolve(tensor));
    const std::uint64_t needed = engine.plan.op == "nonzero" && !tensor.input
                                     ? static_cast<std::uint64_t>(MaxOutputSize(tensor.name.c_str()))
                                     : bytes;
    fake_gpu::BlockInfo info;
    const bool known = fake_gpu::FindBlock(address, needed, &info);
    if (tensor.host) {
      if (known && info.kind == fake_gpu::Kind::kDevice) Violation("device memory for the host tensor " + tensor.name);
    } else if (!known && needed > 0) {
      Violation("the address of " + tensor.name + " is no device memory of " + std::to_string(needed) + " bytes");
      return Fail(kInvalidArgument, "bad address of " + tensor.name);
    }
  }
  return true;
}

bool Context::PrepareOutputs(void* stream) {
  for (const Tensor& tensor : engine.plan.tensors) {
    if (tensor.input) continue;
    const char* its_name = tensor.name.c_str();
    OutputAllocator* allocator = GetOutputAllocator(its_name);
    if (allocator == nullptr) continue;
    const auto bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(512, MaxOutputSize(its_name)));
    void* block = allocator->reallocateOutputAsync(its_name, Address(its_name), bytes, 512, stream);
    if (block == nullptr) return Fail(kFailedAllocation, "the output allocator returned no memory for " + tensor.name);
    if (!fake_gpu::FindBlock(block, bytes, nullptr)) Violation("an output allocator gave no device memory");
    addresses_[tensor.name] = block;
    if (engine.plan.op != "nonzero") allocator->notifyShape(its_name, ToDims(Resolve(tensor)));
  }
  return true;
}

void Context::RunNonZero() {
  const Tensor& input = engine.plan.tensors.front();
  const auto* values = static_cast<const float*>(Address(input.name.c_str()));
  const std::int64_t count = Resolve(input).at(0);
  for (const Tensor& tensor : engine.plan.tensors) {
    if (tensor.input) continue;
    std::int64_t found = 0;
    void* to = Address(tensor.name.c_str());
    for (std::int64_t i = 0; i < count; ++i) {
      if (values[i] == 0) continue;
      if (tensor.type == tidemark::testing::FakePlan::kInt64)
        static_cast<std::int64_t*>(to)[found++] = i;
      else
        static_cast<std::int32_t*>(to)[found++] = static_cast<std::int32_t>(i);
    }
    if (OutputAllocator* allocator = GetOutputAllocator(tensor.name.c_str()); allocator != nullptr) {
      allocator->notifyShape(tensor.name.c_str(), ToDims({1, found}));
    }
  }
}

// The computation with everything that it needs baked in, as a captured graph has it.
std::function<void()> Context::Work() {
  struct Piece {
    const void* a;
    const void* b;
    void* to;
    std::uint64_t bytes;
    int sign;
  };
  std::vector<Piece> pieces;
  std::vector<const Tensor*> inputs;
  for (const Tensor& tensor : engine.plan.tensors) {
    if (tensor.input) inputs.push_back(&tensor);
  }
  int sign = 1;
  for (const Tensor& tensor : engine.plan.tensors) {
    if (tensor.input) continue;
    const bool addsub = engine.plan.op == "addsub";
    const void* b = addsub ? Address(inputs.at(1)->name.c_str()) : nullptr;
    pieces.push_back({Address(engine.plan.InputOf(tensor)->name.c_str()), b, Address(tensor.name.c_str()),
                      BytesOf(tensor.type, Resolve(tensor)), sign});
    sign = -sign;
  }
  return [pieces] {
    for (const Piece& piece : pieces) {
      if (!fake_gpu::FindBlock(piece.to, piece.bytes, nullptr) || !fake_gpu::FindBlock(piece.a, piece.bytes, nullptr)) {
        Violation("memory of an execution was freed before the execution ran");
        continue;
      }
      if (piece.b == nullptr) {
        std::memcpy(piece.to, piece.a, piece.bytes);
        continue;
      }
      const auto* a = static_cast<const float*>(piece.a);
      const auto* b = static_cast<const float*>(piece.b);
      auto* to = static_cast<float*>(piece.to);
      for (std::uint64_t i = 0; i < piece.bytes / sizeof(float); ++i)
        to[i] = piece.sign > 0 ? a[i] + b[i] : a[i] - b[i];
    }
  };
}

bool Context::Enqueue(void* stream) {
  const Guard guard(*this);
  if (fake_gpu::CurrentDevice() != engine.device) Violation("enqueueV3 with another device current than the engine's");
  fake_gpu::Stream* on = fake_gpu::FindStream(stream);
  if (on == nullptr) return Fail(kInvalidArgument, "no stream");
  if (!AllShapesGiven()) return Fail(kInvalidState, "not all input shapes are given");
  if (strategy == kUserManaged && engine.plan.scratch > 0) {
    if (user_memory_ == nullptr || user_bytes_ < static_cast<std::int64_t>(engine.plan.scratch)) {
      return Fail(kInvalidState, "device memory is not set or too small");
    }
    if (!fake_gpu::FindBlock(user_memory_, static_cast<std::size_t>(user_bytes_), nullptr))
      Violation("context memory is no device memory");
  }
  if (!CheckAddresses() || !PrepareOutputs(stream)) return false;
  if (engine.plan.temporary > 0) {
    GpuAllocator* from = temporary != nullptr ? temporary : engine.allocator;
    void* block = Take(from, engine.plan.temporary, true);
    if (block == nullptr) return Fail(kFailedAllocation, "temporary memory was refused");
    Give(from, block, true);
  }
  int result = fake_gpu::kOk;
  if (engine.plan.op == "nonzero" || engine.plan.uncapturable) {
    const auto work = engine.plan.op == "nonzero" ? std::function<void()>([this] { RunNonZero(); }) : Work();
    result = fake_gpu::SubmitAndWait(on, work);
  } else {
    result = fake_gpu::Submit(on, Work());
  }
  if (result != fake_gpu::kOk) return Fail(kFailedExecution, "CUDA error " + std::to_string(result));
  if (consumed_event != nullptr) {
    fake_gpu::Event* event = fake_gpu::FindEvent(consumed_event);
    if (event != nullptr) fake_gpu::RecordEvent(event, on);
  }
  return true;
}

}  // namespace fake_trt
