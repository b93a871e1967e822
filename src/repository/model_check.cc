#include "repository/model_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/data_type.h"
#include "base/status.h"
#include "repository/config_io.h"
#include "repository/config_normalize.h"
#include "repository/config_text.h"
#include "repository/config_validate.h"
#include "repository/model_directory.h"

namespace tidemark {
namespace fs = std::filesystem;
namespace {

// Does the parser know no such field? Then it goes on, and the rest can be judged without it.
bool IsUnknownField(const Finding& finding) { return finding.message.find("has no field named") != std::string::npos; }

// The configuration that was meant, if the text can be repaired into one. Notes the repairs.
std::optional<inference::ModelConfig> ParseRepaired(const std::vector<Finding>& findings, ConfigText* text) {
  if (text->json) return std::nullopt;
  std::vector<Finding> repairs = findings;
  for (Finding& finding : repairs) {
    if (finding.repair != Repair::kNone) continue;
    if (!IsUnknownField(finding)) return std::nullopt;
    finding.Remove();
  }
  text->repairs = ConfigPlaces(text->text).EditsFor(repairs);
  text->repaired = ApplyEdits(text->text, text->repairs);
  auto config = ParseConfigText(text->repaired, text->file);
  if (config.ok()) return *std::move(config);
  text->repairs.clear();
  text->repaired.clear();
  return std::nullopt;
}

void CheckVersions(const fs::path& directory, ModelSource* source, Findings* out) {
  const inference::ModelConfig& config = source->config;
  absl::StatusOr<VersionScan> scan = ScanVersions(directory);
  if (!scan.ok()) {
    out->Take(scan.status());
    return;
  }
  for (Finding& warning : scan->warnings) {
    warning.file = (directory / warning.field).string();
    warning.Says(fmt::format("'{}'", warning.field), "a version number without leading zeros").AsWarning();
  }
  out->Append(std::move(scan->warnings));
  VersionSelection selection = SelectVersions(config, scan->versions);
  source->versions = selection.versions;
  const auto& specific = config.version_policy().specific().versions();
  for (Finding& finding : selection.errors) {
    for (int i = 0; i < specific.size(); ++i) {
      const std::int64_t version = specific[i];
      if (std::find(scan->versions.begin(), scan->versions.end(), version) != scan->versions.end()) continue;
      if (finding.message.find(fmt::format("version {} is", version)) != 0) continue;
      finding.field = fmt::format("version_policy.specific.versions[{}]", i);
      finding.Says(fmt::format("{}", version), scan->versions.empty()
                                                   ? std::string("a version that is there")
                                                   : fmt::format("one of {}", fmt::join(scan->versions, ", ")));
    }
    finding.AsWarning();
  }
  out->Append(std::move(selection.errors));
  if (!source->versions.empty()) return;
  Finding& none = out->Add("version_policy", "{}", MessageOf(NoVersionError(source->name)));
  if (scan->versions.empty()) {
    none.file = directory.string();
    none.Says("no version directory", "a directory named by a number, such as 1, with the model's file in it");
  } else {
    none.Says("a policy that selects none",
              fmt::format("a policy that selects from {}", fmt::join(scan->versions, ", ")))
        .SetTo("{ latest { num_versions: 1 } }");
  }
}

void CheckLabels(const fs::path& directory, const inference::ModelConfig& config, Findings* out) {
  for (int i = 0; i < config.output_size(); ++i) {
    const inference::ModelOutput& output = config.output(i);
    if (output.label_filename().empty()) continue;
    const std::string where = fmt::format("output[{}].label_filename", i);
    const auto labels = ReadLabels(directory, config.name(), output);
    if (!labels.ok()) {
      out->AddWithCode(labels.status().code(), where, "{}", MessageOf(labels.status()))
          .Says(QuotedText(output.label_filename()), "a text file in the model's directory, a label on each line");
      continue;
    }
    std::int64_t classes = 1;
    for (const std::int64_t dim : output.dims()) {
      if (dim < 1 || __builtin_mul_overflow(classes, dim, &classes)) classes = -1;
      if (classes < 0) break;
    }
    if (classes > 0 && classes != static_cast<std::int64_t>(labels->size())) {
      out->Add(where, "label file '{}' of output '{}' has {} labels, but the output has {} elements",
               output.label_filename(), output.name(), labels->size(), classes)
          .Says(fmt::format("{} labels", labels->size()), fmt::format("{}", classes))
          .AsWarning();
    }
  }
}

// Rule 241 of Triton's sequence scheduler.
void CheckStateFiles(const fs::path& directory, const inference::ModelConfig& config, Findings* out) {
  const auto& states = config.sequence_batching().state();
  for (int i = 0; i < states.size(); ++i) {
    if (states[i].initial_state().empty() || !states[i].initial_state(0).has_data_file()) continue;
    const auto& initial = states[i].initial_state(0);
    const std::string where = fmt::format("sequence_batching.state[{}].initial_state[0].data_file", i);
    std::error_code error;
    const std::uintmax_t size = fs::file_size(directory / "initial_state" / initial.data_file(), error);
    if (error) {
      out->AddWithCode(absl::StatusCode::kNotFound, where, "failed to open text file for read {}: {}",
                       (directory / "initial_state" / initial.data_file()).string(), error.message())
          .Says(QuotedText(initial.data_file()), "a file in the model's 'initial_state' directory");
      continue;
    }
    const Shape dims(initial.dims().begin(), initial.dims().end());
    const auto bytes = TensorByteSize(FromProto(initial.data_type()), AsSpan(dims));
    if (bytes && *bytes > 0 && size < static_cast<std::uintmax_t>(*bytes)) {
      out->Add(where, "initial_state setting expects {} bytes, but the data provided from {}only has {} bytes.", *bytes,
               initial.data_file(), size)
          .Says(fmt::format("{} bytes", size), fmt::format("{} bytes", *bytes));
    }
  }
}

}  // namespace

void ConfigText::Locate(std::vector<Finding>* findings) const {
  if (json || absent) return;
  if (repairs.empty()) return LocateFindings(text, file, findings);
  const ConfigPlaces places(repaired);
  for (Finding& finding : *findings) {
    if (!finding.file.empty()) continue;
    const TextPosition at = PositionOf(text, OffsetBefore(repairs, places.OffsetOf(finding.field)));
    finding.file = file;
    finding.line = at.line;
    finding.column = at.column;
  }
}

absl::Status ModelNotFoundError(std::string_view name) {
  return absl::NotFoundError(fmt::format("failed to poll model '{}': model not found in any model repository.", name));
}

absl::StatusOr<ConfigText> ReadConfigText(const RepositoryOptions& options, std::string_view name,
                                          const fs::path& directory, const LoadOverrides& overrides) {
  ConfigText config;
  if (overrides.config_json) {
    config.text = *overrides.config_json;
    config.json = true;
    return config;
  }
  const fs::path file = ConfigFileOf(directory, options.config_name);
  config.file = file.string();
  auto text = ReadFile(file, "text file");
  if (text.ok()) {
    config.text = *std::move(text);
    return config;
  }
  if (!absl::IsNotFound(text.status()) || !options.auto_complete) return text.status();
  std::error_code error;
  if (!fs::is_directory(directory, error)) return ModelNotFoundError(name);  // removed a moment ago
  config.absent = true;
  return config;
}

absl::StatusOr<inference::ModelConfig> ParseConfig(const ConfigText& text) {
  if (!text.json) return ParseConfigText(text.text, text.file);
  auto config = ParseConfigJson(text.text);
  if (config.ok()) return config;
  std::vector<Finding> findings = FindingsOf(config.status());
  findings.front().message = fmt::format("Invalid config override: {}", findings.front().message);
  return StatusOf(findings);
}

namespace {

// Does what CompleteBackendFields completes depend on the listing? A configuration that names its backend seldom leaves
// anything to it.
bool ListingTells(const inference::ModelConfig& config) {
  const std::string& backend = config.backend();
  return backend.empty() || backend == "tensorflow" || backend == "openvino" || backend == "pytorch";
}

}  // namespace

std::vector<Finding> JudgeConfig(const RepositoryOptions& options, std::string_view name, const fs::path& directory,
                                 inference::ModelConfig* config) {
  Findings out;
  const VersionListing listing = ListingTells(*config) ? ListFirstSubdirectory(directory) : VersionListing();
  const absl::Status completed = CompleteBackendFields(name, listing, config);
  if (!completed.ok()) {
    out.Add("backend", "{}", MessageOf(completed))
        .Says("", "the engine's name, such as \"onnxruntime\", or a model file that tells it");
  }
  NormalizeConfig(config);
  std::vector<Finding> rules = ValidateConfig(*config);
  // That no backend is known has been said.
  if (!completed.ok()) std::erase_if(rules, [](const Finding& f) { return f.field == "platform"; });
  out.Append(std::move(rules));
  if (!options.auto_complete) out.Append(ValidateModelIo(*config));
  if (config->name() != name) {
    out.Add("name", "unexpected directory name '{}' for model '{}', directory name must equal model name", name,
            config->name())
        .Says(QuotedText(config->name()), fmt::format("{}, as the directory is named", QuotedText(name)))
        .SetTo(QuotedText(name));
  }
  return std::move(out).Take();
}

ModelCheck CheckModelFiles(const RepositoryOptions& options, const FilesRequest& request) {
  const fs::path& directory = request.directory;
  ModelCheck check;
  ModelSource& source = check.source;
  source.name = request.name;
  source.directory = directory;
  source.config_from_override = request.overrides.config_json.has_value();
  Findings out;
  if (request.text) {
    check.text.text = *request.text;
    check.text.file =
        request.text_file.empty() ? ConfigFileOf(directory, options.config_name).string() : request.text_file.string();
  } else {
    auto text = ReadConfigText(options, request.name, directory, request.overrides);
    if (!text.ok()) {
      check.findings = FindingsOf(text.status());
      check.findings.front().file = directory.string();
      return check;
    }
    check.text = *std::move(text);
  }
  check.readable = true;
  if (!check.text.absent) {
    auto config = ParseConfig(check.text);
    if (config.ok()) {
      source.config = *std::move(config);
    } else {
      std::vector<Finding> errors = FindingsOf(config.status());
      check.parse_findings = errors.size();
      auto repaired = ParseRepaired(errors, &check.text);
      out.Append(std::move(errors));
      check.readable = repaired.has_value();
      if (repaired) source.config = *std::move(repaired);
    }
  }
  if (check.readable) {
    if (request.config_only && !source.config.name().empty()) source.name = source.config.name();
    source.key = source.name;
    out.Append(JudgeConfig(options, source.name, directory, &source.config));
    out.Append(FindDoubts(source.config));
    if (!request.config_only) {
      CheckVersions(directory, &source, &out);
      CheckLabels(directory, source.config, &out);
      CheckStateFiles(directory, source.config, &out);
    }
  }
  check.findings = std::move(out).Take();
  check.text.Locate(&check.findings);
  return check;
}

}  // namespace tidemark
