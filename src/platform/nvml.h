#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tidemark {

// Memory that one process uses on a device. `bytes` is -1 where the driver does not tell (containers, WDDM).
struct NvmlProcess {
  int pid = 0;
  std::int64_t bytes = -1;
};

// What operators want to see of a device besides memory. Absent: the driver or the device does not tell.
struct NvmlVitals {
  std::string uuid;  // "GPU-…"
  std::string name;
  std::int64_t total_bytes = 0;
  std::int64_t used_bytes = 0;
  std::optional<double> utilization;  // 0 to 1: share of the last sample period in which a kernel ran
  std::optional<double> power_watts;
  std::optional<double> power_limit_watts;
  std::optional<std::uint64_t> energy_millijoules;  // since the driver was loaded
};

// What the auditor and the metrics ask of NVIDIA's management library: a client-side view of a GPU that needs no CUDA context. Indices
// are NVML's (PCI order), which CUDA_VISIBLE_DEVICES does not change. Thread-safe, as the library itself is.
class Nvml {
 public:
  virtual ~Nvml() = default;

  virtual absl::StatusOr<int> DeviceCount() = 0;
  // "NVIDIA H200, GPU-…uuid…, driver 580.159.03".
  virtual absl::StatusOr<std::string> Describe(int device) = 0;
  // Memory in use on the whole device, by everybody, the driver's own share included; in bytes.
  virtual absl::StatusOr<std::int64_t> UsedBytes(int device) = 0;
  // Processes with a compute context on the device. Pids are those of NVML's view, the host's in some containers.
  virtual absl::StatusOr<std::vector<NvmlProcess>> Processes(int device) = 0;
  virtual absl::StatusOr<NvmlVitals> Vitals(int /*device*/) {
    return absl::UnimplementedError("this source tells no vitals");
  }
};

// Opens libnvidia-ml.so.1. NOT_FOUND without the library, UNAVAILABLE when the driver does not answer.
absl::StatusOr<std::unique_ptr<Nvml>> OpenNvml();

}  // namespace tidemark
