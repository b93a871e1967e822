#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tidemark {

// A version of TensorRT: of a plan or of a library.
struct TrtVersion {
  int major = 0;
  int minor = 0;
  int patch = 0;
  int build = 0;

  // The encoding of getInferLibVersion: 110201.
  int number() const { return major * 10000 + minor * 100 + patch; }
  std::string Text() const;  // "11.2.1.2"
  friend bool operator==(const TrtVersion&, const TrtVersion&) = default;
};

// What the first 32 bytes of a plan say: magic "ftrt", the file's size at 16, the builder's version at 24 to 27 (read
// off real plans; the format is not documented). A file that is no plan, or is cut, is refused here, before a GPU is
// touched: INTERNAL "unable to create TensorRT engine: …" naming `what`.
absl::StatusOr<TrtVersion> ReadPlanHeader(std::span<const std::byte> plan, std::string_view what);

}  // namespace tidemark
