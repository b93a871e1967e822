// A stand-in for libcuda.so.1: the part of the driver interface that a server uses, over host memory.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>

#include "state.h"

namespace {

using namespace fake_gpu;  // NOLINT: a shell over that namespace

using Result = int;
using Pointer = std::uint64_t;

constexpr int kInvalidContext = 201;

struct ContextObject {
  int device;
};
ContextObject contexts[kMaxDevices] = {{0}, {1}};

std::mutex context_mutex;
int retained[kMaxDevices] = {0, 0};
thread_local ContextObject* current = nullptr;

void* Address(Pointer pointer) { return reinterpret_cast<void*>(pointer); }

// The beginning of every call that works in a context.
#define ENTER_FALLIBLE(entry, usual, fallible)                                  \
  do {                                                                          \
    int error_ = 0;                                                             \
    if (Meet(entry, &error_, usual, fallible)) return error_;                   \
    if (current == nullptr) {                                                   \
      Violation(std::string(entry) + " on a thread without a current context"); \
      return kInvalidContext;                                                   \
    }                                                                           \
    SetDevice(current->device);                                                 \
  } while (false)
#define ENTER(entry) ENTER_FALLIBLE(entry, kUnknown, true)
#define ENTER_TAKING(entry) ENTER_FALLIBLE(entry, kOutOfMemory, true)
// Calls that give something back or only look: a sweep over all fallible calls leaves them alone.
#define ENTER_QUIET(entry) ENTER_FALLIBLE(entry, kUnknown, false)

#define STREAM_OR_RETURN(variable, handle)     \
  Stream* const variable = FindStream(handle); \
  if (variable == nullptr) return kInvalidHandle
#define EVENT_OR_RETURN(variable, handle)    \
  Event* const variable = FindEvent(handle); \
  if (variable == nullptr) return kInvalidHandle

struct ErrorName {
  int code;
  const char* name;
  const char* text;
};
constexpr ErrorName kErrors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

struct IpcHandle {
  unsigned char bytes[64];
};
struct Uuid {
  unsigned char bytes[16];
};

}  // namespace

extern "C" {

Result cuInit(unsigned) {
  int error = 0;
  if (Meet("cuInit", &error)) return error;
  return DeviceCount() == 0 ? kNoDevice : kOk;
}

Result cuDriverGetVersion(int* version) {
  *version = 13000;
  return kOk;
}

Result cuGetErrorName(int error, const char** text) {
  for (const ErrorName& known : kErrors) {
    if (known.code == error) return *text = known.name, kOk;
  }
  *text = nullptr;
  return kInvalidValue;
}

Result cuGetErrorString(int error, const char** text) {
  for (const ErrorName& known : kErrors) {
    if (known.code == error) return *text = known.text, kOk;
  }
  *text = nullptr;
  return kInvalidValue;
}

Result cuDeviceGetCount(int* count) {
  int error = 0;
  if (Meet("cuDeviceGetCount", &error)) return error;
  *count = DeviceCount();
  return kOk;
}

Result cuDeviceGet(int* device, int ordinal) {
  int error = 0;
  if (Meet("cuDeviceGet", &error)) return error;
  if (ordinal < 0 || ordinal >= DeviceCount()) return kInvalidDevice;
  *device = ordinal;
  return kOk;
}

Result cuDeviceGetName(char* name, int length, int device) {
  if (device < 0 || device >= DeviceCount()) return kInvalidDevice;
  std::snprintf(name, static_cast<std::size_t>(length), "Fake GPU");
  return kOk;
}

Result cuDeviceGetUuid(Uuid* uuid, int device) {
  if (device < 0 || device >= DeviceCount()) return kInvalidDevice;
  for (int i = 0; i < 16; ++i) uuid->bytes[i] = static_cast<unsigned char>(0xf0 + device);
  return kOk;
}
Result cuDeviceGetUuid_v2(Uuid* uuid, int device) { return cuDeviceGetUuid(uuid, device); }

Result cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (device < 0 || device >= DeviceCount()) return kInvalidDevice;
  *value = attribute == 75 ? 9 : attribute == 76 ? 0 : 1;  // compute capability 9.0
  return kOk;
}

Result cuDeviceTotalMem_v2(std::size_t* bytes, int device) {
  if (device < 0 || device >= DeviceCount()) return kInvalidDevice;
  *bytes = DeviceBytes();
  return kOk;
}

Result cuDevicePrimaryCtxRetain(void** context, int device) {
  int error = 0;
  if (Meet("cuDevicePrimaryCtxRetain", &error, kOutOfMemory)) return error;
  if (device < 0 || device >= DeviceCount()) return kInvalidDevice;
  const std::lock_guard lock(context_mutex);
  if (retained[device]++ == 0) AddLive("primary_contexts", 1);
  TouchDevice(device);
  *context = &contexts[device];
  return kOk;
}

Result cuDevicePrimaryCtxRelease_v2(int device) {
  Count("cuDevicePrimaryCtxRelease_v2");
  const std::lock_guard lock(context_mutex);
  if (device < 0 || device >= kMaxDevices || retained[device] == 0) {
    Violation("a primary context released more often than retained");
    return kInvalidContext;
  }
  if (--retained[device] == 0) AddLive("primary_contexts", -1);
  return kOk;
}

Result cuCtxSetCurrent(void* context) {
  int error = 0;
  if (Meet("cuCtxSetCurrent", &error, kInvalidContext, false)) return error;
  current = static_cast<ContextObject*>(context);
  if (current != nullptr) {
    const std::lock_guard lock(context_mutex);
    if (retained[current->device] == 0) {
      Violation("a released primary context made current");
      return kInvalidContext;
    }
  }
  return current == nullptr ? kOk : SetDevice(current->device);
}

Result cuCtxGetCurrent(void** context) {
  *context = current;
  return kOk;
}

Result cuCtxSynchronize() {
  ENTER("cuCtxSynchronize");
  DrainAll();
  return kOk;
}

Result cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  ENTER_QUIET("cuCtxGetStreamPriorityRange");
  *least = 0;
  *greatest = -5;
  return kOk;
}

Result cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  ENTER_QUIET("cuMemGetInfo_v2");
  *free = FreeBytes(current->device);
  *total = DeviceBytes();
  return kOk;
}

Result cuMemAlloc_v2(Pointer* block, std::size_t bytes) {
  ENTER_TAKING("cuMemAlloc_v2");
  if (bytes == 0) return kInvalidValue;
  void* address = nullptr;
  const int result = Allocate(Kind::kDevice, bytes, &address);
  *block = reinterpret_cast<Pointer>(address);
  return result;
}

Result cuMemFree_v2(Pointer block) {
  ENTER_QUIET("cuMemFree_v2");
  return Free(Kind::kDevice, Address(block));
}

Result cuMemHostAlloc(void** block, std::size_t bytes, unsigned) {
  ENTER_TAKING("cuMemHostAlloc");
  return Allocate(Kind::kPinned, bytes, block);
}

Result cuMemFreeHost(void* block) {
  ENTER_QUIET("cuMemFreeHost");
  return Free(Kind::kPinned, block);
}

Result cuMemHostRegister_v2(void*, std::size_t, unsigned) {
  ENTER_TAKING("cuMemHostRegister_v2");
  AddLive("registrations", 1);
  return kOk;
}

Result cuMemHostUnregister(void*) {
  ENTER_QUIET("cuMemHostUnregister");
  AddLive("registrations", -1);
  return kOk;
}

Result cuMemcpyHtoDAsync_v2(Pointer to, const void* from, std::size_t bytes, void* stream) {
  ENTER("cuMemcpyHtoDAsync_v2");
  STREAM_OR_RETURN(on, stream);
  return Copy(Address(to), from, bytes, 1, on, false);
}

Result cuMemcpyDtoHAsync_v2(void* to, Pointer from, std::size_t bytes, void* stream) {
  ENTER("cuMemcpyDtoHAsync_v2");
  STREAM_OR_RETURN(on, stream);
  return Copy(to, Address(from), bytes, 2, on, false);
}

Result cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, std::size_t bytes, void* stream) {
  ENTER("cuMemcpyDtoDAsync_v2");
  STREAM_OR_RETURN(on, stream);
  return Copy(Address(to), Address(from), bytes, 3, on, false);
}

Result cuMemsetD8Async(Pointer to, unsigned char value, std::size_t bytes, void* stream) {
  ENTER("cuMemsetD8Async");
  STREAM_OR_RETURN(on, stream);
  return Fill(Address(to), value, bytes, on, false);
}

Result cuMemGetAddressRange_v2(Pointer* base, std::size_t* bytes, Pointer address) {
  ENTER_QUIET("cuMemGetAddressRange_v2");
  BlockInfo info;
  if (!FindBlock(Address(address), 1, &info) || info.kind != Kind::kDevice) return 404;  // CUDA_ERROR_NOT_FOUND
  if (base != nullptr) *base = reinterpret_cast<Pointer>(info.base);
  if (bytes != nullptr) *bytes = info.bytes;
  return kOk;
}

// A handle is the address itself: good within one process.
Result cuIpcGetMemHandle(IpcHandle* handle, Pointer block) {
  ENTER("cuIpcGetMemHandle");
  std::memset(handle->bytes, 0, sizeof handle->bytes);
  std::memcpy(handle->bytes, &block, sizeof block);
  return kOk;
}

Result cuIpcOpenMemHandle_v2(Pointer* block, IpcHandle handle, unsigned) {
  ENTER_TAKING("cuIpcOpenMemHandle_v2");
  std::memcpy(block, handle.bytes, sizeof *block);
  if (!FindBlock(Address(*block), 1, nullptr)) return kInvalidValue;
  AddLive("ipc_mappings", 1);
  return kOk;
}

Result cuIpcCloseMemHandle(Pointer) {
  ENTER_QUIET("cuIpcCloseMemHandle");
  AddLive("ipc_mappings", -1);
  return kOk;
}

Result cuStreamCreateWithPriority(void** stream, unsigned, int) {
  ENTER_TAKING("cuStreamCreateWithPriority");
  Stream* made = nullptr;
  const int result = CreateStream(&made);
  *stream = made;
  return result;
}
Result cuStreamCreate(void** stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }

Result cuStreamDestroy_v2(void* stream) {
  ENTER_QUIET("cuStreamDestroy_v2");
  STREAM_OR_RETURN(on, stream);
  return DestroyStream(on);
}

Result cuStreamSynchronize(void* stream) {
  ENTER("cuStreamSynchronize");
  STREAM_OR_RETURN(on, stream);
  if (Capturing(on)) return kCaptureUnsupported;
  Drain(on);
  return Sticky();
}

Result cuStreamQuery(void* stream) {
  ENTER("cuStreamQuery");
  STREAM_OR_RETURN(on, stream);
  return Step(on) ? kOk : kNotReady;
}

Result cuStreamWaitEvent(void* stream, void* event, unsigned) {
  ENTER("cuStreamWaitEvent");
  STREAM_OR_RETURN(on, stream);
  EVENT_OR_RETURN(of, event);
  return WaitEvent(on, of);
}

Result cuEventCreate(void** event, unsigned flags) {
  ENTER_TAKING("cuEventCreate");
  Event* made = nullptr;
  const int result = CreateEvent((flags & 2) == 0, &made);
  *event = made;
  return result;
}

Result cuEventDestroy_v2(void* event) {
  ENTER_QUIET("cuEventDestroy_v2");
  EVENT_OR_RETURN(of, event);
  return DestroyEvent(of);
}

Result cuEventRecord(void* event, void* stream) {
  ENTER("cuEventRecord");
  EVENT_OR_RETURN(of, event);
  STREAM_OR_RETURN(on, stream);
  return RecordEvent(of, on);
}

Result cuEventQuery(void* event) {
  ENTER("cuEventQuery");
  EVENT_OR_RETURN(of, event);
  return QueryEvent(of);
}

Result cuEventSynchronize(void* event) {
  ENTER("cuEventSynchronize");
  EVENT_OR_RETURN(of, event);
  const int result = SynchronizeEvent(of);
  return result == kOk ? Sticky() : result;
}

Result cuEventElapsedTime(float* milliseconds, void* start, void* end) {
  ENTER("cuEventElapsedTime");
  EVENT_OR_RETURN(from, start);
  EVENT_OR_RETURN(to, end);
  if (!from->timing || !to->timing) return kInvalidHandle;
  *milliseconds = static_cast<float>(to->nanos - from->nanos) * 1e-6F;
  return kOk;
}

Result cuStreamBeginCapture_v2(void* stream, int) {
  ENTER("cuStreamBeginCapture_v2");
  STREAM_OR_RETURN(on, stream);
  return BeginCapture(on);
}

Result cuStreamEndCapture(void* stream, void** graph) {
  ENTER("cuStreamEndCapture");
  STREAM_OR_RETURN(on, stream);
  return EndCapture(on, graph);
}

Result cuStreamIsCapturing(void* stream, int* status) {
  ENTER_QUIET("cuStreamIsCapturing");
  STREAM_OR_RETURN(on, stream);
  *status = Capturing(on) ? 1 : 0;
  return kOk;
}

Result cuGraphInstantiateWithFlags(void** exec, void* graph, unsigned long long) {
  ENTER_TAKING("cuGraphInstantiateWithFlags");
  return Instantiate(graph, exec);
}

Result cuGraphUpload(void*, void*) {
  ENTER("cuGraphUpload");
  return kOk;
}

Result cuGraphLaunch(void* exec, void* stream) {
  ENTER("cuGraphLaunch");
  STREAM_OR_RETURN(on, stream);
  return Launch(exec, on);
}

Result cuGraphExecDestroy(void* exec) {
  ENTER_QUIET("cuGraphExecDestroy");
  return DestroyExec(exec);
}

Result cuGraphDestroy(void* graph) {
  ENTER_QUIET("cuGraphDestroy");
  return DestroyGraph(graph);
}

}  // extern "C"
