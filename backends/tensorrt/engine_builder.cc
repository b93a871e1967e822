#include "backends/tensorrt/engine_builder.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <utility>

#include "backends/tensorrt/builder_abi.h"
#include "backends/tensorrt/trt_callbacks.h"
#include "base/status.h"

namespace tidemark {
namespace {

namespace fs = std::filesystem;
using nv::CallSlot;
using nv::ImplOf;

constexpr std::int64_t kLargestBatch = 64;

absl::StatusOr<nv::DataType> TypeOf(DataType type) {
  static constexpr std::pair<DataType, nv::DataType> kTypes[] = {
      {DataType::kFp32, nv::DataType::kFloat},  {DataType::kFp16, nv::DataType::kHalf},
      {DataType::kBf16, nv::DataType::kBf16},   {DataType::kInt8, nv::DataType::kInt8},
      {DataType::kInt32, nv::DataType::kInt32}, {DataType::kInt64, nv::DataType::kInt64},
      {DataType::kBool, nv::DataType::kBool},   {DataType::kUint8, nv::DataType::kUint8}};
  for (const auto& [ours, theirs] : kTypes) {
    if (ours == type) return theirs;
  }
  return absl::InvalidArgumentError(fmt::format(
      "TensorRT has no {}; it has FP32, FP16, BF16, INT8, UINT8, INT32, INT64 and BOOL", ProtocolName(type)));
}

absl::StatusOr<Shape> ParseShape(std::string_view text) {
  Shape shape;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('x'), text.size());
    std::int64_t value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + end, value);
    if (error != std::errc() || stop != text.data() + end || value < 0) {
      return absl::InvalidArgumentError(fmt::format("'{}' is no dimension", text.substr(0, end)));
    }
    shape.push_back(value);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (shape.empty() || shape.size() > 8) return absl::InvalidArgumentError("a shape has 1 to 8 dimensions");
  return shape;
}

nv::Dims DimsOf(const Shape& shape) {
  nv::Dims dims;
  dims.rank = static_cast<std::int32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), dims.d);
  return dims;
}

// An object of the library that we must delete.
class Owned {
 public:
  Owned() = default;
  explicit Owned(void* shell) : shell_(shell) {}
  ~Owned() { Reset(); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  void Set(void* shell) {
    Reset();
    shell_ = shell;
  }
  void* get() const { return shell_; }
  explicit operator bool() const { return reinterpret_cast<std::uintptr_t>(shell_) >= nv::kLowestPointer; }

 private:
  void Reset() {
    if (*this) nv::DeleteShell(shell_);
  }
  void* shell_ = nullptr;
};

class Build {
 public:
  Build(Scope& scope, const EngineSpec& spec, const EngineLibraries& libraries)
      : scope_(scope), spec_(spec), libraries_(libraries) {}
  ~Build() {
    if (parser_ != nullptr) CallSlot<void>(parser_, abi_->parser.deleting_destructor);
  }
  Build(const Build&) = delete;
  Build& operator=(const Build&) = delete;

  absl::StatusOr<std::string> Run() {
    RETURN_IF_ERROR(Open());
    RETURN_IF_ERROR(MakeBuilder());
    RETURN_IF_ERROR(spec_.network == EngineSpec::Network::kOnnx ? Parse() : MakeNetwork());
    RETURN_IF_ERROR(Configure());
    RETURN_IF_ERROR(AddProfiles());
    LogCapture log;
    errors_.Clear();
    const Owned memory(CallSlot<void*>(ImplOf(builder_.get()), abi_->builder.build, network_.get(), config_.get()));
    if (!memory) return absl::InvalidArgumentError("TensorRT could not build the engine: " + Why(log));
    const auto* data = CallSlot<const char*>(ImplOf(memory.get()), abi_->memory_data);
    return std::string(data, CallSlot<std::uint64_t>(ImplOf(memory.get()), abi_->memory_size));
  }

 private:
  std::string Why(const LogCapture& log) const {
    return Printable(errors_.Text(log.text().empty() ? std::string_view("it did not say why") : log.text()));
  }

  absl::Status Open() {
    ASSIGN_OR_RETURN(library_, scope_.OpenLibrary(libraries_.builder, "TensorRT builder"));
    KeepLibrary(library_.library);
    ASSIGN_OR_RETURN(void* const ask, scope_.Symbol(library_, "getInferLibVersion"));
    version_ = reinterpret_cast<nv::LibraryVersion*>(ask)();
    if (libraries_.assume_major != 0) version_ = libraries_.assume_major * 10000 + 9999;
    const int major = version_ / 10000;
    if (major != 11 && (major != 10 || version_ < nv::kAbi10.oldest)) {
      return absl::InvalidArgumentError(fmt::format("'{}' is version {}.{}.{}; expected TensorRT 10.1 or later, or 11",
                                                    libraries_.builder.string(), major, version_ / 100 % 100,
                                                    version_ % 100));
    }
    abi_ = major == 11 ? &nv::kBuilderAbi11 : &nv::kBuilderAbi10;
    if (libraries_.resources.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(void* const set, scope_.Symbol(library_, "setInternalLibraryPath"));
    if (reinterpret_cast<nv::SetInternalLibraryPath*>(set)(libraries_.resources.c_str())) return absl::OkStatus();
    return absl::InvalidArgumentError(
        fmt::format("TensorRT does not take '{}' as the folder of its resources", libraries_.resources.string()));
  }

  // The text for a builder that does not come up; names the resource library that it misses.
  absl::Status NoBuilder(const std::string& why) const {
    constexpr std::string_view kMissing = "libnvinfer_builder_resource";
    const std::size_t at = why.find(kMissing);
    if (at == std::string::npos) {
      return absl::FailedPreconditionError(
          fmt::format("TensorRT's builder does not start (a lean or dispatch library has none): {}", why));
    }
    const std::string name = why.substr(at, why.find_first_of(" \n,:;'\"", at) - at);
    return absl::FailedPreconditionError(fmt::format(
        "TensorRT's builder needs '{}' for this GPU and does not find it. It belongs to the full TensorRT of the same "
        "version (NVIDIA's tar archive or Debian packages, or the Python package tensorrt-cu13-libs from its own index; "
        "the Java package has it for PTX only): put it beside '{}', or give its folder with --builder-resources. TensorRT said: {}",
        name, libraries_.builder.string(), why));
  }

  absl::Status MakeBuilder() {
    const absl::StatusOr<void*> create = scope_.Symbol(library_, "createInferBuilder_INTERNAL");
    if (!create.ok()) {
      return absl::FailedPreconditionError(fmt::format(
          "'{}' has no builder (a lean or dispatch library only runs plans): give the full libnvinfer with --library",
          libraries_.builder.string()));
    }
    LogCapture log;
    builder_.Set(reinterpret_cast<nv::CreateBuilder*>(*create)(TrtLogger(version_ / 10000), version_));
    if (!builder_) return NoBuilder(Why(log));
    void* const table = ImplOf(builder_.get());
    CallSlot<void>(table, abi_->builder.set_error_recorder, static_cast<nv::ErrorRecorder*>(&errors_));
    network_.Set(CallSlot<void*>(table, abi_->builder.create_network, std::uint32_t{0}));
    config_.Set(CallSlot<void*>(table, abi_->builder.create_config));
    if (network_ && config_) return absl::OkStatus();
    return absl::InternalError("TensorRT makes no network or no configuration: " + Why(log));
  }

  absl::StatusOr<void*> AddInput(const char* name) {
    ASSIGN_OR_RETURN(const nv::DataType type, TypeOf(spec_.dtype));
    const nv::Dims dims = DimsOf(spec_.batch ? Shape{-1, spec_.elements} : Shape{spec_.elements});
    void* const tensor = CallSlot<void*>(ImplOf(network_.get()), abi_->network.add_input, name, type, &dims);
    if (tensor == nullptr)
      return absl::InvalidArgumentError(fmt::format("TensorRT takes no input {}: {}", name, errors_.Text("")));
    return tensor;
  }

  absl::Status AddOutput(void* layer, const char* name) {
    if (layer == nullptr) return absl::InvalidArgumentError("TensorRT makes no layer: " + errors_.Text(""));
    void* const tensor = CallSlot<void*>(ImplOf(layer), abi_->layer_output, std::int32_t{0});
    CallSlot<void>(ImplOf(tensor), abi_->tensor.set_name, name);
    CallSlot<void>(ImplOf(network_.get()), abi_->network.mark_output, tensor);
    return absl::OkStatus();
  }

  absl::Status MakeNetwork() {
    void* const table = ImplOf(network_.get());
    ASSIGN_OR_RETURN(void* const first, AddInput("INPUT0"));
    if (spec_.network == EngineSpec::Network::kIdentity) {
      return AddOutput(CallSlot<void*>(table, abi_->network.add_identity, first), "OUTPUT0");
    }
    ASSIGN_OR_RETURN(void* const second, AddInput("INPUT1"));
    RETURN_IF_ERROR(AddOutput(
        CallSlot<void*>(table, abi_->network.add_elementwise, first, second, std::int32_t{nv::kElementWiseSum}),
        "OUTPUT0"));
    return AddOutput(
        CallSlot<void*>(table, abi_->network.add_elementwise, first, second, std::int32_t{nv::kElementWiseSub}),
        "OUTPUT1");
  }

  absl::Status Parse() {
    fs::path path = libraries_.parser;
    if (path.empty()) {
      path = libraries_.builder.parent_path() / fmt::format("libnvonnxparser.so.{}", version_ / 10000);
    }
    ASSIGN_OR_RETURN(const Scope::Library library, scope_.OpenLibrary(path, "TensorRT's ONNX parser"));
    KeepLibrary(library.library);
    ASSIGN_OR_RETURN(void* const create, scope_.Symbol(library, "createNvOnnxParser_INTERNAL"));
    LogCapture log;
    void* const parser =
        reinterpret_cast<nv::CreateParser*>(create)(network_.get(), TrtLogger(version_ / 10000), version_);
    if (parser == nullptr) return absl::InternalError("TensorRT's ONNX parser does not start: " + Why(log));
    parser_ = parser;
    ASSIGN_OR_RETURN(const Scope::File file, scope_.MapFile(spec_.onnx, "ONNX model"));
    if (CallSlot<bool>(parser_, abi_->parser.parse, static_cast<const void*>(file.data.data()),
                       static_cast<std::uint64_t>(file.data.size()), spec_.onnx.c_str())) {
      return absl::OkStatus();
    }
    std::string text;
    const auto count = CallSlot<std::int32_t>(parser_, abi_->parser.errors);
    for (std::int32_t i = 0; i < std::min(count, 8); ++i) {
      void* const error = CallSlot<void*>(parser_, abi_->parser.error, i);
      if (error == nullptr) continue;
      text += (text.empty() ? "" : "; ") + Printable(CallSlot<const char*>(error, nv::kParserErrorText));
    }
    return absl::InvalidArgumentError(
        fmt::format("TensorRT does not take '{}': {}", spec_.onnx.string(), text.empty() ? Why(log) : text));
  }

  void Flag(bool on, int flag) {
    CallSlot<void>(ImplOf(config_.get()), on ? abi_->config.set_flag : abi_->config.clear_flag, std::int32_t{flag});
  }

  absl::Status Configure() {
    using Precision = EngineSpec::Precision;
    const bool half = spec_.precision == Precision::kFp16 || spec_.precision == Precision::kBf16;
    if (half && abi_->flags.fp16 < 0) {
      return absl::InvalidArgumentError(
          "TensorRT 11 takes each layer's type from the network: convert the ONNX model itself to fp16 or bf16");
    }
    if (spec_.precision == Precision::kFp16) Flag(true, abi_->flags.fp16);
    if (spec_.precision == Precision::kBf16) Flag(true, abi_->flags.bf16);
    if (spec_.precision == Precision::kFp32) Flag(false, abi_->flags.tf32);
    if (spec_.precision == Precision::kTf32) Flag(true, abi_->flags.tf32);
    if (spec_.version_compatible) {
      Flag(true, abi_->flags.version_compatible);
      if (!spec_.include_lean_runtime) Flag(true, abi_->flags.exclude_lean_runtime);
    }
    void* const table = ImplOf(config_.get());
    if (spec_.hardware != EngineSpec::Hardware::kThisGpu) {
      const std::int32_t level = spec_.hardware == EngineSpec::Hardware::kAmperePlus ? 1 : 2;
      if (level == 2 && version_ < 101100) {
        return absl::InvalidArgumentError("this TensorRT has no hardware compatibility within one compute capability");
      }
      CallSlot<void>(table, abi_->config.set_hardware_compatibility, level);
    }
    if (spec_.optimization_level >= 0) {
      CallSlot<void>(table, abi_->config.set_optimization_level, std::int32_t{spec_.optimization_level});
    }
    if (spec_.workspace_bytes >= 0) {
      CallSlot<void>(table, abi_->config.set_memory_pool_limit, std::int32_t{nv::kWorkspacePool},
                     static_cast<std::uint64_t>(spec_.workspace_bytes));
    }
    return absl::OkStatus();
  }

  // Inputs of the network with a free dimension, and their rank.
  std::map<std::string, std::int32_t> FreeInputs() const {
    std::map<std::string, std::int32_t> free;
    void* const table = ImplOf(network_.get());
    const auto count = CallSlot<std::int32_t>(table, abi_->network.inputs);
    for (std::int32_t i = 0; i < count; ++i) {
      void* const tensor = ImplOf(CallSlot<void*>(table, abi_->network.input, i));
      const auto dims = CallSlot<nv::Dims>(tensor, abi_->tensor.dims);
      const bool is_free = std::any_of(dims.d, dims.d + std::max(0, dims.rank), [](std::int64_t d) { return d < 0; });
      if (is_free) free[CallSlot<const char*>(tensor, abi_->tensor.name)] = dims.rank;
    }
    return free;
  }

  absl::Status AddProfiles() {
    std::vector<ProfileShape> shapes = spec_.shapes;
    if (shapes.empty() && spec_.batch) {
      for (const char* name : {"INPUT0", "INPUT1"}) {
        if (spec_.network == EngineSpec::Network::kIdentity && name[5] == '1') continue;
        shapes.push_back({name, {1, spec_.elements}, {8, spec_.elements}, {kLargestBatch, spec_.elements}});
      }
    }
    const auto free = FreeInputs();
    std::vector<std::map<std::string, ProfileShape>> profiles;
    std::map<std::string, std::size_t> next;
    for (const ProfileShape& shape : shapes) {
      const std::size_t index = next[shape.input]++;
      if (profiles.size() <= index) profiles.resize(index + 1);
      profiles[index][shape.input] = shape;
    }
    if (profiles.empty() && !free.empty()) profiles.resize(1);
    for (const auto& profile : profiles) {
      for (const auto& [name, rank] : free) {
        if (profile.count(name) == 0) {
          return absl::InvalidArgumentError(fmt::format(
              "input '{}' has free dimensions: give its shapes with --shapes {}:MIN/OPT/MAX, for each profile", name,
              name));
        }
      }
      RETURN_IF_ERROR(AddProfile(profile));
    }
    return absl::OkStatus();
  }

  absl::Status AddProfile(const std::map<std::string, ProfileShape>& shapes) {
    LogCapture log;
    errors_.Clear();
    void* const profile = CallSlot<void*>(ImplOf(builder_.get()), abi_->builder.create_profile);
    if (profile == nullptr) return absl::InternalError("TensorRT makes no optimization profile: " + Why(log));
    for (const auto& [name, shape] : shapes) {
      const std::pair<nv::Selector, const Shape*> parts[] = {
          {nv::Selector::kMin, &shape.min}, {nv::Selector::kOpt, &shape.opt}, {nv::Selector::kMax, &shape.max}};
      for (const auto& [selector, part] : parts) {
        const nv::Dims dims = DimsOf(*part);
        if (!CallSlot<bool>(ImplOf(profile), abi_->profile_set_dims, name.c_str(), selector, &dims)) {
          return absl::InvalidArgumentError(
              fmt::format("TensorRT does not take the shapes of '{}': {}", name, Why(log)));
        }
      }
    }
    if (CallSlot<std::int32_t>(ImplOf(config_.get()), abi_->config.add_profile, profile) >= 0) return absl::OkStatus();
    return absl::InvalidArgumentError("TensorRT does not take the profile: " + Why(log));
  }

  Scope& scope_;
  const EngineSpec& spec_;
  const EngineLibraries& libraries_;
  TrtErrors errors_;  // outlives what it is set on
  Scope::Library library_;
  int version_ = 0;
  const nv::BuilderAbi* abi_ = nullptr;
  Owned builder_;
  Owned network_;
  Owned config_;
  void* parser_ = nullptr;
};

}  // namespace

absl::StatusOr<ProfileShape> ParseProfileShape(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) {
    return absl::InvalidArgumentError(
        fmt::format("--shapes '{}': expected INPUT:MIN/OPT/MAX, like x:1x16/8x16/64x16", text));
  }
  ProfileShape shape;
  shape.input = text.substr(0, colon);
  std::vector<Shape> parts;
  std::string_view rest = std::string_view(text).substr(colon + 1);
  while (true) {
    const std::size_t slash = std::min(rest.find('/'), rest.size());
    const absl::StatusOr<Shape> part = ParseShape(rest.substr(0, slash));
    if (!part.ok()) return WithContext(part.status(), fmt::format("--shapes '{}'", text));
    parts.push_back(*part);
    if (slash == rest.size()) break;
    rest.remove_prefix(slash + 1);
  }
  if (parts.size() == 1) parts.resize(3, parts.front());
  if (parts.size() != 3 || parts[0].size() != parts[1].size() || parts[1].size() != parts[2].size()) {
    return absl::InvalidArgumentError(fmt::format("--shapes '{}': expected one or three shapes of one rank", text));
  }
  for (std::size_t i = 0; i < parts[0].size(); ++i) {
    if (parts[0][i] > parts[1][i] || parts[1][i] > parts[2][i]) {
      return absl::InvalidArgumentError(fmt::format("--shapes '{}': min <= opt <= max does not hold", text));
    }
  }
  shape.min = parts[0];
  shape.opt = parts[1];
  shape.max = parts[2];
  return shape;
}

absl::StatusOr<std::string> BuildEngine(Scope& scope, const EngineSpec& spec, const EngineLibraries& libraries) {
  return Build(scope, spec, libraries).Run();
}

std::string EngineConfig(const EngineSpec& spec, const std::string& name) {
  const std::string_view type = ConfigName(spec.dtype);
  const auto tensor = [&](std::string_view kind, std::string_view tensor_name) {
    return fmt::format("{} {{ name: \"{}\" data_type: {} dims: {} }}\n", kind, tensor_name, type, spec.elements);
  };
  std::string config = fmt::format("name: \"{}\"\nplatform: \"tensorrt_plan\"\nmax_batch_size: {}\n", name,
                                   spec.batch ? kLargestBatch : 0);
  const bool two = spec.network == EngineSpec::Network::kAddSub;
  config += tensor("input", "INPUT0") + (two ? tensor("input", "INPUT1") : "");
  return config + tensor("output", "OUTPUT0") + (two ? tensor("output", "OUTPUT1") : "");
}

}  // namespace tidemark
