#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

// What is wrong with a model, as data: for the log and the API as text, for `tidemark check` with a place and a repair.

namespace tidemark {

// A warning does not keep a model from loading.
enum class Severity : std::uint8_t { kError, kWarning };

// What Finding::fix does to the configuration.
enum class Repair : std::uint8_t {
  kNone,    // nothing: it is advice in words, or empty
  kSet,     // it is the new value of `field`; a field that is not there is added
  kRename,  // it is the new name of `field`
  kRemove,  // `field` goes
  kInsert,  // it is text to add to the message that `field` stands in
};

// One thing that is wrong.
struct Finding {
  std::string field;    // path in the configuration: "input[0].dims", "parameters[key]"; or another thing's name
  std::string message;  // Triton's text where Triton has the rule
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
  Severity severity = Severity::kError;
  std::string found = {};     // empty with an `expected`: nothing is there
  std::string expected = {};  // empty: the message says it
  Repair repair = Repair::kNone;
  std::string fix = {};
  std::string file = {};  // empty: the configuration came from no file
  int line = 0;           // from 1; 0: not known
  int column = 0;

  // For chaining. `what` of SetTo and InsertText is configuration text, that of Advise is words.
  Finding& Says(std::string found_text, std::string expected_text);
  Finding& SetTo(std::string value);
  Finding& RenameTo(std::string name);
  Finding& Remove();
  Finding& InsertText(std::string text);
  Finding& Advise(std::string words);
  Finding& AsWarning();
};

// Gathers findings in the order in which they are added, the first thousand of them: a configuration may hold millions of
// values that are wrong. Not thread-safe.
class Findings {
 public:
  // The result is good until the next Add.
  template <typename... Args>
  Finding& Add(std::string field, std::string_view format, const Args&... args) {
    return AddWithCode(absl::StatusCode::kInvalidArgument, std::move(field), format, args...);
  }
  template <typename... Args>
  Finding& AddWithCode(absl::StatusCode code, std::string field, std::string_view format, const Args&... args) {
    Finding& finding = findings_.size() < kMost ? findings_.emplace_back() : (spare_ = Finding());
    finding.field = std::move(field);
    finding.message = fmt::vformat(fmt::string_view(format.data(), format.size()), fmt::make_format_args(args...));
    finding.code = code;
    return finding;
  }
  // Takes over what a status says; nothing for an OK one.
  void Take(const absl::Status& status);
  void Append(std::vector<Finding> findings);

  bool empty() const { return findings_.empty(); }
  const std::vector<Finding>& list() const { return findings_; }
  std::vector<Finding> Take() && { return std::move(findings_); }

 private:
  static constexpr std::size_t kMost = 1000;
  std::vector<Finding> findings_;
  Finding spare_;  // takes what is beyond
};

bool HasErrors(const std::vector<Finding>& findings);

// Text to paste into the configuration ("data_type: TYPE_FP32"), or advice in words; empty when there is none.
std::string SuggestionOf(const Finding& finding);

// "FILE:LINE:COLUMN: FIELD: found X, expected Y" without what is not known; the message where found and expected are not.
std::string PlaceAndFault(const Finding& finding);

// A line for each error, each with a line break in front: "PlaceAndFault; MESSAGE; write: SUGGESTION".
std::string FindingLines(const std::vector<Finding>& findings);

// OK when there is no error; else the first error's code and, as text, its message. More lines follow, one for each error
// ("PlaceAndFault; MESSAGE; write: SUGGESTION"), when there is more to say than that message. The findings travel with the
// status (FindingsOf).
absl::Status StatusOf(const std::vector<Finding>& findings);

// A status with a text of its own that carries findings.
absl::Status WithFindings(absl::Status status, const std::vector<Finding>& findings);

// The findings that a status carries; one made of its text when it carries none; nothing for an OK status.
std::vector<Finding> FindingsOf(const absl::Status& status);

// What a status says in Triton's words: the first error's message, or the whole text when it carries no findings.
std::string HeadOf(const absl::Status& status);

// The lines that StatusOf puts behind the head, each with a line break in front; empty when there are none.
std::string DetailsOf(const absl::Status& status);

// [{"severity":"error","field":…,"message":…,"found":…,"expected":…,"fix":…,"file":…,"line":…,"column":…},…]; members that
// are empty or not known are left out.
std::string FindingsJson(const std::vector<Finding>& findings);

// The candidate nearest to `name` by edit distance; empty when none is near enough to be what was meant.
std::string_view NearestName(std::string_view name, const std::vector<std::string_view>& candidates);

// Text as a string of the protobuf text format, with quotes.
std::string QuotedText(std::string_view text);

}  // namespace tidemark
