#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "platform/cuda.h"
#include "resource/scope.h"

namespace tidemark {

// What the driver says about one GPU. Numbers are CUDA's (CUDA_VISIBLE_DEVICES applies), not NVML's.
struct GpuFacts {
  std::string name;
  std::string uuid;  // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
  int major = 0;     // compute capability
  int minor = 0;
  std::uint64_t bytes = 0;
};

struct GpuMemory {
  cuda::Pointer address = 0;
  std::size_t bytes = 0;
  Scope::Handle handle = nullptr;
};
struct PinnedMemory {
  std::byte* data = nullptr;  // the device reads and writes it at the same address
  std::size_t bytes = 0;
  Scope::Handle handle = nullptr;
};
struct GpuStream {
  cuda::Stream stream = nullptr;
  Scope::Handle handle = nullptr;
};
struct GpuEvent {
  cuda::Event event = nullptr;
  Scope::Handle handle = nullptr;
};
struct GpuGraph {
  cuda::GraphExec exec = nullptr;
  Scope::Handle handle = nullptr;
};
// What an operator allows models on GPUs.
struct GpuPolicy {
  double min_compute_capability = 0;       // GPUs below are left alone; 7.5 is major 7, minor 5
  std::map<DeviceId, double> load_limits;  // the part of its memory, 0 to 1, that may be in use when instances are made
};
enum class StreamPriority : std::uint8_t { kDefault, kMax, kMin };

// The GPUs of this process: the driver's library and, from the first use of each device on, its primary context, all
// under resident rows of the scope given to Open. Everything that a load takes on a device is taken here, through the
// scope that will own it; the release closures on that scope need this object, which therefore outlives them.
//
// A device that answered a sticky error (illegal access, lost bus, …) is failed for good: its memory cannot be given
// back any more (rows are stranded), Health says so, and only a new process helps. Thread-safe.
class Gpus {
 private:
  struct Private {};  // only a member function can name it

 public:
  // NOT_FOUND without the driver's library; UNAVAILABLE when the driver does not start or has no device. `resident`
  // outlives the object.
  static absl::StatusOr<std::unique_ptr<Gpus>> Open(Scope& resident, const std::filesystem::path& library);
  Gpus(Private, Scope& resident, const cuda::Api& api);
  ~Gpus() = default;
  Gpus(const Gpus&) = delete;
  Gpus& operator=(const Gpus&) = delete;

  const std::vector<GpuFacts>& devices() const { return facts_; }
  // Before the first load.
  void SetPolicy(GpuPolicy policy) { policy_ = std::move(policy); }
  // The GPUs that models may use, by policy.
  std::vector<DeviceId> Usable() const;
  // UNAVAILABLE, in Triton's words, when more of the device is in use, by whomever, than its load limit allows.
  absl::Status CheckLoadLimit(DeviceId device, std::string_view instance);
  int driver_version() const { return driver_version_; }  // 13000 for CUDA 13.0
  // For the calls that take nothing (copies, records, launches). Use(device) comes first on each thread.
  const cuda::Api& api() const { return api_; }

  // Makes the device's primary context that of the calling thread; creates it at the first use (about 520 MiB and 0.1 s).
  absl::Status Use(DeviceId device);

  // RESOURCE_EXHAUSTED when the budget or the device does not have that much. Aligned to 512 bytes; not cleared.
  absl::StatusOr<GpuMemory> Allocate(Scope& scope, DeviceId device, std::size_t bytes, std::string_view site);
  // Page-locked host memory, whole pages, cleared; a row of the host.
  absl::StatusOr<PinnedMemory> AllocatePinned(Scope& scope, DeviceId device, std::size_t bytes, std::string_view site);
  // A stream that does not wait for the default stream.
  absl::StatusOr<GpuStream> CreateStream(Scope& scope, DeviceId device, StreamPriority priority, std::string_view site);
  // An event without timing. Waiting for a blocking one puts the thread to sleep.
  absl::StatusOr<GpuEvent> CreateEvent(Scope& scope, DeviceId device, bool blocking, std::string_view site);
  // Records what `record` puts on the stream and makes it launchable. An error of `record` comes back as it is.
  absl::StatusOr<GpuGraph> Capture(Scope& scope, DeviceId device, cuda::Stream stream,
                                   absl::FunctionRef<absl::Status()> record, std::string_view site);
  // Page-locks memory that somebody else owns, so that the device reaches it directly. It must stay until released.
  absl::StatusOr<Scope::Handle> PinHost(Scope& scope, DeviceId device, std::byte* data, std::size_t bytes,
                                        std::string_view site);
  // Maps device memory of another process by its handle. `bytes` of the result is the size of the whole allocation. The
  // row has no bytes: they are the exporter's.
  absl::StatusOr<GpuMemory> OpenIpc(Scope& scope, DeviceId device, const cuda::IpcMemHandle& handle,
                                    std::string_view site);

  // OK, or the error as cuda::StatusOf makes it; a sticky one marks the device failed.
  absl::Status Check(DeviceId device, cuda::Result result, std::string_view what);
  // UNAVAILABLE, with the first reason, once the device has failed.
  absl::Status Health(DeviceId device) const;
  // For an engine that says that its own state on the device is broken.
  void MarkFailed(DeviceId device, std::string_view why);

  struct Memory {
    std::uint64_t free = 0;
    std::uint64_t total = 0;
  };
  // Of the whole device, all processes.
  absl::StatusOr<Memory> MemoryInfo(DeviceId device);

  // How often something was taken here so far: does not move while requests are served.
  std::uint64_t acquisitions() const { return acquisitions_.load(std::memory_order_relaxed); }

 private:
  struct Device {
    cuda::Device device = 0;
    std::atomic<cuda::Context> context{nullptr};
    std::atomic<bool> failed{false};
    mutable absl::Mutex mutex;
    std::string why ABSL_GUARDED_BY(mutex);
  };

  absl::Status ReadDevices();
  absl::Status Retain(DeviceId device);
  void KeepPinnedBlock(cuda::Context context);
  Device* Find(DeviceId device) const;
  // Acquires on `device` through `scope`; `create` and `release` run with the device's context current.
  absl::StatusOr<Scope::Handle> Take(Scope& scope, ResourceKind kind, DeviceId device, std::uint64_t bytes,
                                     std::string_view site, absl::FunctionRef<absl::Status()> create,
                                     std::function<absl::Status()> release);
  absl::Status NoMemory(DeviceId device, std::size_t bytes, std::string_view site, std::string_view kind);

  Scope& resident_;
  const cuda::Api api_;
  int driver_version_ = 0;
  GpuPolicy policy_;
  std::vector<GpuFacts> facts_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::atomic<std::uint64_t> acquisitions_{0};
};

}  // namespace tidemark
