#include "lifecycle/check_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tidemark {
namespace {

// Has that been said? The same words about the same field, or, for a rule about one field of a tensor, anything: an engine
// that knows the model says more about it than the rule.
bool Said(const std::vector<Finding>& findings, const Finding& finding) {
  return std::any_of(findings.begin(), findings.end(), [&](const Finding& other) {
    if (other.field != finding.field) return false;
    if (other.message == finding.message) return true;
    const bool tensor = finding.field.starts_with("input[") || finding.field.starts_with("output[");
    return tensor && other.severity == Severity::kError;
  });
}

}  // namespace

CheckReport CheckModel(const LoadTransaction::Parts& parts, const RepositoryOptions& options,
                       const CheckRequest& request) {
  ModelCheck files = CheckModelFiles(options, request);
  CheckReport report;
  report.findings = std::move(files.findings);
  report.parse_findings = files.parse_findings;
  report.text = std::move(files.text);
  if (!files.readable) return report;

  std::vector<std::int64_t> versions = files.source.versions;
  const bool open = request.open && !versions.empty();
  if (versions.empty()) versions.push_back(1);  // what needs no file is checked all the same
  for (const std::int64_t version : versions) {
    LoadTransaction transaction(parts, files.source, version, fmt::format("{}/{}", request.owner, version), nullptr);
    std::vector<Finding> found = transaction.Check(open);
    report.text.Locate(&found);
    for (Finding& finding : found) {
      if (!Said(report.findings, finding)) report.findings.push_back(std::move(finding));
    }
    if (parts.cancel != nullptr && parts.cancel->cancelled()) break;
  }
  return report;
}

}  // namespace tidemark
