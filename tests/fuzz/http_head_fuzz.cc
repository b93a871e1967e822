// The head of an HTTP request: no input crashes the parser, the result does not depend on how the bytes arrive, and what
// is accepted keeps the parser's promises.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "frontend/http/head_parser.h"

namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using tidemark::HeadParser;
  if (size == 0) return 0;
  const std::size_t step = data[0] % 32 + 1u;
  const std::string_view head(reinterpret_cast<const char*>(data + 1), size - 1);
  tidemark::HttpLimits limits;
  limits.head_bytes = 4096;
  limits.header_count = 16;

  HeadParser whole(limits);
  const HeadParser::Result result = whole.Parse(head);

  HeadParser pieces(limits);
  HeadParser::Result last = HeadParser::Result::kNeedMore;
  for (std::size_t end = 0; end < head.size() && last == HeadParser::Result::kNeedMore;) {
    end = end + step < head.size() ? end + step : head.size();
    last = pieces.Parse(head.substr(0, end));
  }
  Require(last == result);
  if (result == HeadParser::Result::kError) {
    Require(whole.error().status >= 400);
    Require(whole.error().status == pieces.error().status);
  }
  if (result != HeadParser::Result::kDone) return 0;

  Require(whole.head_bytes() == pieces.head_bytes() && whole.head_bytes() <= limits.head_bytes);
  Require(!whole.chunked() || whole.content_length() == 0);
  Require(whole.content_length() <= limits.body_bytes);
  Require(whole.chunked() || whole.inference_header_length() <= whole.content_length());
  tidemark::HttpRequest request;
  whole.Fill(head, &request);
  Require(!request.path().empty() && (request.path().front() == '/' || request.path() == "*"));
  Require(request.headers().size() <= limits.header_count);
  for (const tidemark::HttpHeader& header : request.headers()) {
    Require(tidemark::IsToken(header.name) && tidemark::IsFieldValue(header.value));
  }
  return 0;
}
