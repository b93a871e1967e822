#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "audit/process_tree.h"
#include "audit/record.h"
#include "platform/nvml.h"

namespace tidemark::audit {

// Limits that the command line may change; negative: the probe's own default.
struct Limits {
  double growth_threshold = -1;
  double tolerance = -1;
};

// Which server is measured. `start_ticks` tells it from a later process of the same number.
struct Target {
  int pid = 0;
  int group = 0;  // its process group if it has one of its own, else 0
  std::uint64_t start_ticks = 0;
};

// Measures a server from outside. Not thread-safe.
class Probe {
 public:
  virtual ~Probe() = default;
  virtual const std::vector<Quantity>& quantities() const = 0;
  // One value per quantity; kNotRead where one could not be had. NOT_FOUND when the server is gone.
  virtual absl::StatusOr<std::vector<std::int64_t>> Read(const Target& target) = 0;
  // The same after the server's end: what the machine still shows.
  virtual std::vector<std::int64_t> ReadAfterEnd() = 0;
  // Called once while the model is loaded for the first time: time to decide which figure to judge by. Returns a note
  // for the reader, or nothing.
  virtual std::string OnFirstLoad(const Target& target) = 0;
  // Name, UUID and driver of the measured device; empty if there is none.
  virtual std::string DeviceText() { return {}; }
};

// Anonymous memory (judged), descriptors and threads (judged), resident memory (shown) of the server's process tree.
std::unique_ptr<Probe> MakeProcessProbe(const ProcReader* reader, const Limits& limits);

// Memory on one GPU: what NVML lists for the server's process tree, or, where it lists none of these processes while a
// model is loaded (another PID namespace, MPS), what the whole device has in use.
std::unique_ptr<Probe> MakeGpuProbe(const ProcReader* reader, std::unique_ptr<Nvml> nvml, int device,
                                    const Limits& limits);

}  // namespace tidemark::audit
