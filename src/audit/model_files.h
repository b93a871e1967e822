#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tidemark::audit {

// Breaks and mends the files of one model directory so that the directory is afterwards what it was before, also when
// the audit ends early. The original of an edited file is kept beside it as `.<name>.tidemark-audit` (the same inode,
// so owner, mode and times survive) until it is put back; every change of a visible file is one rename(2). A directory
// that a killed audit left broken is mended by the next Open. Not thread-safe.
class ModelFiles {
 public:
  // NOT_FOUND when there is no such directory; the status of a mending that failed.
  static absl::StatusOr<std::unique_ptr<ModelFiles>> Open(const std::filesystem::path& model_directory);
  // Puts everything back.
  ~ModelFiles();
  ModelFiles(const ModelFiles&) = delete;
  ModelFiles& operator=(const ModelFiles&) = delete;

  std::filesystem::path ConfigPath() const { return directory_ / "config.pbtxt"; }
  // nullopt when the model has none.
  absl::StatusOr<std::optional<std::string>> ReadConfig() const;

  // The model file of the highest version: `default_model_filename` if the configuration names one, else the largest
  // `model.*` directly in the version's directory, else the largest file anywhere in it. NOT_FOUND when there is none.
  absl::StatusOr<std::filesystem::path> FindModelFile() const;

  // Gives `path` other content; nullopt removes it.
  absl::Status Break(const std::filesystem::path& path, const std::optional<std::string>& content);

  // Puts the originals back, with a new modification time, by which servers notice that something changed.
  absl::Status Mend();

  // Mend, and the old modification times.
  absl::Status Finish();

  // How many files a killed audit had left broken and Open mended.
  int mended_at_open() const { return mended_at_open_; }

 private:
  explicit ModelFiles(std::filesystem::path directory) : directory_(std::move(directory)) {}
  absl::Status MendLeftovers();

  std::filesystem::path directory_;
  std::map<std::filesystem::path, bool> broken_;                            // path → whether there was an original
  std::map<std::filesystem::path, std::filesystem::file_time_type> times_;  // of the originals
  int mended_at_open_ = 0;
};

// Copies one model's directory to `<target>/<model>`, for a server of our own. Links are followed.
absl::Status CopyModel(const std::filesystem::path& repository, const std::string& model,
                       const std::filesystem::path& target);

absl::StatusOr<std::string> ReadFile(const std::filesystem::path& path);
// Through a temporary file beside it and a rename.
absl::Status WriteFileAtomically(const std::filesystem::path& path, std::string_view content);

}  // namespace tidemark::audit
