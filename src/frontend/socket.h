#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"

namespace tidemark {

// Owns one descriptor. Not thread-safe.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) Reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { Reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void Reset(int fd = -1);
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// The text of an errno value ("Connection refused"), thread-safe.
std::string ErrnoText(int error);

// Who may have the port of a listening socket. In both cases later sockets of this user may share it (kShared).
enum class PortUse {
  kExclusive,  // nobody has it now
  kShared,     // others with SO_REUSEPORT may have it already
};

// A non-blocking TCP listening socket on `address` (a numeric IPv4 or IPv6 address, a host name, or empty for all IPv4
// interfaces) and `port` (0: any free one). INVALID_ARGUMENT for an address that is none; ALREADY_EXISTS with Triton's
// text "Socket 'A:P' already in use ".
absl::StatusOr<UniqueFd> ListenTcp(const std::string& address, std::uint16_t port, PortUse use);

// The port a TCP socket is bound to.
absl::StatusOr<std::uint16_t> LocalPort(int fd);

// Whether a socket is a UNIX-domain one. False for what is no socket.
bool IsUnixSocket(int fd);

// A listening UNIX-domain stream socket and its file. The file is deleted on destruction, if it is still ours.
class UnixListener {
 public:
  // A stale socket file (nobody listens) is replaced. ALREADY_EXISTS when somebody listens there or the file is no
  // socket; INVALID_ARGUMENT when the path is too long for a socket address (107 bytes).
  static absl::StatusOr<UnixListener> Create(const std::string& path);
  UnixListener(UnixListener&& other) noexcept;
  UnixListener& operator=(UnixListener&&) = delete;
  ~UnixListener();

  int fd() const { return fd_.get(); }

 private:
  UnixListener(UniqueFd fd, std::string path, std::uint64_t device, std::uint64_t inode)
      : fd_(std::move(fd)), path_(std::move(path)), device_(device), inode_(inode) {}

  UniqueFd fd_;
  std::string path_;
  std::uint64_t device_ = 0;
  std::uint64_t inode_ = 0;
};

}  // namespace tidemark
