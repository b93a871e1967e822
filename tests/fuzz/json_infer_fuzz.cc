#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "protocol/json_cursor.h"
#include "protocol/json_reader.h"
#include "protocol/json_writer.h"
#include "tests/support/real_platform.h"

// Arbitrary bytes as JSON: what nlohmann's parser takes, ours takes (the other way round it takes more: NaN, any bytes in
// strings); and a tensor that was read, written and read again is the same. The first byte chooses the datatype.

namespace {

using tidemark::Buffer;
using tidemark::DataType;

void Check(bool ok, const char* claim) {
  if (ok) return;
  std::fprintf(stderr, "broken claim: %s\n", claim);
  std::abort();
}

// Elements that `text` has as an array, whatever their type; -1 when it cannot be said.
std::int64_t CountCommas(std::string_view text) {
  std::int64_t commas = 0;
  for (const char c : text) commas += c == ',' ? 1 : 0;
  return commas + 1;
}

bool Read(std::string_view text, DataType type, std::int64_t count, tidemark::BufferPool& pool, Buffer& out) {
  tidemark::JsonCursor cursor(text);
  return tidemark::ReadJsonTensor(cursor, type, "X", count, 1 << 20, pool, out).ok() && cursor.Finish();
}

std::string Write(DataType type, const Buffer& data, std::int64_t count) {
  std::string out;
  if (type == DataType::kBytes) {
    tidemark::AppendJsonStrings(out, data.bytes(), static_cast<std::uint64_t>(count));
  } else {
    tidemark::AppendJsonElements(out, type, data.bytes());
  }
  return out;
}

std::int64_t CountStrings(const Buffer& data) {
  std::int64_t count = 0;
  for (std::size_t at = 0; at < data.size(); ++count) {
    std::uint32_t length = 0;
    std::memcpy(&length, data.data() + at, sizeof(length));
    at += sizeof(length) + length;
  }
  return count;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0 || size > 65536) return 0;
  static const std::unique_ptr<tidemark::Platform> platform = tidemark::CreateLinuxPlatform();
  static tidemark::BufferPool pool(*platform);
  const auto type = static_cast<DataType>(1 + data[0] % 14);
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);

  tidemark::JsonCursor cursor(text);
  const bool ours = cursor.SkipValue() && cursor.Finish();
  // A NUL ends the text for nlohmann.
  if (size < 4096 && text.find(char{}) == text.npos && nlohmann::json::accept(text))
    Check(ours, "what is JSON is taken");
  if (!ours) Check(!cursor.Error().ok(), "a refusal says why");

  Buffer first;
  const std::int64_t count = CountCommas(text);
  if (!Read(text, type, count, pool, first)) return 0;
  Check(ours, "a tensor that was read is well-formed");
  const std::int64_t elements = type == DataType::kBytes ? CountStrings(first) : count;
  const std::string written = Write(type, first, elements);
  Buffer second;
  Check(Read(written, type, elements, pool, second), "what was written is read");
  Check(Write(type, second, elements) == written, "reading and writing is stable");
  return 0;
}
