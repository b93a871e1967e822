#include "state.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <sstream>

#include "fake_gpu_control.h"

namespace fake_gpu {
namespace {

constexpr std::uint64_t kMiB = 1ULL << 20;
constexpr std::uint64_t kContextBytes = 518 * kMiB;
constexpr std::uint64_t kReservedBytes = 615 * kMiB;
constexpr std::uint64_t kStep = 2 * kMiB;
constexpr int kFreeStreams = 4;
constexpr int kSlots = 64;

// One process in the state file.
struct Slot {
  std::atomic<int> pid;
  std::atomic<std::uint64_t> bytes[kMaxDevices];
};

struct Failure {
  std::string entry;
  std::int64_t n = 0;
  bool once = true;
  int error = 0;
  std::int64_t seen = 0;
};

struct Device {
  bool touched = false;
  std::uint64_t large_bytes = 0;  // blocks above 1 MiB, in steps
  std::uint64_t small_bytes = 0;
  int streams = 0;
  int streams_high = 0;
  int engine_contexts = 0;
  bool engine_cache = false;  // what the driver keeps of TensorRT's objects until a flush
};

struct Block {
  std::size_t bytes;
  Kind kind;
  int device;
};

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct State {
  State() {
    if (const std::string text = Environment("FAKE_GPU_DEVICES"); !text.empty()) devices = std::stoi(text);
    if (const std::string text = Environment("FAKE_GPU_MEMORY"); !text.empty()) device_bytes = std::stoull(text);
    std::istringstream list(Environment("FAKE_GPU_FAIL"));
    for (std::string item; std::getline(list, item, ';');) {
      std::istringstream parts(item);
      std::string entry, n, mode, error;
      std::getline(parts, entry, ':');
      std::getline(parts, n, ':');
      std::getline(parts, mode, ':');
      std::getline(parts, error, ':');
      failures.push_back({entry, std::stoll(n), mode != "always", error.empty() ? 0 : std::stoi(error)});
    }
    OpenStateFile();
  }

  void OpenStateFile() {
    const std::string path = Environment("FAKE_GPU_STATE");
    slots = own_slots;
    if (path.empty()) return;
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) std::abort();
    if (ftruncate(file, sizeof own_slots) != 0) std::abort();
    void* at = mmap(nullptr, sizeof own_slots, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (at == MAP_FAILED) std::abort();
    slots = static_cast<Slot*>(at);
  }

  Slot* MySlot() {
    if (mine != nullptr && mine->pid == getpid()) return mine;
    for (int i = 0; i < kSlots; ++i) {
      int expected = slots[i].pid;
      if (expected != 0 && kill(expected, 0) == 0 && expected != getpid()) continue;
      if (!slots[i].pid.compare_exchange_strong(expected, getpid())) continue;
      for (auto& bytes : slots[i].bytes) bytes = 0;
      return mine = &slots[i];
    }
    std::abort();
  }

  std::uint64_t Used(int index) const {
    const Device& device = machine[index];
    if (!device.touched) return 0;
    std::uint64_t bytes = kContextBytes + device.large_bytes + (device.small_bytes + kStep - 1) / kStep * kStep;
    bytes += static_cast<std::uint64_t>(std::max(0, device.streams_high - kFreeStreams)) * kMiB / 2;
    if (device.engine_contexts > 0 || device.engine_cache) bytes += kStep;
    return bytes + static_cast<std::uint64_t>(device.engine_contexts) * kStep;
  }

  // With the other processes that share the state file.
  std::uint64_t UsedByAll(int device) const {
    std::uint64_t bytes = Used(device);
    for (int i = 0; i < kSlots; ++i) {
      const int pid = slots[i].pid;
      if (pid != 0 && pid != getpid() && slots[i].bytes[device] != 0 && kill(pid, 0) == 0)
        bytes += slots[i].bytes[device];
    }
    return bytes;
  }

  void Publish(int device) { MySlot()->bytes[device] = Used(device); }

  std::mutex mutex;
  int devices = 1;
  std::uint64_t device_bytes = 8ULL << 30;
  Device machine[kMaxDevices];
  std::map<const std::byte*, Block> blocks;
  std::map<std::string, std::int64_t> live;
  std::set<const void*> held;
  std::map<std::string, std::int64_t> calls;
  std::vector<Failure> failures;
  bool fired = false;
  int sticky = 0;
  std::vector<std::string> violations;
  std::set<Stream*> streams;
  std::unique_ptr<Stream> defaults[kMaxDevices];
  std::set<Event*> events;
  std::map<void*, std::shared_ptr<Graph>> graphs;
  std::map<void*, std::shared_ptr<Graph>> execs;
  std::atomic<bool> deferred{false};
  Slot own_slots[kSlots] = {};
  Slot* slots = nullptr;
  Slot* mine = nullptr;
};

// Never destroyed: libraries may call until the very end of the process.
State& Get() {
  static State& state = *new State;
  return state;
}

thread_local int current_device = 0;

std::size_t CopyText(const std::string& whole, char* text, std::size_t bytes) {
  if (bytes > 0) {
    const std::size_t length = std::min(bytes - 1, whole.size());
    std::memcpy(text, whole.data(), length);
    text[length] = 0;
  }
  return whole.size();
}

std::int64_t Nanos() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

bool Meet(const char* entry, int* error, int usual, bool fallible) {
  State& state = Get();
  const std::lock_guard lock(state.mutex);
  ++state.calls[entry];
  if (state.sticky != 0) {
    *error = state.sticky;
    return true;
  }
  for (Failure& failure : state.failures) {
    if (failure.entry != entry && !(failure.entry == "*" && fallible)) continue;
    const std::int64_t number = failure.seen++;
    if (failure.once ? number != failure.n : number < failure.n) continue;
    state.fired = true;
    *error = failure.error != 0 ? failure.error : usual;
    return true;
  }
  return false;
}

void Count(const char* entry) {
  State& state = Get();
  const std::lock_guard lock(state.mutex);
  ++state.calls[entry];
}

void Violation(const std::string& text) {
  State& state = Get();
  const std::lock_guard lock(state.mutex);
  state.violations.push_back(text);
}

void AddLive(const char* kind, std::int64_t delta) {
  State& state = Get();
  const std::lock_guard lock(state.mutex);
  state.live[kind] += delta;
}

void Hold(const void* object) {
  State& state = Get();
  const std::lock_guard lock(state.mutex);
  state.held.insert(object);
}

void LetGo(const void* object) {
  State& state = Get();
  const std::lock_guard lock(state.mutex);
  state.held.erase(object);
}

int Sticky() {
  State& state = Get();
  const std::lock_guard lock(state.mutex);
  return state.sticky;
}

int DeviceCount() {
  State& state = Get();
  const std::lock_guard lock(state.mutex);
  return state.devices;
}

std::uint64_t DeviceBytes() {
  State& state = Get();
  const std::lock_guard lock(state.mutex);
  return state.device_bytes;
}

int CurrentDevice() { return current_device; }

int SetDevice(int device) {
  if (device < 0 || device >= DeviceCount()) return kInvalidDevice;
  current_device = device;
  return kOk;
}

void TouchDevice(int device) {
  State& state = Get();
  const std::lock_guard lock(state.mutex);
  if (state.machine[device].touched) return;
  state.machine[device].touched = true;
  state.Publish(device);
}

bool DeviceTouched(int device) {
  State& state = Get();
  const std::lock_guard lock(state.mutex);
  return state.machine[device].touched;
}

void ResetDevice(int device) {
  State& state = Get();
  const std::lock_guard lock(state.mutex);
  state.machine[device] = Device();
  state.Publish(device);
}

int Allocate(Kind kind, std::size_t bytes, void** out) {
  *out = nullptr;
  if (bytes == 0) return kOk;
  const int device = current_device;
  TouchDevice(device);
  const std::size_t rounded = (bytes + 511) / 512 * 512;
  State& state = Get();
  if (kind == Kind::kDevice) {
    const std::lock_guard lock(state.mutex);
    Device& of = state.machine[device];
    if (kReservedBytes + state.UsedByAll(device) + rounded > state.device_bytes) {
      if (rounded > state.device_bytes) {  // the driver drops its caches before it gives up
        of.engine_cache = false;
        of.streams_high = of.streams;
        state.Publish(device);
      }
      return kOutOfMemory;
    }
  }
  // Exactly as many bytes as were asked for, so that a sanitizer sees what goes beyond them.
  void* block = nullptr;
  if (posix_memalign(&block, 512, bytes) != 0) return kOutOfMemory;
  const std::lock_guard lock(state.mutex);
  state.blocks[static_cast<std::byte*>(block)] = {bytes, kind, device};
  const bool on_device = kind == Kind::kDevice;
  state.live[on_device ? "device_blocks" : "pinned_blocks"] += 1;
  state.live[on_device ? "device_bytes" : "pinned_bytes"] += static_cast<std::int64_t>(bytes);
  if (on_device) {
    Device& of = state.machine[device];
    if (rounded > kMiB) {
      of.large_bytes += (rounded + kStep - 1) / kStep * kStep;
    } else {
      of.small_bytes += rounded;
    }
    state.Publish(device);
  }
  *out = block;
  return kOk;
}

int Free(Kind kind, void* address) {
  if (address == nullptr) return kOk;
  State& state = Get();
  {
    const std::lock_guard lock(state.mutex);
    const auto at = state.blocks.find(static_cast<std::byte*>(address));
    if (at == state.blocks.end() || at->second.kind != kind) {
      state.violations.push_back(at == state.blocks.end() ? "free of memory that is none of ours, or freed twice"
                                                          : "free of memory of another kind");
      return kInvalidValue;
    }
    const Block block = at->second;
    state.blocks.erase(at);
    const bool on_device = kind == Kind::kDevice;
    state.live[on_device ? "device_blocks" : "pinned_blocks"] -= 1;
    state.live[on_device ? "device_bytes" : "pinned_bytes"] -= static_cast<std::int64_t>(block.bytes);
    if (on_device) {
      Device& of = state.machine[block.device];
      const std::size_t rounded = (block.bytes + 511) / 512 * 512;
      if (rounded > kMiB) {
        of.large_bytes -= (rounded + kStep - 1) / kStep * kStep;
      } else {
        of.small_bytes -= rounded;
      }
      state.Publish(block.device);
    }
  }
  free(address);
  return kOk;
}

bool FindBlock(const void* address, std::size_t bytes, BlockInfo* info) {
  State& state = Get();
  const std::lock_guard lock(state.mutex);
  const auto* at = static_cast<const std::byte*>(address);
  auto next = state.blocks.upper_bound(at);
  if (next == state.blocks.begin()) return false;
  --next;
  const auto& [base, block] = *next;
  if (at + bytes > base + block.bytes || at >= base + std::max<std::size_t>(block.bytes, 1)) return false;
  if (info != nullptr) *info = {const_cast<std::byte*>(base), block.bytes, block.kind, block.device};
  return true;
}

std::uint64_t ProcessBytes(int device) {
  State& state = Get();
  const std::lock_guard lock(state.mutex);
  return state.Used(device);
}

std::uint64_t FreeBytes(int device) {
  State& state = Get();
  const std::lock_guard lock(state.mutex);
  return state.device_bytes - std::min(state.device_bytes, kReservedBytes + state.UsedByAll(device));
}

void ChargeEngineContext(int device, int delta) {
  State& state = Get();
  const std::lock_guard lock(state.mutex);
  state.machine[device].engine_contexts += delta;
  state.machine[device].engine_cache = true;
  state.Publish(device);
}

// --- streams -------------------------------------------------------------------------------------------------------

int CreateStream(Stream** out) {
  auto* stream = new Stream;
  stream->device = current_device;
  TouchDevice(current_device);
  State& state = Get();
  const std::lock_guard lock(state.mutex);
  state.streams.insert(stream);
  state.live["streams"] += 1;
  Device& device = state.machine[stream->device];
  device.streams_high = std::max(device.streams_high, ++device.streams);
  state.Publish(stream->device);
  *out = stream;
  return kOk;
}

int DestroyStream(Stream* stream) {
  Drain(stream);
  State& state = Get();
  {
    const std::lock_guard lock(state.mutex);
    if (state.streams.erase(stream) == 0) {
      state.violations.push_back("a stream destroyed twice");
      return kInvalidHandle;
    }
    state.live["streams"] -= 1;
    --state.machine[stream->device].streams;
    for (Event* event : state.events) {
      if (event->recorded_on == stream) event->recorded_on = nullptr;
    }
  }
  delete stream;
  return kOk;
}

Stream* FindStream(void* handle) {
  State& state = Get();
  const std::lock_guard lock(state.mutex);
  if (handle == nullptr || handle == reinterpret_cast<void*>(1) || handle == reinterpret_cast<void*>(2)) {
    auto& stream = state.defaults[current_device];
    if (stream == nullptr) {
      stream = std::make_unique<Stream>();
      stream->device = current_device;
      stream->is_default = true;
    }
    return stream.get();
  }
  auto* stream = static_cast<Stream*>(handle);
  if (state.streams.count(stream) != 0) return stream;
  state.violations.push_back("use of a stream that does not exist");
  return nullptr;
}

int Submit(Stream* stream, std::function<void()> work) {
  const std::lock_guard lock(stream->run);
  if (stream->capture != nullptr) {
    stream->capture->work.push_back(std::move(work));
    return kOk;
  }
  if (Get().deferred) {
    stream->queue.push_back(std::move(work));
  } else {
    work();
  }
  return kOk;
}

int SubmitAndWait(Stream* stream, const std::function<void()>& work) {
  {
    const std::lock_guard lock(stream->run);
    if (stream->capture != nullptr) {
      stream->capture_broken = true;
      return kCaptureUnsupported;
    }
  }
  Drain(stream);
  work();
  return kOk;
}

bool Step(Stream* stream) {
  const std::lock_guard lock(stream->run);
  if (stream->queue.empty()) return true;
  const auto work = std::move(stream->queue.front());
  stream->queue.pop_front();
  work();
  return stream->queue.empty();
}

void Drain(Stream* stream) {
  while (!Step(stream)) {
  }
}

void DrainAll() {
  std::vector<Stream*> all;
  {
    State& state = Get();
    const std::lock_guard lock(state.mutex);
    all.assign(state.streams.begin(), state.streams.end());
    for (const auto& stream : state.defaults) {
      if (stream != nullptr) all.push_back(stream.get());
    }
  }
  for (Stream* stream : all) Drain(stream);
}

bool Capturing(Stream* stream) {
  const std::lock_guard lock(stream->run);
  return stream->capture != nullptr;
}

// --- events --------------------------------------------------------------------------------------------------------

int CreateEvent(bool timing, Event** out) {
  auto* event = new Event;
  event->timing = timing;
  State& state = Get();
  const std::lock_guard lock(state.mutex);
  state.events.insert(event);
  state.live["events"] += 1;
  *out = event;
  return kOk;
}

int DestroyEvent(Event* event) {
  if (!event->complete) SynchronizeEvent(event);  // CUDA lets it finish by itself; our queue names it
  State& state = Get();
  {
    const std::lock_guard lock(state.mutex);
    if (state.events.erase(event) == 0) {
      state.violations.push_back("an event destroyed twice");
      return kInvalidHandle;
    }
    state.live["events"] -= 1;
  }
  delete event;
  return kOk;
}

Event* FindEvent(void* handle) {
  State& state = Get();
  const std::lock_guard lock(state.mutex);
  auto* event = static_cast<Event*>(handle);
  if (state.events.count(event) != 0) return event;
  state.violations.push_back("use of an event that does not exist");
  return nullptr;
}

int RecordEvent(Event* event, Stream* stream) {
  if (!Capturing(stream)) {
    event->complete = false;
    event->recorded_on = stream;
  }
  return Submit(stream, [event] {
    event->nanos = Nanos();
    event->complete = true;
  });
}

int SynchronizeEvent(Event* event) {
  while (!event->complete) {
    Stream* stream = event->recorded_on;
    if (stream == nullptr) break;
    Step(stream);
  }
  return kOk;
}

int QueryEvent(Event* event) {
  if (event->complete) return kOk;
  if (Stream* stream = event->recorded_on; stream != nullptr) Step(stream);
  return kNotReady;
}

int WaitEvent(Stream* stream, Event* event) {
  if (event->complete && !Capturing(stream)) return kOk;
  return Submit(stream, [stream, event] {
    if (event->recorded_on != stream) SynchronizeEvent(event);
  });
}

// --- graphs --------------------------------------------------------------------------------------------------------

int BeginCapture(Stream* stream) {
  if (stream->is_default) return kCaptureUnsupported;
  const std::lock_guard lock(stream->run);
  if (stream->capture != nullptr) return kInvalidValue;
  stream->capture = std::make_shared<Graph>();
  stream->capture_broken = false;
  return kOk;
}

int EndCapture(Stream* stream, void** graph) {
  *graph = nullptr;
  std::shared_ptr<Graph> captured;
  {
    const std::lock_guard lock(stream->run);
    if (stream->capture == nullptr) return kInvalidValue;
    captured = std::move(stream->capture);
    stream->capture.reset();
    if (stream->capture_broken) return kCaptureInvalidated;
  }
  State& state = Get();
  const std::lock_guard lock(state.mutex);
  *graph = captured.get();
  state.graphs[*graph] = std::move(captured);
  state.live["graphs"] += 1;
  return kOk;
}

int Instantiate(void* graph, void** exec) {
  *exec = nullptr;
  State& state = Get();
  const std::lock_guard lock(state.mutex);
  const auto at = state.graphs.find(graph);
  if (at == state.graphs.end()) return kInvalidValue;
  auto copy = std::make_shared<Graph>(*at->second);
  *exec = copy.get();
  state.execs[*exec] = std::move(copy);
  state.live["graph_execs"] += 1;
  return kOk;
}

int Launch(void* exec, Stream* stream) {
  std::shared_ptr<Graph> graph;
  {
    State& state = Get();
    const std::lock_guard lock(state.mutex);
    const auto at = state.execs.find(exec);
    if (at == state.execs.end()) {
      state.violations.push_back("launch of a graph that does not exist");
      return kInvalidValue;
    }
    graph = at->second;
  }
  return Submit(stream, [graph] {
    for (const auto& work : graph->work) work();
  });
}

int DestroyGraph(void* graph) {
  State& state = Get();
  const std::lock_guard lock(state.mutex);
  if (state.graphs.erase(graph) == 0) return kInvalidValue;
  state.live["graphs"] -= 1;
  return kOk;
}

int DestroyExec(void* exec) {
  State& state = Get();
  const std::lock_guard lock(state.mutex);
  if (state.execs.erase(exec) == 0) return kInvalidValue;
  state.live["graph_execs"] -= 1;
  return kOk;
}

// --- copies --------------------------------------------------------------------------------------------------------

namespace {

// True when [address, +bytes) is what a copy of that kind needs there.
bool Fits(const void* address, std::size_t bytes, bool wants_device) {
  BlockInfo info;
  const bool known = FindBlock(address, bytes, &info);
  if (wants_device) return known;  // pinned memory is mapped for the device as well
  return !(known && info.kind == Kind::kDevice);
}

}  // namespace

int Copy(void* dst, const void* src, std::size_t bytes, int kind, Stream* stream, bool wait) {
  if (bytes == 0) return kOk;
  if (kind < 0 || kind > 4) return kInvalidValue;
  if (kind != 4) {
    const bool to_device = kind == 1 || kind == 3;
    const bool from_device = kind == 2 || kind == 3;
    if (!Fits(dst, bytes, to_device) || !Fits(src, bytes, from_device)) {
      Violation("a copy of kind " + std::to_string(kind) + " and " + std::to_string(bytes) +
                " bytes outside the memory that it needs");
      return kInvalidValue;
    }
  }
  BlockInfo to, from;
  const bool to_block = FindBlock(dst, bytes, &to);
  const bool from_block = FindBlock(src, bytes, &from);
  const auto work = [=] {
    if ((to_block && !FindBlock(dst, bytes, nullptr)) || (from_block && !FindBlock(src, bytes, nullptr))) {
      Violation("memory of a copy was freed before the copy ran");
      return;
    }
    std::memmove(dst, src, bytes);
  };
  return wait ? SubmitAndWait(stream, work) : Submit(stream, work);
}

int Fill(void* dst, int value, std::size_t bytes, Stream* stream, bool wait) {
  if (bytes == 0) return kOk;
  if (!FindBlock(dst, bytes, nullptr)) {
    Violation("a fill outside device memory");
    return kInvalidValue;
  }
  const auto work = [=] {
    if (FindBlock(dst, bytes, nullptr)) {
      std::memset(dst, value, bytes);
    } else {
      Violation("memory of a fill was freed before the fill ran");
    }
  };
  return wait ? SubmitAndWait(stream, work) : Submit(stream, work);
}

std::vector<ProcessEntry> Processes(int device) {
  State& state = Get();
  const std::lock_guard lock(state.mutex);
  std::vector<ProcessEntry> entries;
  for (int i = 0; i < kSlots; ++i) {
    const int pid = state.slots[i].pid;
    const std::uint64_t bytes = state.slots[i].bytes[device];
    if (pid != 0 && bytes != 0 && kill(pid, 0) == 0) entries.push_back({pid, bytes});
  }
  return entries;
}

}  // namespace fake_gpu

// --- the control interface -------------------------------------------------------------------------------------------

using fake_gpu::Get;

extern "C" {

void FakeGpuFail(const char* entry, std::int64_t n, int once, int error) {
  auto& state = Get();
  const std::lock_guard lock(state.mutex);
  state.failures.push_back({entry, n, once != 0, error, 0});
  state.fired = false;
}

void FakeGpuHeal() {
  auto& state = Get();
  const std::lock_guard lock(state.mutex);
  state.failures.clear();
  state.fired = false;
  state.sticky = 0;
}

int FakeGpuFired() {
  auto& state = Get();
  const std::lock_guard lock(state.mutex);
  return state.fired ? 1 : 0;
}

void FakeGpuSetSticky(int error) {
  auto& state = Get();
  const std::lock_guard lock(state.mutex);
  state.sticky = error;
}

std::int64_t FakeGpuLive(const char* kind) {
  auto& state = Get();
  const std::lock_guard lock(state.mutex);
  const auto at = state.live.find(kind);
  return at == state.live.end() ? 0 : at->second;
}

std::size_t FakeGpuLiveText(char* text, std::size_t bytes) {
  auto& state = Get();
  std::string whole;
  {
    const std::lock_guard lock(state.mutex);
    for (const auto& [kind, count] : state.live) {
      if (count != 0) whole += (whole.empty() ? "" : " ") + kind + "=" + std::to_string(count);
    }
  }
  return fake_gpu::CopyText(whole, text, bytes);
}

std::int64_t FakeGpuCalls(const char* entry) {
  auto& state = Get();
  const std::lock_guard lock(state.mutex);
  const auto at = state.calls.find(entry);
  return at == state.calls.end() ? 0 : at->second;
}

std::int64_t FakeGpuViolations(char* text, std::size_t bytes) {
  auto& state = Get();
  const std::lock_guard lock(state.mutex);
  std::string whole;
  for (const std::string& violation : state.violations) whole += violation + "\n";
  fake_gpu::CopyText(whole, text, bytes);
  return static_cast<std::int64_t>(state.violations.size());
}

void FakeGpuForgetViolations() {
  auto& state = Get();
  const std::lock_guard lock(state.mutex);
  state.violations.clear();
}

void FakeGpuDeferred(int on) {
  Get().deferred = on != 0;
  if (on == 0) fake_gpu::DrainAll();
}

void FakeGpuMachine(int devices, std::uint64_t bytes) {
  auto& state = Get();
  const std::lock_guard lock(state.mutex);
  state.devices = devices;
  state.device_bytes = bytes;
}

std::uint64_t FakeGpuProcessBytes(int device) { return fake_gpu::ProcessBytes(device); }

}  // extern "C"
