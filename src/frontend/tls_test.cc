#include "frontend/tls.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <thread>

#include "base/status.h"
#include "frontend/event_loop.h"
#include "frontend/http/server.h"
#include "tests/support/certificates.h"
#include "tests/support/real_platform.h"

namespace tidemark {
namespace {

constexpr std::size_t kBulk = 3 << 20;

std::string Pattern(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>('a' + i % 23);
  return text;
}

class TlsTest : public testing::Test {
 protected:
  TlsTest() {
    folder_ = std::filesystem::temp_directory_path() / ("tls-test-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    Install(server_);
    WriteFile(folder_ / "root.pem", root_.certificate_pem());
  }
  ~TlsTest() override { std::filesystem::remove_all(folder_); }

  void Install(const TestCertificate& certificate) {
    WriteFile(folder_ / "key.pem", certificate.key_pem());
    WriteFile(folder_ / "cert.pem", certificate.certificate_pem());
  }
  TlsOptions Options() const {
    TlsOptions options;
    options.certificate_path = folder_ / "cert.pem";
    options.key_path = folder_ / "key.pem";
    options.root_path = folder_ / "root.pem";
    options.alpn = {"http/1.1"};
    return options;
  }

  const TestCertificate root_{"test root"};
  const TestCertificate server_{"first", &root_};
  std::filesystem::path folder_;
};

// A server's end over one half of a socket pair; the client lives in a thread of its own.
class Pair {
 public:
  explicit Pair(const TlsContext& context) : server_(UniqueFd()) {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    client_fd_.Reset(fds[0]);
    const int flags = O_NONBLOCK;
    EXPECT_EQ(fcntl(fds[1], F_SETFL, flags), 0);
    server_ = Transport(UniqueFd(fds[1]));
    EXPECT_TRUE(server_.StartTls(context).ok());
  }
  Transport& server() { return server_; }
  int client_fd() const { return client_fd_.get(); }
  void Wait() {
    pollfd event{server_.fd(), POLLIN | POLLOUT, 0};
    poll(&event, 1, -1);
  }
  Transport::Handshake Handshake() {
    for (;;) {
      const Transport::Handshake state = server_.DoHandshake();
      if (state != Transport::Handshake::kWait) return state;
      pollfd event{server_.fd(), POLLIN, 0};
      poll(&event, 1, -1);
    }
  }

 private:
  Transport server_;
  UniqueFd client_fd_;
};

TEST_F(TlsTest, BytesPassBothWaysThroughSmallSocketsAndManyParts) {
  const auto context = TlsContext::Create(Options()).value();
  Pair pair(*context);
  const int small = 4096;
  setsockopt(pair.server().fd(), SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
  const std::string text = Pattern(kBulk);
  std::string echoed;
  std::string alpn;
  std::thread thread([&] {
    TestTlsClient client(pair.client_fd(), {.trusted = &root_, .certificate = nullptr, .alpn = {"h2", "http/1.1"}});
    if (!client.Handshake()) return;
    alpn = client.alpn();
    if (client.Write(text)) echoed = client.Read(kBulk);
  });
  ASSERT_EQ(pair.Handshake(), Transport::Handshake::kDone);
  EXPECT_EQ(pair.server().alpn(), "http/1.1");
  std::string received(kBulk, '\0');
  std::size_t size = 0;
  while (size < kBulk) {
    // Two parts, of odd sizes, as a connection reads the end of a body and what follows it.
    const std::size_t first = std::min<std::size_t>(10007, kBulk - size);
    const std::size_t second = std::min<std::size_t>(50021, kBulk - size - first);
    const iovec parts[] = {{received.data() + size, first}, {received.data() + size + first, second}};
    const Transport::ReadResult got = pair.server().Read(parts);
    if (got.bytes > 0) size += static_cast<std::size_t>(got.bytes);
    if (got.bytes < 0) {
      ASSERT_EQ(errno, EAGAIN);
      EXPECT_TRUE(got.drained);
      pollfd event{pair.server().fd(), POLLIN, 0};
      poll(&event, 1, -1);
    }
    ASSERT_NE(got.bytes, 0);
  }
  EXPECT_EQ(received, text);
  int refusals = 0;
  for (std::size_t sent = 0; sent < kBulk;) {
    std::vector<iovec> parts;
    const std::size_t sizes[] = {100, 1, 70000, 0, 33, 16384, 500000};
    std::size_t offset = sent;
    for (const std::size_t part : sizes) {
      const std::size_t take = std::min(part, kBulk - offset);
      parts.push_back({received.data() + offset, take});
      offset += take;
    }
    const ssize_t wrote = pair.server().Write(parts);
    if (wrote > 0) sent += static_cast<std::size_t>(wrote);
    if (wrote < 0) {
      ASSERT_EQ(errno, EAGAIN);
      ++refusals;
      pollfd event{pair.server().fd(), POLLOUT, 0};
      poll(&event, 1, -1);
    }
  }
  thread.join();
  EXPECT_GT(refusals, 0);
  EXPECT_EQ(echoed, text);
  EXPECT_EQ(alpn, "http/1.1");
}

TEST_F(TlsTest, ClientsThatSpeakNothingOfOursAreRefused) {
  const auto context = TlsContext::Create(Options()).value();
  struct Case {
    const char* what;
    TestTlsClient::Options options;
  };
  const Case cases[] = {
      {"another ALPN", {.trusted = nullptr, .certificate = nullptr, .alpn = {"h2"}}},
      {"TLS 1.1", {.trusted = nullptr, .certificate = nullptr, .alpn = {}, .max_version = TLS1_1_VERSION}},
  };
  for (const Case& test : cases) {
    Pair pair(*context);
    bool good = true;
    std::thread thread([&] { good = TestTlsClient(pair.client_fd(), test.options).Handshake(); });
    EXPECT_EQ(pair.Handshake(), Transport::Handshake::kFailed) << test.what;
    pair.server().Close();
    thread.join();
    EXPECT_FALSE(good) << test.what;
  }
  // No TLS at all.
  Pair pair(*context);
  ASSERT_GT(send(pair.client_fd(), "GET / HTTP/1.1\r\n\r\n", 18, 0), 0);
  EXPECT_EQ(pair.Handshake(), Transport::Handshake::kFailed);
}

TEST_F(TlsTest, MutualTlsTakesOnlyCertificatesOfItsRoot) {
  TlsOptions options = Options();
  options.mutual = true;
  const auto context = TlsContext::Create(options).value();
  const TestCertificate other_root("other root");
  const TestCertificate good("client", &root_);
  const TestCertificate bad("client", &other_root);
  const TestCertificate* const certificates[] = {&good, &bad, nullptr};
  for (const TestCertificate* certificate : certificates) {
    Pair pair(*context);
    std::string answer;
    std::thread thread([&] {
      TestTlsClient client(pair.client_fd(), {.trusted = &root_, .certificate = certificate, .alpn = {}});
      if (client.Handshake()) answer = client.Read(5);
    });
    const Transport::Handshake state = pair.Handshake();
    if (state == Transport::Handshake::kDone) {
      const iovec part{const_cast<char*>("hello"), 5};
      EXPECT_EQ(pair.server().Write({&part, 1}), 5);
    }
    pair.server().Close();
    thread.join();
    EXPECT_EQ(state == Transport::Handshake::kDone, certificate == &good);
    EXPECT_EQ(answer, certificate == &good ? "hello" : "");
  }
}

TEST_F(TlsTest, ReloadServesNewCertificatesAndABadOneChangesNothing) {
  const auto context = TlsContext::Create(Options()).value();
  const auto served = [&] {
    Pair pair(*context);
    std::string name;
    std::thread thread([&] {
      TestTlsClient client(pair.client_fd(), {.trusted = &root_, .certificate = nullptr, .alpn = {}});
      if (client.Handshake()) name = client.peer_name();
    });
    pair.Handshake();
    thread.join();
    return name;
  };
  EXPECT_FALSE(context->FilesChanged());
  EXPECT_EQ(served(), "first");
  const TestCertificate second("second", &root_);
  Install(second);
  EXPECT_TRUE(context->FilesChanged());
  EXPECT_EQ(served(), "first");
  EXPECT_TRUE(context->Reload().ok());
  EXPECT_FALSE(context->FilesChanged());
  EXPECT_EQ(served(), "second");

  WriteFile(folder_ / "key.pem", server_.key_pem());  // of the first certificate
  const absl::Status mismatch = context->Reload();
  EXPECT_NE(MessageOf(mismatch).find("key.pem"), std::string::npos) << mismatch;
  EXPECT_EQ(served(), "second");
  EXPECT_FALSE(context->FilesChanged());  // a failed reload is not tried again before something changes
  std::filesystem::remove(folder_ / "cert.pem");
  EXPECT_TRUE(context->FilesChanged());
  const absl::Status missing = context->Reload();
  EXPECT_NE(MessageOf(missing).find("cert.pem"), std::string::npos) << missing;
  EXPECT_EQ(served(), "second");
}

TEST_F(TlsTest, WhatCannotBeUsedIsNamed) {
  TlsOptions options = Options();
  options.key_path.clear();
  EXPECT_FALSE(TlsContext::Create(options).ok());
  options = Options();
  options.certificate_path = folder_ / "none.pem";
  EXPECT_NE(MessageOf(TlsContext::Create(options).status()).find("none.pem"), std::string::npos);
  options = Options();
  options.mutual = true;
  options.root_path = folder_ / "key.pem";
  EXPECT_NE(MessageOf(TlsContext::Create(options).status()).find("root certificates"), std::string::npos);
  options.root_path.clear();
  EXPECT_FALSE(TlsContext::Create(options).ok());
}

// The HTTP server over TLS.
class HttpsTest : public TlsTest, private HttpHandler {
 protected:
  void Handle(HttpRequest& request, ResponseSender sender) override {
    HttpResponse response;
    response.Append(std::string(request.path()) + " ");
    const std::span<std::byte> body = request.body();
    response.Append(request.TakeBody(), body);
    sender.Send(std::move(response));
  }
  void Start(HttpServerOptions options = {}) {
    context_ = TlsContext::Create(Options()).value();
    loop_ = EventLoop::Create([this] { return clock_.load(); }).value();
    options.address = "127.0.0.1";
    options.port = 0;
    options.tls = context_.get();
    server_ = HttpServer::Create(options, {loop_.get()}, this, &pool_).value();
    server_->Start();
    thread_ = std::thread([this] { loop_->Run(); });
  }
  ~HttpsTest() override {
    server_.reset();
    if (loop_ != nullptr) loop_->Stop();
    if (thread_.joinable()) thread_.join();
  }
  UniqueFd Connect() const {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server_->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }

  std::unique_ptr<Platform> platform_ = CreateLinuxPlatform();
  BufferPool pool_{*platform_};
  std::atomic<std::int64_t> clock_{1};
  std::unique_ptr<TlsContext> context_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

TEST_F(HttpsTest, ServesRequestsLargeBodiesAndPipelines) {
  Start();
  const UniqueFd fd = Connect();
  TestTlsClient client(fd.get(), {.trusted = &root_, .certificate = nullptr, .alpn = {"http/1.1"}});
  ASSERT_TRUE(client.Handshake());
  EXPECT_EQ(client.version(), TLS1_3_VERSION);
  const std::string first = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\n/a ";
  ASSERT_TRUE(client.Write("GET /a HTTP/1.1\r\n\r\n"));
  EXPECT_EQ(client.Read(first.size()), first);
  const std::string body = Pattern(kBulk);
  ASSERT_TRUE(client.Write("POST /b HTTP/1.1\r\nContent-Length: " + std::to_string(kBulk) + "\r\n\r\n" + body +
                           "GET /a HTTP/1.1\r\n\r\nGET /a HTTP/1.1\r\nConnection: close\r\n\r\n"));
  const std::string head =
      "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: " + std::to_string(kBulk + 3) + "\r\n\r\n/b ";
  EXPECT_EQ(client.Read(head.size()), head);
  EXPECT_EQ(client.Read(kBulk), body);
  EXPECT_EQ(client.Read(first.size()), first);
  EXPECT_NE(client.ReadSome().find("Connection: close"), std::string::npos);
  EXPECT_EQ(client.ReadSome(), "");  // a goodbye, not a cut
}

TEST_F(HttpsTest, AClientThatNeverShakesHandsIsCut) {
  Start();
  const UniqueFd fd = Connect();
  while (server_->connections() != 1) std::this_thread::yield();
  clock_ += std::chrono::nanoseconds(std::chrono::seconds(11)).count();
  loop_->Post([] {});
  char byte = 0;
  EXPECT_EQ(recv(fd.get(), &byte, 1, 0), 0);
}

TEST_F(HttpsTest, StopEndsIdleConnectionsAtOnce) {
  Start();
  const UniqueFd fd = Connect();
  TestTlsClient client(fd.get(), {.trusted = &root_, .certificate = nullptr, .alpn = {}});
  ASSERT_TRUE(client.Handshake());
  ASSERT_TRUE(client.Write("GET /a HTTP/1.1\r\n\r\n"));
  EXPECT_NE(client.ReadSome().find("200 OK"), std::string::npos);
  const UniqueFd silent = Connect();
  while (server_->connections() != 2) std::this_thread::yield();
  EXPECT_TRUE(server_->Stop(std::chrono::seconds(60)));
  EXPECT_EQ(client.ReadSome(), "");
}

TEST_F(HttpsTest, UnixSocketsStayPlain) {
  HttpServerOptions options;
  options.unix_path = folder_ / "socket";
  Start(options);
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  options.unix_path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_GT(send(fd.get(), "GET /a HTTP/1.1\r\n\r\n", 19, 0), 0);
  char text[16] = "";
  EXPECT_GT(recv(fd.get(), text, 15, 0), 0);
  EXPECT_EQ(std::string_view(text).substr(0, 12), "HTTP/1.1 200");
}

}  // namespace
}  // namespace tidemark
