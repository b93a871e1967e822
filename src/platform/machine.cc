#include "platform/machine.h"

#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tidemark {
namespace {

// The number, in bytes, behind "<key>:" of a file of lines "Key:   123 kB".
class KibiFile {
 public:
  explicit KibiFile(const std::filesystem::path& path) : path_(path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    text_ = "\n" + text.str();
  }
  std::optional<std::uint64_t> Find(std::string_view key) const {
    const std::size_t at = text_.find(fmt::format("\n{}:", key));
    if (at == std::string::npos) return std::nullopt;
    std::istringstream line(text_.substr(at + key.size() + 2));
    std::uint64_t kibi = 0;
    if (!(line >> kibi)) return std::nullopt;
    return kibi * 1024;
  }
  absl::Status Missing(std::string_view key) const {
    return absl::UnavailableError(fmt::format("'{}' has no '{}'", path_.string(), key));
  }

 private:
  std::filesystem::path path_;
  std::string text_;
};

// Anonymous memory in bytes by `statm`, whose numbers are pages: size resident shared (of files and shared memory) … Half of
// what `status` costs, but it has no swap. nullopt when it cannot be read.
std::optional<std::uint64_t> AnonymousOfStatm(const std::filesystem::path& proc) {
  std::uint64_t size = 0;
  std::uint64_t resident = 0;
  std::uint64_t shared = 0;
  if (!(std::ifstream(proc / "self" / "statm") >> size >> resident >> shared) || resident < shared) return std::nullopt;
  return (resident - shared) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

absl::StatusOr<ProcessMemory> ReadProcessMemory(const std::filesystem::path& proc) {
  const KibiFile maps(proc / "self" / "smaps_rollup");
  if (const auto anonymous = maps.Find("Anonymous")) {
    return ProcessMemory{*anonymous + maps.Find("Swap").value_or(0), maps.Find("Rss").value_or(0)};
  }
  const KibiFile status(proc / "self" / "status");  // kernels without smaps_rollup, and sandboxes
  const auto anonymous = status.Find("RssAnon");
  if (!anonymous) return status.Missing("RssAnon");
  return ProcessMemory{*anonymous + status.Find("VmSwap").value_or(0), status.Find("VmRSS").value_or(0)};
}

bool MachineSwaps() {
  struct sysinfo info {};
  return ::sysinfo(&info) != 0 || info.totalswap != 0;
}

absl::StatusOr<std::uint64_t> ReadAnonymousCounters(const std::filesystem::path& proc, bool swaps) {
  if (!swaps) {
    if (const auto anonymous = AnonymousOfStatm(proc)) return *anonymous;
  }
  const KibiFile status(proc / "self" / "status");
  const auto anonymous = status.Find("RssAnon");
  if (!anonymous) return status.Missing("RssAnon");
  return *anonymous + status.Find("VmSwap").value_or(0);
}

bool AnonymousCountersAreExact() {
  constexpr std::size_t kPages = 5;  // far fewer than the kernels that gather wait for
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  constexpr int kWanted = 3;  // of a few rounds: what a heap takes meanwhile must not decide
  int exact = 0;
  for (int round = 0; round < 8 && exact < kWanted; ++round) {
    const auto before = ReadAnonymousCounters();
    void* const pages = mmap(nullptr, kPages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return false;
    for (std::size_t i = 0; i < kPages; ++i) static_cast<volatile char*>(pages)[i * page] = 1;
    const auto after = ReadAnonymousCounters();
    munmap(pages, kPages * page);
    if (!before.ok() || !after.ok()) return false;
    if (*after == *before + kPages * page) ++exact;
  }
  return exact == kWanted;
}

absl::StatusOr<MachineMemory> ReadMachineMemory(const std::filesystem::path& proc) {
  const KibiFile file(proc / "meminfo");
  const auto total = file.Find("MemTotal");
  if (!total) return file.Missing("MemTotal");
  const auto available = file.Find("MemAvailable");
  if (!available) return file.Missing("MemAvailable");
  return MachineMemory{*total, *available};
}

absl::StatusOr<ProcessorTime> ReadProcessorTime(const std::filesystem::path& proc) {
  std::ifstream file(proc / "stat");
  std::string name;
  std::array<std::uint64_t, 8> ticks{};  // user nice system idle iowait irq softirq steal
  if (!(file >> name) || name != "cpu") return absl::UnavailableError("the kernel does not tell processor times");
  for (std::uint64_t& tick : ticks) file >> tick;
  ProcessorTime time;
  for (const std::uint64_t tick : ticks) time.total += tick;
  time.busy = time.total - ticks[3] - ticks[4];
  return time;
}

}  // namespace tidemark
