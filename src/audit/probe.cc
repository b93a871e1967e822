#include "audit/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace tidemark::audit {
namespace {

constexpr double kKiB = 1024;
constexpr double kMiB = 1024 * kKiB;

double Or(double value, double fallback) { return value >= 0 ? value : fallback; }

// The living processes of the target; NOT_FOUND when it has ended or its number belongs to another process now.
absl::StatusOr<std::vector<int>> TreeOf(const ProcReader& reader, const Target& target) {
  ASSIGN_OR_RETURN(const ProcReader::Stat stat, reader.ReadStat(target.pid));
  if (stat.start_ticks != target.start_ticks) {
    return absl::NotFoundError(fmt::format("process {} has ended; another process has its number now", target.pid));
  }
  return reader.ReadTree(target.pid, target.group);
}

class ProcessProbe final : public Probe {
 public:
  ProcessProbe(const ProcReader* reader, const Limits& limits) : reader_(reader) {
    quantities_ = {
        {"anonymous", "anonymous memory", Unit::kBytes, true, Or(limits.growth_threshold, 4 * kKiB),
         Or(limits.tolerance, kMiB), 16 * kKiB},
        {"descriptors", "open descriptors", Unit::kCount, true, 0.2, 4, 0},
        {"threads", "threads", Unit::kCount, true, 0.2, 4, 0},
        {"rss", "resident memory", Unit::kBytes, false, 4 * kKiB, 4 * kMiB, 64 * kKiB},
    };
  }

  const std::vector<Quantity>& quantities() const override { return quantities_; }

  absl::StatusOr<std::vector<std::int64_t>> Read(const Target& target) override {
    ASSIGN_OR_RETURN(const std::vector<int> tree, TreeOf(*reader_, target));
    std::vector<std::int64_t> sums(4, 0);
    for (const int pid : tree) {
      const auto memory = reader_->ReadMemory(pid);
      if (!memory.ok() && pid == target.pid) return memory.status();
      if (!memory.ok()) continue;  // a helper that has just ended
      sums[0] += memory->anonymous;
      sums[3] += memory->rss;
      Add(reader_->CountDescriptors(pid), sums[1]);
      Add(reader_->CountThreads(pid), sums[2]);
    }
    return sums;
  }

  std::vector<std::int64_t> ReadAfterEnd() override { return std::vector<std::int64_t>(quantities_.size(), 0); }
  std::string OnFirstLoad(const Target&) override { return {}; }

 private:
  static void Add(const absl::StatusOr<int>& count, std::int64_t& sum) {
    if (sum == kNotRead) return;
    if (count.ok()) {
      sum += *count;
    } else if (absl::IsPermissionDenied(count.status())) {
      sum = kNotRead;
    }
  }

  const ProcReader* reader_;
  std::vector<Quantity> quantities_;
};

class GpuProbe final : public Probe {
 public:
  GpuProbe(const ProcReader* reader, std::unique_ptr<Nvml> nvml, int device, const Limits& limits)
      : reader_(reader), nvml_(std::move(nvml)), device_(device) {
    const double growth = Or(limits.growth_threshold, 64 * kKiB);
    const double tolerance = Or(limits.tolerance, 4 * kMiB);
    quantities_ = {
        {"gpu_process", fmt::format("memory of the server on GPU {}", device), Unit::kBytes, true, growth, tolerance,
         0},
        {"gpu_device", fmt::format("memory in use on GPU {}", device), Unit::kBytes, false, growth, tolerance, 0},
    };
  }

  const std::vector<Quantity>& quantities() const override { return quantities_; }

  absl::StatusOr<std::vector<std::int64_t>> Read(const Target& target) override {
    ASSIGN_OR_RETURN(const std::vector<int> tree, TreeOf(*reader_, target));
    ASSIGN_OR_RETURN(const std::int64_t used, nvml_->UsedBytes(device_));
    return std::vector<std::int64_t>{ProcessBytes(tree), used};
  }

  std::vector<std::int64_t> ReadAfterEnd() override {
    const auto used = nvml_->UsedBytes(device_);
    return {0, used.ok() ? *used : kNotRead};
  }

  std::string OnFirstLoad(const Target& target) override {
    const auto tree = TreeOf(*reader_, target);
    if (tree.ok() && ProcessBytes(*tree) > 0) {
      return fmt::format("GPU {}: judged by the figure that NVML lists for the server's processes.", device_);
    }
    std::swap(quantities_[0].judged, quantities_[1].judged);
    return fmt::format(
        "GPU {}: NVML lists none of the server's processes (another PID namespace?), so the whole "
        "device is judged; other users of the GPU disturb it.",
        device_);
  }

  std::string DeviceText() override {
    const auto text = nvml_->Describe(device_);
    return text.ok() ? *text : std::string(MessageOf(text.status()));
  }

 private:
  // 0 when NVML lists none of them (a server that has not touched the device yet), kNotRead when it does not tell.
  std::int64_t ProcessBytes(const std::vector<int>& tree) {
    const auto processes = nvml_->Processes(device_);
    if (!processes.ok()) return kNotRead;
    std::int64_t sum = 0;
    for (const NvmlProcess& process : *processes) {
      if (std::find(tree.begin(), tree.end(), process.pid) == tree.end()) continue;
      if (process.bytes < 0) return kNotRead;
      sum += process.bytes;
    }
    return sum;
  }

  const ProcReader* reader_;
  std::unique_ptr<Nvml> nvml_;
  int device_;
  std::vector<Quantity> quantities_;
};

}  // namespace

std::unique_ptr<Probe> MakeProcessProbe(const ProcReader* reader, const Limits& limits) {
  return std::make_unique<ProcessProbe>(reader, limits);
}

std::unique_ptr<Probe> MakeGpuProbe(const ProcReader* reader, std::unique_ptr<Nvml> nvml, int device,
                                    const Limits& limits) {
  return std::make_unique<GpuProbe>(reader, std::move(nvml), device, limits);
}

}  // namespace tidemark::audit
