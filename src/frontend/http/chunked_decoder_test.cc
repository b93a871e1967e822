#include "frontend/http/chunked_decoder.h"

#include <gtest/gtest.h>

#include <string>

namespace tidemark {
namespace {

struct Decoded {
  int status = 0;  // 200 done, 0 incomplete, else the error's
  std::string body;
  std::string message;
  std::size_t used = 0;
};

// Feeds `pieces` bytes at a time.
Decoded Decode(const std::string& wire, std::size_t piece) {
  ChunkedDecoder decoder;
  Decoded decoded;
  for (std::size_t at = 0; at < wire.size(); at += piece) {
    std::string_view input = std::string_view(wire).substr(at, piece);
    while (!input.empty()) {
      const ChunkedDecoder::Step step = decoder.Next(input);
      decoded.used += step.consumed;
      input.remove_prefix(step.consumed);
      if (step.result == ChunkedDecoder::Result::kData) decoded.body += step.data;
      if (step.result == ChunkedDecoder::Result::kDone) {
        decoded.status = 200;
        return decoded;
      }
      if (step.result == ChunkedDecoder::Result::kError) {
        decoded.status = decoder.error().status;
        decoded.message = decoder.error().message;
        return decoded;
      }
    }
  }
  return decoded;
}

TEST(ChunkedDecoderTest, DecodesAtEverySplit) {
  const std::string wire = "3\r\nabc\r\n00A;name=\"v\"\r\n0123456789\r\n0\r\nX-Sum: 1\r\nY:\r\n\r\n";
  for (std::size_t piece = 1; piece <= wire.size(); ++piece) {
    const Decoded decoded = Decode(wire, piece);
    EXPECT_EQ(decoded.status, 200) << piece;
    EXPECT_EQ(decoded.body, "abc0123456789") << piece;
    EXPECT_EQ(decoded.used, wire.size());
  }
}

TEST(ChunkedDecoderTest, LeavesTheNextRequestAlone) {
  const Decoded decoded = Decode("1\r\na\r\n0\r\n\r\nGET", 100);
  EXPECT_EQ(decoded.status, 200);
  EXPECT_EQ(decoded.used, 11u);
}

TEST(ChunkedDecoderTest, RefusesMalformedChunks) {
  for (const char* wire :
       {"\r\n", "g\r\n", "-1\r\n", "0x1\r\na\r\n", " 1\r\na\r\n", "1 \r\na\r\n", "1\na\r\n", "1\r\nab\r\n", "1\r\na\n",
        "1\r\na0\r\n", "1;\x01\r\na\r\n", "1;a\n", "1\ra", "1111111111111111\r\n", "0\r\nabc\r\n\r\n",
        "0\r\n: b\r\n\r\n", "0\r\nA: b\n\n", "0\r\n b\r\n\r\n", "0\r\nA b: c\r\n"}) {
    EXPECT_EQ(Decode(wire, 100).status, 400) << wire;
    EXPECT_EQ(Decode(wire, 1).status, 400) << wire;
  }
  EXPECT_EQ(Decode("1;" + std::string(5000, 'a'), 100).status, 400);
  EXPECT_EQ(Decode("0\r\nA: " + std::string(9000, 'a'), 100).status, 431);
}

TEST(ChunkedDecoderTest, CapsNonEmptyChunksWithTritonsText) {
  std::string wire;
  for (int i = 0; i < 65536; ++i) wire += "1\r\na\r\n";
  EXPECT_EQ(Decode(wire + "0\r\n\r\n", 1000).status, 200);
  const Decoded decoded = Decode(wire + "1\r\na\r\n0\r\n\r\n", 1000);
  EXPECT_EQ(decoded.status, 400);
  EXPECT_EQ(decoded.message,
            "Chunked request body exceeds maximum of 65536 non-empty chunks. Send fewer or larger HTTP chunks.");
}

TEST(ChunkedDecoderTest, DataMayBeReceivedElsewhere) {
  ChunkedDecoder decoder;
  EXPECT_EQ(decoder.Next("5\r\n").result, ChunkedDecoder::Result::kNeedMore);
  EXPECT_EQ(decoder.remaining(), 5u);
  decoder.ConsumeElsewhere(3);
  EXPECT_EQ(decoder.Next("de").data, "de");
  EXPECT_EQ(decoder.remaining(), 0u);
  EXPECT_EQ(decoder.Next("\r\n0\r\n\r\n").result, ChunkedDecoder::Result::kDone);
}

}  // namespace
}  // namespace tidemark
