#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "backends/onnxruntime/model_io.h"
#include "base/status.h"
#include "repository/config_edit.h"
#include "repository/config_normalize.h"
#include "repository/config_text.h"
#include "repository/config_validate.h"
#include "repository/model_check.h"
#include "tests/support/model_directory.h"

// Configurations that are wrong, each with everything that must be said about it, and configurations that are right, each
// with what /config must answer (as NVIDIA's server does: ask_peer.py). README.md says what the files hold.

namespace tidemark {
namespace {

namespace fs = std::filesystem;

const fs::path kCorpus = TIDEMARK_CONFIG_CORPUS;

std::string Slurp(const fs::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

std::vector<std::string> NamesIn(const char* folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kCorpus / folder)) {
    if (entry.path().extension() == ".pbtxt") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The lines "# KEY: VALUE" of a file.
struct Case {
  std::string text;
  std::multimap<std::string, std::string> headers;

  explicit Case(const fs::path& path) : text(Slurp(path)) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const std::size_t colon = line.find(": ");
      if (line.starts_with("# ") && colon != std::string::npos) {
        headers.emplace(line.substr(2, colon - 2), line.substr(colon + 2));
      }
    }
  }
  std::vector<std::string> All(const std::string& key) const {
    std::vector<std::string> values;
    for (auto [it, end] = headers.equal_range(key); it != end; ++it) values.push_back(it->second);
    return values;
  }
  std::vector<std::string> Words(const std::string& key) const {
    std::vector<std::string> words;
    for (const std::string& value : All(key)) {
      std::istringstream stream(value);
      for (std::string word; stream >> word;) words.push_back(word);
    }
    return words;
  }
  // "# gpus: 0 1"; "none" is a server that can use GPUs on a machine without.
  DeviceFacts Devices() const {
    DeviceFacts devices;
    for (const std::string& word : Words("gpus")) {
      devices.gpu_build = true;
      if (word != "none") devices.gpus.push_back(std::stoi(word));
    }
    return devices;
  }
};

// "X FP32 -1,4; W INT64 3" as an ONNX model declares it.
std::vector<OnnxValue> Values(std::string_view text) {
  std::vector<OnnxValue> values;
  std::istringstream list{std::string(text)};
  for (std::string item; std::getline(list, item, ';');) {
    std::istringstream words(item);
    std::string type;
    std::string dims;
    OnnxValue value;
    words >> value.name >> type >> dims;
    value.kind = OnnxKind::kTensor;
    value.element_type = OnnxOfDataType(DataTypeFromProtocolName(type));
    value.has_shape = true;
    std::istringstream numbers(dims);
    for (std::string number; std::getline(numbers, number, ',');) {
      value.dims.push_back({.value = std::stoll(number), .symbol = ""});
    }
    values.push_back(std::move(value));
  }
  return values;
}

// Everything that is wrong with the case in a model's folder of its own.
std::vector<Finding> Check(const Case& what, const fs::path& directory, std::string_view name) {
  FilesRequest request;
  request.name = std::string(name);
  request.directory = directory;
  ModelCheck check = CheckModelFiles(RepositoryOptions(), request);
  if (!check.readable) return check.findings;
  inference::ModelConfig config = check.source.config;
  Findings more;
  InstanceDefaults defaults;
  defaults.gpus = what.Devices().gpus;
  NormalizeInstanceGroups(defaults, &config);
  more.Append(ValidateInstanceGroups(config, what.Devices()));
  more.Append(ValidateWarmup(config));
  more.Append(ValidateSequenceStates(config));
  for (const std::string& model : what.All("model")) {
    const std::size_t arrow = model.find("->");
    more.Take(CheckConfig({Values(model.substr(0, arrow)), {}, Values(model.substr(arrow + 2))}, config, true));
  }
  if (what.All("model").empty()) more.Append(ValidateModelIo(config));
  std::vector<Finding> found = std::move(more).Take();
  check.text.Locate(&found);
  check.findings.insert(check.findings.end(), found.begin(), found.end());
  return check.findings;
}

void WriteFolder(const Case& what, const fs::path& directory) {
  fs::create_directories(directory);
  std::ofstream(directory / "config.pbtxt", std::ios::binary) << what.text;
  std::vector<std::string> files = what.Words("files");
  if (files.empty()) files.push_back("1/model.bin");
  for (const std::string& listed : what.Words("listing")) files.push_back("1/" + listed);
  for (const std::string& file : files) {
    fs::create_directories((directory / file).parent_path());
    std::ofstream(directory / file).flush();
  }
  if (!what.Words("labels").empty()) {
    std::ofstream labels(directory / "labels.txt");
    for (const std::string& label : what.Words("labels")) labels << label << "\n";
  }
}

std::string Line(const Finding& finding) {
  const std::string lines = FindingLines({finding});
  return lines.empty() ? lines : lines.substr(1);
}

// Takes the first of `wanted` that the line holds; false when there is none.
bool TakeWanted(const std::string& line, std::vector<std::string>* wanted) {
  const auto hit = std::find_if(wanted->begin(), wanted->end(),
                                [&](const std::string& text) { return line.find(text) != std::string::npos; });
  if (hit == wanted->end()) return false;
  wanted->erase(hit);
  return true;
}

TEST(ConfigCorpusTest, EveryWrongConfigurationIsToldAllOfIt) {
  const std::vector<std::string> names = NamesIn("wrong");
  EXPECT_GE(names.size(), 150U);
  TestFolder folder;
  for (const std::string& name : names) {
    SCOPED_TRACE("wrong/" + name + ".pbtxt");
    const Case what(kCorpus / "wrong" / (name + ".pbtxt"));
    const fs::path directory = folder.path() / name / "m";
    WriteFolder(what, directory);
    std::vector<std::string> errors = what.All("expect");
    std::vector<std::string> warnings = what.All("warn");
    EXPECT_FALSE(errors.empty() && warnings.empty()) << "nothing is expected of it";
    for (Finding& finding : Check(what, directory, "m")) {
      const bool error = finding.severity == Severity::kError;
      finding.severity = Severity::kError;  // so that it is printed
      const std::string line = Line(finding);
      EXPECT_TRUE(TakeWanted(line, error ? &errors : &warnings)) << "not expected: " << line;
      EXPECT_FALSE(finding.message.empty()) << line;
    }
    for (const std::string& text : errors) ADD_FAILURE() << "no error with: " << text;
    for (const std::string& text : warnings) ADD_FAILURE() << "no warning with: " << text;
  }
}

// What the repairs propose is text that can be pasted: applied round by round, as `tidemark check --fix` does, they never
// break what could be read and never leave more to say.
TEST(ConfigCorpusTest, RepairsNeverBreakTheText) {
  TestFolder folder;
  for (const std::string& name : NamesIn("wrong")) {
    SCOPED_TRACE("wrong/" + name + ".pbtxt");
    Case what(kCorpus / "wrong" / (name + ".pbtxt"));
    const fs::path directory = folder.path() / name / "m";
    WriteFolder(what, directory);
    std::vector<Finding> findings = Check(what, directory, "m");
    const std::size_t before = findings.size();
    bool readable = ParseConfigText(what.text, "config.pbtxt").ok();
    for (int round = 0; round < 5; ++round) {
      const auto edits = ConfigPlaces(what.text).EditsFor(findings);
      if (edits.empty()) break;
      what.text = ApplyEdits(what.text, edits);
      const auto repaired = ParseConfigText(what.text, "config.pbtxt");
      EXPECT_TRUE(repaired.ok() || !readable) << what.text << repaired.status();
      readable = repaired.ok();
      WriteFolder(what, directory);
      findings = Check(what, directory, "m");
    }
    EXPECT_LE(findings.size(), before) << what.text << (findings.empty() ? "" : Line(findings.front()));
  }
}

TEST(ConfigCorpusTest, EveryRightConfigurationPassesAndLooksAsTritonShowsIt) {
  const std::vector<std::string> names = NamesIn("right");
  EXPECT_GE(names.size(), 60U);
  TestFolder folder;
  std::size_t compared = 0;
  for (const std::string& name : names) {
    SCOPED_TRACE("right/" + name + ".pbtxt");
    Case what(kCorpus / "right" / (name + ".pbtxt"));
    if (what.Words("listing").empty()) what.headers.emplace("listing", "model.py");
    const fs::path directory = folder.path() / name;
    WriteFolder(what, directory);
    fs::remove(directory / "1" / "model.bin");
    for (Finding& finding : Check(what, directory, name)) {
      if (finding.severity == Severity::kError) ADD_FAILURE() << Line(finding);
    }
    auto config = ParseConfigText(what.text, "config.pbtxt");
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_TRUE(CompleteBackendFields(name, ListFirstSubdirectory(directory), &*config).ok());
    NormalizeConfig(&*config);
    InstanceDefaults defaults;
    defaults.gpus = what.Devices().gpus;
    NormalizeInstanceGroups(defaults, &*config);
    // The load of an ensemble says whether a step is decoupled.
    if (config->has_ensemble_scheduling()) config->mutable_model_transaction_policy()->set_decoupled(false);
    nlohmann::json shown = nlohmann::json::parse(ConfigJson(*config));
    const auto again = ParseConfigJson(shown.dump());
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(nlohmann::json::parse(ConfigJson(*again)), shown) << "what is shown can be given as an override";
    const fs::path expected = kCorpus / "right" / (name + ".json");
    if (!fs::exists(expected)) continue;
    ++compared;
    const nlohmann::json peer = nlohmann::json::parse(Slurp(expected));
    // Younger than the peer.
    if (shown.contains("ensemble_scheduling")) shown["ensemble_scheduling"].erase("max_inflight_requests");
    EXPECT_EQ(shown, peer) << nlohmann::json::diff(peer, shown).dump(1);
  }
  EXPECT_GE(compared, 50U);
}

}  // namespace
}  // namespace tidemark
