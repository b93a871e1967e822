#include "resource/witness.h"

#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "base/status.h"

namespace tidemark {

std::unique_ptr<MemoryWitness> MemoryWitness::Create(bool gpus) {
  const bool exact = AnonymousCountersAreExact();
  if (!gpus) return std::make_unique<MemoryWitness>(nullptr, exact);
  absl::StatusOr<std::unique_ptr<Nvml>> nvml = OpenNvml();
  if (!nvml.ok()) {
    LOG_VERBOSE(1, "no figures of GPUs: {}", MessageOf(nvml.status()));
    return std::make_unique<MemoryWitness>(nullptr, exact);
  }
  return std::make_unique<MemoryWitness>(*std::move(nvml), exact);
}

absl::StatusOr<std::uint64_t> MemoryWitness::Anonymous() const {
  if (exact_counters_) return ReadAnonymousCounters();
  ASSIGN_OR_RETURN(const ProcessMemory memory, Process());
  return memory.anonymous;
}

void MemoryWitness::SetGpuOrder(std::vector<std::string> uuids) {
  absl::MutexLock lock(&mutex_);
  order_ = std::move(uuids);
  indices_.clear();
}

std::vector<GpuWitness> MemoryWitness::Gpus() const {
  std::vector<GpuWitness> gpus;
  if (nvml_ == nullptr) return gpus;
  const absl::StatusOr<int> count = nvml_->DeviceCount();
  if (!count.ok()) return gpus;
  std::vector<std::string> order;
  {
    absl::MutexLock lock(&mutex_);
    order = order_;
  }
  for (int index = 0; index < *count; ++index) {
    absl::StatusOr<NvmlVitals> vitals = nvml_->Vitals(index);
    if (!vitals.ok()) continue;
    GpuWitness gpu;
    gpu.device = index;
    if (!order.empty()) {
      const auto at = std::find(order.begin(), order.end(), vitals->uuid);
      if (at == order.end()) continue;  // not this process's
      gpu.device = static_cast<DeviceId>(at - order.begin());
    }
    gpu.vitals = *std::move(vitals);
    if (const auto processes = nvml_->Processes(index); processes.ok()) {
      for (const NvmlProcess& process : *processes) {
        if (process.pid == getpid() && process.bytes >= 0) {
          gpu.process_bytes = static_cast<std::uint64_t>(process.bytes);
        }
      }
    }
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

std::optional<int> MemoryWitness::IndexOf(DeviceId device) const {
  absl::MutexLock lock(&mutex_);
  if (order_.empty()) return device;
  if (const auto known = indices_.find(device); known != indices_.end()) return known->second;
  const absl::StatusOr<int> count = nvml_->DeviceCount();
  if (!count.ok() || static_cast<std::size_t>(device) >= order_.size()) return std::nullopt;
  for (int index = 0; index < *count; ++index) {
    const absl::StatusOr<NvmlVitals> vitals = nvml_->Vitals(index);
    if (!vitals.ok() || vitals->uuid != order_[static_cast<std::size_t>(device)]) continue;
    indices_[device] = index;
    return index;
  }
  return std::nullopt;
}

std::optional<std::int64_t> MemoryWitness::GpuBytes(DeviceId device) const {
  if (nvml_ == nullptr || device < 0) return std::nullopt;
  const std::optional<int> index = IndexOf(device);
  if (!index) return std::nullopt;
  if (const auto processes = nvml_->Processes(*index); processes.ok()) {
    for (const NvmlProcess& process : *processes) {
      if (process.pid == getpid() && process.bytes >= 0) return process.bytes;
    }
  }
  const absl::StatusOr<std::int64_t> used = nvml_->UsedBytes(*index);
  return used.ok() ? std::optional<std::int64_t>(*used) : std::nullopt;
}

}  // namespace tidemark
