#include "frontend/http/compression.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>

#include "absl/cleanup/cleanup.h"
#include "base/status.h"

namespace tidemark {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kPadding = 64;
constexpr std::string_view kInconsistent = "encountered inconsistent stream state during decompression";

uInt Piece(std::size_t bytes) {
  return static_cast<uInt>(std::min<std::size_t>(bytes, std::numeric_limits<uInt>::max()));
}

Bytef* ZlibBytes(const std::byte* data) { return reinterpret_cast<Bytef*>(const_cast<std::byte*>(data)); }

absl::Status Inconsistent(std::string_view reason) {
  return absl::InvalidArgumentError(fmt::format("{}: {}", kInconsistent, reason));
}

absl::Status TooLarge(std::size_t max_bytes) {
  return absl::InvalidArgumentError(
      fmt::format("Decompressed data size exceeds the maximum allowed value of {} bytes. Use --http-max-input-size to "
                  "increase the limit.",
                  max_bytes));
}

}  // namespace

std::optional<ContentCoding> ParseContentCoding(std::string_view content_encoding) {
  if (content_encoding.empty() || content_encoding == "identity") return ContentCoding::kIdentity;
  if (content_encoding == "gzip") return ContentCoding::kGzip;
  if (content_encoding == "deflate") return ContentCoding::kDeflate;
  return std::nullopt;
}

std::string_view ContentCodingName(ContentCoding coding) {
  switch (coding) {
    case ContentCoding::kGzip:
      return "gzip";
    case ContentCoding::kDeflate:
      return "deflate";
    case ContentCoding::kIdentity:
      break;
  }
  return "identity";
}

ContentCoding ChooseResponseCoding(std::string_view accept_encoding) {
  ContentCoding best = ContentCoding::kIdentity;
  double best_weight = 0;
  while (!accept_encoding.empty()) {
    const std::size_t comma = accept_encoding.find(',');
    std::string_view part = accept_encoding.substr(0, comma);
    accept_encoding = comma == std::string_view::npos ? std::string_view() : accept_encoding.substr(comma + 1);
    while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
    double weight = 1;
    if (const std::size_t mark = part.find(";q="); mark != std::string_view::npos) {
      const std::string_view number = part.substr(mark + 3);
      const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), weight);
      if (error != std::errc() || end != number.data() + number.size()) continue;
      part = part.substr(0, mark);
    }
    const std::optional<ContentCoding> coding = part.empty() ? std::nullopt : ParseContentCoding(part);
    if (coding.has_value() && weight > best_weight) {
      best = *coding;
      best_weight = weight;
    }
  }
  return best;
}

absl::StatusOr<InflatedBody> Inflate(std::span<const std::byte> compressed, std::size_t max_bytes,
                                     std::size_t aligned_at, BufferPool& pool) {
  if (compressed.empty()) return absl::InvalidArgumentError("nothing to be decompressed");
  z_stream stream{};
  constexpr int kDetect = 15 + 32;  // gzip or zlib
  if (inflateInit2(&stream, kDetect) != Z_OK) return absl::ResourceExhaustedError("no memory to decompress a request");
  const absl::Cleanup end_stream = [&stream] { inflateEnd(&stream); };

  const std::size_t offset = (kAlignment - aligned_at % kAlignment) % kAlignment;
  const std::size_t guess = std::min(max_bytes, std::max<std::size_t>(4 * compressed.size(), 4096));
  ASSIGN_OR_RETURN(Buffer buffer, pool.Allocate(offset + guess));
  std::size_t size = 0;
  std::size_t read = 0;
  for (;;) {
    // One byte beyond the limit is decoded (into the padding, if need be) to tell "exactly at" from "above" it.
    std::size_t room = std::min(buffer.size() - offset, max_bytes) - size;
    if (room == 0 && size < max_bytes) {
      ASSIGN_OR_RETURN(Buffer larger, pool.Allocate(offset + std::min(max_bytes, 2 * size)));
      std::memcpy(larger.data() + offset, buffer.data() + offset, size);
      buffer = std::move(larger);
      room = std::min(buffer.size() - offset, max_bytes) - size;
    }
    const bool at_limit = room == 0;
    stream.next_in = ZlibBytes(compressed.data() + read);
    stream.avail_in = Piece(compressed.size() - read);
    stream.next_out = ZlibBytes(buffer.data() + offset + size);
    stream.avail_out = at_limit ? 1 : Piece(room);
    const uInt in_before = stream.avail_in;
    const uInt out_before = stream.avail_out;
    const int result = inflate(&stream, Z_NO_FLUSH);
    read += in_before - stream.avail_in;
    const std::size_t made = out_before - stream.avail_out;
    if (at_limit && made > 0) return TooLarge(max_bytes);
    size += made;
    if (result == Z_STREAM_END) break;
    if (result == Z_MEM_ERROR) return absl::ResourceExhaustedError("no memory to decompress a request");
    if (result != Z_OK && result != Z_BUF_ERROR) {
      return Inconsistent(stream.msg != nullptr ? std::string_view(stream.msg) : "the body is no gzip or zlib stream");
    }
    if (read == compressed.size() && stream.avail_out > 0) {
      return Inconsistent(fmt::format("the stream is cut off after {} bytes", compressed.size()));
    }
  }
  if (read != compressed.size()) {
    return Inconsistent(fmt::format("{} bytes follow the end of the stream", compressed.size() - read));
  }
  // Where the first tensor lies is known only now that the size is: a position beyond the end counts as 0.
  const bool misplaced = aligned_at > size && offset != 0;
  if (misplaced) std::memmove(buffer.data(), buffer.data() + offset, size);
  const std::size_t begin = misplaced ? 0 : offset;
  std::memset(buffer.data() + begin + size, 0, kPadding);
  buffer.Truncate(begin + size);
  InflatedBody body;
  body.bytes = {buffer.data() + begin, size};
  body.buffer = std::move(buffer);
  return body;
}

absl::StatusOr<Buffer> Deflate(ContentCoding coding, std::span<const std::span<const std::byte>> parts,
                               BufferPool& pool, int level) {
  std::size_t total = 0;
  for (const auto& part : parts) total += part.size();
  z_stream stream{};
  constexpr int kMemoryLevel = 8;  // zlib's default
  const int window = coding == ContentCoding::kGzip ? 15 + 16 : 15;
  if (deflateInit2(&stream, level, Z_DEFLATED, window, kMemoryLevel, Z_DEFAULT_STRATEGY) != Z_OK) {
    return absl::ResourceExhaustedError("no memory to compress a response");
  }
  const absl::Cleanup end_stream = [&stream] { deflateEnd(&stream); };
  ASSIGN_OR_RETURN(Buffer buffer, pool.Allocate(deflateBound(&stream, total)));

  std::size_t size = 0;
  const auto step = [&](int flush) {
    stream.next_out = ZlibBytes(buffer.data() + size);
    stream.avail_out = Piece(buffer.size() - size);
    const uInt before = stream.avail_out;
    const int result = deflate(&stream, flush);
    size += before - stream.avail_out;
    return result;
  };
  for (const auto& part : parts) {
    for (std::size_t read = 0; read < part.size();) {
      const uInt piece = Piece(part.size() - read);
      stream.next_in = ZlibBytes(part.data() + read);
      stream.avail_in = piece;
      const int result = step(Z_NO_FLUSH);
      if (result != Z_OK || stream.avail_in == piece) return absl::InternalError("a response could not be compressed");
      read += piece - stream.avail_in;
    }
  }
  while (true) {
    const std::size_t before = size;
    const int result = step(Z_FINISH);
    if (result == Z_STREAM_END) break;
    if (size == before) return absl::InternalError("a response could not be compressed");
  }
  buffer.Truncate(size);
  return buffer;
}

}  // namespace tidemark
