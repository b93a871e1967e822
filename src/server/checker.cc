#include "server/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <system_error>
#include <utility>

#include "absl/time/time.h"
#include "base/status.h"
#include "platform/platform.h"
#include "repository/model_directory.h"
#include "server/engines.h"

namespace tidemark {
namespace fs = std::filesystem;
namespace {

// The folders in a folder, by name, without hidden ones.
std::vector<fs::path> Folders(const fs::path& directory) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (fs::directory_iterator it(directory, error); !error && it != fs::directory_iterator(); it.increment(error)) {
    std::error_code ignored;
    if (it->is_directory(ignored) && !it->path().filename().string().starts_with('.')) folders.push_back(it->path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

bool HasConfig(const fs::path& directory) {
  std::error_code error;
  return fs::exists(directory / "config.pbtxt", error) || fs::is_directory(directory / "configs", error);
}

// Is there a version's folder in it? One that is itself a model's folder is a model named by a number.
bool HasVersions(const fs::path& directory) {
  const std::vector<fs::path> folders = Folders(directory);
  return std::any_of(folders.begin(), folders.end(), [](const fs::path& folder) {
    const std::string name = folder.filename().string();
    return std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c) != 0; }) &&
           !HasConfig(folder);
  });
}

std::string NameOf(const fs::path& directory) {
  std::error_code error;
  const fs::path whole = fs::canonical(directory, error);
  return (error ? directory : whole).filename().string();
}

CheckTarget FileTarget(const fs::path& file) {
  fs::path directory = file.parent_path().empty() ? fs::path(".") : file.parent_path();
  if (NameOf(directory) == "configs") directory = directory / "..";
  directory = directory.lexically_normal();
  if (directory.empty()) directory = ".";
  return {.name = HasVersions(directory) ? NameOf(directory) : file.stem().string(),
          .directory = directory,
          .file = file,
          .config_only = !HasVersions(directory)};
}

}  // namespace

std::unique_ptr<Checker> Checker::Create(Options options) {
  return std::make_unique<Checker>(Private(), std::move(options));
}

Checker::Checker(Private /*only Create*/, Options options)
    : options_(std::move(options)), platform_(CreateLinuxPlatform()), admission_(ledger_, absl::Seconds(1)) {
  repository_.config_name = options_.config_name;
  repository_.auto_complete = options_.auto_complete;
  buffers_ = std::make_unique<BufferPool>(*platform_, BufferPool::Options());
  if (options_.open && options_.cuda_library != "none") {
    gpu_scope_ = std::make_unique<Scope>(ledger_, *platform_, "check/gpus",
                                         Scope::Options{.cancel = nullptr, .reservations = nullptr, .resident = true});
    auto gpus = Gpus::Open(*gpu_scope_, options_.cuda_library);
    if (gpus.ok()) {
      gpus_ = *std::move(gpus);
    } else {
      gpu_scope_->ReleaseAll();  // a machine without GPUs: a configuration that asks for one is told so
    }
  }
  backends_ = std::make_unique<BackendRegistry>(
      ledger_, *platform_, options_.engine_directory.empty() ? DefaultEngineDirectory() : options_.engine_directory,
      options_.backend_settings);
  backends_->SetGpus(gpus_.get());
  AddEngines(*backends_);
}

Checker::~Checker() {
  backends_.reset();
  gpu_scope_.reset();
  gpus_.reset();
}

absl::StatusOr<std::vector<CheckTarget>> Checker::Targets(const fs::path& path) const {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return absl::NotFoundError(fmt::format("'{}': no such file or directory", path.string()));
  if (!fs::is_directory(status)) return std::vector<CheckTarget>{FileTarget(path)};
  if (HasConfig(path) || HasVersions(path)) {
    return std::vector<CheckTarget>{{.name = NameOf(path), .directory = path, .file = {}, .config_only = false}};
  }
  std::vector<CheckTarget> targets;
  for (const fs::path& folder : Folders(path)) {
    targets.push_back({.name = folder.filename().string(), .directory = folder, .file = {}, .config_only = false});
  }
  if (targets.empty()) {
    return absl::NotFoundError(fmt::format(
        "'{}' is no model repository: it has no folders; expected a repository, a model's folder or a config.pbtxt",
        path.string()));
  }
  return targets;
}

CheckReport Checker::Check(const CheckTarget& target, std::optional<std::string> text) {
  CheckRequest request;
  request.name = target.name;
  request.directory = target.directory;
  request.config_only = target.config_only;
  request.text_file = target.file;
  request.open = options_.open && !target.config_only;
  request.owner = fmt::format("model/{}/check-{}", target.name, ++checks_);
  request.text = std::move(text);
  if (!request.text && !target.file.empty()) {
    auto bytes = ReadFile(target.file, "text file");
    if (!bytes.ok()) {
      CheckReport report;
      report.findings = FindingsOf(bytes.status());
      return report;
    }
    request.text = *std::move(bytes);
  }
  Admission::Operation operation(admission_);
  return CheckModel(LoadTransaction::Parts{.platform = platform_.get(),
                                           .ledger = &ledger_,
                                           .backends = backends_.get(),
                                           .buffers = buffers_.get(),
                                           .admission = &admission_,
                                           .operation = &operation,
                                           .auto_complete = options_.auto_complete,
                                           .measured = std::nullopt},
                    repository_, request);
}

std::size_t Checker::rows_left() const { return ledger_.RowsOf("model").size(); }

}  // namespace tidemark
