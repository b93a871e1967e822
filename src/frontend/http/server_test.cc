#include "frontend/http/server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/status.h"
#include "tests/support/real_platform.h"

namespace tidemark {
namespace {

using std::chrono::milliseconds;

struct Reply {
  int status = 0;
  std::string head;
  std::string body;
};

// A blocking client.
class Client {
 public:
  explicit Client(std::uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  explicit Client(const std::string& path) : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    connected_ = connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  bool connected() const { return connected_; }
  int fd() const { return fd_.get(); }
  void Close() { fd_.Reset(); }

  bool Send(std::string_view data) {
    while (!data.empty()) {
      const ssize_t sent = send(fd_.get(), data.data(), data.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      data.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  // Reads until the buffer holds `size` bytes; false at the end of file.
  bool Fill(std::size_t size) {
    std::vector<char> chunk(1 << 20);
    while (buffer_.size() < size) {
      const ssize_t got = recv(fd_.get(), chunk.data(), chunk.size(), 0);
      if (got <= 0) return false;
      buffer_.append(chunk.data(), static_cast<std::size_t>(got));
    }
    return true;
  }
  std::string Take(std::size_t size) {
    std::string text = buffer_.substr(0, size);
    buffer_.erase(0, size);
    return text;
  }
  Reply Read(bool head_only = false) {
    Reply reply;
    std::size_t end = 0;
    while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
      if (!Fill(buffer_.size() + 1)) return reply;
    }
    reply.head = Take(end + 4);
    reply.status = std::stoi(reply.head.substr(9, 3));
    const std::size_t length = reply.head.find("Content-Length: ");
    if (length == std::string::npos || head_only) return reply;
    const std::size_t size = std::stoul(reply.head.substr(length + 16));
    if (!Fill(size)) return {};
    reply.body = Take(size);
    return reply;
  }
  Reply Ask(std::string_view data) {
    Send(data);
    return Read();
  }
  // Whether there is something to read, or the end.
  bool Readable() const {
    pollfd event{fd_.get(), POLLIN, 0};
    return poll(&event, 1, 0) > 0;
  }
  // True when the server has closed and nothing but that is left to read.
  bool AtEnd() { return buffer_.empty() && !Fill(1); }

 private:
  UniqueFd fd_;
  bool connected_ = false;
  std::string buffer_;
};

using Function = std::function<void(HttpRequest&, ResponseSender)>;

struct Handler : HttpHandler {
  Function f;
  void Handle(HttpRequest& request, ResponseSender sender) override { f(request, std::move(sender)); }
};

void Echo(HttpRequest& request, ResponseSender sender) {
  HttpResponse response;
  std::string text = sender.TakeSpareString();
  text += request.method_name();
  text += ' ';
  text += request.path();
  text += ' ';
  response.Append(std::move(text));
  const std::span<std::byte> body = request.body();
  response.Append(request.TakeBody(), body);
  sender.Send(std::move(response));
}

class HttpServerTest : public testing::Test {
 protected:
  void Start(Function f, HttpServerOptions options = {}, std::size_t loops = 1) {
    handler_.f = std::move(f);
    if (options.port.has_value()) options.port = 0;
    options.address = "127.0.0.1";
    std::vector<EventLoop*> pointers;
    for (std::size_t i = 0; i < loops; ++i) {
      loops_.push_back(EventLoop::Create([this] { return clock_.load(); }).value());
      pointers.push_back(loops_.back().get());
    }
    auto server = HttpServer::Create(options, pointers, &handler_, &pool_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    server_->Start();
    for (const auto& loop : loops_) threads_.emplace_back([&loop] { loop->Run(); });
  }
  ~HttpServerTest() override {
    server_.reset();
    for (const auto& loop : loops_) loop->Stop();
    for (std::thread& thread : threads_) thread.join();
    for (std::thread& thread : helpers_) thread.join();
    loops_.clear();
    EXPECT_EQ(pool_.used_bytes(), 0u);
  }
  // Runs the timers of all loops at a later time.
  void Advance(milliseconds time) {
    clock_ += std::chrono::nanoseconds(time).count();
    for (int round = 0; round < 2; ++round) OnLoops([] {});
  }
  void OnLoops(const std::function<void()>& f) {
    for (const auto& loop : loops_) {
      absl::Notification done;
      loop->Post([&] {
        f();
        done.Notify();
      });
      done.WaitForNotification();
    }
  }
  Client Connect() { return Client(server_->port()); }
  // Waits until the connections are down to `count`; spins on the loops, not on time.
  void AwaitConnections(std::size_t count) {
    while (server_->connections() != count) OnLoops([] {});
  }

  std::unique_ptr<Platform> platform_ = CreateLinuxPlatform();
  BufferPool pool_{*platform_};
  Handler handler_;
  std::atomic<std::int64_t> clock_{1};
  std::vector<std::unique_ptr<EventLoop>> loops_;
  std::vector<std::thread> threads_;
  std::vector<std::thread> helpers_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersWithTritonsDefaultHeaders) {
  Start(Echo);
  Client client = Connect();
  const Reply reply = client.Ask("GET /a HTTP/1.1\r\n\r\n");
  EXPECT_EQ(reply.head, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 7\r\n\r\n");
  EXPECT_EQ(reply.body, "GET /a ");
}

TEST_F(HttpServerTest, KeepAliveFollowsTheRequest) {
  Start(Echo);
  Client client = Connect();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client.Ask("GET /a HTTP/1.1\r\n\r\n").body, "GET /a ");
  const Reply last = client.Ask("GET /a HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_NE(last.head.find("\r\nConnection: close\r\n"), std::string::npos);
  EXPECT_TRUE(client.AtEnd());

  Client old = Connect();
  EXPECT_NE(old.Ask("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").head.find("\r\nConnection: keep-alive\r\n"),
            std::string::npos);
  EXPECT_EQ(old.Ask("GET /a HTTP/1.0\r\n\r\n").status, 200);
  EXPECT_TRUE(old.AtEnd());
}

TEST_F(HttpServerTest, HeadIsAnsweredWithoutABody) {
  Start(Echo);
  Client client = Connect();
  client.Send("HEAD /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n");
  EXPECT_NE(client.Read(true).head.find("Content-Length: 8\r\n"), std::string::npos);
  EXPECT_EQ(client.Read().body, "GET /b ");
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  Start(Echo);
  Client client = Connect();
  std::string all;
  for (int i = 0; i < 1000; ++i) {
    all += "POST /" + std::to_string(i) + " HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc";
  }
  std::thread writer([&] { client.Send(all); });
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(client.Read().body, "POST /" + std::to_string(i) + " abc");
  writer.join();
}

TEST_F(HttpServerTest, PipelinedRequestsAreHandledOneAtATime) {
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  std::vector<ResponseSender> senders;
  absl::Mutex mutex;
  Start([&](HttpRequest&, ResponseSender sender) {
    most = std::max(most.load(), ++inside);
    absl::MutexLock lock(&mutex);
    senders.push_back(std::move(sender));
  });
  Client client = Connect();
  client.Send("GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\nGET /3 HTTP/1.1\r\n\r\n");
  for (int i = 0; i < 3; ++i) {
    ResponseSender sender;
    const auto one = [&] { return !senders.empty(); };
    {
      absl::MutexLock lock(&mutex);
      mutex.Await(absl::Condition(&one));
      ASSERT_EQ(senders.size(), 1u);
      sender = std::move(senders.back());
      senders.pop_back();
    }
    --inside;
    HttpResponse response(200 + i);
    sender.Send(std::move(response));
    EXPECT_EQ(client.Read().status, 200 + i);
  }
  EXPECT_EQ(most, 1);
}

TEST_F(HttpServerTest, RequestsMayBeSplitAnywhere) {
  Start(Echo);
  const std::string fixed = "POST /f HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello";
  const std::string chunked = "POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n";
  for (const std::string& request : {fixed, chunked}) {
    for (std::size_t split = 1; split < request.size(); ++split) {
      Client client = Connect();
      client.Send(std::string_view(request).substr(0, split));
      OnLoops([] {});
      OnLoops([] {});
      EXPECT_EQ(client.Ask(std::string_view(request).substr(split)).body.substr(8), "hello") << split;
      EXPECT_EQ(client.Ask("GET /x HTTP/1.1\r\n\r\n").body, "GET /x ");
    }
  }
}

TEST_F(HttpServerTest, LargeBodiesArriveWholeAlignedAndPadded) {
  std::atomic<bool> aligned{true};
  std::atomic<bool> padded{true};
  Start([&](HttpRequest& request, ResponseSender sender) {
    const std::size_t header = ParseDecimal(request.Find("inference-header-content-length").value_or("0")).value();
    if (reinterpret_cast<std::uintptr_t>(request.body().data() + header) % 64 != 0) aligned = false;
    for (std::size_t i = 0; i < 64; ++i) {
      if (request.body().data()[request.body().size() + i] != std::byte{0}) padded = false;
    }
    Echo(request, std::move(sender));
  });
  for (const std::size_t size : {std::size_t{1}, std::size_t{1000}, std::size_t{150528}, std::size_t{64} << 20}) {
    std::string body(size, '\0');
    for (std::size_t i = 0; i < size; i += 997) body[i] = static_cast<char>(i);
    const std::string fields =
        "POST / HTTP/1.1\r\nInference-Header-Content-Length: " + std::to_string(size / 3) + "\r\n";
    std::string chunked = fields + "Transfer-Encoding: chunked\r\n\r\n";
    for (std::size_t at = 0; at < size; at += 3'000'017) {
      const std::size_t piece = std::min<std::size_t>(3'000'017, size - at);
      chunked += fmt::format("{:x}\r\n", piece);
      chunked.append(body, at, piece);
      chunked += "\r\n";
    }
    chunked += "0\r\n\r\n";
    const std::string fixed = fields + "Content-Length: " + std::to_string(size) + "\r\n\r\n" + body;
    for (const std::string& request : {fixed, chunked}) {
      Client client = Connect();
      std::thread writer([&] { client.Send(request); });
      const Reply reply = client.Read();
      writer.join();
      EXPECT_EQ(reply.status, 200);
      EXPECT_TRUE(reply.body.substr(7) == body) << size;
    }
  }
  EXPECT_TRUE(aligned);
  EXPECT_TRUE(padded);
}

TEST_F(HttpServerTest, TensorsBehindABinaryContentTypeAreAligned) {
  std::atomic<bool> aligned{true};
  HttpServerOptions options;
  options.binary_type = "a/b;n=";
  Start(
      [&](HttpRequest& request, ResponseSender sender) {
        const std::size_t json = ParseDecimal(request.Find("content-type").value().substr(6)).value();
        if (reinterpret_cast<std::uintptr_t>(request.body().data() + json) % 64 != 0) aligned = false;
        Echo(request, std::move(sender));
      },
      options);
  Client client = Connect();
  for (const std::size_t json : {1U, 77U, 64U, 100U}) {
    const std::string reply =
        client
            .Ask(fmt::format("POST / HTTP/1.1\r\nContent-Type: a/b;n={}\r\nContent-Length: 100\r\n\r\n{:100}", json,
                             ' '))
            .body;
    EXPECT_EQ(reply.size(), 107u);
  }
  EXPECT_TRUE(aligned);
}

TEST_F(HttpServerTest, ExpectIsAnsweredBeforeTheBody) {
  Start(Echo);
  Client client = Connect();
  client.Send("POST / HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
  ASSERT_TRUE(client.Fill(25));
  EXPECT_EQ(client.Take(25), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_EQ(client.Ask("hello").body, "POST / hello");
  EXPECT_EQ(client.Ask("POST / HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello").status, 200);
}

TEST_F(HttpServerTest, RefusalsAreJsonAndClose) {
  HttpServerOptions options;
  options.limits.head_bytes = 2000;
  options.limits.body_bytes = 100;
  Start(Echo, options);
  const std::vector<std::pair<std::string, int>> cases = {
      {"GET / HTTP/1.1\nA: b\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" + std::string(101, 'a'), 413},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n60\r\n" + std::string(96, 'a') + "\r\n5\r\n", 413},
      {"POST / HTTP/1.1\r\nContent-Length: 101\r\nExpect: 100-continue\r\n\r\n", 413},
      {"POST / HTTP/1.1\r\nContent-Length: 5000000\r\n\r\n" + std::string(200000, 'a'), 413},
      {"GET /" + std::string(3000, 'a'), 431},
      {"GET / HTTP/3.0\r\n\r\n", 505},
      {"GET / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 501},
  };
  for (const auto& [request, status] : cases) {
    Client client = Connect();
    const Reply reply = client.Ask(request);
    EXPECT_EQ(reply.status, status) << request.substr(0, 80);
    EXPECT_NE(reply.head.find("Connection: close\r\n"), std::string::npos);
    EXPECT_NE(reply.head.find("Content-Type: application/json\r\n"), std::string::npos);
    EXPECT_EQ(reply.body.rfind("{\"error\":\"", 0), 0u);
    EXPECT_TRUE(client.AtEnd());
  }
}

TEST_F(HttpServerTest, AnswersComeFromOtherThreads) {
  Start([this](HttpRequest& request, ResponseSender sender) {
    helpers_.emplace_back([&request, sender = std::move(sender)]() mutable { Echo(request, std::move(sender)); });
  });
  Client client = Connect();
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(client.Ask("POST /" + std::to_string(i) + " HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc").body,
              "POST /" + std::to_string(i) + " abc");
  }
}

TEST_F(HttpServerTest, DroppedSenderAnswers500AndCloses) {
  Start([](HttpRequest&, ResponseSender) {});
  Client client = Connect();
  EXPECT_EQ(client.Ask("GET / HTTP/1.1\r\n\r\n").status, 500);
  EXPECT_TRUE(client.AtEnd());
}

TEST_F(HttpServerTest, ClientGoingAwayIsToldAndItsRequestStaysReadable) {
  absl::Notification handling;
  absl::Notification gone;
  ResponseSender kept;
  HttpRequest* request = nullptr;
  Start([&](HttpRequest& r, ResponseSender sender) {
    sender.OnDisconnect([&gone] { gone.Notify(); });
    kept = std::move(sender);
    request = &r;
    handling.Notify();
  });
  Client client = Connect();
  client.Send("POST /abc HTTP/1.1\r\nX: y\r\nContent-Length: 2\r\n\r\nhi");
  handling.WaitForNotification();
  EXPECT_FALSE(kept.disconnected());
  const linger reset{1, 0};
  setsockopt(client.fd(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  client.Close();
  gone.WaitForNotification();
  EXPECT_TRUE(kept.disconnected());
  server_->Stop(milliseconds(0));  // cuts the connection; the handler still has its request
  EXPECT_EQ(request->path(), "/abc");
  EXPECT_EQ(request->Find("x"), "y");
  EXPECT_EQ(request->body_text(), "hi");
  Echo(*request, std::move(kept));
}

TEST_F(HttpServerTest, NoDisconnectIsToldAfterTheAnswer) {
  std::atomic<int> told{0};
  Start([&](HttpRequest& request, ResponseSender sender) {
    sender.OnDisconnect([&told] { ++told; });
    Echo(request, std::move(sender));
  });
  {
    Client client = Connect();
    EXPECT_EQ(client.Ask("GET / HTTP/1.1\r\n\r\n").status, 200);
  }
  AwaitConnections(0);
  EXPECT_EQ(told, 0);
}

TEST_F(HttpServerTest, HalfClosedClientStillGetsItsAnswer) {
  Start(Echo);
  Client client = Connect();
  client.Send("GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n");
  shutdown(client.fd(), SHUT_WR);
  EXPECT_EQ(client.Read().body, "GET /a ");
  EXPECT_EQ(client.Read().body, "GET /b ");
  EXPECT_TRUE(client.AtEnd());
}

TEST_F(HttpServerTest, SlowHeadIsEvictedAndIdleConnectionIsNot) {
  Start(Echo);
  Client idle = Connect();
  Client slow = Connect();
  EXPECT_EQ(idle.Ask("GET / HTTP/1.1\r\n\r\n").status, 200);
  EXPECT_EQ(slow.Ask("GET / HTTP/1.1\r\n\r\nGET /").status, 200);
  Advance(milliseconds(29'000));
  slow.Send("a");  // a byte now and then does not help
  Advance(milliseconds(2'000));
  EXPECT_EQ(slow.Read().status, 408);
  EXPECT_TRUE(slow.AtEnd());
  Advance(milliseconds(10'000'000));
  EXPECT_EQ(idle.Ask("GET / HTTP/1.1\r\n\r\n").status, 200);
}

TEST_F(HttpServerTest, IdleTimeoutClosesSilently) {
  HttpServerOptions options;
  options.limits.idle_timeout = milliseconds(1000);
  Start(Echo, options);
  Client fresh = Connect();
  Client used = Connect();
  EXPECT_EQ(used.Ask("GET / HTTP/1.1\r\n\r\n").status, 200);
  AwaitConnections(2);
  Advance(milliseconds(1001));
  EXPECT_TRUE(fresh.AtEnd());
  EXPECT_TRUE(used.AtEnd());
}

TEST_F(HttpServerTest, SlowBodyIsEvictedWhenAWindowBringsTooLittle) {
  Start(Echo);
  Client client = Connect();
  client.Send("POST / HTTP/1.1\r\nContent-Length: 100000\r\nExpect: 1\r\n\r\n");
  ASSERT_TRUE(client.Fill(25));
  client.Take(25);
  client.Send(std::string(20000, 'a'));
  while (pool_.used_bytes() == 0) OnLoops([] {});
  OnLoops([] {});
  Advance(milliseconds(30'001));  // enough arrived
  client.Send("b");
  Advance(milliseconds(30'001));
  EXPECT_EQ(client.Read().status, 408);
  EXPECT_TRUE(client.AtEnd());
}

TEST_F(HttpServerTest, ClientThatReadsNothingIsCut) {
  Start([](HttpRequest&, ResponseSender sender) {
    HttpResponse response;
    response.Append(std::string(64 << 20, 'a'));
    sender.Send(std::move(response));
  });
  Client client = Connect();
  client.Send("GET / HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(client.Fill(1));
  AwaitConnections(1);
  for (int i = 0; i < 100 && server_->connections() > 0; ++i) Advance(milliseconds(30'001));
  EXPECT_EQ(server_->connections(), 0u);
  EXPECT_EQ(client.Read().status, 0);  // shorter than announced
}

TEST_F(HttpServerTest, ConnectionsBeyondTheLimitAreRefused) {
  HttpServerOptions options;
  options.limits.connections = 2;
  Start(Echo, options);
  Client a = Connect();
  EXPECT_EQ(a.Ask("GET / HTTP/1.1\r\n\r\n").status, 200);
  Client b = Connect();
  EXPECT_EQ(b.Ask("GET / HTTP/1.1\r\n\r\n").status, 200);
  Client c = Connect();
  EXPECT_EQ(c.Read().status, 503);
  EXPECT_TRUE(c.AtEnd());
  c.Close();
  a.Close();
  AwaitConnections(1);
  Client d = Connect();
  EXPECT_EQ(d.Ask("GET / HTTP/1.1\r\n\r\n").status, 200);
}

TEST_F(HttpServerTest, BodyWaitsForMemoryAndIsRefusedInTheEnd) {
  BufferPool small(*platform_, {.limit_bytes = 1 << 20, .cached_per_class = 0, .cached_large_bytes = 0});
  handler_.f = Echo;
  loops_.push_back(EventLoop::Create([this] { return clock_.load(); }).value());
  HttpServerOptions options;
  options.port = 0;
  server_ = HttpServer::Create(options, {loops_[0].get()}, &handler_, &small).value();
  server_->Start();
  threads_.emplace_back([this] { loops_[0]->Run(); });

  absl::StatusOr<Buffer> hog = small.Allocate(900 * 1024);
  ASSERT_TRUE(hog.ok());
  const std::string request = "POST / HTTP/1.1\r\nContent-Length: 500000\r\n\r\n" + std::string(500000, 'a');
  Client waits = Connect();
  std::thread writer([&] { waits.Send(request); });
  AwaitConnections(1);
  Advance(milliseconds(9'000));
  hog->Reset();
  Advance(milliseconds(10));
  EXPECT_EQ(waits.Read().status, 200);
  writer.join();

  do {  // the loop may still be letting go of the answer that has just been read
    hog = small.Allocate(900 * 1024);
  } while (!hog.ok());
  Client refused = Connect();
  refused.Send(request.substr(0, 1000));
  AwaitConnections(2);
  while (!refused.Readable()) Advance(milliseconds(10'001));  // whenever its head has come
  EXPECT_EQ(refused.Read().status, 503);
  server_.reset();
}

TEST_F(HttpServerTest, StopFinishesWhatIsInFlight) {
  absl::Notification handling;
  ResponseSender kept;
  Start([&](HttpRequest& request, ResponseSender sender) {
    if (request.path() == "/now") return Echo(request, std::move(sender));
    kept = std::move(sender);
    handling.Notify();
  });
  Client idle = Connect();
  EXPECT_EQ(idle.Ask("GET /now HTTP/1.1\r\n\r\n").status, 200);
  Client busy = Connect();
  busy.Send("GET /later HTTP/1.1\r\n\r\n");
  handling.WaitForNotification();
  bool ended = false;
  std::thread stopper([&] { ended = server_->Stop(milliseconds(60'000)); });
  EXPECT_TRUE(idle.AtEnd());
  EXPECT_FALSE(Connect().connected());
  kept.Send(HttpResponse(200));
  const Reply reply = busy.Read();
  EXPECT_EQ(reply.status, 200);
  EXPECT_NE(reply.head.find("Connection: close\r\n"), std::string::npos);
  EXPECT_TRUE(busy.AtEnd());
  stopper.join();
  EXPECT_TRUE(ended);
}

TEST_F(HttpServerTest, StopCutsAtTheDeadlineAndLateAnswersAreDropped) {
  absl::Notification handling;
  ResponseSender kept;
  Start([&](HttpRequest&, ResponseSender sender) {
    kept = std::move(sender);
    handling.Notify();
  });
  Client busy = Connect();
  busy.Send("GET / HTTP/1.1\r\n\r\n");
  handling.WaitForNotification();
  EXPECT_FALSE(server_->Stop(milliseconds(1)));
  EXPECT_TRUE(busy.AtEnd());
  server_.reset();
  kept.Send(HttpResponse(200));
}

TEST_F(HttpServerTest, ConnectionsAreSpreadEvenlyOverTheLoops) {
  absl::Mutex mutex;
  std::map<std::thread::id, int> counts;
  Start(
      [&](HttpRequest& request, ResponseSender sender) {
        {
          absl::MutexLock lock(&mutex);
          ++counts[std::this_thread::get_id()];
        }
        Echo(request, std::move(sender));
      },
      {}, 3);
  std::vector<Client> clients;
  for (int i = 0; i < 12; ++i) {
    clients.push_back(Connect());
    EXPECT_EQ(clients.back().Ask("GET / HTTP/1.1\r\n\r\n").status, 200);
  }
  ASSERT_EQ(counts.size(), 3u);
  for (const auto& [thread, count] : counts) EXPECT_EQ(count, 4);
}

TEST_F(HttpServerTest, ServesAUnixSocketAndRemovesItsFile) {
  HttpServerOptions options;
  options.unix_path = testing::TempDir() + "tidemark_http_" + std::to_string(getpid()) + ".sock";
  options.port.reset();
  Start(Echo, options, 2);
  Client client(options.unix_path);
  ASSERT_TRUE(client.connected());
  EXPECT_EQ(client.Ask("GET /u HTTP/1.1\r\n\r\n").body, "GET /u ");
  const auto second = UnixListener::Create(options.unix_path);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  server_.reset();
  struct stat file {};
  EXPECT_NE(stat(options.unix_path.c_str(), &file), 0);
}

TEST_F(HttpServerTest, PortInUseIsRefusedWithTritonsText) {
  Start(Echo, {}, 2);
  HttpServerOptions options;
  options.address = "127.0.0.1";
  options.port = server_->port();
  const auto second = HttpServer::Create(options, {loops_[0].get()}, &handler_, &pool_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(MessageOf(second.status()), fmt::format("Socket '127.0.0.1:{}' already in use ", server_->port()));
}

TEST_F(HttpServerTest, StreamLeavesAsChunksAndTheConnectionGoesOn) {
  Start([](HttpRequest& request, ResponseSender sender) {
    if (request.path() == "/plain") return Echo(request, std::move(sender));
    ResponseStream stream = sender.Begin(HttpResponse(200));
    EXPECT_TRUE(stream.Write("ab"));
    EXPECT_TRUE(stream.Write(""));
    EXPECT_TRUE(stream.Write(std::string(20, 'c')));
    stream.End();
  });
  Client client = Connect();
  client.Send("GET /s HTTP/1.1\r\n\r\nGET /plain HTTP/1.1\r\n\r\n");
  EXPECT_EQ(client.Read(true).head,
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string chunks = "2\r\nab\r\n14\r\n" + std::string(20, 'c') + "\r\n0\r\n\r\n";
  ASSERT_TRUE(client.Fill(chunks.size()));
  EXPECT_EQ(client.Take(chunks.size()), chunks);
  EXPECT_EQ(client.Read().body, "GET /plain ");

  Client old = Connect();
  old.Send("GET /s HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(old.Read(true).head, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n");
  ASSERT_TRUE(old.Fill(22));
  EXPECT_EQ(old.Take(22), "ab" + std::string(20, 'c'));
  EXPECT_TRUE(old.AtEnd());
}

TEST_F(HttpServerTest, PieceArrivesBeforeTheNextIsMade) {
  absl::Notification read;
  Start([&](HttpRequest& /*request*/, ResponseSender sender) {
    helpers_.emplace_back([&read, sender = std::move(sender)]() mutable {
      ResponseStream stream = sender.Begin(HttpResponse(200));
      stream.Write("first");
      read.WaitForNotification();
      stream.Write("second");
      stream.End();
    });
  });
  Client client = Connect();
  client.Send("GET /s HTTP/1.1\r\n\r\n");
  client.Read(true);
  ASSERT_TRUE(client.Fill(10));
  EXPECT_EQ(client.Take(10), "5\r\nfirst\r\n");
  read.Notify();
  ASSERT_TRUE(client.Fill(16));
  EXPECT_EQ(client.Take(16), "6\r\nsecond\r\n0\r\n\r\n");
}

TEST_F(HttpServerTest, SlowReaderOfAStreamIsCutAtItsLimit) {
  HttpServerOptions options;
  options.limits.stream_bytes = 64 << 10;
  absl::Notification cut;
  Start(
      [&](HttpRequest& request, ResponseSender sender) {
        if (request.path() == "/plain") return Echo(request, std::move(sender));
        helpers_.emplace_back([&cut, sender = std::move(sender)]() mutable {
          ResponseStream stream = sender.Begin(HttpResponse(200));
          while (stream.Write(std::string(4096, 'x'))) {
          }
          cut.Notify();
          EXPECT_FALSE(stream.Write("more"));
          stream.End();
        });
      },
      options);
  Client client = Connect();
  client.Send("GET /s HTTP/1.1\r\n\r\n");
  cut.WaitForNotification();  // what the kernel's buffers and the limit hold, and no more
  AwaitConnections(0);
  Client other = Connect();
  EXPECT_EQ(other.Ask("GET /plain HTTP/1.1\r\n\r\n").body, "GET /plain ");
}

TEST_F(HttpServerTest, ClientThatLeavesAStreamIsNoticed) {
  absl::Notification gone;
  Start([&](HttpRequest& /*request*/, ResponseSender sender) {
    sender.OnDisconnect([&gone] { gone.Notify(); });
    helpers_.emplace_back([&gone, sender = std::move(sender)]() mutable {
      ResponseStream stream = sender.Begin(HttpResponse(200));
      EXPECT_TRUE(stream.Write("hello"));
      gone.WaitForNotification();
      EXPECT_FALSE(stream.Write("nobody"));
    });
  });
  Client client = Connect();
  client.Send("GET /s HTTP/1.1\r\n\r\n");
  client.Read(true);
  ASSERT_TRUE(client.Fill(10));  // "hello" has come, so that the client leaves after it was written
  client.Close();
  gone.WaitForNotification();
  AwaitConnections(0);
}

TEST_F(HttpServerTest, StreamThatIsDroppedCutsTheConnection) {
  Start([](HttpRequest& /*request*/, ResponseSender sender) {
    ResponseStream stream = sender.Begin(HttpResponse(200));
    stream.Write("half");
  });
  Client client = Connect();
  client.Send("GET /s HTTP/1.1\r\n\r\n");
  client.Read(true);
  EXPECT_TRUE(client.AtEnd()) << "no last chunk";
}

TEST(HttpResponseTest, HeadersCannotBeSplit) {
  HttpResponse response;
  response.AddHeader("A", "b\r\nC: d");
  EXPECT_EQ(response.header_block(), "A: b  C: d\r\n");
  EXPECT_EQ(EqualsIgnoreCase("a[", "A{"), false);
}

// Eight characters are compared at once, the rest one by one: each byte at each place, against the words of the standard.
TEST(HttpResponseTest, OnlyLettersHaveACase) {
  const auto lower = [](unsigned c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; };
  for (const std::size_t size : {1U, 7U, 8U, 9U, 16U, 19U}) {
    for (std::size_t place = 0; place < size; ++place) {
      for (unsigned a = 0; a < 256; ++a) {
        for (const unsigned b : {a, a ^ 0x20, a ^ 0x80, a ^ 1}) {
          std::string left(size, 'q');
          std::string right(size, 'Q');
          left[place] = static_cast<char>(a);
          right[place] = static_cast<char>(b);
          ASSERT_EQ(EqualsIgnoreCase(left, right), lower(a) == lower(b))
              << size << ' ' << place << ' ' << a << ' ' << b;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tidemark
