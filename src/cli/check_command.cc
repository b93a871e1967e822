#include "cli/check_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "audit/model_files.h"
#include "base/log.h"
#include "base/status.h"
#include "cli/check_report.h"
#include "server/checker.h"

namespace tidemark {
namespace {

constexpr int kUsageError = 2;
constexpr int kMaxRounds = 5;  // of repairs: one may bring the next to light
constexpr std::size_t kMaxFixBytes = std::size_t{1} << 20;

struct CheckOptions {
  std::vector<std::string> paths;
  CheckFormat format = CheckFormat::kText;
  bool fix = false;
  bool yes = false;
  bool verbose = false;
  Checker::Options checker;
};

bool ParseOptions(std::span<char* const> args, CheckOptions& options, int& exit) {
  CLI::App app("Says everything that is wrong with models, without serving them", "tidemark check");
  app.add_option("PATH", options.paths, "A model repository, a model's folder, or a config.pbtxt")->required();
  const std::map<std::string, CheckFormat> formats = {
      {"text", CheckFormat::kText}, {"json", CheckFormat::kJson}, {"github", CheckFormat::kGithub}};
  app.add_option("--format", options.format, "text, json, or github (workflow commands) (text)")
      ->transform(CLI::CheckedTransformer(formats));
  app.add_flag("--fix", options.fix, "Write the repaired configuration, after asking");
  app.add_flag("--yes", options.yes, "With --fix: do not ask");
  bool no_engine = false;
  bool strict = false;
  app.add_flag("--no-engine", no_engine, "Do not open the models with their engines");
  app.add_flag("--disable-auto-complete-config", strict, "As the server's option: a configuration must be complete");
  app.add_option("--model-config-name", options.checker.config_name, "As the server's option: configs/NAME.pbtxt");
  app.add_option("--engine-directory", options.checker.engine_directory, "As the server's option");
  app.add_option("--cuda-library", options.checker.cuda_library, "As the server's option; 'none': use no GPU");
  app.add_flag("--verbose", options.verbose, "Show what the engines log, too");
  std::vector<std::string> words(args.rbegin(), args.rend());  // CLI11 takes them from the back
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    exit = app.exit(error) == 0 ? 0 : kUsageError;
    return false;
  }
  options.checker.open = !no_engine;
  options.checker.auto_complete = !strict;
  return true;
}

// The text after all repairs that follow from findings, one round after the other.
std::string RepairedText(Checker& checker, const CheckTarget& target, const CheckReport& first) {
  std::string text = first.text.text;
  CheckReport report = first;
  for (int round = 0; round < kMaxRounds; ++round) {
    std::vector<Finding> repairable = report.findings;
    // What stands behind a name that is wrong can only be found when the name is right.
    if (report.parse_findings > 0) repairable.resize(report.parse_findings);
    const std::vector<TextEdit> edits = ConfigPlaces(text).EditsFor(repairable);
    std::string next = ApplyEdits(text, edits);
    if (edits.empty() || next == text) break;
    text = std::move(next);
    report = checker.Check(target, text);
  }
  return text;
}

bool Confirmed(const std::string& file) {
  fmt::print("Write {}? [y/N] ", file);
  std::fflush(stdout);
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

// Writes the repaired configuration if there is one to write and the user wants it; what is wrong afterwards is in `report`.
absl::Status Fix(Checker& checker, const CheckTarget& target, const CheckOptions& options, CheckReport& report) {
  if (report.text.absent || report.text.file.empty() || report.text.text.size() > kMaxFixBytes) return absl::OkStatus();
  const std::string repaired = RepairedText(checker, target, report);
  if (repaired == report.text.text) return absl::OkStatus();
  const bool quiet = options.format != CheckFormat::kText;
  if (!quiet) fmt::print("{}:\n{}", report.text.file, ChangedLines(report.text.text, repaired));
  if (!options.yes && (quiet || !Confirmed(report.text.file))) return absl::OkStatus();
  RETURN_IF_ERROR(audit::WriteFileAtomically(report.text.file, repaired));
  if (!quiet) fmt::print("{} written\n", report.text.file);
  report = checker.Check(target);
  return absl::OkStatus();
}

}  // namespace

int CheckMain(std::span<char* const> args) {
  CheckOptions options;
  int exit = 0;
  if (!ParseOptions(args, options, exit)) return exit;
  LogSettings log = GetLogSettings();
  log.info = log.warning = log.error = options.verbose;  // what matters is among the findings
  if (!SetLogSettings(log).ok()) return kUsageError;
  const std::unique_ptr<Checker> checker = Checker::Create(options.checker);
  std::vector<CheckTarget> targets;
  for (const std::string& path : options.paths) {
    auto found = checker->Targets(path);
    if (!found.ok()) {
      fmt::print(stderr, "tidemark check: {}\n", MessageOf(found.status()));
      return kUsageError;
    }
    std::move(found->begin(), found->end(), std::back_inserter(targets));
  }
  std::vector<CheckedModel> models;
  bool errors = false;
  for (const CheckTarget& target : targets) {
    CheckReport report = checker->Check(target);
    if (options.fix) {
      if (absl::Status status = Fix(*checker, target, options, report); !status.ok()) {
        fmt::print(stderr, "tidemark check: {}\n", MessageOf(status));
        errors = true;
      }
    }
    SortFindings(report.findings);
    errors = errors || HasErrors(report.findings);
    models.push_back({target, std::move(report.findings)});
  }
  fmt::print("{}", CheckReportText(models, options.format));
  return errors ? 1 : 0;
}

}  // namespace tidemark
