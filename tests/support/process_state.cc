#include "tests/support/process_state.h"

#include <fmt/format.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/clock.h"

namespace tidemark {

int EntriesOf(const std::string& folder) {
  std::error_code error;
  int count = 0;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) ++count;
  return count;
}

ProcessState ReadProcessState() {
  ProcessState state;
  state.descriptors = EntriesOf("/proc/self/fd") - 1;  // without the one that lists them
  state.threads = EntriesOf("/proc/self/task");
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
  while (EntriesOf("/proc/self/task") > threads && NowNanos() < deadline) sched_yield();
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
  compare("descriptors", before.descriptors, after.descriptors);
  if (after.threads > before.threads) compare("threads", before.threads, after.threads);
#ifndef TIDEMARK_SANITIZED  // a sanitizer maps files of its own when it meets an exception
  compare("file mappings", before.file_mappings, after.file_mappings);
#endif
  return text;
}

}  // namespace tidemark
