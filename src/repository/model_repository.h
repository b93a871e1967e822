#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "proto/model_config.pb.h"
#include "repository/config_validate.h"
#include "repository/model_directory.h"

namespace tidemark {

// What a load request puts in place of what is on disk.
struct LoadOverrides {
  std::optional<std::string> config_json;    // replaces the configuration file for this load
  std::map<std::string, std::string> files;  // path relative to the model's directory ("1/model.onnx") -> bytes

  bool empty() const { return !config_json.has_value() && files.empty(); }
};

// Checks the name of a load request, as Triton does, on the name without surrounding white space: not empty,
// not
// "..", no '/'. INVALID_ARGUMENT.
absl::Status ValidateLoadName(std::string_view name);

// Checks that file overrides come with a configuration, and that no path leads out of the model's directory
// or uses a file as a directory. INVALID_ARGUMENT. Touches no disk.
absl::Status ValidateOverridePaths(const LoadOverrides& overrides);

// Writes the file overrides below `dir`, an existing directory that the caller owns and removes, also when
// this fails half-way. Checks the paths first. INTERNAL when writing fails.
absl::Status WriteOverrideFiles(const LoadOverrides& overrides, const std::filesystem::path& dir);

// One model in the repository's list.
struct ModelEntry {
  std::string model_namespace;  // the root's path with namespacing, else ""
  std::string name;
  // Where it is. More than one means that it is in several roots without namespacing, so that it cannot be
  // loaded.
  std::vector<std::filesystem::path> directories;

  bool duplicate() const { return directories.size() > 1; }
};

// What tells a model from all others: its name, or with namespacing "NAMESPACE/NAME" (a name has no '/').
std::string ModelKey(std::string_view model_namespace, std::string_view name);
// The name in a key, and the namespace in it ("" when it has none).
std::string_view NameOfKey(std::string_view key);
std::string_view NamespaceOfKey(std::string_view key);

// Everything that a load needs to know about a model before anything is taken.
struct ModelSource {
  std::string name;
  std::string model_namespace;
  std::string key;  // ModelKey of both
  std::filesystem::path directory;
  // Completed by the core and normalised, valid by ValidateConfig; inputs and outputs are validated only when
  // auto-completion is off. Instance groups are as written: the lifecycle normalises them with the backend's
  // defaults.
  inference::ModelConfig config;
  std::vector<std::int64_t> versions;  // selected by the policy, ascending; empty: the load fails (NoVersionError)
  ModelStamp stamp;                    // of `directory`, taken before anything was read
  std::vector<Finding> warnings;       // ignored directories, versions that are not there; already logged
  bool config_from_override = false;
};

struct RepositoryOptions {
  std::vector<std::filesystem::path> roots;
  std::string config_name;    // --model-config-name; "" = config.pbtxt only
  bool namespacing = false;   // --model-namespacing
  bool auto_complete = true;  // off: a configuration file is required, and inputs and outputs are validated here
};

struct FilesRequest;  // repository/model_check.h

// Which models exist on disk. Reads it anew at each call and remembers nothing but its mounts. Thread-safe.
// Never writes, never throws; concurrent edits of the repository lead to an error or to one of the two
// states, never to a crash.
class ModelRepository {
 private:
  struct Private {};

 public:
  // INVALID_ARGUMENT when there is no root ("--model-repository must be specified") or one is no directory
  // ("repository path is not a valid directory").
  static absl::StatusOr<std::unique_ptr<ModelRepository>> Create(RepositoryOptions options);

  // Every sub-directory of every root, by (namespace, name). UNAVAILABLE when a root cannot be listed at the
  // moment: then nothing is known, and a poll must not take the models for removed.
  absl::StatusOr<std::vector<ModelEntry>> Names() const;

  // The models of that name: none, one, or with namespacing one for each root that has it.
  std::vector<ModelEntry> Find(std::string_view name) const;

  // The one model of that name, with the errors of Resolve when there is none or more than one.
  absl::StatusOr<ModelEntry> FindOne(std::string_view name, std::string_view model_namespace) const;

  // Finds the model and reads it. With namespacing and several candidates, `model_namespace` chooses.
  // NOT_FOUND "failed to poll model 'N': model not found in any model repository.";
  // FAILED_PRECONDITION "failed to poll model 'N': not unique across all model repositories";
  // INVALID_ARGUMENT for a bad name, configuration or override. The text is the detailed one; what Triton's
  // API puts in its place is the lifecycle's business.
  absl::StatusOr<ModelSource> Resolve(std::string_view name, const LoadOverrides& overrides = {},
                                      std::string_view model_namespace = {}) const;

  // Reads the model in a given directory, which need not lie in the repository: the temporary directory of a
  // load with file overrides (after WriteOverrideFiles; the namespace is "" then), or an entry of Names().
  absl::StatusOr<ModelSource> ResolveIn(std::string_view name, std::string_view model_namespace,
                                        const std::filesystem::path& directory,
                                        const LoadOverrides& overrides = {}) const;

  // The findings that a status carries about the model's configuration get their places in its file.
  absl::Status WithPlaces(const ModelSource& source, const absl::Status& status) const;

  // From now on `name` is also a model in another repository, `root` (an absolute path): its directory of that name, or the
  // only one, or among several the only ensemble. The other directories of `root` are found by their own names, for the
  // members of an ensemble. A `root` with a config.pbtxt is the model's own directory, and its parent the repository.
  // For loads that name a repository (SageMaker's). ALREADY_EXISTS when the name is mounted;
  // INVALID_ARGUMENT for a bad name, a root that is no directory or lies in /dev, /proc or /sys, or when it cannot be told
  // which directory is meant.
  absl::Status Mount(std::string_view name, const std::filesystem::path& root);
  // Forgets it; nothing when there is no such mount. Models that are loaded stay so.
  void Unmount(std::string_view name);

  const RepositoryOptions& options() const { return options_; }

  // For Create only.
  ModelRepository(Private, RepositoryOptions options) : options_(std::move(options)) {}

 private:
  struct MountedRepository {
    std::string name;
    std::filesystem::path root;
    std::filesystem::path directory;  // of the model `name`, in `root`
  };
  using Mounts = std::vector<MountedRepository>;
  std::shared_ptr<const Mounts> MountsNow() const;
  absl::StatusOr<std::filesystem::path> ChooseModel(std::string_view name, const std::filesystem::path& root) const;
  // What mounts know of `name`.
  std::vector<ModelEntry> FindMounted(std::string_view name) const;

  // A text that cannot be parsed: what else is wrong comes behind what the parser says.
  absl::Status WithTheRest(const absl::Status& status, const FilesRequest& request) const;

  const RepositoryOptions options_;
  mutable absl::Mutex mutex_;
  // A picture that is replaced whole: the disk is looked at without the mutex.
  std::shared_ptr<const Mounts> mounts_ ABSL_GUARDED_BY(mutex_) = std::make_shared<const Mounts>();
};

}  // namespace tidemark
