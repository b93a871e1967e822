#include "frontend/grpc/metadata.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

namespace tidemark {
namespace {

TEST(GrpcMetadataTest, FirstValueOfANameIsFound) {
  GrpcMetadata metadata;
  metadata.Add("a", "1");
  metadata.Add("b", "");
  metadata.Add("a", "2");
  EXPECT_EQ(metadata.Find("a"), "1");
  EXPECT_EQ(metadata.Find("b"), "");
  EXPECT_EQ(metadata.Find("A"), std::nullopt);
  EXPECT_EQ(metadata.entries().size(), 3u);
}

TEST(GrpcTimeout, EveryUnitIsRead) {
  EXPECT_EQ(ParseGrpcTimeout("2H"), 7'200'000'000'000);
  EXPECT_EQ(ParseGrpcTimeout("3M"), 180'000'000'000);
  EXPECT_EQ(ParseGrpcTimeout("4S"), 4'000'000'000);
  EXPECT_EQ(ParseGrpcTimeout("5m"), 5'000'000);
  EXPECT_EQ(ParseGrpcTimeout("6u"), 6'000);
  EXPECT_EQ(ParseGrpcTimeout("7n"), 7);
  EXPECT_EQ(ParseGrpcTimeout("0n"), 0);
  EXPECT_EQ(ParseGrpcTimeout("00000001S"), 1'000'000'000);
}

TEST(GrpcTimeout, LongestOneIsForEver) {
  EXPECT_EQ(ParseGrpcTimeout("99999999H"), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(ParseGrpcTimeout("99999999M"), 5'999'999'940'000'000'000);
}

TEST(GrpcTimeout, WhatIsNoTimeoutIsNone) {
  for (const char* text : {"", "S", "1", "1s", "1h", "-1S", "+1S", " 1S", "1 S", "1S ", "1.5S", "1SS", "0x1S",
                           "123456789n", "aS", "-0n"}) {
    EXPECT_EQ(ParseGrpcTimeout(text), std::nullopt) << "'" << text << "'";
  }
}

TEST(GrpcStatusMessage, PrintableTextTravelsAsItIs) {
  EXPECT_EQ(EncodeGrpcMessage(""), "");
  std::string printable;
  for (char c = 0x20; c < 0x7F; ++c) {
    if (c != '%') printable += c;
  }
  EXPECT_EQ(EncodeGrpcMessage(printable), printable);
}

TEST(GrpcStatusMessage, EverythingElseIsEncoded) {
  EXPECT_EQ(EncodeGrpcMessage("100%"), "100%25");
  EXPECT_EQ(EncodeGrpcMessage("a\nb\t\r"), "a%0Ab%09%0D");
  EXPECT_EQ(EncodeGrpcMessage("gr\xC3\xB6\xC3\x9F"
                              "e"),
            "gr%C3%B6%C3%9Fe");
  EXPECT_EQ(EncodeGrpcMessage(std::string_view("\0\x7F\xFF", 3)), "%00%7F%FF");
}

TEST(GrpcContentType, OnlyThoseOfCallsAreTaken) {
  for (const char* good : {"application/grpc", "application/grpc+proto", "application/grpc;charset=utf-8"}) {
    EXPECT_TRUE(IsGrpcContentType(good)) << good;
  }
  for (const char* bad :
       {"", "application/json", "application/grpc-web", "application/grpcx", "APPLICATION/GRPC", " application/grpc"}) {
    EXPECT_FALSE(IsGrpcContentType(bad)) << bad;
  }
}

TEST(GrpcMessageCoding, FirstOneThatTheClientNamesIsChosen) {
  EXPECT_EQ(ChooseMessageCoding(""), ContentCoding::kIdentity);
  EXPECT_EQ(ChooseMessageCoding("identity"), ContentCoding::kIdentity);
  EXPECT_EQ(ChooseMessageCoding("identity, deflate, gzip"), ContentCoding::kDeflate);
  EXPECT_EQ(ChooseMessageCoding("identity,gzip,deflate"), ContentCoding::kGzip);
  EXPECT_EQ(ChooseMessageCoding("snappy , gzip "), ContentCoding::kGzip);
  EXPECT_EQ(ChooseMessageCoding("GZIP,x,,"), ContentCoding::kIdentity);
}

}  // namespace
}  // namespace tidemark
