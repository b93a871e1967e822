#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <system_error>

#include "base/status.h"
#include "repository/model_repository.h"

namespace tidemark {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kSpace = " \t\n\v\f\r";

std::string_view Trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// The normalised path of one override.
absl::StatusOr<fs::path> NormalPath(const std::string& name) {
  const auto bad = [&](std::string_view what) {
    return absl::InvalidArgumentError(fmt::format("Invalid file parameter 'file:{}': {}", name, what));
  };
  if (name.empty()) return bad("the path is empty");
  if (name.find('\0') != std::string::npos) return bad("the path contains a zero byte");
  const fs::path normal = fs::path(name).lexically_normal();
  if (normal.is_absolute() || *normal.begin() == "..") {
    return absl::InvalidArgumentError(
        fmt::format("Invalid file parameter 'file:{}' with normalized path '{}' must stay within model directory.",
                    name, normal.string()));
  }
  if (!normal.has_filename() || normal == ".") return bad("the path names a directory");
  for (const fs::path& part : normal) {
    if (part.native().size() > 255) return bad("File name too long");
  }
  return normal;
}

}  // namespace

absl::Status ValidateLoadName(std::string_view name) {
  const std::string_view trimmed = Trim(name);
  if (trimmed.empty()) {
    return absl::InvalidArgumentError("Model name cannot be empty. Please enter a valid name to deploy.");
  }
  // "." would be the repository itself, and a zero byte ends a path early: Triton does not ask for these two.
  if (trimmed == ".." || trimmed == "." || trimmed.find('/') != std::string_view::npos ||
      trimmed.find('\0') != std::string_view::npos) {
    return absl::InvalidArgumentError(
        fmt::format("invalid model name '{}', model name must not contain path traversal characters", trimmed));
  }
  return absl::OkStatus();
}

absl::Status ValidateOverridePaths(const LoadOverrides& overrides) {
  if (!overrides.files.empty() && !overrides.config_json.has_value()) {
    return absl::InvalidArgumentError("Load parameter 'config' must be specified for model file override");
  }
  std::set<fs::path> files;
  for (const auto& [name, bytes] : overrides.files) {
    ASSIGN_OR_RETURN(fs::path normal, NormalPath(name));
    if (!files.insert(normal).second) {
      return absl::InvalidArgumentError(
          fmt::format("Invalid file parameter 'file:{}', the file '{}' is given twice", name, normal.string()));
    }
  }
  for (const auto& [name, bytes] : overrides.files) {
    ASSIGN_OR_RETURN(const fs::path normal, NormalPath(name));
    for (fs::path parent = normal.parent_path(); !parent.empty(); parent = parent.parent_path()) {
      if (files.contains(parent)) {
        return absl::InvalidArgumentError(
            fmt::format("Invalid file parameter 'file:{}', directory has been created as a file", name));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status WriteOverrideFiles(const LoadOverrides& overrides, const fs::path& dir) {
  RETURN_IF_ERROR(ValidateOverridePaths(overrides));
  for (const auto& [name, bytes] : overrides.files) {
    ASSIGN_OR_RETURN(const fs::path normal, NormalPath(name));
    const fs::path path = dir / normal;
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (error) {
      return absl::InternalError(fmt::format("failed to create directory {} for file parameter 'file:{}': {}",
                                             path.parent_path().string(), name, error.message()));
    }
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    out.close();
    if (!out) {
      return absl::InternalError(fmt::format("failed to write {} bytes to {} for file parameter 'file:{}'",
                                             bytes.size(), path.string(), name));
    }
  }
  return absl::OkStatus();
}

}  // namespace tidemark
