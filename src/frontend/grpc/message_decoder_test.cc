#include "frontend/grpc/message_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "base/status.h"
#include "tests/support/real_platform.h"

namespace tidemark {
namespace {

using std::string_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Keeps what it is given. An announced size that is passed fails the test.
struct Gatherer : GrpcCall {
  std::vector<std::string> messages;
  bool inside = false;
  std::size_t most = 0;
  absl::Status end;  // what EndMessage returns

  absl::Status BeginMessage(std::size_t announced) override {
    EXPECT_FALSE(inside);
    inside = true;
    most = announced;
    messages.emplace_back();
    return absl::OkStatus();
  }
  absl::Status Add(std::span<const std::byte> bytes) override {
    EXPECT_TRUE(inside);
    messages.back().append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    EXPECT_LE(messages.back().size(), most);
    return absl::OkStatus();
  }
  absl::Status EndMessage() override {
    inside = false;
    return end;
  }
  absl::Status HalfClose() override { return absl::OkStatus(); }
  void Cancel() override {}
};

std::string Framed(std::string_view message, char flag = 0) {
  std::string out(1, flag);
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(message.size() >> shift);
  return out += message;
}

class MessageDecoderTest : public testing::Test {
 protected:
  std::string Compressed(ContentCoding coding, std::string_view text) {
    const std::span<const std::byte> part = std::as_bytes(std::span(text));
    const Buffer made = Deflate(coding, {&part, 1}, pool_).value();
    return {reinterpret_cast<const char*>(made.data()), made.size()};
  }
  // Feeds `wire` in pieces of `step`.
  absl::Status Feed(GrpcMessageDecoder& decoder, std::string_view wire, std::size_t step) {
    for (std::size_t at = 0; at < wire.size(); at += step) {
      const std::string_view piece = wire.substr(at, step);
      std::span<const std::byte> bytes = std::as_bytes(std::span(piece));
      while (!bytes.empty()) {
        const std::size_t before = bytes.size();
        RETURN_IF_ERROR(decoder.Take(bytes, call_));
        EXPECT_LT(bytes.size(), before) << "nothing was taken";
      }
    }
    return absl::OkStatus();
  }
  std::string ErrorOf(std::string_view wire, std::optional<ContentCoding> coding, std::uint64_t limit = 1 << 20) {
    GrpcMessageDecoder decoder(limit);
    decoder.set_coding(coding);
    const absl::Status status = Feed(decoder, wire, wire.size());
    call_.inside = false;
    return std::string(MessageOf(status));
  }

  std::unique_ptr<Platform> platform_ = CreateLinuxPlatform();
  BufferPool pool_{*platform_};
  Gatherer call_;
};

TEST_F(MessageDecoderTest, MessagesComeOutWhateverThePieces) {
  const std::string long_text(70'000, 'l');
  const std::string wire = Framed("one") + Framed("") + Framed(Compressed(ContentCoding::kGzip, "two"), 1) +
                           Framed(Compressed(ContentCoding::kGzip, long_text), 1) + Framed("end");
  for (const std::size_t step : {1U, 2U, 3U, 4U, 5U, 6U, 7U, 64U, 1000U, 100'000U}) {
    call_.messages.clear();
    GrpcMessageDecoder decoder(1 << 20);
    decoder.set_coding(ContentCoding::kGzip);
    ASSERT_TRUE(Feed(decoder, wire, step).ok()) << step;
    EXPECT_THAT(call_.messages, ElementsAre("one", "", "two", long_text, "end")) << step;
    EXPECT_FALSE(decoder.inside());
    EXPECT_EQ(decoder.messages(), 5u);
  }
}

TEST_F(MessageDecoderTest, StopsBehindEveryMessage) {
  const std::string wire = Framed("a") + Framed("b");
  GrpcMessageDecoder decoder(100);
  std::span<const std::byte> bytes = std::as_bytes(std::span(wire));
  ASSERT_TRUE(decoder.Take(bytes, call_).ok());
  EXPECT_EQ(bytes.size(), 6u);
  EXPECT_THAT(call_.messages, ElementsAre("a"));
  ASSERT_TRUE(decoder.Take(bytes, call_).ok());
  EXPECT_TRUE(bytes.empty());
}

TEST_F(MessageDecoderTest, DeflateIsZlibsFraming) {
  GrpcMessageDecoder decoder(100);
  decoder.set_coding(ContentCoding::kDeflate);
  ASSERT_TRUE(Feed(decoder, Framed(Compressed(ContentCoding::kDeflate, "text"), 1), 1).ok());
  EXPECT_THAT(call_.messages, ElementsAre("text"));
  EXPECT_THAT(ErrorOf(Framed(Compressed(ContentCoding::kDeflate, "text"), 1), ContentCoding::kGzip),
              "a message cannot be decompressed: it is no such stream");
}

TEST_F(MessageDecoderTest, MessageBeyondTheLimitIsRefusedBeforeItBegins) {
  EXPECT_EQ(ErrorOf(Framed(std::string(101, 'x')).substr(0, 5), std::nullopt, 100),
            "Received message larger than max (101 vs. 100)");
  EXPECT_EQ(ErrorOf("\0\xFF\xFF\xFF\xFF"s, std::nullopt, (std::uint64_t{1} << 31) - 1),
            "Received message larger than max (4294967295 vs. 2147483647)");
  EXPECT_THAT(call_.messages, IsEmpty());
  EXPECT_EQ(ErrorOf(Framed(std::string(100, 'x')), std::nullopt, 100), "");
}

TEST_F(MessageDecoderTest, DecompressedSizeCountsForTheLimit) {
  const std::string bomb = Framed(Compressed(ContentCoding::kGzip, std::string(1 << 20, '\0')), 1);
  EXPECT_LT(bomb.size(), 2000u);
  EXPECT_THAT(ErrorOf(bomb, ContentCoding::kGzip, 100'000), HasSubstr("Received message larger than max"));
  EXPECT_LE(call_.messages.back().size(), 100'000u);
  EXPECT_EQ(ErrorOf(bomb, ContentCoding::kGzip, 1 << 20), "");
}

TEST_F(MessageDecoderTest, LimitIsFoundBeforeAFaultBehindItWhateverThePieces) {
  std::string broken = Compressed(ContentCoding::kGzip, std::string(20'000, 'b') + "another end");
  broken[broken.size() - 5] = static_cast<char>(broken[broken.size() - 5] ^ 0x55);  // its check sum
  const std::string wire = Framed(broken, 1);
  for (const std::size_t step : {std::size_t{1}, std::size_t{7}, wire.size()}) {
    for (const auto& [limit, found] : {std::pair(10'000, "larger than max"), std::pair(30'000, "no such stream")}) {
      GrpcMessageDecoder decoder(static_cast<std::uint64_t>(limit));
      decoder.set_coding(ContentCoding::kGzip);
      EXPECT_THAT(std::string(MessageOf(Feed(decoder, wire, step))), HasSubstr(found)) << step;
      call_.inside = false;
    }
  }
}

TEST_F(MessageDecoderTest, BadFramingIsNamed) {
  EXPECT_EQ(ErrorOf("\2\0\0\0\0"s, std::nullopt), "invalid compression flag 2 in front of a message");
  for (const std::optional<ContentCoding> none : {std::optional<ContentCoding>(), {ContentCoding::kIdentity}}) {
    EXPECT_EQ(ErrorOf(Framed("x", 1), none), "a message is compressed, but grpc-encoding names no compression");
  }
  const std::string gzip = Compressed(ContentCoding::kGzip, "text");
  EXPECT_EQ(ErrorOf(Framed(gzip.substr(0, gzip.size() - 1), 1), ContentCoding::kGzip),
            "a message cannot be decompressed: it is cut short");
  EXPECT_EQ(ErrorOf(Framed("", 1), ContentCoding::kGzip), "a message cannot be decompressed: it is cut short");
  EXPECT_EQ(ErrorOf(Framed(gzip + "x", 1), ContentCoding::kGzip),
            "a message cannot be decompressed: bytes follow its end");
  EXPECT_EQ(ErrorOf(Framed("nonsense", 1), ContentCoding::kGzip),
            "a message cannot be decompressed: it is no such stream");
}

TEST_F(MessageDecoderTest, WhatTheCallReturnsIsPassedOn) {
  call_.end = absl::NotFoundError("no model");
  EXPECT_EQ(ErrorOf(Framed("x"), std::nullopt), "no model");
}

}  // namespace
}  // namespace tidemark
