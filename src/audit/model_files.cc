#include "audit/model_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <sstream>
#include <system_error>

#include "audit/pbtxt_edit.h"
#include "base/log.h"
#include "base/status.h"

namespace tidemark::audit {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".tidemark-audit";
constexpr std::string_view kMadeSuffix = ".tidemark-audit-made";  // beside a file that had no original

absl::Status FileError(std::string_view what, const fs::path& path, const std::error_code& error) {
  return absl::ErrnoToStatus(error.value(), fmt::format("cannot {} {}", what, path.string()));
}

fs::path Beside(const fs::path& path, std::string_view suffix) {
  return path.parent_path() / fmt::format(".{}{}", path.filename().string(), suffix);
}

// The visible path that a kept file belongs to; empty when `path` is no kept file.
fs::path OwnerOf(const fs::path& path, std::string_view suffix) {
  const std::string name = path.filename().string();
  if (name.size() <= suffix.size() + 1 || name.front() != '.') return {};
  if (name.compare(name.size() - suffix.size(), suffix.size(), suffix) != 0) return {};
  return path.parent_path() / name.substr(1, name.size() - suffix.size() - 1);
}

absl::Status PutBack(const fs::path& path, bool had_original) {
  std::error_code error;
  if (had_original) {
    fs::rename(Beside(path, kSuffix), path, error);
    if (error) return FileError("put back", path, error);
    return absl::OkStatus();
  }
  fs::remove(path, error);
  if (error) return FileError("remove", path, error);
  fs::remove(Beside(path, kMadeSuffix), error);
  return absl::OkStatus();
}

// A version directory's number; 0 for other directories.
long VersionOf(const fs::path& path) {
  const std::string name = path.filename().string();
  long version = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), version);
  return error == std::errc() && end == name.data() + name.size() && version > 0 ? version : 0;
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  if (file) content << file.rdbuf();
  if (!file) return absl::NotFoundError(fmt::format("cannot read {}", path.string()));
  return std::move(content).str();
}

absl::Status WriteFileAtomically(const fs::path& path, std::string_view content) {
  const fs::path temporary = Beside(path, ".tidemark-audit-new");
  {
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
    file.close();
    if (!file) return absl::InternalError(fmt::format("cannot write {}", temporary.string()));
  }
  std::error_code error;
  fs::rename(temporary, path, error);
  if (error) return FileError("write", path, error);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ModelFiles>> ModelFiles::Open(const fs::path& model_directory) {
  std::error_code error;
  if (!fs::is_directory(model_directory, error)) {
    return absl::NotFoundError(fmt::format("there is no model directory {}", model_directory.string()));
  }
  auto files = std::unique_ptr<ModelFiles>(new ModelFiles(model_directory));
  RETURN_IF_ERROR(files->MendLeftovers());
  return files;
}

absl::Status ModelFiles::MendLeftovers() {
  std::vector<std::pair<fs::path, bool>> found;
  std::error_code error;
  for (fs::recursive_directory_iterator it(directory_, error), end; !error && it != end; it.increment(error)) {
    if (const fs::path made = OwnerOf(it->path(), kMadeSuffix); !made.empty()) found.emplace_back(made, false);
    if (const fs::path owner = OwnerOf(it->path(), kSuffix); !owner.empty()) found.emplace_back(owner, true);
  }
  for (const auto& [path, had_original] : found) {
    RETURN_IF_ERROR(PutBack(path, had_original));
    ++mended_at_open_;
  }
  return absl::OkStatus();
}

ModelFiles::~ModelFiles() {
  if (const absl::Status status = Finish(); !status.ok()) LOG_ERROR("audit: {}", MessageOf(status));
}

absl::StatusOr<std::optional<std::string>> ModelFiles::ReadConfig() const {
  std::error_code error;
  if (!fs::exists(ConfigPath(), error)) return std::nullopt;
  ASSIGN_OR_RETURN(std::string text, ReadFile(ConfigPath()));
  return text;
}

absl::StatusOr<fs::path> ModelFiles::FindModelFile() const {
  std::error_code error;
  fs::path version;
  for (fs::directory_iterator it(directory_, error), end; !error && it != end; it.increment(error)) {
    if (it->is_directory() && VersionOf(it->path()) > (version.empty() ? 0 : VersionOf(version))) version = it->path();
  }
  if (version.empty()) {
    return absl::NotFoundError(fmt::format("{} has no version directory", directory_.string()));
  }
  ASSIGN_OR_RETURN(const auto config, ReadConfig());
  if (config.has_value()) {
    if (const auto fields = ParseTextFormat(*config); fields.ok()) {
      for (const TextField& field : *fields) {
        if (field.name != "default_model_filename") continue;
        const fs::path named = version / field.Scalar(*config);
        if (fs::is_regular_file(named, error)) return named;
      }
    }
  }
  // model.* beside everything else, since that is what servers open first; a compiled cache of it may be larger.
  fs::path largest;
  std::uintmax_t size = 0;
  bool named_model = false;
  for (fs::recursive_directory_iterator it(version, error), end; !error && it != end; it.increment(error)) {
    if (!it->is_regular_file()) continue;
    const bool model = it.depth() == 0 && it->path().stem() == "model";
    const bool better = model != named_model ? model : it->file_size() > size;
    if (!largest.empty() && !better) continue;
    largest = it->path();
    size = it->file_size();
    named_model = model;
  }
  if (largest.empty()) {
    return absl::NotFoundError(fmt::format("{} has no model file to break", version.string()));
  }
  return largest;
}

absl::Status ModelFiles::Break(const fs::path& path, const std::optional<std::string>& content) {
  std::error_code error;
  if (broken_.count(path) == 0) {
    const bool exists = fs::exists(path, error);
    if (exists) {
      times_.emplace(path, fs::last_write_time(path, error));
      const fs::path kept = Beside(path, kSuffix);
      fs::create_hard_link(path, kept, error);
      if (error) fs::copy_file(path, kept, error);  // file systems without hard links
      if (error) return FileError("keep the original of", path, error);
    } else {
      std::ofstream(Beside(path, kMadeSuffix)) << "This file's neighbour was made by tidemark audit.\n";
    }
    broken_.emplace(path, exists);
  }
  if (content.has_value()) return WriteFileAtomically(path, *content);
  fs::remove(path, error);
  if (error) return FileError("remove", path, error);
  return absl::OkStatus();
}

absl::Status ModelFiles::Mend() {
  absl::Status first;
  for (auto it = broken_.begin(); it != broken_.end();) {
    const absl::Status status = PutBack(it->first, it->second);
    if (!status.ok()) {
      if (first.ok()) first = status;
      ++it;
      continue;
    }
    std::error_code error;
    if (it->second) fs::last_write_time(it->first, fs::file_time_type::clock::now(), error);
    it = broken_.erase(it);
  }
  return first;
}

absl::Status ModelFiles::Finish() {
  RETURN_IF_ERROR(Mend());
  for (const auto& [path, time] : times_) {
    std::error_code error;
    fs::last_write_time(path, time, error);
    if (error) return FileError("set the time of", path, error);
  }
  times_.clear();
  return absl::OkStatus();
}

absl::Status CopyModel(const fs::path& repository, const std::string& model, const fs::path& target) {
  std::error_code error;
  const fs::path source = repository / model;
  if (model.empty() || model.find('/') != std::string::npos || !fs::is_directory(source, error)) {
    return absl::NotFoundError(fmt::format("the repository {} has no model '{}'", repository.string(), model));
  }
  fs::copy(source, target / model, fs::copy_options::recursive, error);
  if (error) return FileError("copy", source, error);
  return absl::OkStatus();
}

}  // namespace tidemark::audit
