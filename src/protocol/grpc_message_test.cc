#include "protocol/grpc_message.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "tests/support/real_platform.h"

namespace tidemark {
namespace {

class GrpcMessageTest : public testing::Test {
 protected:
  Buffer BufferOf(std::string_view bytes) {
    Buffer buffer = *pool_.Allocate(bytes.size());
    std::memcpy(buffer.data(), bytes.data(), bytes.size());
    return buffer;
  }
  static std::string Wire(const GrpcMessage& message) {
    std::string wire;
    for (std::size_t i = 0; i < message.pieces(); ++i) {
      const std::span<const std::byte> piece = message.piece(i);
      wire.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
    EXPECT_EQ(wire.size(), message.size());
    return wire;
  }

  std::unique_ptr<Platform> platform_ = CreateLinuxPlatform();
  BufferPool pool_{*platform_};
};

using std::string_literals::operator""s;

TEST_F(GrpcMessageTest, PrefixTellsTheLength) {
  EXPECT_EQ(Wire(GrpcMessage::OfText("")), std::string(5, '\0'));
  EXPECT_EQ(Wire(GrpcMessage::OfText("abc")), "\0\0\0\0\3abc"s);
  EXPECT_EQ(Wire(GrpcMessage::OfText(std::string(0x010203, 'x'))).substr(0, 5), "\0\0\1\2\3"s);
  EXPECT_EQ(Wire(GrpcMessage::OfCompressed(BufferOf("zz"))), "\1\0\0\0\2zz"s);
}

TEST_F(GrpcMessageTest, TensorsStayWhereTheyAre) {
  GrpcMessage message;
  message.Begin(8);
  message.text() += "head";
  Buffer tensor = BufferOf("TENSOR");
  const std::byte* const place = tensor.data();
  message.Append(std::move(tensor));
  message.text() += "tail";
  message.Append(BufferOf("2"));
  EXPECT_EQ(message.body_bytes(), 15u);
  message.Finish("wrap");
  EXPECT_EQ(Wire(message), "\0\0\0\0\x13wrapheadTENSORtail2"s);
  EXPECT_EQ(message.piece(1).data(), place);
}

TEST_F(GrpcMessageTest, ItsKeeperLivesAsLongAsIt) {
  auto owner = std::make_shared<int>(1);
  {
    GrpcMessage message = GrpcMessage::OfText("x");
    message.KeepUntilSent(owner);
    const GrpcMessage moved = std::move(message);
    EXPECT_EQ(owner.use_count(), 2);
  }
  EXPECT_EQ(owner.use_count(), 1);
}

}  // namespace
}  // namespace tidemark
