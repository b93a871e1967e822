#include "repository/model_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "base/status.h"

namespace tidemark {
namespace fs = std::filesystem;
namespace {

constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{1} << 30;

struct Entry {
  std::string name;
  bool directory = false;  // also through a symbolic link
};

// The entries of a directory in byte order. What vanishes meanwhile is left out.
std::vector<Entry> ListEntries(const fs::path& directory, std::error_code* error) {
  std::vector<Entry> entries;
  fs::directory_iterator it(directory, *error);
  while (!*error && it != fs::directory_iterator()) {
    std::error_code ignored;
    if (it->exists(ignored)) {  // the listing itself says so, except for links
      entries.push_back({.name = it->path().filename().string(), .directory = it->is_directory(ignored)});
    }
    it.increment(*error);
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return entries;
}

// The number that the whole name stands for; nullopt when it stands for none from 0 to the maximum of int64.
std::optional<std::int64_t> VersionNumber(std::string_view name) {
  std::int64_t version = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), version);
  if (error != std::errc() || end != name.data() + name.size() || version < 0) return std::nullopt;
  if (name.size() > 1 && name.front() == '0') return std::nullopt;
  return version;
}

bool IsReserved(std::string_view name) {
  return name == "warmup" || name == "initial_state" || name == "configs" || name.starts_with('.');
}

// Does `relative` stay below the directory that it is relative to?
bool StaysInside(const fs::path& relative) {
  if (relative.empty() || relative.is_absolute()) return false;
  const fs::path normal = relative.lexically_normal();
  return !normal.empty() && *normal.begin() != ".." && normal != ".";
}

// Nothing is at `path`; what else the version's directory has may be what was meant.
absl::Status MissingArtifact(const fs::path& path, const fs::path& version_directory) {
  std::error_code error;
  std::vector<std::string> others;
  for (const Entry& entry : ListEntries(version_directory, &error)) {
    if (!entry.name.starts_with('.')) others.push_back(entry.name);
  }
  Findings out;
  Finding& finding =
      out.AddWithCode(absl::StatusCode::kInternal, "default_model_filename", "failed to stat file {}", path.string());
  constexpr std::size_t kFew = 8;
  const bool few = others.size() <= kFew;
  finding.Says(others.empty() ? fmt::format("an empty directory {}", version_directory.string())
               : few          ? fmt::format("{} in {}", fmt::join(others, ", "), version_directory.string())
                              : fmt::format("{} other files in {}", others.size(), version_directory.string()),
               fmt::format("'{}' there", path.filename().string()));
  if (others.size() == 1 && fs::path(others.front()).extension() == path.extension()) {
    finding.SetTo(QuotedText(others.front()));
  }
  return StatusOf(out.list());
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const fs::path& path, std::string_view what) {
  const auto failure = [&](absl::StatusCode code, const std::string& reason) {
    return absl::Status(code, fmt::format("failed to open {} for read {}: {}", what, path.string(), reason));
  };
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    const bool absent = status.type() == fs::file_type::not_found;
    return failure(absent ? absl::StatusCode::kNotFound : absl::StatusCode::kInternal,
                   absent ? "No such file or directory" : error.message());
  }
  // A pipe or a device would block, or never end.
  if (!fs::is_regular_file(status)) return failure(absl::StatusCode::kInternal, "not a regular file");
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    const int code = errno;
    return failure(code == ENOENT ? absl::StatusCode::kNotFound : absl::StatusCode::kInternal,
                   code == 0 ? "cannot be opened" : std::generic_category().message(code));
  }
  std::string bytes;
  std::vector<char> chunk(std::size_t{64} << 10);
  while (in.read(chunk.data(), static_cast<std::streamsize>(chunk.size())) || in.gcount() > 0) {
    bytes.append(chunk.data(), static_cast<std::size_t>(in.gcount()));
    if (bytes.size() > kMaxFileBytes) return failure(absl::StatusCode::kInternal, "larger than 1 GiB");
  }
  if (in.bad()) return failure(absl::StatusCode::kInternal, "reading failed");
  return bytes;
}

fs::path ConfigFileOf(const fs::path& directory, std::string_view config_name) {
  if (!config_name.empty()) {
    fs::path custom = directory / "configs" / fmt::format("{}.pbtxt", config_name);
    std::error_code error;
    if (fs::exists(custom, error)) return custom;
  }
  return directory / "config.pbtxt";
}

VersionListing ListFirstSubdirectory(const fs::path& directory) {
  VersionListing listing;
  std::error_code error;
  for (const Entry& entry : ListEntries(directory, &error)) {
    if (!entry.directory) continue;
    for (const Entry& inner : ListEntries(directory / entry.name, &error)) {
      (inner.directory ? listing.directories : listing.files).insert(inner.name);
    }
    break;
  }
  return listing;
}

absl::StatusOr<VersionScan> ScanVersions(const fs::path& directory) {
  std::error_code error;
  VersionScan scan;
  for (const Entry& entry : ListEntries(directory, &error)) {
    if (!entry.directory || IsReserved(entry.name)) continue;
    const auto warn = [&](std::string message) {
      scan.warnings.push_back({.field = entry.name, .message = std::move(message)});
    };
    if (entry.name.size() > 1 && entry.name.front() == '0') {
      warn(fmt::format("ignore version directory '{}' which contains leading zeros in its directory name", entry.name));
    } else if (const auto version = VersionNumber(entry.name)) {
      scan.versions.push_back(*version);
    } else {
      warn(fmt::format("ignore version directory '{}' which fails to convert to integral number", entry.name));
    }
  }
  if (error) {
    return absl::UnavailableError(
        fmt::format("failed to list model directory {}: {}", directory.string(), error.message()));
  }
  std::sort(scan.versions.begin(), scan.versions.end());
  return scan;
}

VersionSelection SelectVersions(const inference::ModelConfig& config, const std::vector<std::int64_t>& available) {
  const std::set<std::int64_t> present(available.begin(), available.end());
  VersionSelection selection;
  const auto& policy = config.version_policy();
  if (policy.has_specific()) {
    std::set<std::int64_t> chosen;
    for (const std::int64_t version : policy.specific().versions()) {
      if (present.contains(version)) {
        chosen.insert(version);
      } else {
        selection.errors.push_back(
            {.field = "version_policy.specific.versions",
             .message = fmt::format("version {} is specified for model '{}', but the version directory is not present",
                                    version, config.name()),
             .code = absl::StatusCode::kNotFound});
      }
    }
    selection.versions.assign(chosen.begin(), chosen.end());
    return selection;
  }
  selection.versions.assign(present.begin(), present.end());
  if (policy.has_latest()) {
    const std::size_t wanted = policy.latest().num_versions();
    if (selection.versions.size() > wanted) {
      selection.versions.erase(selection.versions.begin(),
                               selection.versions.end() - static_cast<std::ptrdiff_t>(wanted));
    }
  }
  return selection;
}

absl::Status NoVersionError(std::string_view model_name) {
  return absl::InvalidArgumentError(
      fmt::format("at least one version must be available under the version policy of model '{}'", model_name));
}

absl::StatusOr<fs::path> ArtifactPath(const fs::path& directory, std::int64_t version,
                                      const inference::ModelConfig& config, std::string_view fallback,
                                      bool look_inside) {
  const fs::path name =
      config.default_model_filename().empty() ? fs::path(fallback) : fs::path(config.default_model_filename());
  if (!StaysInside(name)) {
    Findings out;
    out.Add("default_model_filename",
            "'default_model_filename' \"{}\" of model '{}' must be a path inside the version's directory",
            name.string(), config.name())
        .Says(QuotedText(name.string()), "a path inside the version's directory");
    return StatusOf(out.list());
  }
  fs::path path = directory / fmt::format("{}", version) / name;
  std::error_code error;
  fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return MissingArtifact(path, directory / fmt::format("{}", version));
  if (fs::is_directory(status) && look_inside) {
    path /= name.filename();
    status = fs::status(path, error);
  }
  if (!fs::is_regular_file(status)) {
    return absl::UnavailableError(
        fmt::format("unable to find '{}' for model instance '{}'", path.string(), config.name()));
  }
  return path;
}

absl::StatusOr<std::vector<std::string>> ReadLabels(const fs::path& directory, std::string_view model_name,
                                                    const inference::ModelOutput& output) {
  std::vector<std::string> labels;
  if (output.label_filename().empty()) return labels;
  const fs::path relative(output.label_filename());
  if (!StaysInside(relative)) {
    return absl::UnimplementedError(
        fmt::format("label file path '{}' for output '{}' in model '{}' is outside model directory",
                    output.label_filename(), output.name(), model_name));
  }
  ASSIGN_OR_RETURN(const std::string text, ReadFile(directory / relative, "text file"));
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line(text.data() + at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    labels.emplace_back(line);
    at = end + 1;
  }
  return labels;
}

}  // namespace tidemark
