// Our HTTP head parser beside Boost.Beast's. Ours is the stricter one; but what it accepts, Beast must read as the same
// request: a difference there is a way to smuggle one. Whether the connection stays open is not compared: in a malformed
// Connection list Beast finds other words than we do, and either end may close whenever it likes.

#include <boost/beast/core/error.hpp>
#include <boost/beast/http.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/http/head_parser.h"

namespace {

namespace http = boost::beast::http;

void Require(bool condition, const char* claim) {
  if (condition) return;
  std::fprintf(stderr, "broken claim: %s\n", claim);
  std::abort();
}

std::string_view Text(boost::beast::string_view text) { return {text.data(), text.size()}; }

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
  }
  return lower;
}

// Beast looks into lists that we pass on unread, does not take every target and version that we do, and does not take
// Transfer-Encoding without a body length it likes.
bool StricterThere(const boost::beast::error_code& error) {
  return error == http::error::bad_value || error == http::error::bad_target || error == http::error::bad_version ||
         error == http::error::bad_field;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  tidemark::HttpLimits limits;
  limits.head_bytes = 4096;
  limits.header_count = 32;
  tidemark::HeadParser ours(limits);
  if (ours.Parse(text) != tidemark::HeadParser::Result::kDone) return 0;
  tidemark::HttpRequest request;
  ours.Fill(text, &request);

  // One empty line in front is ours to skip; the absolute form is ours to take apart.
  std::string_view rest = text.substr(0, ours.head_bytes());
  if (rest.starts_with("\r\n")) rest.remove_prefix(2);
  const std::string_view target = rest.substr(rest.find(' ') + 1);
  const bool absolute = !target.starts_with('/') && !target.starts_with('*');

  http::request_parser<http::empty_body> theirs;
  theirs.eager(false);
  theirs.header_limit(1 << 20);
  theirs.body_limit(limits.body_bytes);
  boost::beast::error_code error;
  const std::size_t used = theirs.put(boost::asio::buffer(rest.data(), rest.size()), error);
  if (error && error != http::error::need_more) {
    Require(StricterThere(error), error.message().c_str());
    return 0;
  }
  Require(theirs.is_header_done() && used == rest.size(), "both end the head at the same place");
  const auto& read = theirs.get();
  Require(Text(read.method_string()) == request.method_name(), "same method");
  if (!absolute) {
    std::string whole(request.path());
    const std::size_t mark = Text(read.target()).find('?');
    if (mark != std::string_view::npos) whole += "?" + std::string(request.query());
    Require(Text(read.target()) == whole, "same target");
  }
  // Beast keeps fields of one name together; within a name both keep the order.
  std::map<std::string, std::vector<std::string>> here;
  std::map<std::string, std::vector<std::string>> there;
  for (const tidemark::HttpHeader& header : request.headers()) here[Lower(header.name)].emplace_back(header.value);
  for (const auto& field : read) there[Lower(Text(field.name_string()))].emplace_back(Text(field.value()));
  Require(here == there, "same headers");
  Require(theirs.chunked() == ours.chunked(), "chunked in both or in none");
  Require(ours.chunked() || theirs.content_length().value_or(0) == ours.content_length(), "same length of the body");
  return 0;
}
