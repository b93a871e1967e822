// A stand-in for libnvidia-ml.so.1: the memory figures of the fake devices, of every process that shares FAKE_GPU_STATE.

#include <cstdio>
#include <cstring>

#include "state.h"

namespace {

using namespace fake_gpu;  // NOLINT: a shell over that namespace

constexpr int kNvmlInvalid = 2;
constexpr int kNvmlNotFound = 6;
constexpr int kInsufficientSize = 7;
constexpr unsigned long long kReserved = 615ULL << 20;

struct Memory {
  unsigned long long total, free, used;
};
struct MemoryV2 {
  unsigned int version;
  unsigned long long total, reserved, free, used;
};
struct Utilization {  // percent
  unsigned int gpu, memory;
};
struct Process {
  unsigned int pid;
  unsigned long long used;
  unsigned int gpu_instance, compute_instance;
};

int IndexOf(void* handle) { return static_cast<int>(reinterpret_cast<std::uintptr_t>(handle)) - 1; }
void* HandleOf(int device) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(device + 1)); }

unsigned long long Used(int device) {
  unsigned long long used = 0;
  for (const ProcessEntry& entry : Processes(device)) used += entry.bytes;
  return used;
}

void UuidText(int device, char* text, unsigned int bytes) {
  // The bytes that the fake libcuda answers, as NVML writes them.
  const unsigned b = (0xf0U + static_cast<unsigned>(device)) & 0xffU;
  std::snprintf(text, bytes, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b, b, b, b, b,
                b, b, b, b, b, b, b, b, b, b, b);
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  int error = 0;
  return Meet("nvmlInit_v2", &error, 9) ? error : 0;  // 9: driver not loaded
}

int nvmlShutdown() { return 0; }

const char* nvmlErrorString(int error) {
  return error == 0 ? "Success" : error == 9 ? "Driver Not Loaded" : "Fake error";
}

int nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = static_cast<unsigned int>(DeviceCount());
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** device) {
  if (index >= static_cast<unsigned int>(DeviceCount())) return kNvmlInvalid;
  *device = HandleOf(static_cast<int>(index));
  return 0;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  for (int i = 0; i < DeviceCount(); ++i) {
    char text[64];
    UuidText(i, text, sizeof text);
    if (std::strcmp(text, uuid) == 0) return *device = HandleOf(i), 0;
  }
  return kNvmlNotFound;
}

int nvmlDeviceGetIndex(void* device, unsigned int* index) {
  *index = static_cast<unsigned int>(IndexOf(device));
  return 0;
}

int nvmlDeviceGetName(void*, char* name, unsigned int bytes) {
  std::snprintf(name, bytes, "Fake GPU");
  return 0;
}

int nvmlDeviceGetUUID(void* device, char* uuid, unsigned int bytes) {
  UuidText(IndexOf(device), uuid, bytes);
  return 0;
}

int nvmlSystemGetDriverVersion(char* version, unsigned int bytes) {
  std::snprintf(version, bytes, "999.0");
  return 0;
}

int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  int error = 0;
  if (Meet("nvmlDeviceGetMemoryInfo", &error, 999)) return error;
  memory->total = DeviceBytes();
  memory->used = kReserved + Used(IndexOf(device));  // the first version counts what the driver keeps
  memory->free = memory->total - memory->used;
  return 0;
}

int nvmlDeviceGetMemoryInfo_v2(void* device, MemoryV2* memory) {
  memory->total = DeviceBytes();
  memory->reserved = kReserved;
  memory->used = Used(IndexOf(device));
  memory->free = memory->total - memory->used - kReserved;
  return 0;
}

int nvmlDeviceGetUtilizationRates(void*, Utilization* utilization) {
  *utilization = {25, 10};
  return 0;
}

int nvmlDeviceGetPowerUsage(void*, unsigned int* milliwatts) {
  *milliwatts = 70500;
  return 0;
}

int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned int* milliwatts) {
  *milliwatts = 700000;
  return 0;
}

int nvmlDeviceGetTotalEnergyConsumption(void*, unsigned long long* millijoules) {
  *millijoules = 1000000;
  return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned int* count, Process* processes) {
  int error = 0;
  if (Meet("nvmlDeviceGetComputeRunningProcesses_v3", &error, 999)) return error;
  const auto entries = Processes(IndexOf(device));
  const unsigned int room = *count;
  *count = static_cast<unsigned int>(entries.size());
  if (entries.size() > room) return kInsufficientSize;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    processes[i] = {static_cast<unsigned int>(entries[i].pid), entries[i].bytes, ~0U, ~0U};
  }
  return 0;
}

}  // extern "C"
