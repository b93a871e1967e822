#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "platform/machine.h"
#include "platform/nvml.h"
#include "resource/ledger.h"

namespace tidemark {

// One GPU as the driver sees it.
struct GpuWitness {
  DeviceId device = 0;
  NvmlVitals vitals;
  // Of this process alone; nullopt where the driver does not list it (another PID namespace, MPS): then only
  // vitals.used_bytes, of all processes together, can be had.
  std::optional<std::uint64_t> process_bytes;
};

// What others than the ledger say about the memory of this process: the kernel, and NVIDIA's driver. What engines take
// past the ledger shows as the difference. Thread-safe; reading may take milliseconds, so never on an event loop.
class MemoryWitness {
 public:
  // `nvml` may be null: then there are no GPUs. `exact_counters`: see AnonymousCountersAreExact.
  explicit MemoryWitness(std::unique_ptr<Nvml> nvml, bool exact_counters = false)
      : nvml_(std::move(nvml)), exact_counters_(exact_counters) {}
  // With `gpus` the driver is asked, too, where there is one; without a driver that is no error. Called at start-up.
  static std::unique_ptr<MemoryWitness> Create(bool gpus);

  // Numbers in the ledger are CUDA's, those of NVML are the machine's: `uuids` are CUDA's devices in order. Until this is
  // called they are taken for the same.
  void SetGpuOrder(std::vector<std::string> uuids);

  absl::StatusOr<ProcessMemory> Process() const { return ReadProcessMemory(); }
  absl::StatusOr<MachineMemory> Machine() const { return ReadMachineMemory(); }
  absl::StatusOr<ProcessorTime> Processor() const { return ReadProcessorTime(); }
  // Devices that cannot be read are left out.
  std::vector<GpuWitness> Gpus() const;

  // Process().anonymous, the quick way where that is as exact: loads and unloads of small models wait for little else.
  absl::StatusOr<std::uint64_t> Anonymous() const;

  // What the witness of each device in `devices` counts now, in bytes: anonymous memory of this process on the host, memory
  // of this process (else of all) on a GPU. Devices that cannot be read are left out.
  template <typename Devices>
  std::map<DeviceId, std::int64_t> Bytes(const Devices& devices) const {
    std::map<DeviceId, std::int64_t> bytes;
    if (const auto anonymous = Anonymous(); anonymous.ok()) bytes[kHost] = static_cast<std::int64_t>(*anonymous);
    for (const auto& entry : devices) {
      if (entry.first == kHost) continue;
      if (const std::optional<std::int64_t> used = GpuBytes(entry.first)) bytes[entry.first] = *used;
    }
    return bytes;
  }

 private:
  // One question to the driver, or two: an unload waits for the answer, so nothing that is not needed is asked.
  std::optional<std::int64_t> GpuBytes(DeviceId device) const;
  // NVML's number of a device; nullopt where it has none. Asked once.
  std::optional<int> IndexOf(DeviceId device) const;

  const std::unique_ptr<Nvml> nvml_;
  const bool exact_counters_;
  mutable absl::Mutex mutex_;
  std::vector<std::string> order_ ABSL_GUARDED_BY(mutex_);
  mutable std::map<DeviceId, int> indices_ ABSL_GUARDED_BY(mutex_);  // those that were asked for
};

}  // namespace tidemark
