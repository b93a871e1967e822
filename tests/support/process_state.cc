#include "tests/support/process_state.h"

#include <fmt/format.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/clock.h"

namespace tidemark {

int EntriesOf(const std::string& folder) {
  std::error_code error;
  int count = 0;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) ++count;
  return count;
}

namespace {

// Whether the thread has begun to end: the kernel marks it before it tells whoever joins it.
bool Ending(const std::filesystem::path& task) {
  constexpr unsigned long kExiting = 4;  // PF_EXITING of the kernel's include/linux/sched.h, in proc(5)'s ninth field
  std::string line;
  std::getline(std::ifstream(task / "stat"), line);
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return true;  // gone meanwhile
  std::istringstream fields(line.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field <= 8; ++field) fields >> skipped;
  unsigned long flags = 0;
  fields >> flags;
  return (flags & kExiting) != 0;
}

// Without those that were joined but are still in /proc.
int LivingThreads() {
  std::error_code error;
  int count = 0;
  for (std::filesystem::directory_iterator it("/proc/self/task", error), end; !error && it != end;
       it.increment(error)) {
    if (!Ending(it->path())) ++count;
  }
  return count;
}

}  // namespace

ProcessState ReadProcessState() {
  ProcessState state;
  state.descriptors = EntriesOf("/proc/self/fd") - 1;  // without the one that lists them
  state.threads = LivingThreads();
  std::string line;
  for (std::ifstream maps("/proc/self/maps"); std::getline(maps, line);) {
    if (line.find(" /") != std::string::npos) ++state.file_mappings;
  }
  for (std::ifstream rollup("/proc/self/smaps_rollup"); std::getline(rollup, line);) {
    if (line.starts_with("Anonymous:")) state.anonymous_bytes = std::stoll(line.substr(10)) * 1024;
  }
  return state;
}

ProcessState ReadProcessStateWithThreads(int threads) {
  const std::int64_t deadline = NowNanos() + 5'000'000'000;
  while (LivingThreads() > threads && NowNanos() < deadline) sched_yield();
  return ReadProcessState();
}

ProcessState ReadProcessStateLike(const ProcessState& mark) {
  const std::int64_t deadline = NowNanos() + 5'000'000'000;
  ProcessState now = ReadProcessStateWithThreads(mark.threads);
  while (now.descriptors > mark.descriptors && NowNanos() < deadline) now = ReadProcessStateWithThreads(mark.threads);
  return now;
}

std::string Difference(const ProcessState& before, const ProcessState& after) {
  std::string text;
  const auto compare = [&](const char* what, int was, int is) {
    if (was != is) text += fmt::format("{} {} -> {}; ", what, was, is);
  };
  if (after.threads > before.threads) compare("threads", before.threads, after.threads);
#ifndef TIDEMARK_SANITIZED  // a sanitizer opens and maps files of its own when it meets an exception
  compare("descriptors", before.descriptors, after.descriptors);
  compare("file mappings", before.file_mappings, after.file_mappings);
#endif
  return text;
}

}  // namespace tidemark
