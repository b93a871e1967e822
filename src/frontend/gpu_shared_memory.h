#pragma once

#include "frontend/shared_memory.h"
#include "resource/gpu.h"

namespace tidemark {

// CUDA shared memory through the server's GPUs. Thread-safe. `gpus` is null on a machine without a driver: then every
// registration is refused by name. Outlived by `gpus`.
class GpuSharedMemory final : public CudaSharedMemory {
 public:
  explicit GpuSharedMemory(Gpus* gpus) : gpus_(gpus) {}

  absl::StatusOr<std::byte*> Open(Scope& scope, std::span<const std::byte, kCudaHandleBytes> handle, int device,
                                  std::uint64_t byte_size) override;
  absl::Status CopyToHost(std::span<const std::byte> device_bytes, std::span<std::byte> host, int device) override;
  absl::Status CopyToDevice(std::span<const std::byte> host, std::span<std::byte> device_bytes, int device) override;

 private:
  absl::Status Finish(int device, cuda::Result started, std::string_view what);

  Gpus* const gpus_;
};

}  // namespace tidemark
