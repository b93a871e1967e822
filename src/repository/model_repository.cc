#include "repository/model_repository.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "repository/model_check.h"

namespace tidemark {
namespace fs = std::filesystem;
namespace {

void LogAndKeep(std::vector<Finding> findings, bool errors, ModelSource* source) {
  for (Finding& finding : findings) {
    if (errors) {
      LOG_ERROR("{}", finding.message);
    } else {
      LOG_WARNING("{}", finding.message);
    }
    source->warnings.push_back(std::move(finding));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelRepository>> ModelRepository::Create(RepositoryOptions options) {
  if (options.roots.empty()) return absl::InvalidArgumentError("--model-repository must be specified");
  if (const std::string& config = options.config_name; config.find('/') != std::string::npos || config == "..") {
    return absl::InvalidArgumentError(
        fmt::format("--model-config-name must be the name of a file below configs/, found '{}'", config));
  }
  std::vector<fs::path> roots;
  for (const fs::path& root : options.roots) {
    std::error_code error;
    if (!fs::is_directory(root, error)) {
      return absl::InvalidArgumentError("repository path is not a valid directory\n" +
                                        fmt::format("found: '{}'", root.string()));
    }
    // The same directory given twice is one root, not a duplicate of each of its models.
    const bool known = std::any_of(roots.begin(), roots.end(),
                                   [&](const fs::path& other) { return fs::equivalent(root, other, error); });
    if (!known) roots.push_back(root);
  }
  options.roots = std::move(roots);
  return std::make_unique<ModelRepository>(Private{}, std::move(options));
}

std::string ModelKey(std::string_view model_namespace, std::string_view name) {
  return model_namespace.empty() ? std::string(name) : fmt::format("{}/{}", model_namespace, name);
}

std::string_view NameOfKey(std::string_view key) { return key.substr(key.rfind('/') + 1); }

std::string_view NamespaceOfKey(std::string_view key) {
  const std::size_t slash = key.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : key.substr(0, slash);
}

absl::StatusOr<std::vector<ModelEntry>> ModelRepository::Names() const {
  std::map<std::pair<std::string, std::string>, std::vector<fs::path>> found;
  for (const fs::path& root : options_.roots) {
    std::error_code error;
    for (fs::directory_iterator it(root, error); !error && it != fs::directory_iterator(); it.increment(error)) {
      std::error_code ignored;
      if (!it->is_directory(ignored)) continue;
      const std::string model_namespace = options_.namespacing ? root.string() : std::string();
      found[{model_namespace, it->path().filename().string()}].push_back(it->path());
    }
    if (error) {
      return absl::UnavailableError(
          fmt::format("failed to list model repository {}: {}", root.string(), error.message()));
    }
  }
  const std::shared_ptr<const Mounts> mounts = MountsNow();
  for (const MountedRepository& mount : *mounts) {
    std::vector<fs::path>& directories =
        found[{options_.namespacing ? mount.root.string() : std::string(), mount.name}];
    std::error_code ignored;  // a root may be written in another way than the mounted one
    const auto same = [&](const fs::path& one) { return fs::equivalent(one, mount.directory, ignored); };
    if (std::none_of(directories.begin(), directories.end(), same)) directories.push_back(mount.directory);
  }
  std::vector<ModelEntry> entries;
  entries.reserve(found.size());
  for (auto& [key, directories] : found) {
    entries.push_back({.model_namespace = key.first, .name = key.second, .directories = std::move(directories)});
  }
  return entries;
}

std::vector<ModelEntry> ModelRepository::Find(std::string_view name) const {
  std::vector<ModelEntry> entries;
  if (!ValidateLoadName(name).ok()) return entries;
  for (const fs::path& root : options_.roots) {
    const fs::path directory = root / name;
    std::error_code error;
    if (!fs::is_directory(directory, error)) continue;
    if (options_.namespacing || entries.empty()) {
      entries.push_back({.model_namespace = options_.namespacing ? root.string() : std::string(),
                         .name = std::string(name),
                         .directories = {directory}});
    } else {
      entries.front().directories.push_back(directory);
    }
  }
  for (ModelEntry& mounted : FindMounted(name)) {
    std::error_code error;
    const bool known = std::any_of(entries.begin(), entries.end(), [&](const ModelEntry& entry) {
      return fs::equivalent(entry.directories.front(), mounted.directories.front(), error);
    });
    if (known) continue;
    if (options_.namespacing || entries.empty()) {
      entries.push_back(std::move(mounted));
    } else {
      entries.front().directories.push_back(std::move(mounted.directories.front()));
    }
  }
  return entries;
}

std::shared_ptr<const ModelRepository::Mounts> ModelRepository::MountsNow() const {
  absl::MutexLock lock(&mutex_);
  return mounts_;
}

std::vector<ModelEntry> ModelRepository::FindMounted(std::string_view name) const {
  std::vector<ModelEntry> entries;
  const std::shared_ptr<const Mounts> mounts = MountsNow();
  for (const MountedRepository& mount : *mounts) {
    const bool itself = mount.name == name;
    const fs::path directory = itself ? mount.directory : mount.root / name;
    std::error_code error;
    // The model has the mount's name and no other.
    if (!itself && (directory == mount.directory || !fs::is_directory(directory, error))) continue;
    entries.push_back({.model_namespace = options_.namespacing ? mount.root.string() : std::string(),
                       .name = std::string(name),
                       .directories = {directory}});
  }
  return entries;
}

absl::StatusOr<fs::path> ModelRepository::ChooseModel(std::string_view name, const fs::path& root) const {
  std::error_code error;
  if (fs::is_directory(root / name, error)) return root / name;
  std::vector<fs::path> directories;
  std::vector<fs::path> ensembles;
  for (fs::directory_iterator it(root, error); !error && it != fs::directory_iterator(); it.increment(error)) {
    std::error_code ignored;
    if (!it->is_directory(ignored)) continue;
    directories.push_back(it->path());
    const auto text = ReadConfigText(options_, it->path().filename().string(), it->path(), {});
    if (!text.ok() || text->absent) continue;
    const auto config = ParseConfig(*text);
    if (config.ok() && config->platform() == "ensemble") ensembles.push_back(it->path());
  }
  if (error) {
    return absl::InvalidArgumentError(fmt::format("cannot list repository '{}': {}", root.string(), error.message()));
  }
  if (directories.size() == 1) return directories.front();
  if (ensembles.size() == 1) return ensembles.front();
  return absl::InvalidArgumentError(
      fmt::format("repository '{}' of model '{}': found {} model directories and {} ensembles, expected a directory of "
                  "that name, one directory, or one ensemble",
                  root.string(), name, directories.size(), ensembles.size()));
}

absl::Status ModelRepository::Mount(std::string_view name, const fs::path& root) {
  RETURN_IF_ERROR(ValidateLoadName(name));
  std::error_code error;
  fs::path real = root.is_absolute() ? fs::canonical(root, error) : fs::path();
  if (real.empty() || error || !fs::is_directory(real, error)) {
    return absl::InvalidArgumentError(fmt::format(
        "repository of model '{}': found '{}', expected the absolute path of a directory", name, root.string()));
  }
  for (const std::string_view system : {"/dev", "/proc", "/sys"}) {
    if (real == system || real.string().starts_with(fmt::format("{}/", system))) {
      return absl::InvalidArgumentError(
          fmt::format("repository of model '{}': '{}' lies in {}, which holds no models", name, root.string(), system));
    }
  }
  fs::path directory;
  if (fs::is_regular_file(real / "config.pbtxt", error)) {  // the model itself: its repository is the parent
    directory = real;
    real = real.parent_path();
  } else {
    ASSIGN_OR_RETURN(directory, ChooseModel(name, real));
  }
  absl::MutexLock lock(&mutex_);
  for (const MountedRepository& mount : *mounts_) {
    if (mount.name == name) {
      return absl::AlreadyExistsError(
          fmt::format("model '{}' is already there, from repository '{}'", name, mount.root.string()));
    }
  }
  Mounts next = *mounts_;
  next.push_back({.name = std::string(name), .root = real, .directory = std::move(directory)});
  mounts_ = std::make_shared<const Mounts>(std::move(next));
  return absl::OkStatus();
}

void ModelRepository::Unmount(std::string_view name) {
  absl::MutexLock lock(&mutex_);
  Mounts next = *mounts_;
  std::erase_if(next, [name](const MountedRepository& mount) { return mount.name == name; });
  mounts_ = std::make_shared<const Mounts>(std::move(next));
}

absl::StatusOr<ModelEntry> ModelRepository::FindOne(std::string_view name, std::string_view model_namespace) const {
  RETURN_IF_ERROR(ValidateLoadName(name));
  std::vector<ModelEntry> entries = Find(name);
  if (!model_namespace.empty()) {
    std::erase_if(entries, [&](const ModelEntry& entry) { return entry.model_namespace != model_namespace; });
  }
  if (entries.empty()) return ModelNotFoundError(name);
  if (entries.size() > 1) {
    return absl::FailedPreconditionError(
        fmt::format("There are {} identifiers of model '{}' in global map, model namespace must be provided to resolve "
                    "ambiguity.",
                    entries.size(), name));
  }
  if (entries.front().duplicate()) {
    return absl::FailedPreconditionError(
        fmt::format("failed to poll model '{}': not unique across all model repositories", name));
  }
  return std::move(entries.front());
}

absl::StatusOr<ModelSource> ModelRepository::Resolve(std::string_view name, const LoadOverrides& overrides,
                                                     std::string_view model_namespace) const {
  RETURN_IF_ERROR(ValidateLoadName(name));
  if (!overrides.files.empty()) {
    return absl::InternalError("file overrides must be written to a directory, and resolved there");
  }
  ASSIGN_OR_RETURN(const ModelEntry entry, FindOne(name, model_namespace));
  return ResolveIn(name, entry.model_namespace, entry.directories.front(), overrides);
}

absl::Status ModelRepository::WithTheRest(const absl::Status& status, const FilesRequest& request) const {
  const ModelCheck check = CheckModelFiles(options_, request);
  const std::vector<Finding> rest(
      check.findings.begin() + static_cast<std::ptrdiff_t>(std::min(check.parse_findings, check.findings.size())),
      check.findings.end());
  return WithFindings(absl::Status(status.code(), std::string(MessageOf(status)) + FindingLines(rest)), check.findings);
}

absl::StatusOr<ModelSource> ModelRepository::ResolveIn(std::string_view name, std::string_view model_namespace,
                                                       const fs::path& directory,
                                                       const LoadOverrides& overrides) const {
  ModelSource source;
  source.name = std::string(name);
  source.model_namespace = std::string(model_namespace);
  source.key = ModelKey(model_namespace, name);
  source.directory = directory;
  source.stamp = StampOf(directory);
  source.config_from_override = overrides.config_json.has_value();

  ASSIGN_OR_RETURN(ConfigText text, ReadConfigText(options_, name, directory, overrides));
  inference::ModelConfig& config = source.config;
  if (!text.absent) {
    auto parsed = ParseConfig(text);
    if (!parsed.ok()) return WithTheRest(parsed.status(), {source.name, directory, overrides});
    config = *std::move(parsed);
    // A mount serves it under another name.
    if (config.name() == directory.filename().string()) config.set_name(source.name);
  }
  std::vector<Finding> findings = JudgeConfig(options_, name, directory, &config);
  text.Locate(&findings);
  RETURN_IF_ERROR(StatusOf(findings));
  LogAndKeep(FindDoubts(config), false, &source);

  ASSIGN_OR_RETURN(VersionScan scan, ScanVersions(directory));
  LogAndKeep(std::move(scan.warnings), false, &source);
  VersionSelection selection = SelectVersions(config, scan.versions);
  source.versions = std::move(selection.versions);
  LogAndKeep(std::move(selection.errors), true, &source);
  return source;
}

absl::Status ModelRepository::WithPlaces(const ModelSource& source, const absl::Status& status) const {
  if (status.ok() || source.config_from_override) return status;
  std::vector<Finding> findings = FindingsOf(status);
  if (findings.front().field.empty()) return status;  // not about the configuration
  const auto text = ReadConfigText(options_, source.name, source.directory, {});
  if (!text.ok()) return status;
  text->Locate(&findings);
  return StatusOf(findings);
}

}  // namespace tidemark
