#include "platform/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <string_view>

#include "base/status.h"

namespace tidemark {
namespace {

// The few declarations of NVML's public C interface that are used here.
using Device = void*;
using Return = int;
constexpr Return kSuccess = 0;
constexpr Return kInsufficientSize = 7;

struct MemoryInfo {  // nvmlMemory_t
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct Utilization {  // nvmlUtilization_t, percent
  unsigned int gpu;
  unsigned int memory;
};

struct ProcessInfo {  // nvmlProcessInfo_v2_t, what the _v2 and _v3 calls fill
  unsigned int pid;
  unsigned long long used_gpu_memory;  // all ones: not available
  unsigned int gpu_instance_id;
  unsigned int compute_instance_id;
};

class NvmlLibrary final : public Nvml {
 public:
  ~NvmlLibrary() override {
    if (started_) shutdown_();
    if (library_ != nullptr) dlclose(library_);
  }

  absl::Status Start() {
    library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) {
      const char* why = dlerror();
      return absl::NotFoundError(fmt::format("NVIDIA's management library cannot be opened: {}", why ? why : "?"));
    }
    RETURN_IF_ERROR(Resolve(init_, {"nvmlInit_v2"}));
    RETURN_IF_ERROR(Resolve(shutdown_, {"nvmlShutdown"}));
    RETURN_IF_ERROR(Resolve(error_string_, {"nvmlErrorString"}));
    RETURN_IF_ERROR(Resolve(count_, {"nvmlDeviceGetCount_v2"}));
    RETURN_IF_ERROR(Resolve(handle_, {"nvmlDeviceGetHandleByIndex_v2"}));
    RETURN_IF_ERROR(Resolve(name_, {"nvmlDeviceGetName"}));
    RETURN_IF_ERROR(Resolve(uuid_, {"nvmlDeviceGetUUID"}));
    RETURN_IF_ERROR(Resolve(driver_, {"nvmlSystemGetDriverVersion"}));
    RETURN_IF_ERROR(Resolve(memory_, {"nvmlDeviceGetMemoryInfo"}));
    RETURN_IF_ERROR(
        Resolve(processes_, {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"}));
    // Vitals that an older driver may not tell.
    Find(utilization_, "nvmlDeviceGetUtilizationRates");
    Find(power_, "nvmlDeviceGetPowerUsage");
    Find(power_limit_, "nvmlDeviceGetEnforcedPowerLimit");
    Find(energy_, "nvmlDeviceGetTotalEnergyConsumption");
    RETURN_IF_ERROR(Check(init_(), "start"));
    started_ = true;
    return absl::OkStatus();
  }

  absl::StatusOr<int> DeviceCount() override {
    unsigned int count = 0;
    RETURN_IF_ERROR(Check(count_(&count), "count devices"));
    return static_cast<int>(count);
  }

  absl::StatusOr<std::string> Describe(int device) override {
    ASSIGN_OR_RETURN(Device handle, Handle(device));
    std::array<char, 96> name{}, uuid{}, driver{};
    RETURN_IF_ERROR(Check(name_(handle, name.data(), name.size()), "name the device"));
    RETURN_IF_ERROR(Check(uuid_(handle, uuid.data(), uuid.size()), "identify the device"));
    RETURN_IF_ERROR(Check(driver_(driver.data(), driver.size()), "name the driver"));
    return fmt::format("{}, {}, driver {}", name.data(), uuid.data(), driver.data());
  }

  absl::StatusOr<std::int64_t> UsedBytes(int device) override {
    ASSIGN_OR_RETURN(Device handle, Handle(device));
    MemoryInfo info{};
    RETURN_IF_ERROR(Check(memory_(handle, &info), "read the memory in use"));
    return static_cast<std::int64_t>(info.used);
  }

  absl::StatusOr<std::vector<NvmlProcess>> Processes(int device) override {
    ASSIGN_OR_RETURN(Device handle, Handle(device));
    std::vector<ProcessInfo> infos(32);
    unsigned int count = 0;
    Return result = kInsufficientSize;
    for (int attempt = 0; attempt < 4 && result == kInsufficientSize; ++attempt) {
      count = static_cast<unsigned int>(infos.size());
      result = processes_(handle, &count, infos.data());
      if (result == kInsufficientSize) infos.resize(count + 32);
    }
    RETURN_IF_ERROR(Check(result, "list processes"));
    std::vector<NvmlProcess> processes;
    for (unsigned int i = 0; i < count; ++i) {
      const bool known = infos[i].used_gpu_memory != ~0ULL;
      processes.push_back(
          {static_cast<int>(infos[i].pid), known ? static_cast<std::int64_t>(infos[i].used_gpu_memory) : -1});
    }
    return processes;
  }

  absl::StatusOr<NvmlVitals> Vitals(int device) override {
    ASSIGN_OR_RETURN(Device handle, Handle(device));
    std::array<char, 96> name{}, uuid{};
    RETURN_IF_ERROR(Check(name_(handle, name.data(), name.size()), "name the device"));
    RETURN_IF_ERROR(Check(uuid_(handle, uuid.data(), uuid.size()), "identify the device"));
    MemoryInfo memory{};
    RETURN_IF_ERROR(Check(memory_(handle, &memory), "read the memory in use"));
    NvmlVitals vitals;
    vitals.name = name.data();
    vitals.uuid = uuid.data();
    vitals.total_bytes = static_cast<std::int64_t>(memory.total);
    vitals.used_bytes = static_cast<std::int64_t>(memory.used);
    Utilization busy{};
    if (utilization_ != nullptr && utilization_(handle, &busy) == kSuccess) vitals.utilization = busy.gpu / 100.0;
    unsigned int milliwatts = 0;
    if (power_ != nullptr && power_(handle, &milliwatts) == kSuccess) vitals.power_watts = milliwatts / 1000.0;
    if (power_limit_ != nullptr && power_limit_(handle, &milliwatts) == kSuccess) {
      vitals.power_limit_watts = milliwatts / 1000.0;
    }
    unsigned long long energy = 0;
    if (energy_ != nullptr && energy_(handle, &energy) == kSuccess) vitals.energy_millijoules = energy;
    return vitals;
  }

 private:
  template <typename Function>
  void Find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library_, name));
  }

  template <typename Function>
  absl::Status Resolve(Function& function, std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (void* symbol = dlsym(library_, name); symbol != nullptr) {
        function = reinterpret_cast<Function>(symbol);
        return absl::OkStatus();
      }
    }
    return absl::NotFoundError(fmt::format("NVIDIA's management library has no {}", *names.begin()));
  }

  absl::Status Check(Return result, std::string_view what) const {
    if (result == kSuccess) return absl::OkStatus();
    return absl::UnavailableError(
        fmt::format("NVIDIA's management library could not {}: {} ({})", what, error_string_(result), result));
  }

  absl::StatusOr<Device> Handle(int device) {
    Device handle = nullptr;
    RETURN_IF_ERROR(Check(handle_(static_cast<unsigned int>(device), &handle), fmt::format("find GPU {}", device)));
    return handle;
  }

  void* library_ = nullptr;
  bool started_ = false;
  Return (*init_)() = nullptr;
  Return (*shutdown_)() = nullptr;
  const char* (*error_string_)(Return) = nullptr;
  Return (*count_)(unsigned int*) = nullptr;
  Return (*handle_)(unsigned int, Device*) = nullptr;
  Return (*name_)(Device, char*, unsigned int) = nullptr;
  Return (*uuid_)(Device, char*, unsigned int) = nullptr;
  Return (*driver_)(char*, unsigned int) = nullptr;
  Return (*memory_)(Device, MemoryInfo*) = nullptr;
  Return (*utilization_)(Device, Utilization*) = nullptr;
  Return (*power_)(Device, unsigned int*) = nullptr;
  Return (*power_limit_)(Device, unsigned int*) = nullptr;
  Return (*energy_)(Device, unsigned long long*) = nullptr;
  Return (*processes_)(Device, unsigned int*, ProcessInfo*) = nullptr;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Nvml>> OpenNvml() {
  auto library = std::make_unique<NvmlLibrary>();
  RETURN_IF_ERROR(library->Start());
  return library;
}

}  // namespace tidemark
