#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "resource/buffer_pool.h"

namespace tidemark {

enum class ContentCoding { kIdentity, kGzip, kDeflate };

// "gzip", "deflate", "identity" or "" exactly as written (case-sensitive); nothing for any other value.
std::optional<ContentCoding> ParseContentCoding(std::string_view content_encoding);

// "gzip", "deflate", "identity".
std::string_view ContentCodingName(ContentCoding coding);

// The coding of a response by Triton's reading of Accept-Encoding: parts between commas, leading blanks stripped, weight
// only as ";q=<number>" without blanks, 1 by default; the highest weight of gzip, deflate and identity wins, the first
// one on a tie, 0 never; everything else is ignored; nothing usable is identity. (protocol specification, 1.11)
ContentCoding ChooseResponseCoding(std::string_view accept_encoding);

// A decompressed body inside its buffer, placed as HttpRequest::body() is.
struct InflatedBody {
  Buffer buffer;
  std::span<std::byte> bytes;
};

// Decompresses one whole gzip or zlib stream (told apart by its framing, as Triton does). Byte `aligned_at` of the
// result is 64-byte aligned (taken as 0 when beyond it). INVALID_ARGUMENT with Triton's text and a reason: nothing to
// decompress, no such stream, cut stream, bytes after its end, more than `max_bytes` of result. RESOURCE_EXHAUSTED when
// the pool has no memory.
absl::StatusOr<InflatedBody> Inflate(std::span<const std::byte> compressed, std::size_t max_bytes,
                                     std::size_t aligned_at, BufferPool& pool);

// Compresses the parts into one stream; `coding` is kGzip or kDeflate (zlib framing), `level` is zlib's (-1: its default).
absl::StatusOr<Buffer> Deflate(ContentCoding coding, std::span<const std::span<const std::byte>> parts,
                               BufferPool& pool, int level = -1);

}  // namespace tidemark
