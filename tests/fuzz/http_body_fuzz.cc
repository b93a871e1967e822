// Bodies: the chunked decoder gives the same body for every split of its input, and a whole connection gives the same
// answers to the same bytes however they arrive.

#include <sys/socket.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "frontend/event_loop.h"
#include "frontend/http/chunked_decoder.h"
#include "frontend/http/connection.h"
#include "platform/platform.h"

namespace {

using tidemark::ChunkedDecoder;

void Require(bool condition) {
  if (!condition) std::abort();
}

struct Decoded {
  ChunkedDecoder::Result result = ChunkedDecoder::Result::kNeedMore;
  std::string body;
  std::size_t used = 0;
};

Decoded Decode(std::string_view wire, std::size_t step) {
  ChunkedDecoder decoder;
  Decoded decoded;
  for (std::size_t at = 0; at < wire.size(); at += step) {
    for (std::string_view input = wire.substr(at, step); !input.empty();) {
      const ChunkedDecoder::Step next = decoder.Next(input);
      Require(next.consumed > 0 && next.consumed <= input.size());
      decoded.used += next.consumed;
      decoded.body += next.data;
      input.remove_prefix(next.consumed);
      if (next.result == ChunkedDecoder::Result::kDone || next.result == ChunkedDecoder::Result::kError) {
        decoded.result = next.result;
        return decoded;
      }
    }
  }
  return decoded;
}

struct EchoHandler : tidemark::HttpHandler {
  void Handle(tidemark::HttpRequest& request, tidemark::ResponseSender sender) override {
    tidemark::HttpResponse response;
    response.Append(std::string(request.path()) + "|");
    const auto body = request.body();
    response.Append(request.TakeBody(), body);
    sender.Send(std::move(response));
  }
};

// What a connection answers to `wire` sent in pieces of `step`, without interim answers.
std::string Serve(std::string_view wire, std::size_t step) {
  static const std::unique_ptr<tidemark::Platform> platform = tidemark::CreateLinuxPlatform();
  static tidemark::BufferPool pool(*platform);
  static EchoHandler handler;
  static const std::unique_ptr<tidemark::EventLoop> loop =
      tidemark::EventLoop::Create([] { return std::int64_t{1}; }).value();

  tidemark::HttpConnectionContext context;
  context.loop = loop.get();
  context.handler = &handler;
  context.pool = &pool;
  context.limits.head_bytes = 1024;
  context.limits.body_bytes = 64 * 1024;
  context.on_closed = [](tidemark::ServedConnection*) {};
  int ends[2];
  Require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
  const tidemark::UniqueFd client(ends[1]);
  tidemark::HttpConnection connection(&context, tidemark::UniqueFd(ends[0]), nullptr);
  Require(connection.Start().ok());

  const auto round = [&] {
    loop->Stop();
    loop->Run();
  };
  std::string answers;
  const auto read = [&] {
    char buffer[4096];
    for (ssize_t got = 0; (got = recv(client.get(), buffer, sizeof(buffer), 0)) > 0;) {
      answers.append(buffer, static_cast<std::size_t>(got));
    }
  };
  for (std::size_t at = 0; at < wire.size(); at += step) {
    const std::string_view piece = wire.substr(at, step);
    if (send(client.get(), piece.data(), piece.size(), MSG_NOSIGNAL) < 0) break;
    round();
  }
  for (std::size_t i = 0; i < 2 + wire.size() / 256; ++i) {
    round();
    read();
  }
  shutdown(client.get(), SHUT_WR);
  round();
  read();
  connection.Cut();
  constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  for (std::size_t at = 0; (at = answers.find(kContinue, at)) != std::string::npos;)
    answers.erase(at, kContinue.size());
  return answers;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || size > 4096) return 0;
  const std::size_t step = data[0] % 64 + 1u;
  const std::string_view wire(reinterpret_cast<const char*>(data + 1), size - 1);
  const Decoded whole = Decode(wire, wire.size());
  const Decoded pieces = Decode(wire, step);
  Require(whole.result == pieces.result && whole.body == pieces.body && whole.used == pieces.used);

  Require(Serve(wire, wire.size()) == Serve(wire, step));
  const std::string request = "POST /f HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + std::string(wire);
  Require(Serve(request, request.size()) == Serve(request, step));
  return 0;
}
