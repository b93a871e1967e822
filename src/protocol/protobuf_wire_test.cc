#include "protocol/protobuf_wire.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

#include "proto/grpc_service.pb.h"

namespace tidemark {
namespace {

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

bool IsWhole(std::string_view message) {
  WireReader reader(Bytes(message));
  while (reader.Next()) {
  }
  return reader.ok();
}

TEST(ProtobufWire, WhatIsWrittenIsReadByProtobuf) {
  std::string out;
  AppendTextField(out, 1, "model");
  std::string entry, choice;
  AppendNumberField(choice, 2, static_cast<std::uint64_t>(std::int64_t{-7}));
  AppendTextField(entry, 1, "key");
  AppendTextField(entry, 2, choice);
  AppendTextField(out, 4, entry);
  inference::ModelInferRequest request;
  ASSERT_TRUE(request.ParseFromString(out));
  EXPECT_EQ(request.model_name(), "model");
  EXPECT_EQ(request.parameters().at("key").int64_param(), -7);
}

TEST(ProtobufWire, WhatProtobufWritesIsRead) {
  inference::InferParameter parameter;
  parameter.set_double_param(0.5);
  const std::string bytes = parameter.SerializeAsString();
  WireReader reader(Bytes(bytes));
  ASSERT_TRUE(reader.Next());
  EXPECT_EQ(reader.field(), 4u);
  EXPECT_EQ(reader.type(), WireType::kFixed64);
  EXPECT_EQ(reader.number(), std::uint64_t{0x3FE0000000000000});
  EXPECT_FALSE(reader.Next());
  EXPECT_TRUE(reader.ok());
}

TEST(ProtobufWire, VarintsOfEveryLengthComeBack) {
  for (int shift = 0; shift < 64; ++shift) {
    for (const std::uint64_t value : {(std::uint64_t{1} << shift) - 1, std::uint64_t{1} << shift,
                                      std::numeric_limits<std::uint64_t>::max() >> shift}) {
      std::string out;
      AppendVarint(out, value);
      EXPECT_EQ(out.size(), VarintSize(value));
      std::span<const std::byte> bytes = Bytes(out);
      std::uint64_t read = 1;
      ASSERT_TRUE(WireReader::TakeVarint(bytes, read)) << value;
      EXPECT_EQ(read, value);
      EXPECT_TRUE(bytes.empty());
    }
  }
}

TEST(ProtobufWire, MalformedMessagesEndAsMalformed) {
  using std::string_literals::operator""s;
  EXPECT_TRUE(IsWhole(""));
  EXPECT_FALSE(IsWhole("\x80")) << "a tag that does not end";
  EXPECT_FALSE(IsWhole("\0"s)) << "field 0";
  EXPECT_FALSE(IsWhole("\x08")) << "no number";
  EXPECT_FALSE(IsWhole("\x08\x80")) << "half a number";
  EXPECT_FALSE(IsWhole("\x08"s + std::string(10, '\xFF'))) << "more than 64 bits";
  EXPECT_FALSE(IsWhole("\x0A\x05"s + "four")) << "longer than the message";
  EXPECT_FALSE(IsWhole("\x0A"s + std::string(9, '\xFF') + '\1')) << "a length that wraps around";
  EXPECT_FALSE(IsWhole("\x09"s + "7 bytes")) << "a short fixed64";
  EXPECT_FALSE(IsWhole("\x0D"s + "abc")) << "a short fixed32";
  EXPECT_FALSE(IsWhole("\x0B\x0C")) << "a group";
  EXPECT_FALSE(IsWhole("\x0F")) << "a type that there is not";
}

TEST(ProtobufWire, Utf8IsWhatProto3Allows) {
  EXPECT_TRUE(IsUtf8(""));
  EXPECT_TRUE(IsUtf8("plain \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"));
  EXPECT_FALSE(IsUtf8("\x80"));
  EXPECT_FALSE(IsUtf8("\xC3"));
  EXPECT_FALSE(IsUtf8("\xC0\xAF")) << "longer than it need be";
  EXPECT_FALSE(IsUtf8("\xED\xA0\x80")) << "half a surrogate pair";
  EXPECT_FALSE(IsUtf8("\xF4\x90\x80\x80")) << "beyond U+10FFFF";
}

}  // namespace
}  // namespace tidemark
