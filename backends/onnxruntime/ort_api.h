#pragma once

#include <cstddef>
#include <cstdint>

// Our own declarations of the part of ONNX Runtime's C interface that the backend uses: opaque types, numbers, and the
// entries of the function table by their position. The library is opened at run time; no vendor header is needed. The
// positions are part of the interface's promise: entries are only ever added at the end. Fact source: the positions were
// confirmed by calling each one of a 1.32.0 library.

namespace tidemark::ort {

struct Status;
struct Env;
struct Session;
struct SessionOptions;
struct RunOptions;
struct Value;
struct MemoryInfo;
struct TypeInfo;
struct TensorInfo;

// The version of the table that the backend asks for; a library offers every version up to its own.
inline constexpr std::uint32_t kApiVersion = 23;
// The oldest library that offers it, for messages.
inline constexpr const char* kOldestLibrary = "1.23";

inline constexpr int kLogWarning = 2;

// Error codes of a Status.
inline constexpr int kInvalidArgument = 2;
inline constexpr int kNotImplemented = 9;
inline constexpr int kLoadCancelled = 12;

// Kinds of a value.
enum class Kind : int { kUnknown = 0, kTensor, kSequence, kMap, kOpaque, kSparseTensor, kOptional };

inline constexpr int kDeviceAllocator = 0;
inline constexpr int kDefaultMemory = 0;

// The allocator that a user may give. Version 18 promises the entries up to `reserve`.
struct Allocator {
  std::uint32_t version = 18;
  void* (*alloc)(Allocator*, std::size_t) = nullptr;
  void (*free)(Allocator*, void*) = nullptr;
  const MemoryInfo* (*info)(const Allocator*) = nullptr;
  void* (*reserve)(Allocator*, std::size_t) = nullptr;
  void* unused[4] = {};
};

using LogFunction = void (*)(void* context, int severity, const char* category, const char* id, const char* where,
                             const char* message);
using ThreadBody = void (*)(void* argument);
using StartThread = void* (*)(void* options, ThreadBody body, void* argument);
using JoinThread = void (*)(void* thread);

// What the library exports by name.
struct ApiBase {
  const void* (*get_api)(std::uint32_t version);
  const char* (*version)();
};

// X(slot, name, result, arguments)
#define TIDEMARK_ORT_FUNCTIONS(X)                                                                                      \
  X(1, GetErrorCode, int, (const Status*))                                                                             \
  X(2, GetErrorMessage, const char*, (const Status*))                                                                  \
  X(4, CreateEnvWithCustomLogger, Status*, (LogFunction, void*, int level, const char* id, Env**))                     \
  X(7, CreateSession, Status*, (const Env*, const char* path, const SessionOptions*, Session**))                       \
  X(8, CreateSessionFromArray, Status*,                                                                                \
    (const Env*, const void* data, std::size_t bytes, const SessionOptions*, Session**))                               \
  X(9, Run, Status*,                                                                                                   \
    (Session*, const RunOptions*, const char* const* input_names, const Value* const* inputs, std::size_t input_count, \
     const char* const* output_names, std::size_t output_count, Value** outputs))                                      \
  X(10, CreateSessionOptions, Status*, (SessionOptions**))                                                             \
  X(13, SetSessionExecutionMode, Status*, (SessionOptions*, int))                                                      \
  X(16, EnableMemPattern, Status*, (SessionOptions*))                                                                  \
  X(17, DisableMemPattern, Status*, (SessionOptions*))                                                                 \
  X(19, DisableCpuMemArena, Status*, (SessionOptions*))                                                                \
  X(20, SetSessionLogId, Status*, (SessionOptions*, const char*))                                                      \
  X(23, SetSessionGraphOptimizationLevel, Status*, (SessionOptions*, int))                                             \
  X(24, SetIntraOpNumThreads, Status*, (SessionOptions*, int))                                                         \
  X(25, SetInterOpNumThreads, Status*, (SessionOptions*, int))                                                         \
  X(30, SessionGetInputCount, Status*, (const Session*, std::size_t*))                                                 \
  X(31, SessionGetOutputCount, Status*, (const Session*, std::size_t*))                                                \
  X(32, SessionGetOverridableInitializerCount, Status*, (const Session*, std::size_t*))                                \
  X(33, SessionGetInputTypeInfo, Status*, (const Session*, std::size_t, TypeInfo**))                                   \
  X(34, SessionGetOutputTypeInfo, Status*, (const Session*, std::size_t, TypeInfo**))                                  \
  X(35, SessionGetOverridableInitializerTypeInfo, Status*, (const Session*, std::size_t, TypeInfo**))                  \
  X(36, SessionGetInputName, Status*, (const Session*, std::size_t, Allocator*, char**))                               \
  X(37, SessionGetOutputName, Status*, (const Session*, std::size_t, Allocator*, char**))                              \
  X(38, SessionGetOverridableInitializerName, Status*, (const Session*, std::size_t, Allocator*, char**))              \
  X(39, CreateRunOptions, Status*, (RunOptions**))                                                                     \
  X(46, RunOptionsSetTerminate, Status*, (RunOptions*))                                                                \
  X(47, RunOptionsUnsetTerminate, Status*, (RunOptions*))                                                              \
  X(48, CreateTensorAsOrtValue, Status*, (Allocator*, const std::int64_t*, std::size_t rank, int type, Value**))       \
  X(49, CreateTensorWithDataAsOrtValue, Status*,                                                                       \
    (const MemoryInfo*, void* data, std::size_t bytes, const std::int64_t*, std::size_t rank, int type, Value**))      \
  X(51, GetTensorMutableData, Status*, (Value*, void**))                                                               \
  X(53, GetStringTensorDataLength, Status*, (const Value*, std::size_t*))                                              \
  X(54, GetStringTensorContent, Status*,                                                                               \
    (const Value*, void* text, std::size_t bytes, std::size_t* offsets, std::size_t count))                            \
  X(55, CastTypeInfoToTensorInfo, Status*, (const TypeInfo*, const TensorInfo**))                                      \
  X(56, GetOnnxTypeFromTypeInfo, Status*, (const TypeInfo*, int*))                                                     \
  X(60, GetTensorElementType, Status*, (const TensorInfo*, int*))                                                      \
  X(61, GetDimensionsCount, Status*, (const TensorInfo*, std::size_t*))                                                \
  X(62, GetDimensions, Status*, (const TensorInfo*, std::int64_t*, std::size_t))                                       \
  X(63, GetSymbolicDimensions, Status*, (const TensorInfo*, const char**, std::size_t))                                \
  X(65, GetTensorTypeAndShape, Status*, (const Value*, TensorInfo**))                                                  \
  X(67, GetValueType, Status*, (const Value*, int*))                                                                   \
  X(69, CreateCpuMemoryInfo, Status*, (int allocator, int memory, MemoryInfo**))                                       \
  X(76, AllocatorFree, Status*, (Allocator*, void*))                                                                   \
  X(78, GetAllocatorWithDefaultOptions, Status*, (Allocator**))                                                        \
  X(92, ReleaseEnv, void, (Env*))                                                                                      \
  X(93, ReleaseStatus, void, (Status*))                                                                                \
  X(94, ReleaseMemoryInfo, void, (MemoryInfo*))                                                                        \
  X(95, ReleaseSession, void, (Session*))                                                                              \
  X(96, ReleaseValue, void, (Value*))                                                                                  \
  X(97, ReleaseRunOptions, void, (RunOptions*))                                                                        \
  X(98, ReleaseTypeInfo, void, (TypeInfo*))                                                                            \
  X(99, ReleaseTensorTypeAndShapeInfo, void, (TensorInfo*))                                                            \
  X(100, ReleaseSessionOptions, void, (SessionOptions*))                                                               \
  X(130, AddSessionConfigEntry, Status*, (SessionOptions*, const char* key, const char* value))                        \
  X(176, RegisterAllocator, Status*, (Env*, Allocator*))                                                               \
  X(177, UnregisterAllocator, Status*, (Env*, const MemoryInfo*))                                                      \
  X(196, SessionOptionsSetCustomCreateThreadFn, Status*, (SessionOptions*, StartThread))                               \
  X(197, SessionOptionsSetCustomThreadCreationOptions, Status*, (SessionOptions*, void*))                              \
  X(198, SessionOptionsSetCustomJoinThreadFn, Status*, (SessionOptions*, JoinThread))                                  \
  X(252, GetResizedStringTensorElementBuffer, Status*, (Value*, std::size_t index, std::size_t bytes, char**))         \
  X(279, AddExternalInitializersFromFilesInMemory, Status*,                                                            \
    (SessionOptions*, const char* const* names, char* const* buffers, const std::size_t* bytes, std::size_t count))    \
  X(293, SessionOptionsSetLoadCancellationFlag, Status*, (SessionOptions*, bool))

// The table, copied entry by entry so that a call reads `api.Run(…)`. Immutable after FromTable; thread-safe.
struct Api {
#define TIDEMARK_ORT_DECLARE(slot, name, result, arguments) result(*name) arguments = nullptr;
  TIDEMARK_ORT_FUNCTIONS(TIDEMARK_ORT_DECLARE)
#undef TIDEMARK_ORT_DECLARE

  static Api FromTable(const void* table) {
    const auto* slots = static_cast<void* const*>(table);
    Api api;
#define TIDEMARK_ORT_COPY(slot, name, result, arguments) api.name = reinterpret_cast<result(*) arguments>(slots[slot]);
    TIDEMARK_ORT_FUNCTIONS(TIDEMARK_ORT_COPY)
#undef TIDEMARK_ORT_COPY
    return api;
  }
};

}  // namespace tidemark::ort
