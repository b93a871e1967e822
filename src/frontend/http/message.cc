#include "frontend/http/message.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>

#include "frontend/http/connection.h"
#include "frontend/http/exchange.h"

namespace tidemark {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; }

constexpr std::size_t kWord = sizeof(std::uint64_t);

// Lower() of eight characters at once. The upper bit of each byte of a sum tells that the byte was at least as large as
// what the addend asks for; bytes that have that bit from the start are no letters.
std::uint64_t LowerWord(const char* text) {
  constexpr std::uint64_t kEach = 0x0101010101010101;
  std::uint64_t word = 0;
  std::memcpy(&word, text, kWord);
  const std::uint64_t low = word & 0x7f * kEach;
  const std::uint64_t from_a = low + (0x80 - 'A') * kEach;
  const std::uint64_t beyond_z = low + (0x7f - 'Z') * kEach;
  return word | (((from_a ^ beyond_z) & ~word & 0x80 * kEach) >> 2);
}

void AppendJsonString(std::string_view text, std::string* out) {
  for (const char c : text) {
    switch (c) {
      case '"':
        *out += "\\\"";
        break;
      case '\\':
        *out += "\\\\";
        break;
      case '\b':
        *out += "\\b";
        break;
      case '\f':
        *out += "\\f";
        break;
      case '\n':
        *out += "\\n";
        break;
      case '\r':
        *out += "\\r";
        break;
      case '\t':
        *out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          *out += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
        } else {
          out->push_back(c);
        }
    }
  }
}

}  // namespace

bool EqualsIgnoreCase(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  std::size_t i = 0;
  for (; i + kWord <= a.size(); i += kWord) {
    if (LowerWord(a.data() + i) != LowerWord(b.data() + i)) return false;
  }
  for (; i < a.size(); ++i) {
    if (a[i] != b[i] && Lower(a[i]) != Lower(b[i])) return false;
  }
  return true;
}

std::optional<std::uint64_t> ParseDecimal(std::string_view text) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();
  if (text.empty()) return std::nullopt;
  std::uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    const std::uint64_t digit = static_cast<std::uint64_t>(c - '0');
    if (value > (kMax - digit) / 10) return std::nullopt;
    value = value * 10 + digit;
  }
  return value;
}

std::string_view ReasonPhrase(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Not Allowed";  // Triton's, for "Method Not Allowed"
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    case 507:
      return "Insufficient Storage";
    default:
      return "Unknown";
  }
}

std::optional<std::string_view> HttpRequest::Find(std::string_view name) const {
  for (const HttpHeader& header : headers_) {
    if (EqualsIgnoreCase(header.name, name)) return header.value;
  }
  return std::nullopt;
}

void HttpRequest::RedirectToPath(HttpMethod method, std::string path) {
  if (method != method_) method_name_ = method == HttpMethod::kGet ? "GET" : "POST";
  method_ = method;
  target_ = std::move(path);
  path_ = target_;
  query_ = {};
}

void HttpRequest::Redirect(HttpMethod method, std::string target) {
  RedirectToPath(method, std::move(target));
  const std::string_view view = target_;
  path_ = view.substr(0, view.find('?'));
  query_ = view.substr(std::min(path_.size() + 1, view.size()));
}

void HttpRequest::PutHeader(std::string_view name, std::string_view value) {
  headers_.insert(headers_.begin(), {name, value});
}

void HttpResponse::AddHeader(std::string_view name, std::string_view value) {
  if (EqualsIgnoreCase(name, "content-type")) has_content_type_ = true;
  const std::size_t begin = headers_.size();
  headers_.resize(begin + name.size() + value.size() + 4);
  char* at = headers_.data() + begin;
  const auto put = [&at](std::string_view text) {
    for (const char c : text) *at++ = c == '\r' || c == '\n' || c == '\0' ? ' ' : c;
  };
  put(name);
  *at++ = ':';
  *at++ = ' ';
  put(value);
  *at++ = '\r';
  *at++ = '\n';
}

void HttpResponse::Clear() {
  status_ = 200;
  close_ = has_content_type_ = streamed_ = false;
  body_bytes_ = 0;
  headers_.clear();
  parts_.clear();
  kept_.reset();
}

void HttpResponse::SetContentType(std::string_view value) { AddHeader("Content-Type", value); }

void HttpResponse::Append(std::string text) {
  if (text.empty()) return;
  body_bytes_ += text.size();
  Part& part = parts_.emplace_back();
  part.owner = std::move(text);
}

void HttpResponse::Append(Buffer buffer) {
  const std::span<const std::byte> bytes = buffer.bytes();
  Append(std::move(buffer), bytes);
}

void HttpResponse::Append(Buffer buffer, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  body_bytes_ += bytes.size();
  Part& part = parts_.emplace_back();
  part.bytes = bytes;
  part.owner = std::move(buffer);
}

void HttpResponse::Append(std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
  if (bytes.empty()) return;
  body_bytes_ += bytes.size();
  Part& part = parts_.emplace_back();
  part.bytes = bytes;
  if (owner != nullptr) part.owner = std::move(owner);
}

std::span<const std::byte> HttpResponse::Part::view() const {
  if (const auto* text = std::get_if<std::string>(&owner)) return std::as_bytes(std::span(*text));
  return bytes;
}

HttpResponse MakeErrorResponse(int status, std::string_view message, std::string_view content_type) {
  HttpResponse response(status);
  if (!content_type.empty()) response.SetContentType(content_type);
  std::string body = "{\"error\":\"";
  AppendJsonString(message, &body);
  body += "\"}";
  response.Append(std::move(body));
  return response;
}

ResponseSender& ResponseSender::operator=(ResponseSender&& other) noexcept {
  if (this != &other) {
    ResponseSender old(std::move(exchange_));
    exchange_ = std::move(other.exchange_);
  }
  return *this;
}

ResponseSender::~ResponseSender() {
  if (exchange_ == nullptr) return;
  HttpResponse response = MakeErrorResponse(500, "the request was dropped without an answer");
  response.set_close();
  Send(std::move(response));
}

void ResponseSender::Send(HttpResponse&& response) {
  std::shared_ptr<HttpExchange> exchange = std::move(exchange_);
  exchange_ = nullptr;
  absl::AnyInvocable<void()> callback;
  {
    absl::MutexLock lock(&exchange->mutex_);
    exchange->sent_ = true;
    callback = std::move(exchange->on_disconnect_);
    exchange->on_disconnect_ = nullptr;
  }
  Deliver(std::move(exchange), std::move(response));
}

void ResponseSender::Deliver(std::shared_ptr<HttpExchange> exchange, HttpResponse&& response) {
  if (exchange->mailbox_->InLoopThread()) {
    if (exchange->connection_ != nullptr) exchange->connection_->OnResponse(std::move(response));
    return;
  }
  exchange->response_ = std::move(response);
  const std::shared_ptr<LoopMailbox> mailbox = exchange->mailbox_;  // the task may be the exchange's last owner
  mailbox->Post([exchange = std::move(exchange)] {
    if (exchange->connection_ != nullptr) {
      exchange->connection_->OnResponse(std::move(exchange->response_));
    } else {
      exchange->response_ = HttpResponse();
    }
  });
}

ResponseStream ResponseSender::Begin(HttpResponse head) {
  std::shared_ptr<HttpExchange> exchange = std::move(exchange_);
  exchange_ = nullptr;
  head.streamed_ = true;
  {
    absl::MutexLock lock(&exchange->mutex_);
    exchange->stream_ = {};
    exchange->stream_.chunked = exchange->request_.minor_version() > 0;
  }
  ResponseStream stream(exchange);
  Deliver(std::move(exchange), std::move(head));
  return stream;
}

ResponseStream& ResponseStream::operator=(ResponseStream&& other) noexcept {
  if (this != &other) {
    ResponseStream old(std::move(exchange_));
    exchange_ = std::move(other.exchange_);
  }
  return *this;
}

ResponseStream::~ResponseStream() {
  if (exchange_ != nullptr) Finish(false);
}

void ResponseStream::End() { Finish(true); }

bool ResponseStream::Write(std::string_view piece) {
  HttpExchange& exchange = *exchange_;
  bool wake = false;
  bool open = true;
  {
    absl::MutexLock lock(&exchange.mutex_);
    HttpExchange::Stream& stream = exchange.stream_;
    if (exchange.gone_ || stream.cut) return false;
    if (piece.empty()) return true;
    const std::size_t waiting = stream.pending.size() + stream.unsent;
    if (waiting > 0 && waiting + piece.size() > exchange.stream_limit_) {
      stream.cut = true;
      stream.pending = {};
      open = false;
    } else if (stream.chunked) {
      fmt::format_to(std::back_inserter(stream.pending), "{:x}\r\n{}\r\n", piece.size(), piece);
    } else {
      stream.pending += piece;
    }
    wake = !std::exchange(stream.woken, true) || stream.cut;
  }
  if (wake) HttpExchange::WakeStream(exchange_);
  return open;
}

void ResponseStream::Finish(bool whole) {
  std::shared_ptr<HttpExchange> exchange = std::move(exchange_);
  exchange_ = nullptr;
  absl::AnyInvocable<void()> callback;  // destroyed without the lock
  {
    absl::MutexLock lock(&exchange->mutex_);
    HttpExchange::Stream& stream = exchange->stream_;
    exchange->sent_ = true;
    callback = std::move(exchange->on_disconnect_);
    exchange->on_disconnect_ = nullptr;
    if (whole) {
      if (stream.chunked && !stream.cut) stream.pending += "0\r\n\r\n";
      stream.ended = true;
    } else {
      stream.cut = true;
    }
  }
  HttpExchange::WakeStream(std::move(exchange));
}

void HttpExchange::WakeStream(std::shared_ptr<HttpExchange> exchange) {
  if (exchange->mailbox_->InLoopThread()) {
    if (exchange->connection_ != nullptr) exchange->connection_->OnStream();
    return;
  }
  const std::shared_ptr<LoopMailbox> mailbox = exchange->mailbox_;  // the task may be the exchange's last owner
  mailbox->Post([exchange = std::move(exchange)] {
    if (exchange->connection_ != nullptr) exchange->connection_->OnStream();
  });
}

void ResponseSender::OnDisconnect(absl::AnyInvocable<void()> callback) {
  {
    absl::MutexLock lock(&exchange_->mutex_);
    if (!exchange_->gone_) {
      exchange_->on_disconnect_ = std::move(callback);
      return;
    }
  }
  callback();
}

bool ResponseSender::InLoopThread() const { return exchange_->mailbox_->InLoopThread(); }

void ResponseSender::PostToLoop(absl::AnyInvocable<void()> task) const {
  const std::shared_ptr<LoopMailbox> mailbox = exchange_->mailbox_;  // the task may be the exchange's last owner
  mailbox->Post(std::move(task));
}

bool ResponseSender::disconnected() const {
  absl::MutexLock lock(&exchange_->mutex_);
  return exchange_->gone_;
}

std::string ResponseSender::TakeSpareString() {
  std::string text = std::move(exchange_->spare_);
  exchange_->spare_ = {};
  text.clear();
  return text;
}

}  // namespace tidemark
