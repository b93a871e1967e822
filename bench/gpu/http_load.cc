#include "bench/gpu/http_load.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <memory>
#include <string_view>
#include <thread>

namespace tidemark::bench {
namespace {

using Clock = std::chrono::steady_clock;

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::string MakeRequest(const HttpLoad& load) {
  std::size_t elements = 1;
  std::string shape;
  for (const std::int64_t d : load.shape) {
    elements *= static_cast<std::size_t>(d);
    shape += (shape.empty() ? "" : ",") + std::to_string(d);
  }
  std::string head = R"({"inputs":[)";
  for (std::size_t i = 0; i < load.inputs.size(); ++i) {
    head += fmt::format(R"({}{{"name":"{}","datatype":"{}","shape":[{}],"parameters":{{"binary_data_size":{}}}}})",
                        i == 0 ? "" : ",", load.inputs[i], load.datatype, shape, elements * 4);
  }
  head += R"(],"parameters":{"binary_data_output":true}})";
  const std::size_t body = head.size() + load.inputs.size() * elements * 4;
  std::string request = fmt::format(
      "POST /v2/models/{}/infer HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
      "Inference-Header-Content-Length: {}\r\nContent-Length: {}\r\n\r\n{}",
      load.model, head.size(), body, head);
  const float real = 1.5F;
  const std::int32_t whole = 1;
  const char* const value =
      load.datatype == "INT32" ? reinterpret_cast<const char*>(&whole) : reinterpret_cast<const char*>(&real);
  for (std::size_t i = 0; i < load.inputs.size() * elements; ++i) request.append(value, 4);
  return request;
}

struct Connection {
  int socket = -1;
  std::size_t sent = 0;
  std::string head;        // of the answer, until its end is there
  std::int64_t left = -1;  // of the answer's body; -1: the head is not complete
  bool ok = false;
  Clock::time_point start;
};

// One thread's share of the connections.
class Client {
 public:
  Client(const HttpLoad& load, const std::string& request, int connections)
      : load_(load), request_(request), epoll_(epoll_create1(0)), connections_(static_cast<std::size_t>(connections)) {}
  ~Client() {
    for (const Connection& connection : connections_) close(connection.socket);
    close(epoll_);
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool Open() {
    for (Connection& connection : connections_) {
      connection.socket = socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(static_cast<std::uint16_t>(load_.port));
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      if (connect(connection.socket, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return false;
      const int one = 1;
      setsockopt(connection.socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      fcntl(connection.socket, F_SETFL, O_NONBLOCK);
      epoll_event event{};
      event.events = EPOLLIN | EPOLLOUT | EPOLLET;
      event.data.ptr = &connection;
      epoll_ctl(epoll_, EPOLL_CTL_ADD, connection.socket, &event);
    }
    return true;
  }

  // Until `end`; what is answered before `from` does not count.
  void Run(Clock::time_point from, Clock::time_point end) {
    for (Connection& connection : connections_) Begin(connection);
    std::vector<epoll_event> events(256);
    while (Clock::now() < end && !broken_) {
      const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 100);
      for (int i = 0; i < count; ++i) {
        auto& connection = *static_cast<Connection*>(events[static_cast<std::size_t>(i)].data.ptr);
        Send(connection);
        Receive(connection, from);
      }
    }
  }

  const std::vector<double>& times() const { return times_; }
  std::int64_t errors() const { return errors_; }
  bool broken() const { return broken_; }

 private:
  void Begin(Connection& connection) {
    connection.sent = 0;
    connection.head.clear();
    connection.left = -1;
    connection.start = Clock::now();
    Send(connection);
  }

  void Send(Connection& connection) {
    while (connection.sent < request_.size()) {
      const ssize_t wrote =
          send(connection.socket, request_.data() + connection.sent, request_.size() - connection.sent, MSG_NOSIGNAL);
      if (wrote <= 0) {
        if (errno != EAGAIN) broken_ = true;
        return;
      }
      connection.sent += static_cast<std::size_t>(wrote);
    }
  }

  void Receive(Connection& connection, Clock::time_point from) {
    while (true) {
      const ssize_t got = recv(connection.socket, buffer_.data(), buffer_.size(), 0);
      if (got == 0) broken_ = true;
      if (got <= 0) return;
      Take(connection, {buffer_.data(), static_cast<std::size_t>(got)});
      if (connection.left != 0) continue;
      const auto now = Clock::now();
      if (connection.start >= from)
        times_.push_back(std::chrono::duration<double, std::micro>(now - connection.start).count());
      if (!connection.ok) ++errors_;
      Begin(connection);
    }
  }

  static void Take(Connection& connection, std::string_view piece) {
    if (connection.left < 0) {
      const std::size_t before = connection.head.size();
      connection.head += piece;
      const std::size_t end = connection.head.find("\r\n\r\n");
      if (end == std::string::npos) return;
      connection.ok = connection.head.find(" 200 ") < 16;
      std::string lower = connection.head.substr(0, end);
      std::transform(lower.begin(), lower.end(), lower.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      const std::size_t at = lower.find("\r\ncontent-length:");
      std::int64_t length = 0;
      if (at != std::string::npos) {
        const char* digits = lower.data() + at + 17;
        while (*digits == ' ') ++digits;
        std::from_chars(digits, lower.data() + lower.size(), length);
      }
      connection.left = length;
      piece.remove_prefix(end + 4 - before);
    }
    connection.left -= static_cast<std::int64_t>(piece.size());
  }

  const HttpLoad& load_;
  const std::string& request_;
  const int epoll_;
  std::vector<Connection> connections_;
  std::string buffer_ = std::string(1 << 18, '\0');
  std::vector<double> times_;
  std::int64_t errors_ = 0;
  bool broken_ = false;
};

}  // namespace

std::string RunHttpLoad(const HttpLoad& load) {
  const std::string request = MakeRequest(load);
  const int threads = std::clamp(load.connections, 1, load.threads);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < threads; ++i) {
    const int share = load.connections / threads + (i < load.connections % threads ? 1 : 0);
    clients.push_back(std::make_unique<Client>(load, request, share));
    if (!clients.back()->Open()) return R"({"error": "cannot connect"})";
  }
  const double cpu = CpuSeconds();
  const auto from = Clock::now() + std::chrono::milliseconds(300);
  const auto end = from + std::chrono::microseconds(static_cast<std::int64_t>(load.seconds * 1e6));
  std::vector<std::thread> running;
  for (const auto& client : clients) running.emplace_back([&client, from, end] { client->Run(from, end); });
  for (std::thread& thread : running) thread.join();
  // Of the time that its threads have: near 1 the client is the limit.
  const double busy = (CpuSeconds() - cpu) / (load.seconds + 0.3) / threads;
  std::vector<double> times;
  std::int64_t errors = 0;
  bool broken = false;
  for (const auto& client : clients) {
    times.insert(times.end(), client->times().begin(), client->times().end());
    errors += client->errors();
    broken = broken || client->broken();
  }
  std::sort(times.begin(), times.end());
  const auto at = [&times](double part) {
    return times.empty()
               ? 0.0
               : times[std::min(times.size() - 1, static_cast<std::size_t>(part * static_cast<double>(times.size())))];
  };
  return fmt::format(
      R"({{"connections": {}, "requests": {}, "per_second": {:.0f}, "p50_us": {:.1f}, "p90_us": {:.1f}, "p99_us": {:.1f}, )"
      R"("errors": {}, "broken": {}, "client_busy": {:.2f}}})",
      load.connections, times.size(), static_cast<double>(times.size()) / load.seconds, at(0.5), at(0.9), at(0.99),
      errors, broken, busy);
}

}  // namespace tidemark::bench
