#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tidemark::audit {

// Splits a command line into words as a shell does: blanks separate; '…', "…" and backslash quote. No expansions: a
// command that needs them is given as sh -c '…'. INVALID_ARGUMENT for an unclosed quote or no words at all.
absl::StatusOr<std::vector<std::string>> SplitCommand(std::string_view command);

// A TCP port of the loopback interface that nothing used a moment ago.
absl::StatusOr<int> PickFreePort();

// A program that we started, in a process group of its own. It receives SIGTERM should we die. Used by one thread, the
// one that started it.
class ChildProcess {
 public:
  // Starts `command` (looked up in PATH) with its output and errors going to the end of `log` and its input empty.
  // NOT_FOUND, PERMISSION_DENIED, … when it cannot be started at all.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const std::vector<std::string>& command,
                                                             const std::filesystem::path& log);
  // Kills the whole group, if it still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  int pid() const { return pid_; }

  // Waits up to `limit` for the end; true when it has ended. Never blocks with a limit of 0.
  bool WaitForExit(std::chrono::milliseconds limit);

  // "exit code 3", "signal 11 (Segmentation fault)"; nullopt while it runs.
  std::optional<std::string> ExitText() const;

  // SIGTERM, and SIGKILL to the whole group if it has not ended after `grace`. Says how it ended.
  std::string Stop(std::chrono::milliseconds grace);

 private:
  ChildProcess(int pid, int pidfd) : pid_(pid), pidfd_(pidfd) {}

  int pid_;
  int pidfd_;
  std::optional<int> status_;  // as wait() gives it
};

}  // namespace tidemark::audit
