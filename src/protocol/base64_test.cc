#include "protocol/base64.h"

#include <gtest/gtest.h>

#include <string>

namespace tidemark {
namespace {

std::string Decoded(std::string_view text) {
  std::string out;
  return DecodeBase64(text, out) ? out : "refused";
}

TEST(Base64, DecodesTheVectorsOfItsRfc) {
  EXPECT_EQ(Decoded(""), "");
  EXPECT_EQ(Decoded("Zg=="), "f");
  EXPECT_EQ(Decoded("Zm8="), "fo");
  EXPECT_EQ(Decoded("Zm9v"), "foo");
  EXPECT_EQ(Decoded("Zm9vYg=="), "foob");
  EXPECT_EQ(Decoded("Zm9vYmE="), "fooba");
  EXPECT_EQ(Decoded("Zm9vYmFy"), "foobar");
  EXPECT_EQ(Decoded("//79"), "\xff\xfe\xfd");
  EXPECT_EQ(Decoded("Zm9v\r\nYmFy\n"), "foobar");
}

TEST(Base64, RefusesWhatIsNotQuiteBase64) {
  for (const std::string_view text : {"Z", "Zg", "Zg=", "Zm9", "Zg===", "=", "====", "Z===", "Zg==Zg==", "Zm8=v",
                                      "Zm9v!", "Zm 9v", "Zh==", "Zm9=", "Zm9_", "Zg==="}) {
    EXPECT_EQ(Decoded(text), "refused") << text;
  }
}

}  // namespace
}  // namespace tidemark
