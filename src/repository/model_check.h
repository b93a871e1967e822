#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/model_config.pb.h"
#include "repository/config_edit.h"
#include "repository/config_finding.h"
#include "repository/model_repository.h"

// The steps from a model's folder to a configuration, for those who load it (ModelRepository, which stops at the first
// step that fails) and those who want to know everything that is wrong (CheckModelFiles). Thread-safe.

namespace tidemark {

// A configuration as it was found.
struct ConfigText {
  std::string text;
  std::string file;               // of an override: empty
  bool json = false;              // an override of a load request
  bool absent = false;            // no file, which auto-completion allows
  std::string repaired;           // the text that was understood, when that is not `text` …
  std::vector<TextEdit> repairs;  // … and what was changed

  // Gives the findings the file and their places in it; nothing for an override.
  void Locate(std::vector<Finding>* findings) const;
};

// "failed to poll model 'N': model not found in any model repository.", NOT_FOUND.
absl::Status ModelNotFoundError(std::string_view name);

absl::StatusOr<ConfigText> ReadConfigText(const RepositoryOptions& options, std::string_view name,
                                          const std::filesystem::path& directory, const LoadOverrides& overrides);

// INVALID_ARGUMENT, for an override with "Invalid config override: " in front.
absl::StatusOr<inference::ModelConfig> ParseConfig(const ConfigText& text);

// Completes and normalises the configuration and says everything that is wrong with it. Inputs and outputs are only looked
// at when no engine is going to complete them.
std::vector<Finding> JudgeConfig(const RepositoryOptions& options, std::string_view name,
                                 const std::filesystem::path& directory, inference::ModelConfig* config);

struct FilesRequest {
  std::string name;
  std::filesystem::path directory;
  LoadOverrides overrides = {};
  std::optional<std::string> text = std::nullopt;  // in place of the configuration file's
  std::filesystem::path text_file = {};            // what `text` is named in findings; empty: the configuration file
  // Only the text is looked at: there is no model around it. The name is then the one that it gives, if any.
  bool config_only = false;
};

// What a model's files show without its engine.
struct ModelCheck {
  ModelSource source;     // good for opening the model when `readable`
  bool readable = false;  // the configuration could be understood, perhaps after the repairs that findings propose
  ConfigText text;
  std::vector<Finding> findings;   // errors and warnings, with places
  std::size_t parse_findings = 0;  // so many of the first are about the text itself
};

// Reads the model in that directory as a load would, but goes on after a mistake where that makes sense: names that are
// nearly right are taken for what was meant. Looks at labels and other files that the configuration names as well. Never
// writes.
ModelCheck CheckModelFiles(const RepositoryOptions& options, const FilesRequest& request);

}  // namespace tidemark
