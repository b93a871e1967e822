#include "frontend/shared_memory.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "base/status.h"

namespace tidemark {
namespace {

constexpr std::string_view kReservedPrefix = "triton_python_backend_shm_region_";

template <typename... Args>
absl::Status Invalid(fmt::format_string<Args...> text, Args&&... args) {
  return absl::InvalidArgumentError(fmt::format(text, std::forward<Args>(args)...));
}

// A failed mapping in Triton's words, the reason behind them.
absl::Status MappingError(const absl::Status& status, std::string_view name, std::string_view key) {
  const std::string_view why = MessageOf(status);
  switch (status.code()) {
    case absl::StatusCode::kOutOfRange:
      return Invalid("failed to register shared memory region '{}': invalid args ({})", name, why);
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kInvalidArgument:
      return Invalid("Unable to open shared memory region: '{}': {}", key, why);
    case absl::StatusCode::kResourceExhausted:
      return absl::ResourceExhaustedError(
          fmt::format("failed to register shared memory region '{}': unable to process address space: {}", name, why));
    default:
      return WithContext(status, fmt::format("failed to register shared memory region '{}'", name));
  }
}

}  // namespace

// One registered region: its scope is its memory.
class SharedMemoryRegions::Region final : public SharedMemoryRegion {
 public:
  Region(Scope& parent, SharedMemoryInfo info, Kind kind, CudaSharedMemory* cuda)
      : info_(std::move(info)), kind_(kind), cuda_(cuda), scope_(parent, info_.name) {}

  absl::Status MapSystem() {
    absl::StatusOr<Scope::Shared> shared = scope_.MapShared(info_.key, info_.offset, info_.byte_size, "region");
    if (!shared.ok()) return MappingError(shared.status(), info_.name, info_.key);
    shared_ = *shared;
    bytes_ = {shared_.mapping.data, shared_.mapping.bytes};
    return absl::OkStatus();
  }

  absl::Status MapCuda(std::span<const std::byte, kCudaHandleBytes> handle) {
    const absl::StatusOr<std::byte*> memory = cuda_->Open(scope_, handle, info_.device, info_.byte_size);
    const absl::Status& status = memory.status();
    if (status.code() == absl::StatusCode::kUnavailable) {
      return Invalid("failed to register CUDA shared memory region: '{}', GPUs not supported ({})", info_.name,
                     MessageOf(status));
    }
    if (!status.ok()) {
      return absl::Status(status.code(), fmt::format("failed to register shared memory region '{}': invalid args ({})",
                                                     info_.name, MessageOf(status)));
    }
    bytes_ = {*memory, info_.byte_size};
    return absl::OkStatus();
  }

  absl::Status Check() const override {
    if (kind_ == Kind::kCuda) return absl::OkStatus();
    const absl::Status status = scope_.CheckShared(shared_);
    if (status.ok()) return status;
    return Invalid(
        "shared memory region '{}' is not what was registered any more: {}; unregister it and register it again",
        info_.name, MessageOf(status));
  }

  absl::Status Read(std::span<const std::byte> region, std::span<std::byte> host) const override {
    if (kind_ == Kind::kCuda) return cuda_->CopyToHost(region, host, info_.device);
    if (!host.empty()) std::memcpy(host.data(), region.data(), host.size());
    return absl::OkStatus();
  }

  absl::Status Write(std::span<const std::byte> host, std::span<std::byte> region) const override {
    if (kind_ == Kind::kCuda) return cuda_->CopyToDevice(host, region, info_.device);
    if (!host.empty()) std::memcpy(region.data(), host.data(), host.size());
    return absl::OkStatus();
  }

  const SharedMemoryInfo& info() const { return info_; }
  Kind kind() const { return kind_; }
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  const SharedMemoryInfo info_;
  const Kind kind_;
  CudaSharedMemory* const cuda_;
  Scope scope_;
  Scope::Shared shared_;
  std::span<std::byte> bytes_;
};

absl::Status SharedMemoryRegions::Allowed() const {
  if (options_.allowed) return absl::OkStatus();
  return absl::UnimplementedError(
      "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.");
}

// Takes the name, so that two registrations of it do not meet while the memory is being opened.
absl::Status SharedMemoryRegions::Begin(const std::string& name) {
  absl::MutexLock lock(&mutex_);
  if (regions_.contains(name) || opening_.contains(name)) {
    return absl::AlreadyExistsError(fmt::format("shared memory region '{}' already in manager", name));
  }
  if (regions_.size() + opening_.size() >= options_.max_regions) {
    return absl::ResourceExhaustedError(fmt::format(
        "failed to register shared memory region '{}': {} regions are registered, no more are taken (--max-shm-regions)",
        name, options_.max_regions));
  }
  opening_.insert(name);
  return absl::OkStatus();
}

void SharedMemoryRegions::End(const std::string& name, std::shared_ptr<Region> region) {
  absl::MutexLock lock(&mutex_);
  opening_.erase(name);
  if (region != nullptr) regions_.emplace(name, std::move(region));
}

absl::Status SharedMemoryRegions::RegisterSystem(const std::string& name, const std::string& key, std::uint64_t offset,
                                                 std::uint64_t byte_size) {
  RETURN_IF_ERROR(Allowed());
  const std::size_t from = key.find_first_not_of('/');
  if (from == std::string::npos) {
    return Invalid("cannot register shared memory region '{}' - invalid shm key '{}'", name, key);
  }
  if (std::string_view(key).substr(from).starts_with(kReservedPrefix)) {
    return Invalid(
        "cannot register shared memory region '{}' with key '{}' as the key contains the reserved prefix '{}'", name,
        key, kReservedPrefix);
  }
  RETURN_IF_ERROR(Begin(name));
  std::shared_ptr<Region> opened;
  const absl::Cleanup end = [&] { End(name, std::move(opened)); };
  auto region = std::make_shared<Region>(
      scope_, SharedMemoryInfo{.name = name, .key = key, .offset = offset, .byte_size = byte_size}, Kind::kSystem,
      nullptr);
  RETURN_IF_ERROR(region->MapSystem());
  opened = std::move(region);
  return absl::OkStatus();
}

absl::Status SharedMemoryRegions::RegisterCuda(const std::string& name, std::span<const std::byte> handle, int device,
                                               std::uint64_t byte_size) {
  RETURN_IF_ERROR(Allowed());
  if (handle.size() != kCudaHandleBytes) {
    return Invalid("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t");
  }
  if (options_.cuda == nullptr) {
    return Invalid("failed to register CUDA shared memory region: '{}', GPUs not supported", name);
  }
  RETURN_IF_ERROR(Begin(name));
  std::shared_ptr<Region> opened;
  const absl::Cleanup end = [&] { End(name, std::move(opened)); };
  auto region = std::make_shared<Region>(
      scope_, SharedMemoryInfo{.name = name, .key = "", .offset = 0, .byte_size = byte_size, .device = device},
      Kind::kCuda, options_.cuda);
  RETURN_IF_ERROR(region->MapCuda(handle.first<kCudaHandleBytes>()));
  opened = std::move(region);
  return absl::OkStatus();
}

absl::Status SharedMemoryRegions::Unregister(std::string_view name, Kind kind) {
  RETURN_IF_ERROR(Allowed());
  std::vector<std::shared_ptr<Region>> gone;  // unmapped here, without the lock, unless a request uses it
  absl::MutexLock lock(&mutex_);
  for (auto it = name.empty() ? regions_.begin() : regions_.find(name); it != regions_.end();) {
    const bool wanted = it->second->kind() == kind;
    auto next = std::next(it);
    if (wanted) {
      gone.push_back(std::move(it->second));
      regions_.erase(it);
    } else if (!name.empty()) {
      return absl::NotFoundError(
          fmt::format("The region named '{}' is registered as {} shared memory, not {} shared memory", name,
                      kind == Kind::kSystem ? "CUDA" : "system", kind == Kind::kSystem ? "system" : "CUDA"));
    }
    it = name.empty() ? next : regions_.end();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SharedMemoryInfo>> SharedMemoryRegions::Status(std::string_view name, Kind kind) const {
  std::vector<SharedMemoryInfo> found;
  absl::MutexLock lock(&mutex_);
  if (name.empty()) {
    for (const auto& [key, region] : regions_) {
      if (region->kind() == kind) found.push_back(region->info());
    }
    return found;
  }
  const auto it = regions_.find(name);
  if (it == regions_.end()) {
    return absl::NotFoundError(
        fmt::format("Unable to find {} shared memory region: '{}'", kind == Kind::kSystem ? "system" : "cuda", name));
  }
  if (it->second->kind() != kind) {
    return absl::NotFoundError(
        fmt::format("The region named '{}' is registered as {} shared memory, not {} shared memory", name,
                    kind == Kind::kSystem ? "CUDA" : "system", kind == Kind::kSystem ? "system" : "CUDA"));
  }
  found.push_back(it->second->info());
  return found;
}

absl::StatusOr<SharedMemoryLease> SharedMemoryRegions::Find(std::string_view name, std::uint64_t offset,
                                                            std::uint64_t byte_size) {
  std::shared_ptr<Region> region;
  {
    absl::ReaderMutexLock lock(&mutex_);
    const auto it = regions_.find(name);
    if (it == regions_.end()) {
      return absl::NotFoundError(fmt::format("Unable to find shared memory region: '{}'", name));
    }
    region = it->second;
  }
  const std::uint64_t size = region->info().byte_size;
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  if (offset >= size) return Invalid("Invalid offset for shared memory region: '{}'", name);
  if (byte_size > kMax - offset) {
    return Invalid("Integer overflow detected: byte_size ({}) + offset ({}) exceeds maximum value ({}) for region '{}'",
                   byte_size, offset, kMax, name);
  }
  if (byte_size > size - offset) {
    return Invalid("Invalid offset + byte size for shared memory region: '{}'", name);
  }
  RETURN_IF_ERROR(region->Check());
  SharedMemoryLease lease;
  lease.bytes = region->bytes().subspan(offset, byte_size);
  lease.device = region->kind() == Kind::kCuda ? region->info().device : kHost;
  lease.region = std::move(region);
  return lease;
}

}  // namespace tidemark
