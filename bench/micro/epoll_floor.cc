// The least that answering small requests over HTTP costs on this machine: one thread, one epoll instance, one recv and
// one send for each request, and an answer of 1 KiB that never changes. It understands no more of HTTP than where a
// request ends, so it is a floor to compare with and no server.
//   epoll_floor          prints "port N" for a free port of 127.0.0.1 and serves until it is killed

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

namespace {

struct Connection {
  int fd = -1;
  std::size_t bytes = 0;
  std::array<char, std::size_t{64} << 10> input;
};

// As long as what Tidemark answers to the same request.
std::string MakeAnswer() {
  std::string body = R"({"model_name":"identity","model_version":"1","outputs":[{"name":"OUTPUT0","datatype":"FP32",)"
                     R"("shape":[256],"parameters":{"binary_data_size":1024}}]})";
  std::string head = "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nInference-Header-Content-Length: " +
                     std::to_string(body.size()) + "\r\n";
  body.append(1024, '\0');
  head += "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n";
  return head + body;
}

// Bytes of the first request of `input`; 0 while it is not there as a whole.
std::size_t RequestBytes(std::string_view input) {
  const std::size_t head = input.find("\r\n\r\n");
  if (head == std::string_view::npos) return 0;
  std::size_t length = 0;
  constexpr std::string_view kName = "\r\ncontent-length:";
  for (std::size_t at = 0; at < head; at = input.find("\r\n", at + 2)) {
    const std::string_view rest = input.substr(at, head - at);
    if (rest.size() <= kName.size() || strncasecmp(rest.data(), kName.data(), kName.size()) != 0) continue;
    length = std::strtoul(rest.data() + kName.size(), nullptr, 10);
  }
  const std::size_t whole = head + 4 + length;
  return whole <= input.size() ? whole : 0;
}

// False when the connection is to be closed.
bool Serve(Connection& connection, std::string_view answer) {
  for (;;) {
    const std::size_t room = connection.input.size() - connection.bytes;
    const ssize_t got = recv(connection.fd, connection.input.data() + connection.bytes, room, 0);
    if (got < 0) return errno == EAGAIN;
    if (got == 0) return false;
    connection.bytes += static_cast<std::size_t>(got);
    const std::size_t whole = RequestBytes({connection.input.data(), connection.bytes});
    if (whole == 0 && connection.bytes == connection.input.size()) return false;
    if (whole != 0) {
      if (whole != connection.bytes) return false;  // it does not pipeline
      connection.bytes = 0;
      if (send(connection.fd, answer.data(), answer.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(answer.size())) {
        return false;
      }
    }
    if (static_cast<std::size_t>(got) < room) return true;  // the socket is empty: the next edge tells
  }
}

int Listen(int epoll) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener, 128) != 0) return -1;
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  epoll_event event{};
  event.events = EPOLLIN;
  epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
  std::printf("port %d\n", ntohs(address.sin_port));
  std::fflush(stdout);
  return listener;
}

void Accept(int epoll, int listener) {
  auto connection = std::make_unique<Connection>();
  connection->fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK);
  if (connection->fd < 0) return;
  const int on = 1;
  setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
  event.data.ptr = connection.get();
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, connection->fd, &event) == 0) {
    static_cast<void>(connection.release());  // epoll's now; see below
  } else {
    close(connection->fd);
  }
}

}  // namespace

int main() {
  const std::string answer = MakeAnswer();
  const int epoll = epoll_create1(0);
  const int listener = Listen(epoll);
  if (listener < 0) {
    std::perror("epoll_floor: no port");
    return 1;
  }
  std::array<epoll_event, 64> events;
  for (;;) {
    const int count = epoll_wait(epoll, events.data(), static_cast<int>(events.size()), -1);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count > 0 ? count : 0); ++i) {
      if (events[i].data.ptr == nullptr) {
        Accept(epoll, listener);
        continue;
      }
      auto* const connection = static_cast<Connection*>(events[i].data.ptr);
      if (Serve(*connection, answer)) continue;
      close(connection->fd);
      const std::unique_ptr<Connection> done(connection);
    }
  }
}
