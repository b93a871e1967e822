#include "platform/machine.h"

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
