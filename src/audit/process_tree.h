#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tidemark::audit {

// Reads processes from the proc file system, as an outsider. Stateless but for the folder's path; thread-safe.
class ProcReader {
 public:
  explicit ProcReader(std::filesystem::path root = "/proc") : root_(std::move(root)) {}

  struct Stat {
    int pid = 0;
    int parent = 0;
    int group = 0;
    char state = '?';               // 'Z' is a zombie
    std::uint64_t start_ticks = 0;  // since boot; with the pid it names a process for good
  };

  struct Memory {
    std::int64_t anonymous = 0;  // bytes
    std::int64_t rss = 0;        // bytes
  };

  // NOT_FOUND when there is no such process.
  absl::StatusOr<Stat> ReadStat(int pid) const;

  // `root` first, then every descendant, and every process of the process group `group` (0: none). Zombies are left
  // out. NOT_FOUND when `root` itself is gone or a zombie.
  absl::StatusOr<std::vector<int>> ReadTree(int root, int group) const;

  // Anonymous and resident memory: `Anonymous` and `Rss` of smaps_rollup; where that cannot be read, `RssAnon` and
  // `VmRSS` of status. NOT_FOUND when the process is gone.
  absl::StatusOr<Memory> ReadMemory(int pid) const;

  // Open descriptors and threads.
  absl::StatusOr<int> CountDescriptors(int pid) const;
  absl::StatusOr<int> CountThreads(int pid) const;

  // The process that listens on a TCP port of this machine: its sockets from net/tcp and net/tcp6, its owner by the
  // links in */fd. Of several owners (a parent and the workers that inherited the socket) the one whose parent is
  // none of them. NOT_FOUND says which of the two steps failed.
  absl::StatusOr<int> FindListener(int port) const;

 private:
  std::vector<int> ListPids() const;

  std::filesystem::path root_;
};

}  // namespace tidemark::audit
