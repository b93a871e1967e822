#include "frontend/gpu_shared_memory.h"

#include <cstring>

#include "base/status.h"

namespace tidemark {
namespace {

cuda::Pointer AddressOf(std::span<const std::byte> device_bytes) {
  return reinterpret_cast<cuda::Pointer>(device_bytes.data());
}

}  // namespace

absl::StatusOr<std::byte*> GpuSharedMemory::Open(Scope& scope, std::span<const std::byte, kCudaHandleBytes> handle,
                                                 int device, std::uint64_t byte_size) {
  if (gpus_ == nullptr) return absl::UnavailableError("this machine has no CUDA driver or no GPU");
  const std::size_t count = gpus_->devices().size();
  if (device < 0 || static_cast<std::size_t>(device) >= count) {
    return absl::UnavailableError(fmt::format("there is no device {}, the machine has {}", device, count));
  }
  cuda::IpcMemHandle native;
  std::memcpy(native.bytes, handle.data(), handle.size());
  const absl::StatusOr<GpuMemory> memory = gpus_->OpenIpc(scope, device, native, "cuda shared memory");
  if (!memory.ok()) return absl::InvalidArgumentError(std::string(MessageOf(memory.status())));
  if (memory->bytes < byte_size) {
    scope.Release(memory->handle);
    return absl::InvalidArgumentError(
        fmt::format("the allocation has {} bytes, byte_size is {}", memory->bytes, byte_size));
  }
  return reinterpret_cast<std::byte*>(memory->address);
}

absl::Status GpuSharedMemory::Finish(int device, cuda::Result started, std::string_view what) {
  RETURN_IF_ERROR(gpus_->Check(device, started, what));
  return gpus_->Check(device, gpus_->api().synchronize_stream(nullptr), what);
}

absl::Status GpuSharedMemory::CopyToHost(std::span<const std::byte> device_bytes, std::span<std::byte> host,
                                         int device) {
  if (host.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(gpus_->Use(device));
  return Finish(device, gpus_->api().copy_to_host(host.data(), AddressOf(device_bytes), host.size(), nullptr),
                "copy out of CUDA shared memory");
}

absl::Status GpuSharedMemory::CopyToDevice(std::span<const std::byte> host, std::span<std::byte> device_bytes,
                                           int device) {
  if (host.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(gpus_->Use(device));
  return Finish(device, gpus_->api().copy_to_device(AddressOf(device_bytes), host.data(), host.size(), nullptr),
                "copy into CUDA shared memory");
}

}  // namespace tidemark
