#include "audit/process_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

namespace tidemark::audit {
namespace {

namespace fs = std::filesystem;

std::optional<int> ParseInt(std::string_view text, int base = 10) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::string> ReadAll(const fs::path& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || file.bad()) return std::nullopt;
  return text.str();
}

// "<key>:   1234 kB" in a text of such lines, in bytes.
std::optional<std::int64_t> KilobyteLine(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.size() <= key.size() || line.compare(0, key.size(), key) != 0 || line[key.size()] != ':') continue;
    std::istringstream rest(line.substr(key.size() + 1));
    std::int64_t kilobytes = 0;
    if (rest >> kilobytes) return kilobytes * 1024;
  }
  return std::nullopt;
}

absl::Status Gone(int pid) { return absl::NotFoundError(fmt::format("process {} does not exist (any more)", pid)); }

absl::StatusOr<int> CountEntries(const fs::path& folder, int pid) {
  std::error_code error;
  int count = 0;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) ++count;
  if (error == std::errc::permission_denied) {
    return absl::PermissionDeniedError(fmt::format("{} may not be read: {}", folder.string(), error.message()));
  }
  if (error) return Gone(pid);
  return count;
}

// Inodes of the sockets that listen on `port`, from one of net/tcp and net/tcp6.
void AddListeningInodes(const fs::path& table, int port, std::set<std::string>& inodes) {
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);  // the heading
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
    if (!(fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >> inode)) {
      continue;
    }
    const std::size_t colon = local.rfind(':');
    if (state != "0A" || colon == std::string::npos) continue;  // 0A: TCP_LISTEN
    if (ParseInt(std::string_view(local).substr(colon + 1), 16) == port) inodes.insert(inode);
  }
}

}  // namespace

std::vector<int> ProcReader::ListPids() const {
  std::vector<int> pids;
  std::error_code error;
  for (fs::directory_iterator it(root_, error), end; !error && it != end; it.increment(error)) {
    if (const auto pid = ParseInt(it->path().filename().string())) pids.push_back(*pid);
  }
  std::sort(pids.begin(), pids.end());
  return pids;
}

absl::StatusOr<ProcReader::Stat> ProcReader::ReadStat(int pid) const {
  const auto text = ReadAll(root_ / std::to_string(pid) / "stat");
  if (!text.has_value()) return Gone(pid);
  // The second field is the name in parentheses and may hold anything, parentheses and blanks included.
  const std::size_t name_end = text->rfind(')');
  if (name_end == std::string::npos) return Gone(pid);
  std::istringstream fields(text->substr(name_end + 1));
  Stat stat;
  stat.pid = pid;
  if (!(fields >> stat.state >> stat.parent >> stat.group)) return Gone(pid);
  std::string skipped;
  for (int field = 6; field <= 21; ++field) fields >> skipped;
  if (!(fields >> stat.start_ticks)) return Gone(pid);
  return stat;
}

absl::StatusOr<std::vector<int>> ProcReader::ReadTree(int root, int group) const {
  std::multimap<int, int> children;
  std::vector<int> members;
  bool alive = false;
  for (const int pid : ListPids()) {
    const auto stat = ReadStat(pid);
    if (!stat.ok() || stat->state == 'Z' || stat->state == 'X') continue;
    children.emplace(stat->parent, pid);
    if (pid == root) alive = true;
    if (group != 0 && stat->group == group) members.push_back(pid);
  }
  if (!alive) return Gone(root);
  std::vector<int> tree = {root};
  std::set<int> seen = {root};
  for (const int pid : members) {
    if (seen.insert(pid).second) tree.push_back(pid);
  }
  for (std::size_t i = 0; i < tree.size(); ++i) {
    const auto [begin, end] = children.equal_range(tree[i]);
    for (auto it = begin; it != end; ++it) {
      if (seen.insert(it->second).second) tree.push_back(it->second);
    }
  }
  return tree;
}

absl::StatusOr<ProcReader::Memory> ProcReader::ReadMemory(int pid) const {
  const fs::path folder = root_ / std::to_string(pid);
  if (const auto rollup = ReadAll(folder / "smaps_rollup")) {
    const auto anonymous = KilobyteLine(*rollup, "Anonymous");
    const auto rss = KilobyteLine(*rollup, "Rss");
    if (anonymous.has_value() && rss.has_value()) return Memory{*anonymous, *rss};
  }
  const auto status = ReadAll(folder / "status");
  if (!status.has_value()) return Gone(pid);
  const auto anonymous = KilobyteLine(*status, "RssAnon");
  const auto rss = KilobyteLine(*status, "VmRSS");
  if (!anonymous.has_value() || !rss.has_value()) return Gone(pid);  // a zombie has neither
  return Memory{*anonymous, *rss};
}

absl::StatusOr<int> ProcReader::CountDescriptors(int pid) const {
  return CountEntries(root_ / std::to_string(pid) / "fd", pid);
}

absl::StatusOr<int> ProcReader::CountThreads(int pid) const {
  return CountEntries(root_ / std::to_string(pid) / "task", pid);
}

absl::StatusOr<int> ProcReader::FindListener(int port) const {
  std::set<std::string> inodes;
  AddListeningInodes(root_ / "net" / "tcp", port, inodes);
  AddListeningInodes(root_ / "net" / "tcp6", port, inodes);
  if (inodes.empty()) {
    return absl::NotFoundError(fmt::format("no process on this machine listens on TCP port {}", port));
  }
  std::set<int> owners;
  for (const int pid : ListPids()) {
    std::error_code error;
    for (fs::directory_iterator it(root_ / std::to_string(pid) / "fd", error), end; !error && it != end;
         it.increment(error)) {
      std::error_code link_error;
      const std::string target = fs::read_symlink(it->path(), link_error).string();
      if (link_error || target.size() < 10 || target.compare(0, 8, "socket:[") != 0) continue;
      if (inodes.count(target.substr(8, target.size() - 9)) != 0) owners.insert(pid);
    }
  }
  for (const int pid : owners) {
    const auto stat = ReadStat(pid);
    if (stat.ok() && owners.count(stat->parent) == 0) return pid;
  }
  return absl::NotFoundError(fmt::format(
      "TCP port {} is listened on, but none of the processes that this user may look into holds the socket", port));
}

}  // namespace tidemark::audit
