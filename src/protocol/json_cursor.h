#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace tidemark {

// What the next value is, by its first character.
enum class JsonKind : std::uint8_t { kObject, kArray, kString, kNumber, kTrue, kFalse, kNull, kNone };

// A number as it stands in the text.
struct JsonNumber {
  std::string_view text;
  bool integral = false;  // digits only, with or without '-'
  bool negative = false;
  bool fits = false;  // integral, and `magnitude` is its whole absolute value
  std::uint64_t magnitude = 0;

  std::optional<std::uint64_t> AsUint64() const;
  std::optional<std::int64_t> AsInt64() const;
  double AsDouble() const;  // nearest double; infinity when too big
};

// Walks through one JSON text from front to back without building anything. It reads what Triton's reader (RapidJSON with
// NaN and infinities) reads and gives its messages and offsets for what it refuses; bytes above 0x1f in strings are not
// checked for UTF-8, as there. Never reads beyond the text, never recurses. Not thread-safe; the text outlives it.
//
// The first syntax error is final: every later call returns false (or kNone), and Error() tells it. What is well-formed,
// but not what the caller wants, is the caller's business: look with Peek(), then read or SkipValue().
class JsonCursor {
 public:
  // Arrays and objects inside one another that SkipValue follows.
  static constexpr int kMaxDepth = 4096;

  explicit JsonCursor(std::string_view text)
      : begin_(text.data()), position_(text.data()), end_(text.data() + text.size()) {}

  JsonKind Peek();

  // Peek() was kObject: steps in. Then for each member NextMember(), which leaves the cursor at its value, until it
  // returns false: the object has ended, or failed(). `key` is good until the next member.
  void EnterObject() { Enter(); }
  bool NextMember(std::string_view& key);
  // Peek() was kArray: the same with elements.
  void EnterArray() { Enter(); }
  bool NextElement();

  // Peek() was kString. Decoded; the view is good until the next key or string is read.
  bool ReadString(std::string_view& value);
  // Peek() was kNumber.
  bool ReadNumber(JsonNumber& value);
  // Peek() was kTrue or kFalse.
  bool ReadBool(bool& value);
  // Any value; checks it wholly.
  bool SkipValue();
  // Nothing but white space may follow.
  bool Finish();

  bool failed() const { return message_ != nullptr; }
  // INVALID_ARGUMENT "failed to parse the request JSON buffer: <what> at <offset>".
  absl::Status Error() const;

  // For readers of their own (typed arrays). `at` is where it went wrong; always false.
  bool Fail(const char* message, const char* at);
  const char* position() const { return position_; }
  const char* end() const { return end_; }
  void Seek(const char* position) {
    position_ = position;
    entered_ = false;
  }

 private:
  void Enter() {
    ++position_;
    entered_ = true;
  }
  void SkipSpace() {
    while (position_ != end_ && (*position_ == ' ' || *position_ == '\n' || *position_ == '\r' || *position_ == '\t')) {
      ++position_;
    }
  }
  bool ScanString(std::string_view& raw, bool& escaped);
  bool ReadLiteral(std::string_view literal);
  bool ValueHere(bool first);

  const char* const begin_;
  const char* position_;
  const char* const end_;
  bool entered_ = false;  // just inside '{' or '[': no comma is due
  const char* message_ = nullptr;
  const char* failed_at_ = nullptr;
  std::string scratch_;
};

namespace json {

inline bool IsDigit(char c) { return static_cast<unsigned char>(c - '0') < 10; }

// Steps over one number, NaN, Inf or Infinity, signed or not. False: `p` is where it went wrong and `message` what.
bool ScanNumber(const char*& p, const char* end, JsonNumber& number, const char*& message);

// Steps over one string, `p` at its opening quotation mark, and appends its decoded bytes at `out`, which has room for
// as many bytes as the string has in the text; `out` may be null: then it only checks. False as above.
bool DecodeString(const char*& p, const char* end, char** out, const char*& message);

}  // namespace json
}  // namespace tidemark
