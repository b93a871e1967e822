#pragma once

#include <cstdint>
#include <filesystem>

#include "absl/status/statusor.h"

// What the kernel says about this process and this machine, read from the proc file system. Takes nothing that stays;
// may take milliseconds, so never called on an event loop. `proc` is another root for tests.

namespace tidemark {

// Memory of this process, in bytes.
struct ProcessMemory {
  std::uint64_t anonymous = 0;  // private memory that only this process has: `Anonymous` of smaps_rollup, and swap
  std::uint64_t resident = 0;   // `Rss`: with the pages of mapped files, which cost nothing when memory is short
};
absl::StatusOr<ProcessMemory> ReadProcessMemory(const std::filesystem::path& proc = "/proc");

// Has the machine swap space, or can it not be told?
bool MachineSwaps();
// ProcessMemory::anonymous from counters that the kernel keeps: microseconds, where ReadProcessMemory walks over every page.
// Without swap (`swaps` false) a shorter list of them is enough.
absl::StatusOr<std::uint64_t> ReadAnonymousCounters(const std::filesystem::path& proc = "/proc",
                                                    bool swaps = MachineSwaps());
// Are those counters exact? Kernels that gather them from processors or threads only now and then (5.x to about 6.16) are off
// by 64 pages for each. Tried out with a few pages; call it before other threads take memory (then it may say no for yes).
bool AnonymousCountersAreExact();

// Memory of the machine, in bytes.
struct MachineMemory {
  std::uint64_t total = 0;
  std::uint64_t available = 0;
};
absl::StatusOr<MachineMemory> ReadMachineMemory(const std::filesystem::path& proc = "/proc");

// Processor time of the machine since its start, in clock ticks, all processors.
struct ProcessorTime {
  std::uint64_t busy = 0;
  std::uint64_t total = 0;
};
absl::StatusOr<ProcessorTime> ReadProcessorTime(const std::filesystem::path& proc = "/proc");

}  // namespace tidemark
