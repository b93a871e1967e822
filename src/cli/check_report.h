#pragma once

#include <string>
#include <vector>

#include "lifecycle/check_model.h"
#include "server/checker.h"

namespace tidemark {

enum class CheckFormat { kText, kJson, kGithub };

// One model and what is wrong with it.
struct CheckedModel {
  CheckTarget target;
  std::vector<Finding> findings;
};

// The whole report: as lines for people ("FILE:LINE:COLUMN: FIELD: found X, expected Y", the reason and a repair below), as one
// JSON document, or as workflow commands that GitHub shows beside the lines. Ends with a line break. Pure.
std::string CheckReportText(const std::vector<CheckedModel>& models, CheckFormat format);

// By file and place, those without a place last; otherwise the order stays.
void SortFindings(std::vector<Finding>& findings);

// What edits change, as the lines before ("-") and after ("+") with their numbers. Pure.
std::string ChangedLines(std::string_view before, const std::string& after);

}  // namespace tidemark
