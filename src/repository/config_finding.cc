#include "repository/config_finding.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/cord.h"
#include "base/status.h"

namespace tidemark {
namespace {

using nlohmann::json;

constexpr char kPayload[] = "tidemark/findings";

// Insertions, deletions, substitutions and swaps of neighbours that lead from `a` to `b`.
std::size_t EditDistance(std::string_view a, std::string_view b) {
  const std::size_t width = b.size() + 1;
  std::vector<std::size_t> table((a.size() + 1) * width);
  const auto at = [&](std::size_t i, std::size_t j) -> std::size_t& { return table[i * width + j]; };
  for (std::size_t i = 0; i <= a.size(); ++i) at(i, 0) = i;
  for (std::size_t j = 0; j <= b.size(); ++j) at(0, j) = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = at(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1);
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, substitute});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
      }
    }
  }
  return at(a.size(), b.size());
}

std::string Dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

json ToPayload(const Finding& f) {
  return json::array({f.field, f.message, static_cast<int>(f.code), static_cast<int>(f.severity), f.found, f.expected,
                      static_cast<int>(f.repair), f.fix, f.file, f.line, f.column});
}

Finding FromPayload(const json& item) {
  Finding f;
  f.field = item.at(0).get<std::string>();
  f.message = item.at(1).get<std::string>();
  f.code = static_cast<absl::StatusCode>(item.at(2).get<int>());
  f.severity = static_cast<Severity>(item.at(3).get<int>());
  f.found = item.at(4).get<std::string>();
  f.expected = item.at(5).get<std::string>();
  f.repair = static_cast<Repair>(item.at(6).get<int>());
  f.fix = item.at(7).get<std::string>();
  f.file = item.at(8).get<std::string>();
  f.line = item.at(9).get<int>();
  f.column = item.at(10).get<int>();
  return f;
}

std::optional<std::vector<Finding>> Payload(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayload);
  if (!payload) return std::nullopt;
  const json list = json::parse(std::string(*payload), nullptr, false);
  std::vector<Finding> findings;
  if (!list.is_array()) return std::nullopt;
  for (const json& item : list) findings.push_back(FromPayload(item));
  return findings;
}

bool SaysMoreThanItsMessage(const Finding& finding) {
  return finding.line > 0 || !finding.expected.empty() || !finding.fix.empty();
}

// `said`: its message stands somewhere else.
std::string LineOf(const Finding& finding, bool said) {
  std::string text = "\n" + PlaceAndFault(finding);
  if (!said && !finding.expected.empty()) text += "; " + finding.message;
  if (const std::string fix = SuggestionOf(finding); !fix.empty()) {
    const bool words = finding.repair == Repair::kNone || finding.repair == Repair::kRemove;
    text += (words ? "; " : "; write: ") + fix;
  }
  return text;
}

std::string Details(const std::vector<Finding>& findings) {
  std::vector<const Finding*> errors;
  for (const Finding& finding : findings) {
    if (finding.severity == Severity::kError) errors.push_back(&finding);
  }
  if (errors.empty() || (errors.size() == 1 && !SaysMoreThanItsMessage(*errors.front()))) return {};
  std::string text;
  for (const Finding* finding : errors) text += LineOf(*finding, finding == errors.front());
  return text;
}

// The last name of a path, with its index if it has one.
std::string_view LastSegment(std::string_view path) {
  int depth = 0;
  for (std::size_t i = path.size(); i > 0; --i) {
    if (path[i - 1] == ']') ++depth;
    if (path[i - 1] == '[') --depth;
    if (path[i - 1] == '.' && depth == 0) return path.substr(i);
  }
  return path;
}

}  // namespace

Finding& Finding::Says(std::string found_text, std::string expected_text) {
  found = std::move(found_text);
  expected = std::move(expected_text);
  return *this;
}
Finding& Finding::SetTo(std::string value) {
  repair = Repair::kSet;
  fix = std::move(value);
  return *this;
}
Finding& Finding::RenameTo(std::string name) {
  repair = Repair::kRename;
  fix = std::move(name);
  return *this;
}
Finding& Finding::Remove() {
  repair = Repair::kRemove;
  fix.clear();
  return *this;
}
Finding& Finding::InsertText(std::string text) {
  repair = Repair::kInsert;
  fix = std::move(text);
  return *this;
}
Finding& Finding::Advise(std::string words) {
  repair = Repair::kNone;
  fix = std::move(words);
  return *this;
}
Finding& Finding::AsWarning() {
  severity = Severity::kWarning;
  return *this;
}

void Findings::Take(const absl::Status& status) { Append(FindingsOf(status)); }

void Findings::Append(std::vector<Finding> findings) {
  findings.resize(std::min(findings.size(), kMost - std::min(findings_.size(), kMost)));
  findings_.insert(findings_.end(), std::make_move_iterator(findings.begin()), std::make_move_iterator(findings.end()));
}

bool HasErrors(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.severity == Severity::kError; });
}

std::string SuggestionOf(const Finding& finding) {
  const std::string_view last = LastSegment(finding.field);
  switch (finding.repair) {
    case Repair::kSet:
      if (last.ends_with(']')) return finding.fix;
      return fmt::format("{}{} {}", last, finding.fix.starts_with('{') ? "" : ":", finding.fix);
    case Repair::kRemove:
      return fmt::format("remove '{}'", last);
    default:
      return finding.fix;
  }
}

std::string PlaceAndFault(const Finding& finding) {
  std::string text;
  if (!finding.file.empty()) text += finding.file + ":";
  if (finding.line > 0) text += fmt::format("{}:{}:", finding.line, finding.column);
  if (!text.empty()) text += ' ';
  if (!finding.field.empty()) text += finding.field + ": ";
  if (finding.expected.empty()) return text + finding.message;
  return text +
         fmt::format("found {}, expected {}", finding.found.empty() ? "nothing" : finding.found, finding.expected);
}

std::string FindingLines(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    if (finding.severity == Severity::kError) text += LineOf(finding, false);
  }
  return text;
}

absl::Status StatusOf(const std::vector<Finding>& findings) {
  const auto first = std::find_if(findings.begin(), findings.end(),
                                  [](const Finding& finding) { return finding.severity == Severity::kError; });
  if (first == findings.end()) return absl::OkStatus();
  return WithFindings(absl::Status(first->code, first->message + Details(findings)), findings);
}

absl::Status WithFindings(absl::Status status, const std::vector<Finding>& findings) {
  json list = json::array();
  for (const Finding& finding : findings) list.push_back(ToPayload(finding));
  status.SetPayload(kPayload, absl::Cord(Dump(list)));
  return status;
}

std::vector<Finding> FindingsOf(const absl::Status& status) {
  if (status.ok()) return {};
  if (auto findings = Payload(status)) return *std::move(findings);
  Finding finding;
  finding.message = std::string(MessageOf(status));
  finding.code = status.code();
  return {finding};
}

std::string HeadOf(const absl::Status& status) {
  if (const auto findings = Payload(status)) {
    for (const Finding& finding : *findings) {
      if (finding.severity == Severity::kError) return finding.message;
    }
  }
  return std::string(MessageOf(status));
}

std::string DetailsOf(const absl::Status& status) {
  const auto findings = Payload(status);
  return findings ? Details(*findings) : std::string();
}

std::string FindingsJson(const std::vector<Finding>& findings) {
  std::string out = "[";
  for (const Finding& finding : findings) {
    if (out.size() > 1) out += ',';
    nlohmann::ordered_json item;
    item["severity"] = finding.severity == Severity::kError ? "error" : "warning";
    const std::string fix = SuggestionOf(finding);
    const std::pair<const char*, const std::string*> texts[] = {{"field", &finding.field},
                                                                {"message", &finding.message},
                                                                {"found", &finding.found},
                                                                {"expected", &finding.expected},
                                                                {"fix", &fix},
                                                                {"file", &finding.file}};
    for (const auto& [key, text] : texts) {
      if (!text->empty()) item[key] = *text;
    }
    if (finding.line > 0) {
      item["line"] = finding.line;
      item["column"] = finding.column;
    }
    out += item.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  }
  return out + "]";
}

std::string_view NearestName(std::string_view name, const std::vector<std::string_view>& candidates) {
  if (name.size() > 64) return {};
  std::string_view best;
  std::size_t best_distance = std::min(std::max<std::size_t>(name.size() / 3, 1) + 1, name.size());
  for (std::string_view candidate : candidates) {
    const std::size_t distance = EditDistance(name, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string QuotedText(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\{:03o}", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace tidemark
