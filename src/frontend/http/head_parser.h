#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/http/limits.h"
#include "frontend/http/message.h"

namespace tidemark {

// A refusal by the transport: status and what to tell the client.
struct HttpError {
  int status = 0;
  std::string message;
};

// Reads the head of one HTTP/1.x request (RFC 9112), strictly: CRLF line ends only, single blanks in the request line,
// no folded lines, no blank before a colon, token characters in names, no control characters in values, one
// Content-Length of digits only, Transfer-Encoding only as one "chunked" and never beside Content-Length or in HTTP/1.0.
// What two parsers could read differently is refused (request smuggling). Not thread-safe; reused by Reset.
class HeadParser {
 public:
  enum class Result { kNeedMore, kDone, kError };

  // `binary_type` as in HttpServerOptions.
  explicit HeadParser(const HttpLimits& limits, std::string_view binary_type = {})
      : limits_(limits), binary_type_(binary_type) {}

  // `data`: everything received of this request, from its first byte; each call sees the bytes of the last one and
  // possibly more (they may have moved). Work is proportional to what is new.
  Result Parse(std::string_view data);

  // After kError.
  const HttpError& error() const { return error_; }

  // After kDone. Bytes of the head with its empty line:
  std::size_t head_bytes() const { return line_; }
  bool chunked() const { return chunked_; }
  std::uint64_t content_length() const { return content_length_.value_or(0); }
  bool keep_alive() const { return keep_alive_; }
  bool expects_continue() const { return expects_continue_; }
  int minor_version() const { return minor_version_; }
  // What the content type says behind `binary_type`, else Inference-Header-Content-Length; 0 when absent, no plain number
  // or beyond Content-Length.
  std::uint64_t inference_header_length() const { return inference_header_length_; }

  // After kDone: makes views into `data` (the same bytes as given to Parse).
  void Fill(std::string_view data, HttpRequest* request) const;

  // Ready for the next request, memory kept.
  void Reset();

 private:
  struct Range {
    std::uint32_t begin = 0;
    std::uint32_t size = 0;
    std::string_view In(std::string_view data) const { return data.substr(begin, size); }
  };
  struct Field {
    Range name;
    Range value;
  };

  bool ReadRequestLine(std::string_view data, std::string_view line);
  bool ReadTarget(std::string_view data, std::string_view target);
  bool ReadField(std::string_view data, std::string_view line);
  bool ReadKnownField(std::string_view name, std::string_view value);
  void ReadConnection(std::string_view value);
  bool Finish();
  bool Fail(int status, std::string message);
  static Range RangeOf(std::string_view data, std::string_view part);

  const HttpLimits& limits_;
  const std::string_view binary_type_;
  HttpError error_;
  std::size_t line_ = 0;  // where the current line begins
  std::size_t scan_ = 0;  // no line end before here
  bool has_request_line_ = false;
  bool skipped_empty_line_ = false;
  HttpMethod method_ = HttpMethod::kOther;
  int minor_version_ = 1;
  Range method_name_;
  Range path_;
  Range query_;
  std::vector<Field> fields_;
  std::optional<std::uint64_t> content_length_;
  bool has_transfer_encoding_ = false;
  bool chunked_ = false;
  bool says_close_ = false;
  bool says_keep_alive_ = false;
  bool keep_alive_ = false;
  bool has_expect_ = false;
  bool expects_continue_ = false;
  std::optional<std::uint64_t> inference_header_;
  bool has_inference_header_ = false;
  bool has_content_type_ = false;
  std::optional<std::uint64_t> json_bytes_of_type_;
  std::uint64_t inference_header_length_ = 0;
};

// True for one or more characters of a header name or method (RFC 9110, 5.6.2).
bool IsToken(std::string_view text);
// True when there is no control character but a tab (RFC 9110, 5.5).
bool IsFieldValue(std::string_view text);

}  // namespace tidemark
