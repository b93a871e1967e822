#include "resource/gpu.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "base/log.h"
#include "base/status.h"

namespace tidemark {
namespace {

std::string UuidText(const cuda::Uuid& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid.bytes[i]);
  }
  return text;
}

}  // namespace

Gpus::Gpus(Private /*only Open*/, Scope& resident, const cuda::Api& api) : resident_(resident), api_(api) {}

absl::StatusOr<std::unique_ptr<Gpus>> Gpus::Open(Scope& resident, const std::filesystem::path& library) {
  ASSIGN_OR_RETURN(const Scope::Library opened, resident.OpenLibrary(library, "NVIDIA driver library"));
  KeepLibrary(opened.library);
  ASSIGN_OR_RETURN(const cuda::Api api,
                   cuda::ResolveApi([&](const char* name) { return resident.Symbol(opened, name); }));
  if (const cuda::Result result = api.init(0); result != cuda::kSuccess) {
    return absl::UnavailableError(
        fmt::format("NVIDIA's driver '{}' does not start: {}", library.string(), cuda::ErrorText(api, result)));
  }
  auto gpus = std::make_unique<Gpus>(Private(), resident, api);
  RETURN_IF_ERROR(gpus->ReadDevices());
  return gpus;
}

absl::Status Gpus::ReadDevices() {
  RETURN_IF_ERROR(cuda::StatusOf(api_, api_.driver_version(&driver_version_), "ask for the driver's version"));
  int count = 0;
  RETURN_IF_ERROR(cuda::StatusOf(api_, api_.device_count(&count), "count the GPUs"));
  if (count == 0) return absl::UnavailableError("NVIDIA's driver shows no GPU to this process");
  for (int i = 0; i < count; ++i) {
    auto device = std::make_unique<Device>();
    GpuFacts facts;
    std::array<char, 256> name{};
    cuda::Uuid uuid{};
    std::size_t bytes = 0;
    const std::string what = fmt::format("ask about GPU {}", i);
    RETURN_IF_ERROR(cuda::StatusOf(api_, api_.device(&device->device, i), what));
    RETURN_IF_ERROR(
        cuda::StatusOf(api_, api_.device_name(name.data(), static_cast<int>(name.size()) - 1, device->device), what));
    RETURN_IF_ERROR(cuda::StatusOf(api_, api_.device_uuid(&uuid, device->device), what));
    RETURN_IF_ERROR(cuda::StatusOf(api_, api_.device_memory(&bytes, device->device), what));
    RETURN_IF_ERROR(
        cuda::StatusOf(api_, api_.device_attribute(&facts.major, cuda::kComputeCapabilityMajor, device->device), what));
    RETURN_IF_ERROR(
        cuda::StatusOf(api_, api_.device_attribute(&facts.minor, cuda::kComputeCapabilityMinor, device->device), what));
    facts.name = name.data();
    facts.uuid = UuidText(uuid);
    facts.bytes = bytes;
    facts_.push_back(std::move(facts));
    devices_.push_back(std::move(device));
  }
  return absl::OkStatus();
}

Gpus::Device* Gpus::Find(DeviceId device) const {
  const auto index = static_cast<std::size_t>(device);
  return device >= 0 && index < devices_.size() ? devices_[index].get() : nullptr;
}

absl::Status Gpus::Use(DeviceId device) {
  Device* const found = Find(device);
  if (found == nullptr) {
    return absl::InvalidArgumentError(fmt::format("there is no GPU {}: this process sees {}", device, devices_.size()));
  }
  if (found->failed.load(std::memory_order_relaxed)) return Health(device);
  cuda::Context context = found->context.load(std::memory_order_acquire);
  if (context == nullptr) {
    RETURN_IF_ERROR(Retain(device));
    context = found->context.load(std::memory_order_acquire);
  }
  return Check(device, api_.set_context(context), "make the GPU's context current");
}

absl::Status Gpus::Retain(DeviceId device) {
  Device& found = *Find(device);
  absl::MutexLock lock(&found.mutex);
  if (found.context.load(std::memory_order_acquire) != nullptr) return absl::OkStatus();
  cuda::Context context = nullptr;
  ASSIGN_OR_RETURN(
      const Scope::Handle handle,
      resident_.Acquire(
          ResourceKind::kEngineObject, device, 0, "CUDA primary context",
          [&] { return cuda::StatusOf(api_, api_.retain_context(&context, found.device), "create the CUDA context"); },
          [this, &found] {
            found.context.store(nullptr, std::memory_order_release);
            return cuda::StatusOf(api_, api_.release_context(found.device), "release the CUDA context");
          }));
  static_cast<void>(handle);
  found.context.store(context, std::memory_order_release);
  KeepPinnedBlock(context);
  LOG_INFO("GPU {}: {} {}, compute capability {}.{}", device, facts_[static_cast<std::size_t>(device)].name,
           facts_[static_cast<std::size_t>(device)].uuid, facts_[static_cast<std::size_t>(device)].major,
           facts_[static_cast<std::size_t>(device)].minor);
  return absl::OkStatus();
}

// The driver cuts small page-locked blocks from a larger one, which costs a millisecond to make and goes with the last of
// them: where one stays, those of a load take microseconds. Without it everything works, only slower.
void Gpus::KeepPinnedBlock(cuda::Context context) {
  constexpr std::size_t kBytes = 4096;
  const auto slot = std::make_shared<void*>(nullptr);  // last owner: the release closure on the scope
  const auto use = [this, context] { return cuda::StatusOf(api_, api_.set_context(context), "use the CUDA context"); };
  const auto kept = resident_.Acquire(
      ResourceKind::kPinnedMemory, kHost, kBytes, "page-locked block that stays",
      [&]() -> absl::Status {
        RETURN_IF_ERROR(use());
        return cuda::StatusOf(api_, api_.allocate_host(slot.get(), kBytes, cuda::kHostPortable | cuda::kHostDeviceMap),
                              "page-lock a block");
      },
      [this, use, slot]() -> absl::Status {
        RETURN_IF_ERROR(use());
        return cuda::StatusOf(api_, api_.free_host(*slot), "free a page-locked block");
      });
  if (!kept.ok()) LOG_WARNING("no page-locked block is kept: {}", MessageOf(kept.status()));
}

absl::Status Gpus::Check(DeviceId device, cuda::Result result, std::string_view what) {
  if (result == cuda::kSuccess) [[likely]] {
    return absl::OkStatus();
  }
  absl::Status status = cuda::StatusOf(api_, result, fmt::format("GPU {}: {}", device, what));
  if (cuda::IsSticky(result)) MarkFailed(device, MessageOf(status));
  return status;
}

void Gpus::MarkFailed(DeviceId device, std::string_view why) {
  Device* const found = Find(device);
  if (found == nullptr) return;
  absl::MutexLock lock(&found->mutex);
  if (found->failed.load(std::memory_order_relaxed)) return;
  found->why = fmt::format("GPU {} is lost until this process is restarted: {}", device, why);
  found->failed.store(true, std::memory_order_release);
  LOG_ERROR("{}", found->why);
}

absl::Status Gpus::Health(DeviceId device) const {
  const Device* const found = Find(device);
  if (found == nullptr || !found->failed.load(std::memory_order_acquire)) return absl::OkStatus();
  absl::MutexLock lock(&found->mutex);
  return absl::UnavailableError(found->why);
}

absl::StatusOr<Gpus::Memory> Gpus::MemoryInfo(DeviceId device) {
  RETURN_IF_ERROR(Use(device));
  std::size_t free = 0;
  std::size_t total = 0;
  RETURN_IF_ERROR(Check(device, api_.memory_info(&free, &total), "read the free memory"));
  return Memory{free, total};
}

std::vector<DeviceId> Gpus::Usable() const {
  std::vector<DeviceId> usable;
  for (std::size_t i = 0; i < facts_.size(); ++i) {
    const double capability = facts_[i].major + facts_[i].minor / 10.0;
    if (capability >= policy_.min_compute_capability - 1e-9) usable.push_back(static_cast<DeviceId>(i));
  }
  return usable;
}

absl::Status Gpus::CheckLoadLimit(DeviceId device, std::string_view instance) {
  const auto limit = policy_.load_limits.find(device);
  if (limit == policy_.load_limits.end()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Memory memory, MemoryInfo(device));
  const std::uint64_t used = memory.total - memory.free;
  if (static_cast<double>(used) <= limit->second * static_cast<double>(memory.total)) return absl::OkStatus();
  return absl::UnavailableError(
      fmt::format("can not create model '{}': memory limit set for GPU {} has exceeded, model loading is rejected. "
                  "({} of {} bytes are in use, --model-load-gpu-limit allows {})",
                  instance, device, used, memory.total, limit->second));
}

absl::StatusOr<Scope::Handle> Gpus::Take(Scope& scope, ResourceKind kind, DeviceId device, std::uint64_t bytes,
                                         std::string_view site, absl::FunctionRef<absl::Status()> create,
                                         std::function<absl::Status()> release) {
  RETURN_IF_ERROR(Use(device));
  acquisitions_.fetch_add(1, std::memory_order_relaxed);
  const DeviceId row_device = kind == ResourceKind::kPinnedMemory ? kHost : device;
  return scope.Acquire(kind, row_device, bytes, site, create, [this, device, undo = std::move(release)] {
    RETURN_IF_ERROR(Use(device));  // of a lost device nothing can be given back
    return undo();
  });
}

absl::Status Gpus::NoMemory(DeviceId device, std::size_t bytes, std::string_view site, std::string_view kind) {
  std::size_t free = 0;
  std::size_t total = 0;
  static_cast<void>(api_.memory_info(&free, &total));
  return absl::ResourceExhaustedError(
      fmt::format("GPU {} has no {} bytes of {} for {}: {} of {} bytes of its memory are free", device, bytes, kind,
                  site, free, total));
}

absl::StatusOr<GpuMemory> Gpus::Allocate(Scope& scope, DeviceId device, std::size_t bytes, std::string_view site) {
  GpuMemory memory;
  memory.bytes = bytes;
  const auto slot = std::make_shared<cuda::Pointer>(0);  // last owner: the release closure on the scope
  ASSIGN_OR_RETURN(memory.handle,
                   Take(
                       scope, ResourceKind::kDeviceMemory, device, bytes, site,
                       [&] {
                         const cuda::Result result = api_.allocate(slot.get(), bytes);
                         if (result == cuda::kOutOfMemory) return NoMemory(device, bytes, site, "device memory");
                         return Check(device, result, fmt::format("allocate {} bytes for {}", bytes, site));
                       },
                       [this, device, slot] { return Check(device, api_.free(*slot), "free device memory"); }));
  memory.address = *slot;
  return memory;
}

absl::StatusOr<PinnedMemory> Gpus::AllocatePinned(Scope& scope, DeviceId device, std::size_t bytes,
                                                  std::string_view site) {
  constexpr std::size_t kPage = 4096;
  PinnedMemory memory;
  memory.bytes = (std::max<std::size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
  const auto slot = std::make_shared<void*>(nullptr);  // last owner: the release closure on the scope
  ASSIGN_OR_RETURN(
      memory.handle,
      Take(
          scope, ResourceKind::kPinnedMemory, device, memory.bytes, site,
          [&] {
            const cuda::Result result =
                api_.allocate_host(slot.get(), memory.bytes, cuda::kHostPortable | cuda::kHostDeviceMap);
            if (result == cuda::kOutOfMemory) return NoMemory(device, memory.bytes, site, "page-locked host memory");
            return Check(device, result, fmt::format("page-lock {} bytes for {}", memory.bytes, site));
          },
          [this, device, slot] { return Check(device, api_.free_host(*slot), "free page-locked memory"); }));
  memory.data = static_cast<std::byte*>(*slot);
  std::fill_n(memory.data, memory.bytes, std::byte{0});
  return memory;
}

absl::StatusOr<GpuStream> Gpus::CreateStream(Scope& scope, DeviceId device, StreamPriority priority,
                                             std::string_view site) {
  const auto slot = std::make_shared<cuda::Stream>(nullptr);  // last owner: the release closure on the scope
  GpuStream stream;
  ASSIGN_OR_RETURN(
      stream.handle,
      Take(
          scope, ResourceKind::kEngineObject, device, 0, site,
          [&] {
            int least = 0;
            int greatest = 0;
            RETURN_IF_ERROR(Check(device, api_.priority_range(&least, &greatest), "ask for stream priorities"));
            int level = 0;
            if (priority == StreamPriority::kMax) level = greatest;
            if (priority == StreamPriority::kMin) level = least;
            return Check(device, api_.create_stream(slot.get(), cuda::kStreamNonBlocking, level), "create a stream");
          },
          [this, device, slot] { return Check(device, api_.destroy_stream(*slot), "destroy a stream"); }));
  stream.stream = *slot;
  return stream;
}

absl::StatusOr<GpuEvent> Gpus::CreateEvent(Scope& scope, DeviceId device, bool blocking, std::string_view site) {
  const auto slot = std::make_shared<cuda::Event>(nullptr);  // last owner: the release closure on the scope
  const unsigned flags = cuda::kEventDisableTiming | (blocking ? cuda::kEventBlockingSync : 0U);
  GpuEvent event;
  ASSIGN_OR_RETURN(event.handle,
                   Take(
                       scope, ResourceKind::kEngineObject, device, 0, site,
                       [&] { return Check(device, api_.create_event(slot.get(), flags), "create an event"); },
                       [this, device, slot] { return Check(device, api_.destroy_event(*slot), "destroy an event"); }));
  event.event = *slot;
  return event;
}

absl::StatusOr<GpuGraph> Gpus::Capture(Scope& scope, DeviceId device, cuda::Stream stream,
                                       absl::FunctionRef<absl::Status()> record, std::string_view site) {
  const auto slot = std::make_shared<cuda::GraphExec>(nullptr);  // last owner: the release closure on the scope
  GpuGraph graph;
  const auto create = [&]() -> absl::Status {
    RETURN_IF_ERROR(Check(device, api_.begin_capture(stream, cuda::kCaptureThreadLocal), "start a capture"));
    const absl::Status recorded = record();
    cuda::Graph captured = nullptr;
    absl::Status status = Check(device, api_.end_capture(stream, &captured), "end a capture");
    if (!recorded.ok()) status = recorded;
    if (status.ok() && captured == nullptr) status = absl::InternalError("the capture recorded nothing");
    if (status.ok()) status = Check(device, api_.instantiate(slot.get(), captured, 0), "instantiate a graph");
    if (captured != nullptr) {
      const absl::Status destroyed = Check(device, api_.destroy_graph(captured), "destroy a graph");
      if (!destroyed.ok()) LOG_ERROR("{}", MessageOf(destroyed));
    }
    return status;
  };
  ASSIGN_OR_RETURN(graph.handle,
                   Take(scope, ResourceKind::kEngineObject, device, 0, site, create,
                        [this, device, slot] { return Check(device, api_.destroy_exec(*slot), "destroy a graph"); }));
  graph.exec = *slot;
  return graph;
}

absl::StatusOr<Scope::Handle> Gpus::PinHost(Scope& scope, DeviceId device, std::byte* data, std::size_t bytes,
                                            std::string_view site) {
  return Take(
      scope, ResourceKind::kEngineObject, device, 0, site,
      [&] {
        return Check(device, api_.register_host(data, bytes, cuda::kHostPortable | cuda::kHostDeviceMap),
                     fmt::format("page-lock {} bytes of {}", bytes, site));
      },
      [this, device, data] { return Check(device, api_.unregister_host(data), "unlock pages"); });
}

absl::StatusOr<GpuMemory> Gpus::OpenIpc(Scope& scope, DeviceId device, const cuda::IpcMemHandle& handle,
                                        std::string_view site) {
  const auto slot = std::make_shared<cuda::Pointer>(0);  // last owner: the release closure on the scope
  GpuMemory memory;
  ASSIGN_OR_RETURN(memory.handle,
                   Take(
                       scope, ResourceKind::kEngineObject, device, 0, site,
                       [&] {
                         return Check(device, api_.open_ipc(slot.get(), handle, cuda::kIpcLazyPeerAccess),
                                      "open an IPC handle");
                       },
                       [this, device, slot] { return Check(device, api_.close_ipc(*slot), "close an IPC handle"); }));
  memory.address = *slot;
  cuda::Pointer base = 0;
  if (absl::Status status =
          Check(device, api_.address_range(&base, &memory.bytes, memory.address), "size an IPC block");
      !status.ok()) {
    scope.Release(memory.handle);
    return status;
  }
  return memory;
}

}  // namespace tidemark
