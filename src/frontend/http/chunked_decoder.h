#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "frontend/http/head_parser.h"

namespace tidemark {

// Takes the chunked transfer coding (RFC 9112, 7.1) apart, strictly: CRLF only, at most 15 hexadecimal digits, bounded
// extensions and trailers (both read and dropped). Holds no data. Not thread-safe.
class ChunkedDecoder {
 public:
  // Triton's cap on chunks with data.
  static constexpr std::uint32_t kMaxChunks = 65536;
  static constexpr std::size_t kMaxExtensionBytes = 4096;  // chunk-size lines without the digits, all together
  static constexpr std::size_t kMaxTrailerBytes = 8192;

  enum class Result {
    kNeedMore,  // all input consumed
    kData,      // `data` is the next piece of the body
    kDone,      // the body has ended; what was not consumed belongs to the next request
    kError,
  };
  struct Step {
    Result result;
    std::size_t consumed;   // bytes of `input`, those of `data` included
    std::string_view data;  // part of `input`
  };

  // Reads until the first piece of data, the end of the body or the end of the input. After kDone and kError: not again
  // before Reset.
  Step Next(std::string_view input);

  // Bytes of the current chunk that are still to come. The caller may receive them elsewhere, and then says so.
  std::uint64_t remaining() const { return state_ == State::kData ? remaining_ : 0; }
  void ConsumeElsewhere(std::uint64_t bytes);

  const HttpError& error() const { return error_; }

  void Reset() { *this = ChunkedDecoder(); }

 private:
  enum class State { kSizeFirst, kSize, kExtension, kSizeLf, kData, kDataCr, kDataLf, kTrailer, kTrailerLf, kDone };

  // One byte outside of data. False after an error.
  bool Take(char c);
  bool TakeSizeDigit(char c);
  bool EndSizeLine();
  bool TakeTrailer(char c);
  bool Fail(int status, std::string message);

  State state_ = State::kSizeFirst;
  std::uint64_t remaining_ = 0;
  std::uint32_t digits_ = 0;
  std::uint32_t chunks_ = 0;
  std::size_t extension_bytes_ = 0;
  std::size_t trailer_bytes_ = 0;
  std::size_t trailer_line_ = 0;  // bytes of the current trailer line
  bool trailer_colon_ = false;
  HttpError error_;
};

}  // namespace tidemark
