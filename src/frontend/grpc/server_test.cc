#include "frontend/grpc/server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/status.h"
#include "frontend/socket.h"

namespace tidemark {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::string_literals::operator""s;

using Fields = std::vector<std::pair<std::string, std::string>>;

std::string Framed(std::string_view message, char flag = 0) {
  std::string out(1, flag);
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(message.size() >> shift);
  return out += message;
}

// One call as its client sees it.
struct Reply {
  std::map<std::string, std::string> fields;  // headers and trailers
  std::string data;
  bool closed = false;
  std::uint32_t error = 0;  // of its end: RST_STREAM's code
  std::string status() const { return fields.contains("grpc-status") ? fields.at("grpc-status") : ""; }
  std::string message() const { return fields.contains("grpc-message") ? fields.at("grpc-message") : ""; }
};

// A blocking HTTP/2 client on nghttp2. Nothing happens but inside Pump, Sync and Begin.
class Client {
 public:
  struct Options {
    std::uint32_t window = 1 << 20;  // of each stream
    bool answers_pings = true;
    bool takes_all = true;  // false: a window is opened by OpenWindow only
  };
  Client(std::uint16_t port, Options options) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    const int one = 1;
    setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    const timeval limit{120, 0};  // a server that never answers fails the test
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    nghttp2_session_callbacks* callbacks = nullptr;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(
        callbacks, [](nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name, std::size_t name_size,
                      const std::uint8_t* value, std::size_t value_size, std::uint8_t, void* self) {
          static_cast<Client*>(self)
              ->replies_[frame->hd.stream_id]
              .fields[{reinterpret_cast<const char*>(name), name_size}] =
              std::string(reinterpret_cast<const char*>(value), value_size);
          return 0;
        });
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
        callbacks, [](nghttp2_session*, std::uint8_t, std::int32_t stream, const std::uint8_t* data, std::size_t size,
                      void* self) {
          static_cast<Client*>(self)->replies_[stream].data.append(reinterpret_cast<const char*>(data), size);
          return 0;
        });
    nghttp2_session_callbacks_set_on_stream_close_callback(
        callbacks, [](nghttp2_session*, std::int32_t stream, std::uint32_t error, void* self) {
          Reply& reply = static_cast<Client*>(self)->replies_[stream];
          reply.closed = true;
          reply.error = error;
          return 0;
        });
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks,
                                                         [](nghttp2_session*, const nghttp2_frame* frame, void* self) {
                                                           static_cast<Client*>(self)->OnFrame(*frame);
                                                           return 0;
                                                         });
    nghttp2_option* option = nullptr;
    nghttp2_option_new(&option);
    nghttp2_option_set_no_auto_window_update(option, options.takes_all ? 0 : 1);
    nghttp2_option_set_no_auto_ping_ack(option, options.answers_pings ? 0 : 1);
    nghttp2_session_client_new2(&session_, callbacks, this, option);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    const nghttp2_settings_entry window{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, options.window};
    nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, &window, 1);
  }
  ~Client() { nghttp2_session_del(session_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Begins a call that sends `data` and then ends its side, or leaves it open.
  std::int32_t Begin(std::string data, Fields more = {}, bool end = true) {
    Fields fields = {{":method", "POST"},      {":scheme", "http"}, {":path", "/a.B/C"},
                     {":authority", "server"}, {"te", "trailers"},  {"content-type", "application/grpc"}};
    for (auto& [name, value] : more) {
      const auto same =
          std::find_if(fields.begin(), fields.end(), [&wanted = name](const auto& f) { return f.first == wanted; });
      if (same != fields.end()) {
        same->second = value;
      } else {
        fields.emplace_back(name, value);
      }
    }
    std::vector<nghttp2_nv> headers;
    for (auto& [name, value] : fields) {
      headers.push_back({reinterpret_cast<std::uint8_t*>(name.data()), reinterpret_cast<std::uint8_t*>(value.data()),
                         name.size(), value.size(), NGHTTP2_NV_FLAG_NONE});
    }
    sources_.push_back(std::make_unique<Source>(Source{std::move(data), 0, end}));
    nghttp2_data_provider provider{};
    provider.source.ptr = sources_.back().get();
    provider.read_callback = [](nghttp2_session*, std::int32_t, std::uint8_t* out, std::size_t most,
                                std::uint32_t* flags, nghttp2_data_source* source, void*) -> ssize_t {
      Source& from = *static_cast<Source*>(source->ptr);
      const std::size_t size = std::min(most, from.data.size() - from.at);
      std::memcpy(out, from.data.data() + from.at, size);
      from.at += size;
      if (from.at == from.data.size() && from.end) *flags |= NGHTTP2_DATA_FLAG_EOF;
      return size == 0 && !from.end ? static_cast<ssize_t>(NGHTTP2_ERR_DEFERRED) : static_cast<ssize_t>(size);
    };
    const std::int32_t stream =
        nghttp2_submit_request(session_, nullptr, headers.data(), headers.size(), &provider, nullptr);
    EXPECT_GT(stream, 0);
    Flush();
    return stream;
  }
  Reply Await(std::int32_t stream) {
    Pump([&] { return replies_[stream].closed; });
    return replies_[stream];
  }
  Reply Call(std::string data, Fields more = {}) { return Await(Begin(std::move(data), std::move(more))); }

  // Until `done`, or until the server has closed: false.
  bool Pump(const std::function<bool()>& done) {
    while (!done()) {
      Flush();
      char buffer[65536];
      const ssize_t got = recv(fd_.get(), buffer, sizeof(buffer), 0);
      if (got <= 0) return false;
      Feed(buffer, got);
    }
    return true;
  }
  // Takes what has come.
  void Sync() {
    Flush();
    char buffer[65536];
    for (ssize_t got = 0; (got = recv(fd_.get(), buffer, sizeof(buffer), MSG_DONTWAIT)) > 0;) Feed(buffer, got);
    Flush();
  }
  // The server has taken all that was sent, answers to its PINGs among them: it takes frames in their order. (A round of
  // its loop would not tell: a busy kernel may hand over later what was sent.)
  void Settle() {
    settled = false;
    nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, nullptr, 0);
    EXPECT_TRUE(Pump([this] { return settled; }));
  }
  // Nothing comes any more but the end.
  bool AwaitEnd() {
    return !Pump([] { return false; });
  }
  void Reset(std::int32_t stream) {
    nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream, NGHTTP2_CANCEL);
    Flush();
  }
  void Ping() {
    nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, nullptr);
    Flush();
  }
  void OpenWindow(std::int32_t stream, std::size_t size) {
    nghttp2_submit_window_update(session_, NGHTTP2_FLAG_NONE, stream, static_cast<std::int32_t>(size));
    nghttp2_submit_window_update(session_, NGHTTP2_FLAG_NONE, 0, static_cast<std::int32_t>(size));
    Flush();
  }
  Reply& reply(std::int32_t stream) { return replies_[stream]; }
  int pings = 0;  // of the server
  std::vector<std::pair<std::uint32_t, std::string>> goaways;
  bool settled = false;  // the server has answered our SETTINGS

 private:
  struct Source {
    std::string data;
    std::size_t at;
    bool end;
  };
  void OnFrame(const nghttp2_frame& frame) {
    if (frame.hd.type == NGHTTP2_PING && (frame.hd.flags & NGHTTP2_FLAG_ACK) == 0) ++pings;
    if (frame.hd.type == NGHTTP2_SETTINGS && (frame.hd.flags & NGHTTP2_FLAG_ACK) != 0) settled = true;
    if (frame.hd.type == NGHTTP2_GOAWAY) {
      goaways.emplace_back(frame.goaway.error_code, std::string(reinterpret_cast<const char*>(frame.goaway.opaque_data),
                                                                frame.goaway.opaque_data_len));
    }
  }
  void Feed(const char* data, ssize_t size) {
    EXPECT_EQ(
        nghttp2_session_mem_recv(session_, reinterpret_cast<const std::uint8_t*>(data), static_cast<std::size_t>(size)),
        size);
  }
  void Flush() {
    const std::uint8_t* data = nullptr;
    for (ssize_t size = 0; (size = nghttp2_session_mem_send(session_, &data)) > 0;) {
      for (ssize_t sent = 0; sent < size;) {
        const ssize_t now = send(fd_.get(), data + sent, static_cast<std::size_t>(size - sent), MSG_NOSIGNAL);
        if (now <= 0) return;
        sent += now;
      }
    }
  }

  UniqueFd fd_;
  nghttp2_session* session_ = nullptr;
  std::map<std::int32_t, Reply> replies_;
  std::vector<std::unique_ptr<Source>> sources_;
};

// A call that hands each whole message to `on_message`.
struct TestCall : GrpcCall {
  std::function<absl::Status(std::string)> on_message = [](std::string) { return absl::OkStatus(); };
  std::function<void()> on_cancel = [] {}, on_half_close = [] {};
  std::function<bool()> ready = [] { return true; };
  std::string message;

  absl::Status BeginMessage(std::size_t) override {
    message.clear();
    return absl::OkStatus();
  }
  absl::Status Add(std::span<const std::byte> bytes) override {
    message.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return absl::OkStatus();
  }
  absl::Status EndMessage() override { return on_message(message); }
  absl::Status HalfClose() override {
    on_half_close();
    return absl::OkStatus();
  }
  void Cancel() override { on_cancel(); }
  bool Ready() const override { return ready(); }
};

struct TestHandler : GrpcHandler {
  std::function<std::unique_ptr<GrpcCall>(GrpcCallHead&, GrpcResponder)> f;
  Begun Begin(GrpcCallHead& head, GrpcResponder responder) override {
    Begun begun;
    begun.call = f(head, std::move(responder));
    return begun;
  }
};

// Answers each message with itself, and ends with the client.
std::unique_ptr<GrpcCall> Echo(GrpcCallHead&, GrpcResponder responder) {
  auto call = std::make_unique<TestCall>();
  call->on_message = [responder](const std::string& text) {
    responder.Send(GrpcMessage::OfText(text));
    return absl::OkStatus();
  };
  call->on_half_close = [responder] { responder.Finish(absl::OkStatus()); };
  return call;
}

class GrpcServerTest : public testing::Test {
 protected:
  void Start(std::function<std::unique_ptr<GrpcCall>(GrpcCallHead&, GrpcResponder)> f, GrpcServerOptions options = {}) {
    handler_.f = std::move(f);
    options.port = 0;
    options.address = "127.0.0.1";
    loop_ = EventLoop::Create([this] { return clock_.load(); }).value();
    auto server = GrpcServer::Create(options, {loop_.get()}, &handler_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    server_->Start();
    thread_ = std::thread([this] { loop_->Run(); });
  }
  ~GrpcServerTest() override {
    server_.reset();
    if (loop_ != nullptr) loop_->Stop();
    if (thread_.joinable()) thread_.join();
  }
  // A client whose connection the server has begun to serve.
  std::unique_ptr<Client> Connect(Client::Options options = {}) {
    auto client = std::make_unique<Client>(server_->port(), options);
    EXPECT_TRUE(client->Pump([&] { return client->settled; }));
    return client;
  }
  void Round() {
    for (int round = 0; round < 2; ++round) {
      absl::Notification done;
      loop_->Post([&] { done.Notify(); });
      done.WaitForNotification();
    }
  }
  // Runs the timers at a later time.
  void Advance(milliseconds time) {
    clock_ += std::chrono::nanoseconds(time).count();
    Round();
  }

  std::atomic<std::int64_t> clock_{1'000};
  TestHandler handler_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<GrpcServer> server_;
  std::thread thread_;
};

TEST_F(GrpcServerTest, MessagesGoInAndOutAndTheStatusComesLast) {
  Start(Echo);
  const auto client = Connect();
  const Reply reply = client->Call(Framed("one") + Framed("") + Framed(std::string(300'000, 'x')));
  EXPECT_EQ(reply.data, Framed("one") + Framed("") + Framed(std::string(300'000, 'x')));
  EXPECT_EQ(reply.fields.at(":status"), "200");
  EXPECT_EQ(reply.fields.at("content-type"), "application/grpc");
  EXPECT_EQ(reply.fields.at("grpc-accept-encoding"), "identity,deflate,gzip");
  EXPECT_EQ(reply.status(), "0");
  EXPECT_FALSE(reply.fields.contains("grpc-message"));
}

TEST_F(GrpcServerTest, TimeoutBecomesTheDeadlineOfTheCall) {
  std::vector<std::int64_t> deadlines;
  Start([&](GrpcCallHead& head, GrpcResponder responder) {
    deadlines.push_back(head.deadline_nanos);
    return Echo(head, std::move(responder));
  });
  const auto client = Connect();
  for (const char* text : {"", "100m", "99999999H", "0n"}) {
    const Reply reply = client->Call(Framed("x"), text[0] != '\0' ? Fields{{"grpc-timeout", text}} : Fields{});
    EXPECT_THAT(reply.status(), testing::AnyOf("0", "4"));
  }
  const std::int64_t now = clock_;
  EXPECT_THAT(deadlines, testing::ElementsAre(0, now + 100'000'000, 0, now));
}

TEST_F(GrpcServerTest, DeadlineCancelsTheCallAndIsItsAnswer) {
  int cancelled = 0;
  absl::Notification inside;
  Start([&](GrpcCallHead&, GrpcResponder) {
    auto call = std::make_unique<TestCall>();
    call->on_message = [&](const std::string&) {
      inside.Notify();
      return absl::OkStatus();
    };
    call->on_cancel = [&] { ++cancelled; };
    return call;
  });
  const auto client = Connect();
  const std::int32_t stream = client->Begin(Framed("x"), {{"grpc-timeout", "100m"}});
  inside.WaitForNotification();
  Advance(milliseconds(99));
  client->Sync();
  EXPECT_FALSE(client->reply(stream).closed);
  Advance(milliseconds(1));
  const Reply reply = client->Await(stream);
  EXPECT_EQ(reply.status(), "4");
  EXPECT_EQ(reply.message(), "Deadline Exceeded");
  EXPECT_EQ(cancelled, 1);
}

TEST_F(GrpcServerTest, DeadlineBetweenAnswersIsTold) {
  Start(Echo);
  const auto client = Connect();
  const std::int32_t stream = client->Begin(Framed("x"), {{"grpc-timeout", "100m"}}, false);
  ASSERT_TRUE(client->Pump([&] { return client->reply(stream).data == Framed("x"); }));
  Advance(milliseconds(100));
  EXPECT_EQ(client->Await(stream).status(), "4");
  EXPECT_EQ(client->Await(stream).message(), "Deadline Exceeded");
}

TEST_F(GrpcServerTest, DeadlineInsideAnAnswerResetsTheCall) {
  Start(Echo);
  const auto client = Connect({.window = 3, .answers_pings = true, .takes_all = false});  // less than the answer
  const std::int32_t stream = client->Begin(Framed("x"), {{"grpc-timeout", "100m"}}, false);
  ASSERT_TRUE(client->Pump([&] { return client->reply(stream).data == Framed("x").substr(0, 3); }));
  Advance(milliseconds(100));
  EXPECT_EQ(client->Await(stream).error, static_cast<std::uint32_t>(NGHTTP2_CANCEL));
}

TEST_F(GrpcServerTest, TimeoutThatIsNoneIsRefused) {
  Start(Echo);
  const auto client = Connect();
  const Reply reply = client->Call(Framed("x"), {{"grpc-timeout", "soon"}});
  EXPECT_EQ(reply.status(), "3");
  EXPECT_EQ(reply.message(), "grpc-timeout 'soon' is no time-out");
}

TEST_F(GrpcServerTest, StatusTextsTravelEncodedAndBounded) {
  std::string text =
      "50% of gr\xC3\xB6\xC3\x9F"
      "e\n";
  Start([&](GrpcCallHead&, GrpcResponder responder) -> std::unique_ptr<GrpcCall> {
    responder.Finish(absl::NotFoundError(text));
    return nullptr;
  });
  const auto client = Connect();
  EXPECT_EQ(client->Call(Framed("x")).message(), "50%25 of gr%C3%B6%C3%9Fe%0A");
  text = std::string(3000, '\n');
  const std::string cut = client->Call(Framed("x")).message();
  EXPECT_LE(cut.size(), 4096u);
  EXPECT_EQ(cut.size() % 3, 0u) << "no half of an encoded byte";
}

TEST_F(GrpcServerTest, WhatIsNoCallGetsAnHttpStatus) {
  Start(Echo);
  const auto client = Connect();
  EXPECT_EQ(client->Call("", {{":method", "GET"}}).fields.at(":status"), "405");
  EXPECT_EQ(client->Call("", {{"content-type", "text/html"}}).fields.at(":status"), "415");
}

TEST_F(GrpcServerTest, UnknownCompressionIsUnimplementedAndTellsWhatThereIs) {
  Start(Echo);
  const auto client = Connect();
  const Reply reply = client->Call(Framed("x", 1), {{"grpc-encoding", "snappy"}});
  EXPECT_EQ(reply.status(), "12");
  EXPECT_EQ(reply.message(), "Compression algorithm 'snappy' is unknown.");
  EXPECT_EQ(reply.fields.at("grpc-accept-encoding"), "identity,deflate,gzip");
}

TEST_F(GrpcServerTest, CallThatEndsInsideAMessageIsAnError) {
  Start(Echo);
  const auto client = Connect();
  const Reply reply = client->Call(Framed("four").substr(0, 7));
  EXPECT_EQ(reply.status(), "13");
  EXPECT_EQ(reply.message(), "the client ended the call inside a message");
  EXPECT_EQ(client->Call(Framed("x")).status(), "0") << "and its connection goes on";
}

TEST_F(GrpcServerTest, TooLongMessageIsRefusedByItsPrefix) {
  GrpcServerOptions options;
  options.limits.message_bytes = 10;
  Start(Echo, options);
  const auto client = Connect();
  const std::int32_t stream = client->Begin(Framed(std::string(11, 'x')).substr(0, 5), {}, false);
  const Reply reply = client->Await(stream);
  EXPECT_EQ(reply.status(), "8");
  EXPECT_EQ(reply.message(), "Received message larger than max (11 vs. 10)");
}

TEST_F(GrpcServerTest, ResetReachesTheCall) {
  absl::Notification inside, cancelled;
  Start([&](GrpcCallHead&, GrpcResponder) {
    auto call = std::make_unique<TestCall>();
    call->on_message = [&](const std::string&) {
      inside.Notify();
      return absl::OkStatus();
    };
    call->on_cancel = [&] { cancelled.Notify(); };
    return call;
  });
  const auto client = Connect();
  const std::int32_t stream = client->Begin(Framed("x"));
  inside.WaitForNotification();
  client->Reset(stream);
  cancelled.WaitForNotification();
}

TEST_F(GrpcServerTest, AnswersWaitForRoomAtTheClient) {
  Start(Echo);
  const auto client = Connect({.window = 1000, .answers_pings = true, .takes_all = false});
  const std::string text(10'000, 'x');
  const std::int32_t stream = client->Begin(Framed(text));
  ASSERT_TRUE(client->Pump([&] { return client->reply(stream).data.size() == 1000; }));
  Round();
  client->Sync();
  EXPECT_EQ(client->reply(stream).data.size(), 1000u);
  client->OpenWindow(stream, 100'000);
  EXPECT_EQ(client->Await(stream).data, Framed(text));
}

TEST_F(GrpcServerTest, RequestsWaitWhileAnswersPileUp) {
  std::atomic<int> taken{0};
  GrpcServerOptions options;
  options.limits.unsent_bytes = 50'000;
  Start(
      [&](GrpcCallHead& head, GrpcResponder responder) {
        std::unique_ptr<GrpcCall> call = Echo(head, std::move(responder));
        auto& echo = static_cast<TestCall&>(*call);
        echo.on_message = [&, inner = echo.on_message](std::string text) {
          ++taken;
          return inner(std::move(text));
        };
        return call;
      },
      options);
  const auto client = Connect({.window = 0, .answers_pings = true, .takes_all = false});
  std::string all;
  for (int i = 0; i < 100; ++i) all += Framed(std::string(10'000, 'x'));
  const std::int32_t stream = client->Begin(all);
  Round();
  client->Sync();
  Round();
  EXPECT_LE(taken, 7) << "50,000 bytes are answered, then no further message is taken";
  client->OpenWindow(stream, 2 << 20);
  EXPECT_EQ(client->Await(stream).data, all);
  EXPECT_EQ(taken, 100);
}

TEST_F(GrpcServerTest, ReaderThatTakesNothingIsResetAfterTwoWindows) {
  GrpcServerOptions options;
  options.limits.progress_window = seconds(30);
  Start(Echo, options);
  const auto client = Connect({.window = 0, .answers_pings = true, .takes_all = false});
  const std::int32_t slow = client->Begin(Framed("x"));
  ASSERT_TRUE(client->Pump([&] { return client->reply(slow).fields.contains(":status"); }));
  for (int i = 0; i < 3; ++i) Advance(seconds(30));
  EXPECT_EQ(client->Await(slow).error, static_cast<std::uint32_t>(NGHTTP2_ENHANCE_YOUR_CALM));
  EXPECT_EQ(server_->connections(), 1u) << "the connection lives";
}

TEST_F(GrpcServerTest, SilentClientIsAskedAndThenCut) {
  GrpcServerOptions options;
  options.keepalive.time = seconds(10);
  options.keepalive.timeout = seconds(5);
  options.keepalive.permit_without_calls = true;
  Start(Echo, options);
  const auto alive = Connect();
  const auto dead = Connect({.window = 1 << 20, .answers_pings = false, .takes_all = true});
  Advance(seconds(10));
  ASSERT_TRUE(alive->Pump([&] { return alive->pings == 1; }));
  alive->Settle();
  Advance(seconds(5));
  EXPECT_TRUE(dead->AwaitEnd());
  EXPECT_EQ(dead->pings, 1);
  EXPECT_EQ(alive->Call(Framed("x")).status(), "0") << testing::PrintToString(alive->goaways);
}

TEST_F(GrpcServerTest, WithoutCallsNobodyIsAskedUnlessPermitted) {
  GrpcServerOptions options;
  options.keepalive.time = seconds(10);
  Start(Echo, options);
  const auto client = Connect();
  for (int i = 0; i < 5; ++i) Advance(seconds(10));
  client->Sync();
  EXPECT_EQ(client->pings, 0);
}

TEST_F(GrpcServerTest, PingsWithoutDataAreCounted) {
  GrpcServerOptions options;
  options.keepalive.time = seconds(10);
  options.keepalive.permit_without_calls = true;
  options.keepalive.max_pings_without_data = 2;
  Start(Echo, options);
  const auto client = Connect();
  for (int i = 1; i <= 2; ++i) {
    Advance(seconds(10));
    ASSERT_TRUE(client->Pump([&] { return client->pings == i; }));
    client->Settle();
  }
  for (int i = 0; i < 5; ++i) Advance(seconds(10));
  client->Sync();
  EXPECT_EQ(client->pings, 2);
  EXPECT_EQ(client->Call(Framed("x")).status(), "0");  // data
  Advance(seconds(10));
  EXPECT_TRUE(client->Pump([&] { return client->pings == 3; }));
}

TEST_F(GrpcServerTest, EarlyPingsGetStrikesAndLateOnesDoNot) {
  GrpcServerOptions options;
  options.keepalive.permit_without_calls = true;
  options.keepalive.min_recv_ping_interval_without_data = seconds(10);
  options.keepalive.max_ping_strikes = 1;
  Start(Echo, options);
  const auto good = Connect();
  for (int i = 0; i < 5; ++i) {
    good->Ping();
    good->Settle();
    Advance(seconds(10));
  }
  EXPECT_EQ(good->Call(Framed("x")).status(), "0") << testing::PrintToString(good->goaways);
  const auto bad = Connect();
  for (int i = 0; i < 5; ++i) bad->Ping();
  EXPECT_TRUE(bad->AwaitEnd());
  ASSERT_EQ(bad->goaways.size(), 1u);
  EXPECT_EQ(bad->goaways.back(), (std::pair<std::uint32_t, std::string>{NGHTTP2_ENHANCE_YOUR_CALM, "too_many_pings"}));
}

TEST_F(GrpcServerTest, OldConnectionIsDrainedAndItsCallsAreAnswered) {
  std::optional<GrpcResponder> waiting;
  absl::Notification inside;
  GrpcServerOptions options;
  options.keepalive.connection_age = seconds(60);
  options.keepalive.connection_age_grace = seconds(10);
  Start(
      [&](GrpcCallHead&, GrpcResponder responder) {
        auto call = std::make_unique<TestCall>();
        call->on_message = [&, responder](const std::string&) {
          waiting = responder;
          inside.Notify();
          return absl::OkStatus();
        };
        return call;
      },
      options);
  const auto client = Connect();
  const std::int32_t stream = client->Begin(Framed("x"));
  inside.WaitForNotification();
  Advance(seconds(60));
  ASSERT_TRUE(client->Pump([&] { return !client->goaways.empty(); }));
  EXPECT_EQ(client->goaways.front().first, static_cast<std::uint32_t>(NGHTTP2_NO_ERROR));
  waiting->Answer(GrpcMessage::OfText("late"));
  EXPECT_EQ(client->Await(stream).data, Framed("late"));
  EXPECT_TRUE(client->AwaitEnd());
}

TEST_F(GrpcServerTest, GraceOfAnOldConnectionEnds) {
  absl::Notification inside, cancelled;
  GrpcServerOptions options;
  options.keepalive.connection_age = seconds(60);
  options.keepalive.connection_age_grace = seconds(10);
  Start(
      [&](GrpcCallHead&, GrpcResponder) {
        auto call = std::make_unique<TestCall>();
        call->on_message = [&](const std::string&) {
          inside.Notify();
          return absl::OkStatus();
        };
        call->on_cancel = [&] { cancelled.Notify(); };
        return call;
      },
      options);
  const auto client = Connect();
  client->Begin(Framed("x"));
  inside.WaitForNotification();
  Advance(seconds(60));
  EXPECT_FALSE(cancelled.HasBeenNotified());
  Advance(seconds(10));
  EXPECT_TRUE(client->AwaitEnd());
  cancelled.WaitForNotification();
}

}  // namespace
}  // namespace tidemark
