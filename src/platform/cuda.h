#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

// The door to NVIDIA's driver: the part of the CUDA driver interface that the product uses, opened at run time from
// `libcuda.so.1` (which every machine with a driver has; no toolkit is needed, and a machine without a driver starts
// without). TensorRT carries a CUDA runtime inside, which works in the same primary contexts.
//
// Only src/resource/gpu.cc calls these functions: everybody else takes through a Scope with the functions there.
namespace tidemark::cuda {

using Result = int;             // CUresult
using Device = int;             // CUdevice
using Pointer = std::uint64_t;  // CUdeviceptr
using Context = struct CUctx_st*;
using Stream = struct CUstream_st*;
using Event = struct CUevent_st*;
using Graph = struct CUgraph_st*;
using GraphExec = struct CUgraphExec_st*;

struct Uuid {  // CUuuid
  std::uint8_t bytes[16];
};
struct IpcMemHandle {  // CUipcMemHandle, passed by value
  std::uint8_t bytes[64];
};
static_assert(sizeof(Uuid) == 16 && sizeof(IpcMemHandle) == 64);

inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNoDevice = 100;
inline constexpr Result kNotReady = 600;

// CUdevice_attribute
inline constexpr int kComputeCapabilityMajor = 75;
inline constexpr int kComputeCapabilityMinor = 76;
// Flags.
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventBlockingSync = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kHostPortable = 1;       // page-locked for every context
inline constexpr unsigned kHostDeviceMap = 2;      // the device may read and write it at the same address
inline constexpr unsigned kIpcLazyPeerAccess = 1;  // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
inline constexpr int kCaptureThreadLocal = 1;      // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL

// X(member, exported symbol, signature). All of them are there since driver 470 (CUDA 11.4).
#define TIDEMARK_CUDA_FUNCTIONS(X)                                                                             \
  X(init, "cuInit", Result(unsigned flags))                                                                    \
  X(driver_version, "cuDriverGetVersion", Result(int* version))                                                \
  X(error_name, "cuGetErrorName", Result(Result error, const char** text))                                     \
  X(error_string, "cuGetErrorString", Result(Result error, const char** text))                                 \
  X(device_count, "cuDeviceGetCount", Result(int* count))                                                      \
  X(device, "cuDeviceGet", Result(Device* device, int ordinal))                                                \
  X(device_name, "cuDeviceGetName", Result(char* name, int length, Device device))                             \
  X(device_uuid, "cuDeviceGetUuid", Result(Uuid* uuid, Device device))                                         \
  X(device_attribute, "cuDeviceGetAttribute", Result(int* value, int attribute, Device device))                \
  X(device_memory, "cuDeviceTotalMem_v2", Result(std::size_t* bytes, Device device))                           \
  X(retain_context, "cuDevicePrimaryCtxRetain", Result(Context* context, Device device))                       \
  X(release_context, "cuDevicePrimaryCtxRelease_v2", Result(Device device))                                    \
  X(set_context, "cuCtxSetCurrent", Result(Context context))                                                   \
  X(synchronize, "cuCtxSynchronize", Result())                                                                 \
  X(priority_range, "cuCtxGetStreamPriorityRange", Result(int* least, int* greatest))                          \
  X(memory_info, "cuMemGetInfo_v2", Result(std::size_t* free, std::size_t* total))                             \
  X(allocate, "cuMemAlloc_v2", Result(Pointer* block, std::size_t bytes))                                      \
  X(free, "cuMemFree_v2", Result(Pointer block))                                                               \
  X(allocate_host, "cuMemHostAlloc", Result(void** block, std::size_t bytes, unsigned flags))                  \
  X(free_host, "cuMemFreeHost", Result(void* block))                                                           \
  X(register_host, "cuMemHostRegister_v2", Result(void* block, std::size_t bytes, unsigned flags))             \
  X(unregister_host, "cuMemHostUnregister", Result(void* block))                                               \
  X(copy_to_device, "cuMemcpyHtoDAsync_v2", Result(Pointer to, const void* from, std::size_t bytes, Stream s)) \
  X(copy_to_host, "cuMemcpyDtoHAsync_v2", Result(void* to, Pointer from, std::size_t bytes, Stream s))         \
  X(copy_on_device, "cuMemcpyDtoDAsync_v2", Result(Pointer to, Pointer from, std::size_t bytes, Stream s))     \
  X(fill, "cuMemsetD8Async", Result(Pointer to, unsigned char value, std::size_t bytes, Stream s))             \
  X(create_stream, "cuStreamCreateWithPriority", Result(Stream* stream, unsigned flags, int priority))         \
  X(destroy_stream, "cuStreamDestroy_v2", Result(Stream stream))                                               \
  X(synchronize_stream, "cuStreamSynchronize", Result(Stream stream))                                          \
  X(wait_event, "cuStreamWaitEvent", Result(Stream stream, Event event, unsigned flags))                       \
  X(create_event, "cuEventCreate", Result(Event* event, unsigned flags))                                       \
  X(destroy_event, "cuEventDestroy_v2", Result(Event event))                                                   \
  X(record_event, "cuEventRecord", Result(Event event, Stream stream))                                         \
  X(query_event, "cuEventQuery", Result(Event event))                                                          \
  X(synchronize_event, "cuEventSynchronize", Result(Event event))                                              \
  X(begin_capture, "cuStreamBeginCapture_v2", Result(Stream stream, int mode))                                 \
  X(end_capture, "cuStreamEndCapture", Result(Stream stream, Graph* graph))                                    \
  X(instantiate, "cuGraphInstantiateWithFlags", Result(GraphExec* exec, Graph graph, unsigned long long f))    \
  X(launch, "cuGraphLaunch", Result(GraphExec exec, Stream stream))                                            \
  X(destroy_exec, "cuGraphExecDestroy", Result(GraphExec exec))                                                \
  X(destroy_graph, "cuGraphDestroy", Result(Graph graph))                                                      \
  X(open_ipc, "cuIpcOpenMemHandle_v2", Result(Pointer* block, IpcMemHandle handle, unsigned flags))            \
  X(close_ipc, "cuIpcCloseMemHandle", Result(Pointer block))                                                   \
  X(address_range, "cuMemGetAddressRange_v2", Result(Pointer* base, std::size_t* bytes, Pointer address))

// The opened driver: one pointer a function, good for as long as the library is open.
struct Api {
  template <typename Signature>
  using Function = Signature*;
#define TIDEMARK_CUDA_MEMBER(member, symbol, ...) Function<__VA_ARGS__> member = nullptr;
  TIDEMARK_CUDA_FUNCTIONS(TIDEMARK_CUDA_MEMBER)
#undef TIDEMARK_CUDA_MEMBER
};

// Fills the table through `symbol`, which finds an exported function of the library. NOT_FOUND naming the first one that
// is missing (a driver older than 470).
absl::StatusOr<Api> ResolveApi(absl::FunctionRef<absl::StatusOr<void*>(const char* name)> symbol);

// True for an error after which the device's context is lost: every further call on that device answers it, and only a
// new process helps.
bool IsSticky(Result result);

// "CUDA_ERROR_OUT_OF_MEMORY (out of memory)".
std::string ErrorText(const Api& api, Result result);

// OK, or the driver's error as ours: "WHAT: CUDA_ERROR_… (…)" with RESOURCE_EXHAUSTED for want of memory, UNAVAILABLE
// for a lost device, else INTERNAL.
absl::Status StatusOf(const Api& api, Result result, std::string_view what);

}  // namespace tidemark::cuda
