#include "frontend/http/chunked_decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tidemark {

bool ChunkedDecoder::Fail(int status, std::string message) {
  error_ = {status, std::move(message)};
  return false;
}

void ChunkedDecoder::ConsumeElsewhere(std::uint64_t bytes) {
  remaining_ -= bytes;
  if (remaining_ == 0) state_ = State::kDataCr;
}

ChunkedDecoder::Step ChunkedDecoder::Next(std::string_view input) {
  std::size_t at = 0;
  while (at < input.size()) {
    if (state_ == State::kData) {
      const std::size_t size = static_cast<std::size_t>(std::min<std::uint64_t>(remaining_, input.size() - at));
      ConsumeElsewhere(size);
      return {Result::kData, at + size, input.substr(at, size)};
    }
    if (!Take(input[at++])) return {Result::kError, at, {}};
    if (state_ == State::kDone) return {Result::kDone, at, {}};
  }
  return {Result::kNeedMore, at, {}};
}

bool ChunkedDecoder::Take(char c) {
  switch (state_) {
    case State::kSizeFirst:
      remaining_ = 0;
      digits_ = 0;
      state_ = State::kSize;
      return TakeSizeDigit(c);
    case State::kSize:
      if (c == '\r') {
        state_ = State::kSizeLf;
        return true;
      }
      if (c == ';') {
        state_ = State::kExtension;
        return ++extension_bytes_ <= kMaxExtensionBytes || Fail(400, "chunk extensions are too long");
      }
      return TakeSizeDigit(c);
    case State::kExtension:
      if (c == '\r') {
        state_ = State::kSizeLf;
        return true;
      }
      if (!IsFieldValue({&c, 1})) return Fail(400, "malformed chunk: control character in an extension");
      return ++extension_bytes_ <= kMaxExtensionBytes || Fail(400, "chunk extensions are too long");
    case State::kSizeLf:
      return c == '\n' ? EndSizeLine() : Fail(400, "malformed chunk: the size line does not end with CRLF");
    case State::kDataCr:
      if (c != '\r') return Fail(400, "malformed chunk: its data is longer than its size");
      state_ = State::kDataLf;
      return true;
    case State::kDataLf:
      if (c != '\n') return Fail(400, "malformed chunk: its data is longer than its size");
      state_ = State::kSizeFirst;
      return true;
    case State::kTrailer:
    case State::kTrailerLf:
      return TakeTrailer(c);
    case State::kData:
    case State::kDone:
      break;
  }
  return Fail(400, "malformed chunk");
}

bool ChunkedDecoder::TakeSizeDigit(char c) {
  std::uint64_t digit = 0;
  if (c >= '0' && c <= '9') {
    digit = static_cast<std::uint64_t>(c - '0');
  } else if (c >= 'a' && c <= 'f') {
    digit = static_cast<std::uint64_t>(c - 'a') + 10;
  } else if (c >= 'A' && c <= 'F') {
    digit = static_cast<std::uint64_t>(c - 'A') + 10;
  } else {
    return Fail(400, "malformed chunk: its size is not a hexadecimal number");
  }
  if (++digits_ > 15) return Fail(400, "malformed chunk: its size has more than 15 digits");
  remaining_ = remaining_ * 16 + digit;
  return true;
}

bool ChunkedDecoder::EndSizeLine() {
  if (remaining_ == 0) {
    state_ = State::kTrailer;
    return true;
  }
  state_ = State::kData;
  if (++chunks_ > kMaxChunks) {
    return Fail(400,
                fmt::format("Chunked request body exceeds maximum of {} non-empty chunks. Send fewer or larger HTTP "
                            "chunks.",
                            kMaxChunks));
  }
  return true;
}

bool ChunkedDecoder::TakeTrailer(char c) {
  if (++trailer_bytes_ > kMaxTrailerBytes) {
    return Fail(431, fmt::format("trailers exceed the maximum of {} bytes", kMaxTrailerBytes));
  }
  if (state_ == State::kTrailerLf) {
    if (c != '\n') return Fail(400, "malformed trailer: a line does not end with CRLF");
    if (trailer_line_ == 0) {
      state_ = State::kDone;
      return true;
    }
    if (!trailer_colon_) return Fail(400, "malformed trailer: a line has no colon");
    trailer_line_ = 0;
    trailer_colon_ = false;
    state_ = State::kTrailer;
    return true;
  }
  if (c == '\r') {
    state_ = State::kTrailerLf;
    return true;
  }
  const bool good = trailer_colon_ ? IsFieldValue({&c, 1}) : (c == ':' ? trailer_line_ > 0 : IsToken({&c, 1}));
  if (!good) return Fail(400, "malformed trailer");
  if (c == ':') trailer_colon_ = true;
  ++trailer_line_;
  return true;
}

}  // namespace tidemark
