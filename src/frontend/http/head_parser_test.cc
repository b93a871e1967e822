#include "frontend/http/head_parser.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tidemark {
namespace {

constexpr char kPost[] =
    "POST /v2/models/m/infer?x=1 HTTP/1.1\r\nHost: a:1\r\nContent-Length:  12 \r\nINFERENCE-header-Content-Length: 7\r\n"
    "X-Empty:\r\n\r\n";

int StatusOf(const std::string& head, const HttpLimits& limits = {}) {
  HeadParser parser(limits);
  switch (parser.Parse(head)) {
    case HeadParser::Result::kNeedMore:
      return 0;
    case HeadParser::Result::kDone:
      return 200;
    case HeadParser::Result::kError:
      EXPECT_FALSE(parser.error().message.empty());
      return parser.error().status;
  }
  return -1;
}

std::string Get(const std::string& fields) { return "GET / HTTP/1.1\r\n" + fields + "\r\n"; }

TEST(HeadParserTest, ReadsARequestHead) {
  const HttpLimits limits;
  HeadParser parser(limits);
  const std::string data = std::string(kPost) + "body";
  ASSERT_EQ(parser.Parse(data), HeadParser::Result::kDone);
  EXPECT_EQ(parser.head_bytes(), sizeof(kPost) - 1);
  EXPECT_EQ(parser.content_length(), 12u);
  EXPECT_EQ(parser.inference_header_length(), 7u);
  EXPECT_TRUE(parser.keep_alive());
  HttpRequest request;
  parser.Fill(data, &request);
  EXPECT_EQ(request.method(), HttpMethod::kPost);
  EXPECT_EQ(request.method_name(), "POST");
  EXPECT_EQ(request.path(), "/v2/models/m/infer");
  EXPECT_EQ(request.query(), "x=1");
  ASSERT_EQ(request.headers().size(), 4u);
  EXPECT_EQ(request.Find("content-LENGTH"), "12");
  EXPECT_EQ(request.Find("x-empty"), "");
  EXPECT_EQ(request.Find("x-other"), std::nullopt);
}

TEST(HeadParserTest, ResultDoesNotDependOnWhereTheHeadIsSplit) {
  const HttpLimits limits;
  const std::string data = kPost;
  for (std::size_t split = 0; split < data.size(); ++split) {
    HeadParser parser(limits);
    ASSERT_EQ(parser.Parse(data.substr(0, split)), HeadParser::Result::kNeedMore) << split;
    ASSERT_EQ(parser.Parse(data), HeadParser::Result::kDone) << split;
    HttpRequest request;
    parser.Fill(data, &request);
    EXPECT_EQ(request.Find("inference-header-content-length"), "7");
  }
  HeadParser parser(limits);
  for (std::size_t size = 1; size < data.size(); ++size) {
    ASSERT_EQ(parser.Parse(data.substr(0, size)), HeadParser::Result::kNeedMore);
  }
  EXPECT_EQ(parser.Parse(data), HeadParser::Result::kDone);
}

TEST(HeadParserTest, ResetForgetsTheLastRequest) {
  const HttpLimits limits;
  HeadParser parser(limits);
  ASSERT_EQ(parser.Parse("POST /a?q HTTP/1.0\r\nContent-Length: 3\r\nConnection: close\r\nExpect: x\r\n\r\n"),
            HeadParser::Result::kDone);
  parser.Reset();
  const std::string data = "GET /b HTTP/1.1\r\n\r\n";
  ASSERT_EQ(parser.Parse(data), HeadParser::Result::kDone);
  EXPECT_EQ(parser.content_length(), 0u);
  EXPECT_TRUE(parser.keep_alive());
  EXPECT_FALSE(parser.expects_continue());
  HttpRequest request;
  parser.Fill(data, &request);
  EXPECT_EQ(request.query(), "");
  EXPECT_TRUE(request.headers().empty());
}

TEST(HeadParserTest, AcceptsWhatTheStandardAllows) {
  for (const char* head : {
           "GET / HTTP/1.1\r\n\r\n",
           "\r\nGET / HTTP/1.1\r\n\r\n",
           "GET / HTTP/1.0\r\n\r\n",
           "GET http://host:80/v2 HTTP/1.1\r\n\r\n",
           "OPTIONS * HTTP/1.1\r\n\r\n",
           "BREW /pot HTTP/1.1\r\n\r\n",
           "GET /\xc3\xa4 HTTP/1.1\r\n\r\n",
           "GET / HTTP/1.1\r\nA:b\r\nA:\tc\t\r\n\r\n",
           "GET / HTTP/1.1\r\nA: \xff\r\n\r\n",
           "GET / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n",
           "GET / HTTP/1.1\r\nContent-Length: 0000000000000000000012\r\n\r\n",
       }) {
    EXPECT_EQ(StatusOf(head), 200) << head;
  }
}

TEST(HeadParserTest, RefusesMalformedHeads) {
  for (const char* head : {
           "GET / HTTP/1.1\n\n",
           "GET / HTTP/1.1\r\nA: b\n\r\n",
           "\r\n\r\nGET / HTTP/1.1\r\n\r\n",
           "\nGET / HTTP/1.1\r\n\r\n",
           " GET / HTTP/1.1\r\n\r\n",
           "GET  / HTTP/1.1\r\n\r\n",
           "GET /  HTTP/1.1\r\n\r\n",
           "GET /a b HTTP/1.1\r\n\r\n",
           "GET / HTTP/1.1 \r\n\r\n",
           "GET /\r\n\r\n",
           "GET\r\n\r\n",
           "GET / http/1.1\r\n\r\n",
           "GET / HTTP/1\r\n\r\n",
           "GET / HTTP/1.11\r\n\r\n",
           "GET v2 HTTP/1.1\r\n\r\n",
           "GET * HTTP/1.1\r\n\r\n",
           "GET http:///v2 HTTP/1.1\r\n\r\n",
           "CONNECT a:1 HTTP/1.1\r\n\r\n",
           "GET /a#b HTTP/1.1\r\n\r\n",
           "GET /\x01 HTTP/1.1\r\n\r\n",
           "G(T / HTTP/1.1\r\n\r\n",
           "GET / HTTP/1.1\r\nA : b\r\n\r\n",
           "GET / HTTP/1.1\r\n: b\r\n\r\n",
           "GET / HTTP/1.1\r\nAb\r\n\r\n",
           "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
           "GET / HTTP/1.1\r\n A: b\r\n\r\n",
           "GET / HTTP/1.1\r\nA: b\rc\r\n\r\n",
           "GET / HTTP/1.1\r\nA: \x7f\r\n\r\n",
           "GET / HTTP/1.1\r\nA\xff: b\r\n\r\n",
           "\x16\x03\x01\x02",
       }) {
    EXPECT_EQ(StatusOf(head), 400) << head;
  }
  EXPECT_EQ(StatusOf(Get(std::string("A: \0b\r\n", 7))), 400);
  EXPECT_EQ(StatusOf("GET / HTTP/2.0\r\n\r\n"), 505);
  EXPECT_EQ(StatusOf("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
}

TEST(HeadParserTest, RefusesWhatTwoParsersCouldFrameDifferently) {
  for (const char* fields : {
           "Content-Length: 5\r\nContent-Length: 5\r\n",
           "Content-Length: 5\r\nContent-Length: 6\r\n",
           "Content-Length: 5, 5\r\n",
           "Content-Length: +5\r\n",
           "Content-Length: -5\r\n",
           "Content-Length: 0x5\r\n",
           "Content-Length: 5 5\r\n",
           "Content-Length:\r\n",
           "Content-Length: 99999999999999999999\r\n",
           "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
           "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
           "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
           "Content-Length : 5\r\n",
       }) {
    EXPECT_EQ(StatusOf(Get(fields)), 400) << fields;
  }
  for (const char* fields : {"Transfer-Encoding: gzip, chunked\r\n", "Transfer-Encoding: chunked, identity\r\n",
                             "Transfer-Encoding: xchunked\r\n", "Transfer-Encoding:\r\n",
                             "Transfer-Encoding: \"chunked\"\r\n", "Transfer-Encoding: chunked;q=1\r\n"}) {
    EXPECT_EQ(StatusOf(Get(fields)), 501) << fields;
  }
  EXPECT_EQ(StatusOf("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
}

TEST(HeadParserTest, LimitsAreEnforcedWithoutWaitingForTheEnd) {
  HttpLimits limits;
  limits.head_bytes = 64;
  EXPECT_EQ(StatusOf("GET /" + std::string(60, 'a'), limits), 431);
  const std::string exact = Get("A: " + std::string(64 - 16 - 3 - 2 - 2, 'b') + "\r\n");
  ASSERT_EQ(exact.size(), 64u);
  EXPECT_EQ(StatusOf(exact, limits), 200);
  EXPECT_EQ(StatusOf("\r\n" + exact, limits), 431);
  limits = {};
  limits.header_count = 2;
  EXPECT_EQ(StatusOf(Get("A: 1\r\nB: 2\r\n"), limits), 200);
  EXPECT_EQ(StatusOf(Get("A: 1\r\nB: 2\r\nC:"), limits), 431);
  limits.body_bytes = 10;
  EXPECT_EQ(StatusOf(Get("Content-Length: 10\r\n"), limits), 200);
  EXPECT_EQ(StatusOf(Get("Content-Length: 11\r\n"), limits), 413);
}

TEST(HeadParserTest, KeepAliveFollowsVersionAndConnectionHeader) {
  const HttpLimits limits;
  const auto keep_alive = [&](const std::string& head) {
    HeadParser parser(limits);
    EXPECT_EQ(parser.Parse(head), HeadParser::Result::kDone);
    return parser.keep_alive();
  };
  EXPECT_TRUE(keep_alive("GET / HTTP/1.1\r\n\r\n"));
  EXPECT_FALSE(keep_alive("GET / HTTP/1.1\r\nConnection: Close\r\n\r\n"));
  EXPECT_FALSE(keep_alive("GET / HTTP/1.1\r\nConnection: TE , close\r\n\r\n"));
  EXPECT_FALSE(keep_alive("GET / HTTP/1.0\r\n\r\n"));
  EXPECT_TRUE(keep_alive("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
  EXPECT_FALSE(keep_alive("GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n"));
}

TEST(HeadParserTest, HeaderLengthCountsOnlyAsAPlainNumberWithinTheBody) {
  const HttpLimits limits;
  for (const auto& [value, expected] : std::vector<std::pair<std::string, std::uint64_t>>{
           {"10", 10}, {"11", 0}, {"96x", 0}, {"-1", 0}, {"", 0}, {"5", 5}}) {
    HeadParser parser(limits);
    ASSERT_EQ(
        parser.Parse("POST / HTTP/1.1\r\nContent-Length: 10\r\nInference-Header-Content-Length: " + value + "\r\n\r\n"),
        HeadParser::Result::kDone);
    EXPECT_EQ(parser.inference_header_length(), expected) << value;
  }
}

TEST(HeadParserTest, OnAPortOfACloudTheContentTypeSaysWhereTensorsBegin) {
  const HttpLimits limits;
  const auto length = [&](std::string_view binary_type, std::string_view fields) {
    HeadParser parser(limits, binary_type);
    const std::string head = fmt::format("POST / HTTP/1.1\r\nContent-Length: 10\r\n{}\r\n", fields);
    EXPECT_EQ(parser.Parse(head), HeadParser::Result::kDone);
    const std::uint64_t found = parser.inference_header_length();
    parser.Reset();
    EXPECT_EQ(parser.Parse("POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\n"), HeadParser::Result::kDone);
    EXPECT_EQ(parser.inference_header_length(), 0u) << "of the request before";
    return found;
  };
  EXPECT_EQ(length("a/b;n=", "Content-Type: a/b;n=7\r\n"), 7u);
  EXPECT_EQ(length("a/b;n=", "content-type: A/B;N=7\r\n"), 7u);
  EXPECT_EQ(length("a/b;n=", "Content-Type: a/b;n=7\r\nInference-Header-Content-Length: 3\r\n"), 7u);
  EXPECT_EQ(length("a/b;n=", "Content-Type: a/c;n=7\r\nInference-Header-Content-Length: 3\r\n"), 3u);
  EXPECT_EQ(length("a/b;n=", "Content-Type: a/b;n=11\r\n"), 0u);
  EXPECT_EQ(length("a/b;n=", "Content-Type: a/b;n=x\r\n"), 0u);
  EXPECT_EQ(length("a/b;n=", "Content-Type: a/b\r\n"), 0u);
  EXPECT_EQ(length("", "Content-Type: a/b;n=7\r\n"), 0u);
}

}  // namespace
}  // namespace tidemark
