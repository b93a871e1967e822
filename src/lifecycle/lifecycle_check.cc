#include <algorithm>
#include <cstddef>
#include <exception>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "lifecycle/check_model.h"
#include "lifecycle/lifecycle_impl.h"

namespace tidemark {
namespace {

std::ptrdiff_t Errors(const std::vector<Finding>& findings) {
  return std::count_if(findings.begin(), findings.end(),
                       [](const Finding& finding) { return finding.severity == Severity::kError; });
}

// What a check found as one status. Whatever is wrong with a model is the caller's affair.
absl::Status CheckStatus(std::string_view name, const std::vector<Finding>& findings) {
  const absl::Status status = StatusOf(findings);
  if (status.ok()) return status;
  const bool kept = absl::IsNotFound(status) || absl::IsResourceExhausted(status) || absl::IsCancelled(status);
  const auto errors = Errors(findings);
  return absl::Status(kept ? status.code() : absl::StatusCode::kInvalidArgument,
                      fmt::format("model '{}' would not load: {}{}\n{} error{}, nothing was loaded", name,
                                  HeadOf(status), DetailsOf(status), errors, errors == 1 ? "" : "s"));
}

}  // namespace

void Lifecycle::Impl::Check(std::string name, LoadOverrides overrides, CheckDone done) {
  const std::string key = name;
  auto run = [this, name = std::move(name), overrides = std::move(overrides), done = std::move(done)]() mutable {
    absl::StatusOr<std::vector<Finding>> findings = absl::UnavailableError("Server not ready");
    try {
      findings = RunCheck(name, overrides);
    } catch (const std::exception& error) {
      findings = absl::ResourceExhaustedError(fmt::format("exception: {}", error.what()));
    }
    parts_.buffers->Trim();
    parts_.platform->TrimHeap();
    EndOperation(name);
    if (!findings.ok()) return done(findings.status(), "[]");
    const auto errors = Errors(*findings);
    LOG_INFO("checked '{}': {} errors, {} warnings", name, errors,
             static_cast<std::ptrdiff_t>(findings->size()) - errors);
    done(CheckStatus(NameOfKey(name), *findings), FindingsJson(*findings));
  };
  Enqueue(key, Queued{LoadPool::Lane::kLoads, std::move(run)});
}

absl::StatusOr<std::vector<Finding>> Lifecycle::Impl::RunCheck(const std::string& name,
                                                               const LoadOverrides& overrides) {
  std::shared_ptr<Scope> files;
  CheckRequest request;
  request.name = std::string(NameOfKey(name));
  request.overrides = overrides;
  if (overrides.files.empty()) {
    ASSIGN_OR_RETURN(const ModelEntry entry, parts_.repository->FindOne(request.name, NamespaceOfKey(name)));
    request.directory = entry.directories.front();
  } else {
    ASSIGN_OR_RETURN(request.directory, WriteFiles(name, overrides, files));
  }
  Running running(admission_);
  {
    absl::MutexLock lock(&mutex_);
    if (refusing_) return absl::UnavailableError("Server not ready");
    running_.insert(&running.cancel);
    request.owner = fmt::format("model/{}/check-{}", name, ++counter_);
  }
  CheckReport report = CheckModel(LoadTransaction::Parts{.platform = parts_.platform,
                                                         .ledger = parts_.ledger,
                                                         .backends = parts_.backends,
                                                         .buffers = parts_.buffers,
                                                         .admission = &admission_,
                                                         .operation = &running.operation,
                                                         .cancel = &running.cancel,
                                                         .auto_complete = parts_.repository->options().auto_complete,
                                                         .measured = std::nullopt},
                                  parts_.repository->options(), request);
  absl::MutexLock lock(&mutex_);
  running_.erase(&running.cancel);
  return std::move(report.findings);
}

std::string Lifecycle::Impl::PollErrorOf(const std::string& name) {
  absl::MutexLock lock(&mutex_);
  const auto it = poll_errors_.find(name);
  return it == poll_errors_.end() ? std::string() : it->second;
}

}  // namespace tidemark
