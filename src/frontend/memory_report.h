#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "inference/registry.h"
#include "lifecycle/lifecycle.h"
#include "lifecycle/load_history.h"
#include "resource/buffer_pool.h"
#include "resource/ledger.h"
#include "resource/witness.h"

namespace tidemark {

// What a version's bytes are for. `weights` is what it held when it became READY, less what its engine kept for reuse;
// `cached` is what the engine keeps for reuse now; `working` is the rest. The three add up to what its rows hold now.
struct MemoryUse {
  std::int64_t weights = 0;
  std::int64_t working = 0;
  std::int64_t cached = 0;
  std::int64_t high_water = 0;  // the most its rows held at one time since its load began
  std::int64_t total() const { return weights + working + cached; }
};
// Of a READY version, entered, by device.
std::map<DeviceId, MemoryUse> MemoryUseOf(Model& model, const LoadHistory::VersionHistory& history);

// One device: three witnesses of the same memory.
struct DevicePicture {
  DeviceId device = kHost;
  MemoryFigures ledger;        // rows of memory kinds, resident ones included
  std::uint64_t requests = 0;  // host: requests and answers, and what is kept for the next ones
  std::int64_t witness = -1;   // the kernel's or the driver's figure; -1: it cannot be had
  std::string_view source;     // "kernel", "driver", "driver, all processes"
  std::string uuid;            // of a GPU
  std::string name;
  std::int64_t total_bytes = 0;  // that the device has
  // What the witness sees and nobody accounts for; negative where rows hold memory that was never touched. 0 without one.
  std::int64_t unattributed() const {
    return witness < 0 ? 0 : witness - static_cast<std::int64_t>(ledger.now + requests);
  }
};

// The documents of the memory extension (docs/operations.md): memory of the server, of a model, and what became of it
// at an unload. Reads the proc file system: never on an event loop. Thread-safe.
class MemoryReport {
 public:
  // All of them outlive the report.
  struct Parts {
    Registry* registry = nullptr;
    Lifecycle* lifecycle = nullptr;
    Ledger* ledger = nullptr;
    BufferPool* buffers = nullptr;
    MemoryWitness* witness = nullptr;
  };
  explicit MemoryReport(Parts parts) : parts_(parts) {}

  // The host, then GPUs by number.
  std::vector<DevicePicture> Devices(const LedgerTotals& totals) const;

  // GET /v2/memory
  std::string ServerJson() const;
  // GET /v2/models/M[/versions/V]/memory; `version` -1: all. NOT_FOUND with Triton's text for what is not known.
  absl::StatusOr<std::string> ModelJson(std::string_view name, std::int64_t version) const;
  // The body of an unload's answer: what became of the versions that went since `since_ms` (Unix time).
  std::string UnloadJson(std::string_view name, std::int64_t since_ms) const;

 private:
  const Parts parts_;
};

}  // namespace tidemark
