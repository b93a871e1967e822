#include "frontend/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "base/log.h"
#include "base/status.h"

namespace tidemark {
namespace {

constexpr int kBacklog = 4096;  // cut by the kernel to net.core.somaxconn

}  // namespace

void UniqueFd::Reset(int fd) {
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

std::string ErrnoText(int error) { return std::generic_category().message(error); }

absl::StatusOr<UniqueFd> ListenTcp(const std::string& address, std::uint16_t port, PortUse use) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_family = address.empty() ? AF_INET : AF_UNSPEC;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(address.empty() ? nullptr : address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(fmt::format("'{}' is no address to listen on: {}", address, gai_strerror(error)));
  }
  const absl::Cleanup free_found = [found] { freeaddrinfo(found); };

  UniqueFd fd(socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return absl::InternalError(fmt::format("no socket for '{}': {}", address, ErrnoText(errno)));
  const int on = 1;
  // SO_REUSEADDR: a restart does not wait for connections of the last run to time out.
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const auto share = [&] { setsockopt(fd.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)); };
  if (use == PortUse::kShared) share();
  if (bind(fd.get(), found->ai_addr, found->ai_addrlen) != 0) {
    if (errno == EADDRINUSE) {
      return absl::AlreadyExistsError(fmt::format("Socket '{}:{}' already in use ", address, port));
    }
    return absl::InvalidArgumentError(
        fmt::format("cannot bind a socket to '{}:{}': {}", address, port, ErrnoText(errno)));
  }
  // Set after the bind, the option lets our own further sockets in but did not let us in beside a stranger's.
  if (use == PortUse::kExclusive) share();
  if (listen(fd.get(), kBacklog) != 0) {
    if (errno == EADDRINUSE) {
      return absl::AlreadyExistsError(fmt::format("Socket '{}:{}' already in use ", address, port));
    }
    return absl::InternalError(fmt::format("cannot listen on '{}:{}': {}", address, port, ErrnoText(errno)));
  }
  return fd;
}

absl::StatusOr<std::uint16_t> LocalPort(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return absl::InternalError(fmt::format("a listening socket has no name: {}", ErrnoText(errno)));
  }
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

bool IsUnixSocket(int fd) {
  int domain = 0;
  socklen_t size = sizeof(domain);
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
}

absl::StatusOr<UnixListener> UnixListener::Create(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(
        fmt::format("'{}' cannot be the path of a UNIX-domain socket: it has {} bytes, "
                    "1 to {} are possible",
                    path, path.size(), sizeof(address.sun_path) - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  const auto* name = reinterpret_cast<const sockaddr*>(&address);

  struct stat file {};
  if (lstat(path.c_str(), &file) == 0) {
    if (!S_ISSOCK(file.st_mode)) {
      return absl::AlreadyExistsError(fmt::format("'{}' exists and is no socket", path));
    }
    const UniqueFd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (connect(probe.get(), name, sizeof(address)) == 0 || errno != ECONNREFUSED) {
      return absl::AlreadyExistsError(fmt::format("Socket '{}' already in use ", path));
    }
    unlink(path.c_str());
  }
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return absl::InternalError(fmt::format("no socket for '{}': {}", path, ErrnoText(errno)));
  if (bind(fd.get(), name, sizeof(address)) != 0) {
    if (errno == EADDRINUSE) return absl::AlreadyExistsError(fmt::format("Socket '{}' already in use ", path));
    return absl::InvalidArgumentError(fmt::format("cannot bind a socket to '{}': {}", path, ErrnoText(errno)));
  }
  if (lstat(path.c_str(), &file) != 0) {
    return absl::InternalError(fmt::format("socket file '{}' vanished: {}", path, ErrnoText(errno)));
  }
  UnixListener listener(std::move(fd), path, file.st_dev, file.st_ino);
  if (listen(listener.fd(), kBacklog) != 0) {
    return absl::InternalError(fmt::format("cannot listen on '{}': {}", path, ErrnoText(errno)));
  }
  return listener;
}

UnixListener::UnixListener(UnixListener&& other) noexcept
    : fd_(std::move(other.fd_)), path_(std::exchange(other.path_, {})), device_(other.device_), inode_(other.inode_) {}

UnixListener::~UnixListener() {
  if (path_.empty()) return;
  struct stat file {};
  if (lstat(path_.c_str(), &file) == 0 && file.st_dev == device_ && file.st_ino == inode_) unlink(path_.c_str());
}

}  // namespace tidemark
