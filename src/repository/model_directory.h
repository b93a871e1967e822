#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/model_config.pb.h"
#include "repository/config_normalize.h"
#include "repository/config_validate.h"

// One model's directory on disk. Somebody may edit it at any moment: what vanishes between two looks is
// treated as absent, and nothing here throws. All functions are thread-safe.

namespace tidemark {

// Reads a whole file. `what` names it in errors: "failed to open WHAT for read PATH: REASON" (NOT_FOUND when
// it does not exist, else INTERNAL). Directories and files above 1 GiB are refused.
absl::StatusOr<std::string> ReadFile(const std::filesystem::path& path, std::string_view what);

// The configuration file: configs/<config_name>.pbtxt if `config_name` is set and that file exists, else
// config.pbtxt, whether that exists or not.
std::filesystem::path ConfigFileOf(const std::filesystem::path& directory, std::string_view config_name);

// What the core looks at to guess the backend.
VersionListing ListFirstSubdirectory(const std::filesystem::path& directory);

// Version directories of a model.
struct VersionScan {
  std::vector<std::int64_t> versions;  // ascending; version V lives in directory/V
  std::vector<Finding> warnings;       // directories that were ignored, in byte order of their names
};
// `warmup`, `initial_state` and `configs` are passed over silently, and so are hidden directories. A name
// with leading zeros, or that is not wholly a number from 0 to the maximum of int64, is ignored with a
// warning. (Triton takes "1abc" for version 1 and "-5" for version -5, and dies of a number out of range.)
// UNAVAILABLE when the directory cannot be listed.
absl::StatusOr<VersionScan> ScanVersions(const std::filesystem::path& directory);

// What the policy selects.
struct VersionSelection {
  std::vector<std::int64_t> versions;  // ascending, without repetition; may be empty: see NoVersionError
  std::vector<Finding> errors;         // listed by `specific` but not there; the others are served all the same
};
VersionSelection SelectVersions(const inference::ModelConfig& config, const std::vector<std::int64_t>& available);

// "at least one version must be available under the version policy of model 'N'", INVALID_ARGUMENT.
absl::Status NoVersionError(std::string_view model_name);

// The model's artifact: directory/VERSION/FILE with FILE = default_model_filename, or `fallback` when that is
// empty. If it is a directory (a model with external data), the file of the same name inside it, if
// `look_inside`. INTERNAL "failed to stat file PATH" when nothing is there; UNAVAILABLE "unable to find
// 'PATH' for model instance 'N'" when it is there, but not as a file; INVALID_ARGUMENT when FILE leads out of
// the version's directory.
absl::StatusOr<std::filesystem::path> ArtifactPath(const std::filesystem::path& directory, std::int64_t version,
                                                   const inference::ModelConfig& config, std::string_view fallback,
                                                   bool look_inside);

// The labels of an output, one a line; empty when it declares no file.
// UNIMPLEMENTED when the path leads out of the model's directory, NOT_FOUND or INTERNAL when it cannot be
// read.
absl::StatusOr<std::vector<std::string>> ReadLabels(const std::filesystem::path& directory, std::string_view model_name,
                                                    const inference::ModelOutput& output);

// A fingerprint of everything below a model's directory: names, times of change, sizes and inodes, not
// contents. Two equal stamps mean "not modified". Taken before the files are read, so that an edit in between
// shows next time.
struct ModelStamp {
  std::uint64_t config = 0;                        // config.pbtxt and all below configs/
  std::uint64_t shared = 0;                        // other entries that are no version: labels, warm-up data, …
  std::map<std::int64_t, std::uint64_t> versions;  // each version's directory, all below it

  friend bool operator==(const ModelStamp&, const ModelStamp&) = default;
  // May the files of this version differ between the two stamps? (The configuration is not asked.)
  bool SameVersionFiles(const ModelStamp& other, std::int64_t version) const;
};
ModelStamp StampOf(const std::filesystem::path& directory);

}  // namespace tidemark
