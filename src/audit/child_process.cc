#include "audit/child_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "base/status.h"

namespace tidemark::audit {
namespace {

absl::Status Failed(std::string_view what, int error) { return absl::ErrnoToStatus(error, std::string(what)); }

// Runs in the child between fork and exec: async-signal-safe calls only. Returns only when exec failed.
void ExecChild(char* const* arguments, int log, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int signal_number : {SIGINT, SIGTERM, SIGPIPE}) signal(signal_number, SIG_DFL);
  const int empty = open("/dev/null", O_RDONLY);
  if (empty >= 0) dup2(empty, STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execvp(arguments[0], arguments);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> SplitCommand(std::string_view command) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (std::size_t i = 0; i < command.size(); ++i) {
    const char c = command[i];
    if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else if (c == '\\' && quote == '"' && i + 1 < command.size() &&
                 (command[i + 1] == '"' || command[i + 1] == '\\')) {
        word += command[++i];
      } else {
        word += c;
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
      in_word = true;
    } else if (c == '\\' && i + 1 < command.size()) {
      word += command[++i];
      in_word = true;
    } else if (c == ' ' || c == '\t' || c == '\n') {
      if (in_word) words.push_back(std::move(word));
      word.clear();
      in_word = false;
    } else {
      word += c;
      in_word = true;
    }
  }
  if (quote != 0) return absl::InvalidArgumentError(fmt::format("unclosed {} in the command: {}", quote, command));
  if (in_word) words.push_back(std::move(word));
  if (words.empty()) return absl::InvalidArgumentError("the command is empty");
  return words;
}

absl::StatusOr<int> PickFreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return Failed("no socket", errno);
  absl::Cleanup closer = [fd] { close(fd); };
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(fd, generic, size) != 0 || getsockname(fd, generic, &size) != 0) return Failed("no free port", errno);
  return ntohs(address.sin_port);
}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(const std::vector<std::string>& command,
                                                                  const std::filesystem::path& log) {
  const int log_fd = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log_fd < 0) return Failed(fmt::format("cannot write {}", log.string()), errno);
  absl::Cleanup close_log = [log_fd] { close(log_fd); };
  int report[2];  // closed by a successful exec, else it carries errno
  if (pipe2(report, O_CLOEXEC) != 0) return Failed("no pipe", errno);
  absl::Cleanup close_read = [fd = report[0]] { close(fd); };

  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);

  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    ExecChild(arguments.data(), log_fd, parent);
    const int error = errno;
    (void)!write(report[1], &error, sizeof(error));
    _exit(127);
  }
  const int fork_error = errno;
  close(report[1]);
  if (pid < 0) return Failed("cannot fork", fork_error);

  int error = 0;
  ssize_t got;
  do {
    got = read(report[0], &error, sizeof(error));
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof(error))) {
    waitpid(pid, nullptr, 0);
    return Failed(fmt::format("cannot run '{}'", command[0]), error);
  }
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (pidfd < 0) {
    error = errno;
    kill(-pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return Failed("cannot watch the child process", error);
  }
  fcntl(pidfd, F_SETFD, FD_CLOEXEC);
  return std::unique_ptr<ChildProcess>(new ChildProcess(pid, pidfd));
}

ChildProcess::~ChildProcess() {
  Stop(std::chrono::milliseconds(0));
  close(pidfd_);
}

bool ChildProcess::WaitForExit(std::chrono::milliseconds limit) {
  if (status_.has_value()) return true;
  pollfd ended = {pidfd_, POLLIN, 0};
  if (poll(&ended, 1, static_cast<int>(limit.count())) <= 0) return false;
  int status = 0;
  if (waitpid(pid_, &status, 0) != pid_) return false;
  status_ = status;
  return true;
}

std::optional<std::string> ChildProcess::ExitText() const {
  if (!status_.has_value()) return std::nullopt;
  if (WIFSIGNALED(*status_)) {
    return fmt::format("signal {} ({})", WTERMSIG(*status_), strsignal(WTERMSIG(*status_)));
  }
  return fmt::format("exit code {}", WEXITSTATUS(*status_));
}

std::string ChildProcess::Stop(std::chrono::milliseconds grace) {
  if (!WaitForExit(std::chrono::milliseconds(0))) {
    if (grace.count() > 0) {
      kill(pid_, SIGTERM);
      WaitForExit(grace);
    }
  }
  const bool killed = !status_.has_value();
  // What the child left behind in its group ends too; the group's number stays ours until we have waited for the child,
  // and after that as long as a member lives.
  kill(-pid_, SIGKILL);
  if (killed) WaitForExit(std::chrono::milliseconds(-1));
  const std::string how = ExitText().value_or("unknown");
  return killed && grace.count() > 0 ? fmt::format("{}, after {} ms of grace", how, grace.count()) : how;
}

}  // namespace tidemark::audit
