#include "frontend/http/compression.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "base/status.h"
#include "tests/support/real_platform.h"

namespace tidemark {
namespace {

class CompressionTest : public testing::Test {
 protected:
  std::string Compress(ContentCoding coding, const std::string& text) {
    const std::span<const std::byte> all = std::as_bytes(std::span(text));
    const std::array<std::span<const std::byte>, 3> parts = {
        all.first(text.size() / 3), {}, all.subspan(text.size() / 3)};
    absl::StatusOr<Buffer> buffer = Deflate(coding, parts, pool_);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return {reinterpret_cast<const char*>(buffer->data()), buffer->size()};
  }
  absl::StatusOr<std::string> Decompress(const std::string& data, std::size_t max = 1 << 20, std::size_t at = 0) {
    absl::StatusOr<InflatedBody> body = Inflate(std::as_bytes(std::span(data)), max, at, pool_);
    if (!body.ok()) return body.status();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(body->bytes.data() + (at <= body->bytes.size() ? at : 0)) % 64, 0u);
    return std::string(reinterpret_cast<const char*>(body->bytes.data()), body->bytes.size());
  }
  std::string Error(const std::string& data, std::size_t max = 1 << 20) {
    const absl::StatusOr<std::string> text = Decompress(data, max);
    EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(MessageOf(text.status()));
  }

  std::unique_ptr<Platform> platform_ = CreateLinuxPlatform();
  BufferPool pool_{*platform_};
  std::string text_ = [] {
    std::string text;
    for (int i = 0; i < 30000; ++i) text += std::to_string(i * i % 977);
    return text;
  }();
};

TEST_F(CompressionTest, BothCodingsRoundTrip) {
  for (const ContentCoding coding : {ContentCoding::kGzip, ContentCoding::kDeflate}) {
    for (const std::string& text : {text_, std::string(), std::string("a"), std::string(500000, 'z')}) {
      const std::string data = Compress(coding, text);
      EXPECT_EQ(static_cast<unsigned char>(data[0]), coding == ContentCoding::kGzip ? 0x1f : 0x78);
      for (const std::size_t at : {0u, 13u, 64u, 99999999u}) {
        const absl::StatusOr<std::string> back = Decompress(data, 1 << 20, at);
        ASSERT_TRUE(back.ok()) << back.status();
        EXPECT_TRUE(*back == text);
      }
    }
  }
}

TEST_F(CompressionTest, EveryCutIsRefused) {
  const std::string data = Compress(ContentCoding::kGzip, text_.substr(0, 2000));
  for (std::size_t size = 1; size < data.size(); ++size) {
    EXPECT_EQ(Error(data.substr(0, size))
                  .rfind("encountered inconsistent stream state during decompression: the stream is "
                         "cut off after",
                         0),
              0u)
        << size;
  }
}

TEST_F(CompressionTest, FalseStreamsAreRefusedByName) {
  EXPECT_EQ(Error(""), "nothing to be decompressed");
  EXPECT_NE(Error("{\"inputs\":[]}").find("encountered inconsistent stream state during decompression: "),
            std::string::npos);
  std::string data = Compress(ContentCoding::kGzip, text_);
  EXPECT_EQ(Error(data + "xyz"),
            "encountered inconsistent stream state during decompression: 3 bytes follow the end of the stream");
  data[data.size() / 2] = static_cast<char>(data[data.size() / 2] ^ 0x55);
  Error(data);
  data = Compress(ContentCoding::kDeflate, text_);
  data.back() = static_cast<char>(data.back() ^ 1);
  EXPECT_EQ(Error(data), "encountered inconsistent stream state during decompression: incorrect data check");
}

TEST_F(CompressionTest, ResultIsCappedExactly) {
  const std::string data = Compress(ContentCoding::kGzip, text_);
  EXPECT_TRUE(Decompress(data, text_.size()).ok());
  EXPECT_EQ(Error(data, text_.size() - 1), "Decompressed data size exceeds the maximum allowed value of " +
                                               std::to_string(text_.size() - 1) +
                                               " bytes. Use --http-max-input-size to increase the limit.");
  EXPECT_EQ(Decompress(Compress(ContentCoding::kGzip, ""), 0).value(), "");
}

TEST(AcceptEncodingTest, IsReadAsTritonReadsIt) {
  using enum ContentCoding;
  const std::vector<std::pair<std::string, ContentCoding>> cases = {
      {"", kIdentity},
      {"gzip", kGzip},
      {"deflate", kDeflate},
      {"gzip, deflate", kGzip},
      {"deflate,gzip", kDeflate},
      {"gzip, deflate, br", kGzip},
      {"br", kIdentity},
      {"*", kIdentity},
      {"GZIP", kIdentity},
      {"gzip;q=0.5,deflate;q=0.8", kDeflate},
      {"gzip;q=0.5, identity", kIdentity},
      {"identity, gzip", kIdentity},
      {"gzip;q=0", kIdentity},
      {"gzip; q=0.5", kIdentity},
      {"gzip;q= 0.5", kIdentity},
      {"gzip ;q=0.5", kIdentity},
      {"gzip ,deflate", kDeflate},
      {"gzip; q=1, deflate;q=0.1", kDeflate},
      {",,gzip", kGzip},
  };
  for (const auto& [header, coding] : cases) EXPECT_EQ(ChooseResponseCoding(header), coding) << header;
  EXPECT_EQ(ParseContentCoding("gzip"), kGzip);
  EXPECT_EQ(ParseContentCoding("Gzip"), std::nullopt);
  EXPECT_EQ(ParseContentCoding("gzip, deflate"), std::nullopt);
  EXPECT_EQ(ParseContentCoding(""), kIdentity);
}

}  // namespace
}  // namespace tidemark
