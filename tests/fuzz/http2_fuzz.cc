// A whole gRPC connection under any sequence of HTTP/2 frames, well-formed ones and others, with time that passes: what it
// sends is frames, every call ends, and nothing of it is left.

#include <fuzzer/FuzzedDataProvider.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/event_loop.h"
#include "frontend/grpc/connection.h"

namespace {

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

void Require(bool condition) {
  if (!condition) std::abort();
}

int calls_alive = 0;
std::vector<tidemark::GrpcResponder> late;  // of calls whose answers come when they may be gone

// Echoes messages; some calls hold their answers back, some are never ready for more than one message, some fail. Each is
// finished or cancelled before it is destroyed.
class FuzzCall final : public tidemark::GrpcCall {
 public:
  FuzzCall(char kind, tidemark::GrpcResponder responder) : kind_(kind), responder_(std::move(responder)) {
    ++calls_alive;
  }
  ~FuzzCall() override {
    Require(ended_ || kind_ == 'l');
    --calls_alive;
  }
  FuzzCall(const FuzzCall&) = delete;
  FuzzCall& operator=(const FuzzCall&) = delete;

  absl::Status BeginMessage(std::size_t most) override {
    Require(!ended_ && most <= 65536);
    text_.clear();
    return absl::OkStatus();
  }
  absl::Status Add(std::span<const std::byte> bytes) override {
    Require(!ended_);
    text_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return absl::OkStatus();
  }
  absl::Status EndMessage() override {
    Require(!ended_);
    if (kind_ == 'f') return absl::InvalidArgumentError("refused: 100%\n");
    if (kind_ == 'l') {
      late.push_back(responder_);
    } else if (kind_ == 'u') {
      responder_.Answer(tidemark::GrpcMessage::OfText(text_));
      ended_ = true;
    } else if (kind_ != 's') {
      for (int i = 0; i < (kind_ == 'm' ? 50 : 1); ++i) responder_.Send(tidemark::GrpcMessage::OfText(text_));
    }
    ++messages_;
    return absl::OkStatus();
  }
  absl::Status HalfClose() override {
    if (kind_ != 's' && kind_ != 'l' && !ended_) {
      responder_.Finish(absl::OkStatus());
      ended_ = true;
    }
    return absl::OkStatus();
  }
  void Cancel() override { ended_ = true; }
  bool Ready() const override { return kind_ != 'p' || messages_ == 0; }

 private:
  const char kind_;
  const tidemark::GrpcResponder responder_;
  std::string text_;
  int messages_ = 0;
  bool ended_ = false;
};

struct FuzzHandler : tidemark::GrpcHandler {
  Begun Begin(tidemark::GrpcCallHead& head, tidemark::GrpcResponder responder) override {
    Begun begun;
    const char kind = head.path.empty() ? 'e' : head.path.back();
    if (kind == 'n') {
      responder.Finish(absl::UnimplementedError("no such method"));
    } else {
      begun.call = std::make_unique<FuzzCall>(kind, std::move(responder));
    }
    return begun;
  }
};

std::string Frame(unsigned kind, unsigned flags, std::uint32_t stream, std::string_view payload) {
  std::string out;
  for (const int shift : {16, 8, 0}) out += static_cast<char>(payload.size() >> shift);
  out += static_cast<char>(kind);
  out += static_cast<char>(flags);
  for (const int shift : {24, 16, 8, 0}) out += static_cast<char>(stream >> shift);
  return out += payload;
}

std::string Field(std::string_view name, std::string_view value) {
  std::string out(1, '\0');  // a literal without indexing
  out += static_cast<char>(name.size());
  out += name;
  out += static_cast<char>(value.size());
  return out += value;
}

std::string Head(FuzzedDataProvider& input) {
  static constexpr std::string_view kPaths[] = {"/e", "/u", "/s", "/m", "/p", "/f", "/n", "/l"};
  std::string out = Field(":method", input.ConsumeProbability<float>() < 0.95F ? "POST" : "GET") +
                    Field(":scheme", "http") + Field(":path", input.PickValueInArray(kPaths)) +
                    Field(":authority", "x");
  if (input.ConsumeProbability<float>() < 0.95F) out += Field("content-type", "application/grpc");
  if (input.ConsumeBool()) out += Field("te", "trailers");
  if (input.ConsumeBool())
    out += Field("grpc-timeout", input.ConsumeBool() ? "10m" : input.ConsumeRandomLengthString(10));
  if (input.ConsumeBool()) out += Field("grpc-encoding", input.ConsumeBool() ? "gzip" : "deflate");
  if (input.ConsumeBool()) out += Field("x", input.ConsumeRandomLengthString(100));
  return out;
}

// A message, whole or cut, in one DATA frame.
std::string Data(FuzzedDataProvider& input) {
  const std::string text = input.ConsumeRandomLengthString(200);
  std::string out(1, static_cast<char>(input.ConsumeProbability<float>() < 0.9F ? 0 : 1));
  const std::size_t size =
      input.ConsumeProbability<float>() < 0.9F ? text.size() : input.ConsumeIntegral<std::uint16_t>();
  for (const int shift : {24, 16, 8, 0}) out += static_cast<char>(size >> shift);
  out += text;
  return input.ConsumeProbability<float>() < 0.9F
             ? out
             : out.substr(0, input.ConsumeIntegralInRange<std::size_t>(0, out.size()));
}

std::string Next(FuzzedDataProvider& input) {
  constexpr unsigned kEndStream = 1, kEndHeaders = 4;
  const std::uint32_t stream = input.ConsumeProbability<float>() < 0.95F
                                   ? input.ConsumeIntegralInRange<std::uint32_t>(0, 7) * 2 + 1
                                   : input.ConsumeIntegral<std::uint32_t>();
  const unsigned end = input.ConsumeBool() ? kEndStream : 0;
  switch (input.ConsumeIntegralInRange(0, 10)) {
    case 0:
    case 1:
      return Frame(1, kEndHeaders | end, stream, Head(input));
    case 2: {  // the head in two parts
      const std::string head = Head(input);
      const std::size_t at = input.ConsumeIntegralInRange<std::size_t>(0, head.size());
      return Frame(1, end, stream, head.substr(0, at)) + Frame(9, kEndHeaders, stream, head.substr(at));
    }
    case 3:
    case 4:
      return Frame(0, end, stream, Data(input));
    case 5:
      return Frame(3, 0, stream, std::string("\0\0\0\x08", 4));
    case 6: {
      std::string entry = {0, static_cast<char>(input.ConsumeIntegralInRange(1, 6))};
      for (int i = 0; i < 4; ++i) entry += static_cast<char>(input.ConsumeIntegral<std::uint8_t>());
      return Frame(4, input.ConsumeBool() ? 1 : 0, 0, input.ConsumeBool() ? entry : std::string());
    }
    case 7:
      return Frame(6, input.ConsumeBool() ? 1 : 0, 0, "pingping");
    case 8: {
      std::string size(4, '\0');
      for (char& byte : size) byte = static_cast<char>(input.ConsumeIntegral<std::uint8_t>());
      return Frame(8, 0, input.ConsumeBool() ? 0 : stream, size);
    }
    case 9:
      return Frame(1, kEndHeaders | kEndStream, stream, Field("trailer", "x"));
    default:
      return input.ConsumeBool() ? input.ConsumeRandomLengthString(100)
                                 : Frame(input.ConsumeIntegral<std::uint8_t>(), input.ConsumeIntegral<std::uint8_t>(),
                                         stream, input.ConsumeRandomLengthString(100));
  }
}

std::int64_t clock_nanos = 1;

// Frames that the server has sent, taken off the front of `bytes`.
void TakeFrames(std::string& bytes) {
  while (bytes.size() >= 9) {
    const auto byte = [&](std::size_t i) { return static_cast<std::size_t>(static_cast<unsigned char>(bytes[i])); };
    const std::size_t size = byte(0) << 16 | byte(1) << 8 | byte(2);
    Require(size <= (1 << 24) && byte(3) <= 9);
    if (bytes.size() < 9 + size) return;
    bytes.erase(0, 9 + size);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4 || size > 8192) return 0;
  static FuzzHandler handler;
  static const std::unique_ptr<tidemark::EventLoop> loop =
      tidemark::EventLoop::Create([] { return clock_nanos; }).value();
  FuzzedDataProvider input(data, size);

  tidemark::GrpcConnectionContext context;
  context.loop = loop.get();
  context.handler = &handler;
  context.limits.message_bytes = 65536;
  context.limits.metadata_bytes = 1024;
  context.limits.streams = 5;
  context.limits.stream_window = 1000;
  context.limits.connection_window = 70'000;
  context.limits.unsent_bytes = 500;
  context.limits.idle_frames_burst = 50;
  context.keepalive.time = std::chrono::seconds(5);
  context.keepalive.timeout = std::chrono::seconds(2);
  context.keepalive.permit_without_calls = input.ConsumeBool();
  if (input.ConsumeBool()) context.keepalive.connection_age = std::chrono::seconds(9);
  context.on_closed = [](tidemark::ServedConnection*) {};
  context.input.resize(4096);
  int ends[2];
  Require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
  const tidemark::UniqueFd client(ends[1]);
  {
    tidemark::GrpcConnection connection(&context, tidemark::UniqueFd(ends[0]));
    Require(connection.Start().ok());
    const auto round = [&] {
      loop->Stop();
      loop->Run();
    };
    std::string sent;
    const auto read = [&] {
      char buffer[4096];
      for (ssize_t got = 0; (got = recv(client.get(), buffer, sizeof(buffer), 0)) > 0;) {
        sent.append(buffer, static_cast<std::size_t>(got));
      }
      TakeFrames(sent);
    };
    const auto write = [&](std::string_view bytes) {
      send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      round();
    };
    write(kPreface);
    const bool raw = input.ConsumeBool();
    if (!raw) write(Frame(4, 0, 0, ""));
    const std::size_t step = input.ConsumeIntegralInRange<std::size_t>(1, 300);
    while (input.remaining_bytes() > 0) {
      const std::string bytes = raw ? input.ConsumeRemainingBytesAsString() : Next(input);
      for (std::size_t at = 0; at < bytes.size(); at += step) write(std::string_view(bytes).substr(at, step));
      if (!raw && input.ConsumeBool()) read();
      if (!late.empty() && bytes.size() % 3 == 0) {
        late.back().Answer(tidemark::GrpcMessage::OfText("late"));
        late.pop_back();
        round();
      }
      if (!raw && input.ConsumeProbability<float>() < 0.1F) {
        clock_nanos += input.ConsumeIntegralInRange<std::int64_t>(0, 40'000'000'000);
        round();
      }
    }
    for (int i = 0; i < 4; ++i) {
      round();
      read();
    }
    if (size % 2 == 0) connection.Drain();
    shutdown(client.get(), SHUT_WR);
    for (int i = 0; i < 3; ++i) {
      round();
      read();
    }
    connection.Cut();
    round();
  }
  for (const tidemark::GrpcResponder& responder : late) {
    Require(responder.gone());
    responder.Answer(tidemark::GrpcMessage::OfText("too late"));
  }
  late.clear();
  Require(calls_alive == 0);
  return 0;
}
