#pragma once

#include <cstddef>
#include <cstdint>

// TensorRT's binary interface as far as a server needs it, in our own declarations: no vendor header is needed to build,
// and one binary speaks to TensorRT 10 and 11. Itanium C++ ABI (x86-64 and AArch64 Linux).
//
// The public classes of the library are shells {vptr, impl}; a method is a call of a slot in the table of `impl`. The
// slots are numbers in kAbi10 and kAbi11 below, which are *not* interchangeable: 11 renumbered nearly every table. A
// library is asked for its version first and refused by name when no table fits it (see nvinfer_library.h).
namespace tidemark::nv {

// ---- Values ---------------------------------------------------------------------------------------------------------

struct Dims {  // Dims64
  std::int32_t rank = 0;
  std::int64_t d[8] = {};
};
static_assert(sizeof(Dims) == 72 && offsetof(Dims, d) == 8);

struct InterfaceInfo {
  const char* kind;
  std::int32_t major;
  std::int32_t minor;
};
static_assert(sizeof(InterfaceInfo) == 16);

enum class DataType : std::int32_t {
  kFloat = 0,
  kHalf = 1,
  kInt8 = 2,
  kInt32 = 3,
  kBool = 4,
  kUint8 = 5,
  kFp8 = 6,
  kBf16 = 7,
  kInt64 = 8,
  kInt4 = 9,
  kFp4 = 10,
  kE8m0 = 11,
};
enum class IoMode : std::int32_t { kNone = 0, kInput = 1, kOutput = 2 };
enum class Location : std::int32_t { kDevice = 0, kHost = 1 };
enum class Format : std::int32_t { kLinear = 0 };  // every other value is a vectorised or packed layout
enum class Selector : std::int32_t { kMin = 0, kOpt = 1, kMax = 2 };
enum class Strategy : std::int32_t { kStatic = 0, kOnProfileChange = 1, kUserManaged = 2 };
enum class Severity : std::int32_t { kInternalError = 0, kError = 1, kWarning = 2, kInfo = 3, kVerbose = 4 };
enum class ErrorCode : std::int32_t {
  kSuccess = 0,
  kUnspecified = 1,
  kInternalError = 2,  // the library's own state is broken
  kInvalidArgument = 3,
  kInvalidConfig = 4,
  kFailedAllocation = 5,
  kFailedInitialization = 6,
  kFailedExecution = 7,
  kFailedComputation = 8,
  kInvalidState = 9,
  kUnsupportedState = 10,
};

// ---- What the library calls: our side of the tables -----------------------------------------------------------------

// Slots 0 and 1, the destructors 2 and 3; methods of derived interfaces begin at 4.
class VersionedInterface {
 public:
  virtual std::int32_t getAPILanguage() const noexcept { return 0; }  // C++
  virtual InterfaceInfo getInterfaceInfo() const noexcept = 0;
  virtual ~VersionedInterface() = default;
};

// TensorRT 11: a versioned interface. Called from any thread.
class Logger11 : public VersionedInterface {
 public:
  InterfaceInfo getInterfaceInfo() const noexcept override { return {"ILogger", 1, 0}; }
  virtual void log(Severity severity, const char* text) noexcept = 0;
};

// TensorRT 10: `log` is slot 0.
class Logger10 {
 public:
  virtual void log(Severity severity, const char* text) noexcept = 0;
  virtual ~Logger10() = default;
};

class ErrorRecorder : public VersionedInterface {
 public:
  InterfaceInfo getInterfaceInfo() const noexcept override { return {"IErrorRecorder", 1, 0}; }
  virtual std::int32_t getNbErrors() const noexcept = 0;
  virtual ErrorCode getErrorCode(std::int32_t index) const noexcept = 0;
  virtual const char* getErrorDesc(std::int32_t index) const noexcept = 0;
  virtual bool hasOverflowed() const noexcept = 0;
  virtual void clear() noexcept = 0;
  virtual bool reportError(ErrorCode code, const char* text) noexcept = 0;
  virtual std::int32_t incRefCount() noexcept = 0;
  virtual std::int32_t decRefCount() noexcept = 0;
};

// Both the synchronous slots (4 and 6, what TensorRT 11.2.1 calls for contexts) and the stream-ordered ones (7 and 8,
// what it calls for weights) are used.
class GpuAllocator : public VersionedInterface {
 public:
  InterfaceInfo getInterfaceInfo() const noexcept override { return {"IGpuAllocator", 1, 0}; }
  virtual void* allocate(std::uint64_t bytes, std::uint64_t alignment, std::uint32_t flags) noexcept = 0;
  virtual void* reallocate(void* block, std::uint64_t alignment, std::uint64_t bytes) noexcept = 0;
  virtual bool deallocate(void* block) noexcept = 0;
  virtual void* allocateAsync(std::uint64_t bytes, std::uint64_t alignment, std::uint32_t flags,
                              void* stream) noexcept = 0;
  virtual bool deallocateAsync(void* block, void* stream) noexcept = 0;
};

class OutputAllocator : public VersionedInterface {
 public:
  InterfaceInfo getInterfaceInfo() const noexcept override { return {"IOutputAllocator", 1, 0}; }
  virtual void* reallocateOutput(const char* name, void* current, std::uint64_t bytes,
                                 std::uint64_t alignment) noexcept = 0;
  virtual void* reallocateOutputAsync(const char* name, void* current, std::uint64_t bytes, std::uint64_t alignment,
                                      void* stream) noexcept = 0;
  virtual void notifyShape(const char* name, const Dims& shape) noexcept = 0;
};

// ---- What we call: exported functions -------------------------------------------------------------------------------

// libnvinfer.so.N, libnvinfer_lean.so.N (and _dispatch). Only the first two must be there.
using CreateRuntime = void*(void* logger, std::int32_t version);  // "createInferRuntime_INTERNAL"
using LibraryVersion =
    std::int32_t();  // "getInferLibVersion": major·10000 + minor·100 + patch; "getInferLibBuildVersion"
using GetPluginRegistry = void*();  // "getPluginRegistry"
// libnvinfer_plugin.so.N: "initLibNvInferPlugins".
using InitPlugins = bool(void* logger, const char* library_namespace);

// createInferRuntime of a machine without a driver answers small numbers instead of null.
inline constexpr std::uintptr_t kLowestPointer = 64 * 1024;

// ---- What we call: slots --------------------------------------------------------------------------------------------

struct Slot {
  int index = -1;  // -1: this major has no such method
  int since = 0;   // library version from which on it is there (the encoding of getInferLibVersion)
  constexpr bool In(int version) const { return index >= 0 && version >= since; }
};

struct RuntimeSlots {
  Slot deserialize;            // (void const* blob, u64 bytes) -> engine
  Slot set_dla_core;           // (i32)
  Slot dla_cores;              // () -> i32
  Slot set_gpu_allocator;      // (GpuAllocator*)
  Slot set_error_recorder;     // (ErrorRecorder*)
  Slot error_recorder;         // () -> ErrorRecorder*
  Slot logger;                 // () -> ILogger*
  Slot set_max_threads;        // (i32) -> bool
  Slot max_threads;            // () -> i32
  Slot set_tempfile_flags;     // (u32)
  Slot plugin_registry;        // () -> IPluginRegistry&
  Slot set_host_code_allowed;  // (bool)
  Slot host_code_allowed;      // () -> bool
  int table_length = 0;        // slots that a library of this major has at least
};

struct EngineSlots {
  Slot create_context;          // (Strategy) -> context
  Slot name;                    // () -> char const*
  Slot profiles;                // () -> i32
  Slot set_error_recorder;      // (ErrorRecorder*)
  Slot tensor_shape;            // (name) -> Dims
  Slot tensor_type;             // (name) -> DataType
  Slot tensor_location;         // (name) -> Location
  Slot is_shape_io;             // (name) -> bool
  Slot tensor_mode;             // (name) -> IoMode
  Slot profile_shape;           // (name, i32 profile, Selector) -> Dims
  Slot tensors;                 // () -> i32
  Slot tensor_name;             // (i32) -> char const*
  Slot aux_streams;             // () -> i32
  Slot bytes_per_component;     // (name, i32 profile) -> i32; -1 for linear formats
  Slot components_per_element;  // (name, i32 profile) -> i32
  Slot tensor_format;           // (name, i32 profile) -> Format
  Slot format_text;             // (name, i32 profile) -> char const*
  Slot vectorized_dim;          // (name, i32 profile) -> i32
  Slot device_memory;           // () -> i64
  Slot device_memory_of;        // (i32 profile) -> i64
  Slot profile_values;          // (name, i32 profile, Selector) -> i64 const*
  Slot profile_values_32;       // (name, i32 profile, Selector) -> i32 const*; TensorRT 10 only
  Slot stat;                    // (i32) -> i64; 0: bytes of all weights
  Slot aliased_input;           // (name) -> char const*
  int table_length = 0;
};

struct ContextSlots {
  Slot engine;                   // () -> ICudaEngine const&
  Slot set_name;                 // (char const*)
  Slot set_error_recorder;       // (ErrorRecorder*)
  Slot set_profile;              // (i32, stream) -> bool
  Slot set_input_shape;          // (name, Dims const&) -> bool
  Slot tensor_shape;             // (name) -> Dims
  Slot set_address;              // (name, void*) -> bool
  Slot infer_shapes;             // (i32 n, char const** names) -> i32 missing, < 0 error
  Slot set_output_allocator;     // (name, OutputAllocator*) -> bool
  Slot max_output_bytes;         // (name) -> i64
  Slot set_temporary_allocator;  // (GpuAllocator*) -> bool
  Slot enqueue;                  // (stream) -> bool
  Slot set_device_memory;        // (void*, i64)
  int table_length = 0;
};

struct PluginRegistrySlots {  // of the registry itself: it is no shell
  Slot load_library;          // (char const* path) -> void*
};

struct Abi {
  int major = 0;
  int oldest = 0;  // library version below which this table is not used
  RuntimeSlots runtime;
  EngineSlots engine;
  ContextSlots context;
  PluginRegistrySlots plugins;
};

inline constexpr Abi kAbi11 = {
    .major = 11,
    .oldest = 110000,
    .runtime = {.deserialize = {3},
                .set_dla_core = {4},
                .dla_cores = {6},
                .set_gpu_allocator = {7},
                .set_error_recorder = {8},
                .error_recorder = {9},
                .logger = {10},
                .set_max_threads = {11},
                .max_threads = {12},
                .set_tempfile_flags = {15},
                .plugin_registry = {17},
                .set_host_code_allowed = {20},
                .host_code_allowed = {21},
                .table_length = 23},
    .engine = {.create_context = {5},
               .name = {7},
               .profiles = {8},
               .set_error_recorder = {10},
               .tensor_shape = {15},
               .tensor_type = {16},
               .tensor_location = {17},
               .is_shape_io = {18},
               .tensor_mode = {19},
               .profile_shape = {25},
               .tensors = {26},
               .tensor_name = {27},
               .aux_streams = {29},
               .bytes_per_component = {30},
               .components_per_element = {31},
               .tensor_format = {32},
               .format_text = {33},
               .vectorized_dim = {34},
               .device_memory = {44},
               .device_memory_of = {45},
               .profile_values = {46},
               .profile_values_32 = {},
               .stat = {49},
               .aliased_input = {50},
               .table_length = 51},
    .context = {.engine = {7},
                .set_name = {8},
                .set_error_recorder = {13},
                .set_profile = {16},
                .set_input_shape = {20},
                .tensor_shape = {21},
                .set_address = {23},
                .infer_shapes = {27},
                .set_output_allocator = {31},
                .max_output_bytes = {33},
                .set_temporary_allocator = {34},
                .enqueue = {36},
                .set_device_memory = {48},
                .table_length = 53},
    .plugins = {.load_library = {6}},
};

// 10.1 to 10.16 only ever appended to these classes; `since` names what came later than 10.1.
inline constexpr Abi kAbi10 = {
    .major = 10,
    .oldest = 100100,
    .runtime = {.deserialize = {3},
                .set_dla_core = {5},
                .dla_cores = {7},
                .set_gpu_allocator = {8},
                .set_error_recorder = {9},
                .error_recorder = {10},
                .logger = {11},
                .set_max_threads = {12},
                .max_threads = {13},
                .set_tempfile_flags = {16},
                .plugin_registry = {18},
                .set_host_code_allowed = {21},
                .host_code_allowed = {22},
                .table_length = 23},
    .engine = {.create_context = {5},
               .name = {9},
               .profiles = {10},
               .set_error_recorder = {13},
               .tensor_shape = {19},
               .tensor_type = {20},
               .tensor_location = {21},
               .is_shape_io = {22},
               .tensor_mode = {23},
               .profile_shape = {29},
               .tensors = {30},
               .tensor_name = {31},
               .aux_streams = {33},
               .bytes_per_component = {34},
               .components_per_element = {35},
               .tensor_format = {36},
               .format_text = {37},
               .vectorized_dim = {38},
               .device_memory = {52},
               .device_memory_of = {53},
               .profile_values = {54, 101100},
               .profile_values_32 = {11},
               .stat = {57, 101400},
               .aliased_input = {58, 101500},
               .table_length = 54},
    .context = {.engine = {7},
                .set_name = {8},
                .set_error_recorder = {14},
                .set_profile = {17},
                .set_input_shape = {21},
                .tensor_shape = {22},
                .set_address = {24},
                .infer_shapes = {28},
                .set_output_allocator = {32},
                .max_output_bytes = {34},
                .set_temporary_allocator = {35},
                .enqueue = {37},
                .set_device_memory = {49},
                .table_length = 50},
    .plugins = {.load_library = {10}},
};

// ---- Calling a slot -------------------------------------------------------------------------------------------------

// The object behind a shell (its second word), whose table has the methods.
inline void* ImplOf(void* shell) { return static_cast<void**>(shell)[1]; }

// Calls slot `index` of the table of `object`. A Dims result comes back through a hidden pointer on both ABIs, exactly as
// a free function with `object` as its first argument returns it.
template <typename Result, typename... Arguments>
Result CallSlot(void* object, int index, Arguments... arguments) noexcept {
  using Function = Result (*)(void*, Arguments...);
  void* const* table = *static_cast<void* const* const*>(object);
  return reinterpret_cast<Function>(table[index])(object, arguments...);
}

// The deleting destructor of a shell: the library frees with its own operator delete.
inline void DeleteShell(void* shell) noexcept { CallSlot<void>(shell, 1); }

}  // namespace tidemark::nv
