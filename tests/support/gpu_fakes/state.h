#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

// The state that all fake GPU libraries of a process share. Exported by libtidemark_fake_gpu.so; the fakes themselves
// are thin shells over it.
namespace fake_gpu {

// The CUDA runtime's error numbers (the driver's are the same where they matter here).
enum : int {
  kOk = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInitialization = 3,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidHandle = 400,
  kNotReady = 600,
  kIllegalAddress = 700,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kUnknown = 999,
};

inline constexpr int kMaxDevices = 2;

// Counts a call; true when it has to fail, with the error to answer. `fallible` calls are those that "*" means.
bool Meet(const char* entry, int* error, int usual = kUnknown, bool fallible = true);
// Only counts.
void Count(const char* entry);
void Violation(const std::string& text);
void AddLive(const char* kind, std::int64_t delta);
// Knows the object while it lives. What a lost device strands (its owner may not touch it any more) thus stays reachable:
// to a leak detector it is no leak, as the live counts are there to find those.
void Hold(const void* object);
void LetGo(const void* object);
// 0, or the error that the device has been answering since.
int Sticky();

int DeviceCount();
std::uint64_t DeviceBytes();
// The calling thread's; SetDevice answers a CUDA error.
int CurrentDevice();
int SetDevice(int device);
// What a CUDA context costs is charged from here on.
void TouchDevice(int device);
bool DeviceTouched(int device);
void ResetDevice(int device);

enum class Kind { kDevice, kPinned };
struct BlockInfo {
  void* base = nullptr;
  std::size_t bytes = 0;
  Kind kind = Kind::kDevice;
  int device = 0;
};
// CUDA errors; blocks are aligned to 512.
int Allocate(Kind kind, std::size_t bytes, void** out);
int Free(Kind kind, void* block);
// The block that holds [address, address + bytes), if one does.
bool FindBlock(const void* address, std::size_t bytes, BlockInfo* info);
// Device memory in use by this process as NVML would count it, and free on the device by CUDA's own count.
std::uint64_t ProcessBytes(int device);
std::uint64_t FreeBytes(int device);
// What TensorRT's own streams and events cost (2 MiB while `delta` contexts live; some of it stays until a flush).
void ChargeEngineContext(int device, int delta);

struct Graph;
struct Event;

// A stream: work runs at once in the order of submission, or, in deferred mode, when somebody asks.
struct Stream {
  int device = 0;
  bool is_default = false;
  std::mutex run;                           // held while work runs
  std::deque<std::function<void()>> queue;  // guarded by run
  std::shared_ptr<Graph> capture;           // guarded by run; set between begin and end
  bool capture_broken = false;
};
struct Event {
  std::atomic<bool> complete{true};
  std::atomic<Stream*> recorded_on{nullptr};
  std::atomic<std::int64_t> nanos{0};
  bool timing = true;
};
struct Graph {
  std::vector<std::function<void()>> work;
};

int CreateStream(Stream** out);
int DestroyStream(Stream* stream);
// Null and the two special handles mean the current device's default stream; nullptr for a handle that is none.
Stream* FindStream(void* handle);
int Submit(Stream* stream, std::function<void()> work);
// Like Submit, for work that cannot be captured (it breaks the capture).
int SubmitAndWait(Stream* stream, const std::function<void()>& work);
void Drain(Stream* stream);
// Runs one piece of work; true when nothing is left.
bool Step(Stream* stream);
void DrainAll();
bool Capturing(Stream* stream);

int CreateEvent(bool timing, Event** out);
int DestroyEvent(Event* event);
Event* FindEvent(void* handle);
int RecordEvent(Event* event, Stream* stream);
int WaitEvent(Stream* stream, Event* event);
int QueryEvent(Event* event);
int SynchronizeEvent(Event* event);

int BeginCapture(Stream* stream);
int EndCapture(Stream* stream, void** graph);
int Instantiate(void* graph, void** exec);
int Launch(void* exec, Stream* stream);
int DestroyGraph(void* graph);
int DestroyExec(void* exec);

// dst, src: kinds of the CUDA runtime (0 host to host, 1 to device, 2 to host, 3 in the device, 4 by address).
int Copy(void* dst, const void* src, std::size_t bytes, int kind, Stream* stream, bool wait);
int Fill(void* dst, int value, std::size_t bytes, Stream* stream, bool wait);

// NVML's view of other processes: pid and bytes of everybody that shares the state file, and of this process.
struct ProcessEntry {
  int pid;
  std::uint64_t bytes;
};
std::vector<ProcessEntry> Processes(int device);

}  // namespace fake_gpu
