#include "cli/check_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>
#include <utility>

namespace tidemark {
namespace {

struct Counts {
  std::size_t errors = 0;
  std::size_t warnings = 0;
};

Counts Count(const std::vector<CheckedModel>& models) {
  Counts counts;
  for (const CheckedModel& model : models) {
    for (const Finding& finding : model.findings) {
      ++(finding.severity == Severity::kError ? counts.errors : counts.warnings);
    }
  }
  return counts;
}

std::string Plural(std::size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// "write: X" for text to paste, "X" for words.
std::string Proposal(const Finding& finding) {
  const std::string suggestion = SuggestionOf(finding);
  if (suggestion.empty()) return {};
  const bool words = finding.repair == Repair::kNone || finding.repair == Repair::kRemove;
  return words ? suggestion : "write: " + suggestion;
}

// Each line of a text behind some blanks.
std::string Indented(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    out += fmt::format("    {}\n", text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::string TextReport(const std::vector<CheckedModel>& models) {
  std::string out;
  for (const CheckedModel& model : models) {
    for (const Finding& finding : model.findings) {
      std::string line = PlaceAndFault(finding);
      if (finding.file.empty()) line = fmt::format("{}: {}", model.target.name, line);
      out += line + (finding.severity == Severity::kWarning ? " (warning)\n" : "\n");
      if (!finding.expected.empty()) out += Indented(finding.message);
      out += Indented(Proposal(finding));
    }
  }
  const Counts counts = Count(models);
  return out + fmt::format("{} checked: {}, {}\n", Plural(models.size(), "model"), Plural(counts.errors, "error"),
                           Plural(counts.warnings, "warning"));
}

std::string JsonReport(const std::vector<CheckedModel>& models) {
  std::string out = "{\"models\":[";
  for (const CheckedModel& model : models) {
    if (&model != models.data()) out += ',';
    const auto quoted = [](const std::string& text) {
      return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    };
    out += fmt::format("{{\"name\":{},\"directory\":{},\"findings\":{}}}", quoted(model.target.name),
                       quoted(model.target.directory.string()), FindingsJson(model.findings));
  }
  const Counts counts = Count(models);
  return out + fmt::format("],\"errors\":{},\"warnings\":{}}}\n", counts.errors, counts.warnings);
}

// Text inside a workflow command; in a property two characters more have a meaning.
std::string Escaped(std::string_view text, bool property) {
  std::string out;
  for (const char c : text) {
    if (c == '%' || c == '\r' || c == '\n' || (property && (c == ':' || c == ','))) {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out;
}

std::string GithubReport(const std::vector<CheckedModel>& models) {
  std::string out;
  for (const CheckedModel& model : models) {
    for (const Finding& finding : model.findings) {
      std::string properties;
      const auto add = [&](std::string_view key, std::string_view value) {
        properties += fmt::format("{}{}={}", properties.empty() ? " " : ",", key, Escaped(value, true));
      };
      if (!finding.file.empty()) add("file", finding.file);
      if (finding.line > 0) {
        add("line", fmt::format("{}", finding.line));
        add("col", fmt::format("{}", finding.column));
      }
      add("title", finding.field.empty() ? model.target.name : finding.field);
      Finding bare = finding;
      bare.file.clear();
      bare.line = 0;
      std::string text = PlaceAndFault(bare);
      if (!finding.expected.empty()) text += "\n" + finding.message;
      if (const std::string proposal = Proposal(finding); !proposal.empty()) text += "\n" + proposal;
      out += fmt::format("::{}{}::{}\n", finding.severity == Severity::kError ? "error" : "warning", properties,
                         Escaped(text, false));
    }
  }
  return out;
}

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

}  // namespace

std::string CheckReportText(const std::vector<CheckedModel>& models, CheckFormat format) {
  switch (format) {
    case CheckFormat::kText:
      return TextReport(models);
    case CheckFormat::kJson:
      return JsonReport(models);
    case CheckFormat::kGithub:
      break;
  }
  return GithubReport(models);
}

void SortFindings(std::vector<Finding>& findings) {
  std::stable_sort(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) {
    const auto key = [](const Finding& f) {
      return std::tuple(f.line == 0, std::string_view(f.file), f.line, f.column);
    };
    return key(a) < key(b);
  });
}

std::string ChangedLines(std::string_view before, const std::string& after) {
  const std::vector<std::string_view> old_lines = Lines(before);
  const std::vector<std::string_view> new_lines = Lines(after);
  // The longest common subsequence, behind what both begin with and before what both end with.
  std::size_t head = 0;
  while (head < std::min(old_lines.size(), new_lines.size()) && old_lines[head] == new_lines[head]) ++head;
  std::size_t tail = 0;
  while (tail < std::min(old_lines.size(), new_lines.size()) - head &&
         old_lines[old_lines.size() - 1 - tail] == new_lines[new_lines.size() - 1 - tail]) {
    ++tail;
  }
  const std::size_t rows = old_lines.size() - head - tail;
  const std::size_t columns = new_lines.size() - head - tail;
  std::vector<std::size_t> common((rows + 1) * (columns + 1));
  const auto at = [&](std::size_t i, std::size_t j) -> std::size_t& { return common[i * (columns + 1) + j]; };
  for (std::size_t i = rows; i-- > 0;) {
    for (std::size_t j = columns; j-- > 0;) {
      at(i, j) =
          old_lines[head + i] == new_lines[head + j] ? at(i + 1, j + 1) + 1 : std::max(at(i + 1, j), at(i, j + 1));
    }
  }
  std::string out;
  for (std::size_t i = 0, j = 0; i < rows || j < columns;) {
    if (i < rows && j < columns && old_lines[head + i] == new_lines[head + j]) {
      ++i;
      ++j;
    } else if (i < rows && (j == columns || at(i + 1, j) >= at(i, j + 1))) {
      out += fmt::format("{:5} - {}\n", head + i + 1, old_lines[head + i]);
      ++i;
    } else {
      out += fmt::format("{:5} + {}\n", head + j + 1, new_lines[head + j]);
      ++j;
    }
  }
  return out;
}

}  // namespace tidemark
