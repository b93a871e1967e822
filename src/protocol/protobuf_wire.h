#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

// The few pieces of protobuf's wire format that the data plane reads and writes itself. Thread-safe.

namespace tidemark {

enum class WireType : std::uint8_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

// Walks the fields of one serialised message. Groups, which proto3 has not, end it as malformed. Nothing is copied.
class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> message)
      : at_(message.data()), end_(message.data() + message.size()) {}

  // Goes to the next field. False at the end and for what is malformed: ok() tells.
  bool Next();
  bool ok() const { return !malformed_; }

  // Of the current field.
  std::uint32_t field() const { return field_; }
  WireType type() const { return type_; }
  std::uint64_t number() const { return number_; }             // kVarint, kFixed64, kFixed32 (its bits)
  std::span<const std::byte> bytes() const { return bytes_; }  // kLength
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }

  bool IsText(std::uint32_t number) const { return field_ == number && type_ == WireType::kLength; }
  bool IsNumber(std::uint32_t number) const { return field_ == number && type_ == WireType::kVarint; }

  // One varint at the front of `bytes`, taken off it. False when there is none.
  static bool TakeVarint(std::span<const std::byte>& bytes, std::uint64_t& value);

 private:
  bool Fail() {
    malformed_ = true;
    at_ = end_;
    return false;
  }

  const std::byte* at_;
  const std::byte* end_;
  bool malformed_ = false;
  std::uint32_t field_ = 0;
  WireType type_ = WireType::kVarint;
  std::uint64_t number_ = 0;
  std::span<const std::byte> bytes_;
};

// Is `text` what proto3 allows in a string?
bool IsUtf8(std::string_view text);

// Bytes that `value` takes as a varint.
constexpr std::size_t VarintSize(std::uint64_t value) {
  std::size_t size = 1;
  for (; value >= 0x80; value >>= 7) ++size;
  return size;
}

void AppendVarint(std::string& out, std::uint64_t value);
inline void AppendTag(std::string& out, std::uint32_t field, WireType type) {
  AppendVarint(out, (std::uint64_t{field} << 3) | static_cast<std::uint64_t>(type));
}
// The tag and length of a field of `size` bytes, which follow.
inline void AppendLengthHead(std::string& out, std::uint32_t field, std::size_t size) {
  AppendTag(out, field, WireType::kLength);
  AppendVarint(out, size);
}
// A string or bytes field, default values included.
inline void AppendTextField(std::string& out, std::uint32_t field, std::string_view text) {
  AppendLengthHead(out, field, text.size());
  out += text;
}
inline void AppendNumberField(std::string& out, std::uint32_t field, std::uint64_t value) {
  AppendTag(out, field, WireType::kVarint);
  AppendVarint(out, value);
}

}  // namespace tidemark
