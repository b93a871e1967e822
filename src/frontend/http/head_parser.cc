#include "frontend/http/head_parser.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <utility>

namespace tidemark {
namespace {

constexpr std::uint8_t kTokenChar = 1;   // header names, methods
constexpr std::uint8_t kValueChar = 2;   // header values
constexpr std::uint8_t kTargetChar = 4;  // request targets

constexpr std::array<std::uint8_t, 256> MakeCharacterTable() {
  std::array<std::uint8_t, 256> table{};
  for (std::size_t c = 0; c < 256; ++c) {
    const bool visible = c > 0x20 && c != 0x7f;
    if (visible || c == ' ' || c == '\t') table[c] |= kValueChar;
    if (visible && c != '#') table[c] |= kTargetChar;
    const bool alphanumeric = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (alphanumeric) table[c] |= kTokenChar;
  }
  for (const char c : std::string_view("!#$%&'*+-.^_`|~")) table[static_cast<std::size_t>(c)] |= kTokenChar;
  return table;
}

constexpr std::array<std::uint8_t, 256> kCharacters = MakeCharacterTable();

bool AllOf(std::string_view text, std::uint8_t kind) {
  for (const char c : text) {
    if ((kCharacters[static_cast<unsigned char>(c)] & kind) == 0) return false;
  }
  return true;
}

// What to show of a client's bytes in an error: short, printable.
std::string Shown(std::string_view text) {
  std::string shown;
  for (const char c : text.substr(0, 40)) shown.push_back(c >= 0x20 && c < 0x7f ? c : '?');
  if (text.size() > 40) shown += "...";
  return shown;
}

std::string_view TrimBlanks(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

HttpMethod MethodOf(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, HttpMethod>, 7> kMethods = {{{"POST", HttpMethod::kPost},
                                                                                {"GET", HttpMethod::kGet},
                                                                                {"HEAD", HttpMethod::kHead},
                                                                                {"PUT", HttpMethod::kPut},
                                                                                {"DELETE", HttpMethod::kDelete},
                                                                                {"PATCH", HttpMethod::kPatch},
                                                                                {"OPTIONS", HttpMethod::kOptions}}};
  for (const auto& [text, method] : kMethods) {
    if (name == text) return method;
  }
  return HttpMethod::kOther;
}

}  // namespace

bool IsToken(std::string_view text) { return !text.empty() && AllOf(text, kTokenChar); }
bool IsFieldValue(std::string_view text) { return AllOf(text, kValueChar); }

HeadParser::Range HeadParser::RangeOf(std::string_view data, std::string_view part) {
  return {static_cast<std::uint32_t>(part.data() - data.data()), static_cast<std::uint32_t>(part.size())};
}

bool HeadParser::Fail(int status, std::string message) {
  error_ = {status, std::move(message)};
  return false;
}

void HeadParser::Reset() {
  std::vector<Field> fields = std::move(fields_);
  fields.clear();
  // Everything but the limits and the vector's memory is as in a new parser.
  error_ = {};
  line_ = scan_ = 0;
  has_request_line_ = skipped_empty_line_ = false;
  query_ = {};
  fields_ = std::move(fields);
  content_length_.reset();
  has_transfer_encoding_ = chunked_ = says_close_ = says_keep_alive_ = keep_alive_ = false;
  has_expect_ = expects_continue_ = has_inference_header_ = has_content_type_ = false;
  inference_header_.reset();
  json_bytes_of_type_.reset();
  inference_header_length_ = 0;
}

HeadParser::Result HeadParser::Parse(std::string_view data) {
  for (;;) {
    if (!has_request_line_ && line_ < data.size() && data[line_] != '\r' &&
        (kCharacters[static_cast<unsigned char>(data[line_])] & kTokenChar) == 0) {
      Fail(400, "malformed request: it does not begin with an HTTP method");
      return Result::kError;
    }
    const void* found = data.size() > scan_ ? std::memchr(data.data() + scan_, '\n', data.size() - scan_) : nullptr;
    const std::size_t end =
        found == nullptr ? data.size() : static_cast<std::size_t>(static_cast<const char*>(found) - data.data()) + 1;
    if (end > limits_.head_bytes) {
      Fail(431, fmt::format("request line and headers exceed the maximum of {} bytes", limits_.head_bytes));
      return Result::kError;
    }
    if (found == nullptr) {
      scan_ = end;
      return Result::kNeedMore;
    }
    if (end - line_ < 2 || data[end - 2] != '\r') {
      Fail(400, "malformed request head: a line ends with LF instead of CRLF");
      return Result::kError;
    }
    const std::string_view line = data.substr(line_, end - 2 - line_);
    line_ = scan_ = end;
    if (!has_request_line_) {
      if (line.empty() && !skipped_empty_line_) {
        skipped_empty_line_ = true;  // RFC 9112, 2.2: one empty line before a request is ignored
        continue;
      }
      if (!ReadRequestLine(data, line)) return Result::kError;
      has_request_line_ = true;
    } else if (line.empty()) {
      return Finish() ? Result::kDone : Result::kError;
    } else if (!ReadField(data, line)) {
      return Result::kError;
    }
  }
}

bool HeadParser::ReadRequestLine(std::string_view data, std::string_view line) {
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) {
    return Fail(400, fmt::format("malformed request line '{}': expected 'METHOD TARGET HTTP/1.1'", Shown(line)));
  }
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (!IsToken(method)) return Fail(400, fmt::format("malformed HTTP method '{}'", Shown(method)));
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  if (version.size() != 8 || !version.starts_with("HTTP/") || !digit(version[5]) || version[6] != '.' ||
      !digit(version[7])) {
    return Fail(400, fmt::format("malformed HTTP version '{}' in the request line", Shown(version)));
  }
  if (version[5] != '1') return Fail(505, fmt::format("'{}' is not supported: use HTTP/1.1", version));
  method_ = MethodOf(method);
  method_name_ = RangeOf(data, method);
  minor_version_ = version[7] == '0' ? 0 : 1;
  return ReadTarget(data, target);
}

bool HeadParser::ReadTarget(std::string_view data, std::string_view target) {
  if (target.empty() || !AllOf(target, kTargetChar)) {
    return Fail(400, fmt::format("malformed request target '{}'", Shown(target)));
  }
  if (target.front() != '/' && !(target == "*" && method_ == HttpMethod::kOptions)) {
    // The absolute form, which every server must take (RFC 9112, 3.2.2).
    const bool absolute = target.size() > 7 && EqualsIgnoreCase(target.substr(0, 7), "http://");
    const std::size_t slash = absolute ? target.find_first_of("/?", 7) : std::string_view::npos;
    if (slash == std::string_view::npos || slash == 7 || target[slash] == '?') {
      return Fail(400, fmt::format("request target '{}' is no path: it must begin with '/'", Shown(target)));
    }
    target.remove_prefix(slash);
  }
  const std::size_t mark = target.find('?');
  path_ = RangeOf(data, target.substr(0, mark));
  if (mark != std::string_view::npos) query_ = RangeOf(data, target.substr(mark + 1));
  return true;
}

bool HeadParser::ReadField(std::string_view data, std::string_view line) {
  if (fields_.size() >= limits_.header_count) {
    return Fail(431, fmt::format("more than {} headers", limits_.header_count));
  }
  if (line.front() == ' ' || line.front() == '\t') {
    return Fail(400, "malformed request head: a header line begins with a blank (folded headers are not supported)");
  }
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) {
    return Fail(400, fmt::format("malformed header line '{}': no colon", Shown(line)));
  }
  const std::string_view name = line.substr(0, colon);
  if (!IsToken(name)) return Fail(400, fmt::format("malformed header name '{}'", Shown(name)));
  const std::string_view value = TrimBlanks(line.substr(colon + 1));
  if (!IsFieldValue(value)) {
    return Fail(400, fmt::format("header '{}' has a control character in its value", Shown(name)));
  }
  Range value_range = RangeOf(data, value);
  fields_.push_back({RangeOf(data, name), value_range});
  return ReadKnownField(name, value);
}

bool HeadParser::ReadKnownField(std::string_view name, std::string_view value) {
  switch (name.size()) {
    case 6:
      if (EqualsIgnoreCase(name, "expect")) has_expect_ = true;
      return true;
    case 10:
      if (EqualsIgnoreCase(name, "connection")) ReadConnection(value);
      return true;
    case 12:
      if (binary_type_.empty() || has_content_type_ || !EqualsIgnoreCase(name, "content-type")) return true;
      has_content_type_ = true;
      if (EqualsIgnoreCase(value.substr(0, binary_type_.size()), binary_type_)) {
        json_bytes_of_type_ = ParseDecimal(value.substr(binary_type_.size()));
      }
      return true;
    case 14:
      if (!EqualsIgnoreCase(name, "content-length")) return true;
      if (content_length_.has_value()) return Fail(400, "more than one Content-Length header");
      content_length_ = ParseDecimal(value);
      if (!content_length_.has_value()) {
        return Fail(400, fmt::format("Content-Length '{}' is not a number of bytes", Shown(value)));
      }
      return true;
    case 17:
      if (!EqualsIgnoreCase(name, "transfer-encoding")) return true;
      if (has_transfer_encoding_) return Fail(400, "more than one Transfer-Encoding header");
      has_transfer_encoding_ = true;
      chunked_ = EqualsIgnoreCase(value, "chunked");
      if (!chunked_) {
        return Fail(501, fmt::format("Transfer-Encoding '{}' is not supported: only 'chunked' is", Shown(value)));
      }
      return true;
    case 31:
      if (!EqualsIgnoreCase(name, "inference-header-content-length") || has_inference_header_) return true;
      has_inference_header_ = true;
      inference_header_ = ParseDecimal(value);
      return true;
    default:
      return true;
  }
}

void HeadParser::ReadConnection(std::string_view value) {
  while (!value.empty()) {
    const std::size_t comma = value.find(',');
    const std::string_view option = TrimBlanks(value.substr(0, comma));
    if (EqualsIgnoreCase(option, "close")) says_close_ = true;
    if (EqualsIgnoreCase(option, "keep-alive")) says_keep_alive_ = true;
    value = comma == std::string_view::npos ? std::string_view() : value.substr(comma + 1);
  }
}

bool HeadParser::Finish() {
  if (chunked_ && content_length_.has_value()) {
    return Fail(400, "Content-Length and Transfer-Encoding exclude each other");
  }
  if (chunked_ && minor_version_ == 0) return Fail(400, "Transfer-Encoding does not exist in HTTP/1.0");
  if (content_length_.value_or(0) > limits_.body_bytes) {
    return Fail(413, fmt::format("request body of {} bytes exceeds the maximum of {} bytes", *content_length_,
                                 limits_.body_bytes));
  }
  keep_alive_ = !says_close_ && (minor_version_ == 1 || says_keep_alive_);
  expects_continue_ = has_expect_ && minor_version_ == 1;
  const std::uint64_t most = chunked_ ? limits_.body_bytes : content_length_.value_or(0);
  const std::optional<std::uint64_t> json_bytes = json_bytes_of_type_ ? json_bytes_of_type_ : inference_header_;
  if (json_bytes && *json_bytes <= most) inference_header_length_ = *json_bytes;
  return true;
}

void HeadParser::Fill(std::string_view data, HttpRequest* request) const {
  request->method_ = method_;
  request->minor_version_ = minor_version_;
  request->method_name_ = method_name_.In(data);
  request->path_ = path_.In(data);
  request->query_ = query_.In(data);
  request->headers_.clear();
  for (const Field& field : fields_) request->headers_.push_back({field.name.In(data), field.value.In(data)});
}

}  // namespace tidemark
