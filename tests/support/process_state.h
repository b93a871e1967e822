#pragma once

#include <cstdint>
#include <string>

namespace tidemark {

// What this process holds as the kernel sees it, apart from any ledger.
struct ProcessState {
  int descriptors = 0;
  int threads = 0;                   // without those that have begun to end: a joined one stays in /proc for a moment
  int file_mappings = 0;             // lines of /proc/self/maps with a file behind them
  std::int64_t anonymous_bytes = 0;  // "Anonymous" of /proc/self/smaps_rollup
};

ProcessState ReadProcessState();

// For threads that nobody joins, an engine's: reads until there are at most `threads` (or 5 s have passed).
ProcessState ReadProcessStateWithThreads(int threads);

// The same with the descriptors of `mark`, too: a thread that is reading a file of /proc just then has one more for a moment.
ProcessState ReadProcessStateLike(const ProcessState& mark);

// Entries of a folder.
int EntriesOf(const std::string& folder);

// Empty when descriptors and file mappings of the two are equal and there are no more threads (one that was joined may have
// counted before); else what differs. Under a sanitizer threads only: it opens and maps files of its own.
std::string Difference(const ProcessState& before, const ProcessState& after);

}  // namespace tidemark
