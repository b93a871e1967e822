#include "audit/fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <regex>

#include "audit/pbtxt_edit.h"

namespace tidemark::audit {
namespace {

// What a server may say about a model file that it cannot read. Servers word this freely.
constexpr std::string_view kBadFile =
    "protobuf|pars(e|ing)|deseriali|corrupt|trunc|invalid|magic|format|unexpected|unable|could not|cannot|"
    "failed to (load|read|create|open|deserialize)|model (file|proto|data)|plan|syntax|load model";

constexpr std::array<FaultInfo, 10> kFaults = {{
    {Fault::kOutputDatatype, "output-datatype", "the first output's data_type is changed", true, "data.?type|TYPE_"},
    {Fault::kOutputShape, "output-shape", "the first output gets one dimension more", true, "shape|dim|rank"},
    {Fault::kInputDatatype, "input-datatype", "the first input's data_type is changed", true, "data.?type|TYPE_"},
    {Fault::kMissingInput, "missing-input", "the first input is left out", true, "input"},
    {Fault::kTruncatedModel, "truncated-model", "the model file is cut in half", false, kBadFile},
    {Fault::kGarbageModel, "garbage-model", "the model file is replaced by noise", false, kBadFile},
    {Fault::kMissingModel, "missing-model", "the model file is removed", false,
     "no such file|not (be )?found|not exist|n't exist|unable to (find|open|load|get)|missing|"
     "fail(ed)? to (open|stat|read|load|find)|could not (open|find|be opened)|no version|cannot open|no model"},
    {Fault::kUnknownBackend, "unknown-backend", "the configuration names a backend that does not exist", true,
     "backend|platform|poll"},
    {Fault::kConfigSyntax, "config-syntax", "the configuration is no protobuf text", true,
     "poll from model repository|pars(e|ing)|syntax|config|text.?format|expected"},
    {Fault::kNone, "none", "nothing: the audited loads are good ones", true, ""},
}};

constexpr std::string_view kNoSuchBackend = "tidemark_audit_no_such_backend";

std::string Noise(std::size_t bytes) {
  std::string noise(bytes, '\0');
  std::uint64_t state = 0x9E3779B97F4A7C15U;
  for (char& c : noise) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    c = static_cast<char>(state & 0xFF);
  }
  return noise;
}

}  // namespace

std::span<const FaultInfo> AllFaults() { return kFaults; }

const FaultInfo& InfoOf(Fault fault) {
  return *std::find_if(kFaults.begin(), kFaults.end(), [fault](const FaultInfo& info) { return info.fault == fault; });
}

absl::StatusOr<Fault> ParseFault(std::string_view name) {
  std::string known;
  for (const FaultInfo& info : kFaults) {
    if (info.name == name) return info.fault;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", info.name);
  }
  return absl::InvalidArgumentError(fmt::format("unknown fault '{}'; expected one of {}", name, known));
}

absl::StatusOr<std::string> BreakConfig(Fault fault, std::string_view config) {
  switch (fault) {
    case Fault::kOutputDatatype:
      return ChangeFirstDatatype(config, "output");
    case Fault::kOutputShape:
      return AppendDimension(config, "output");
    case Fault::kInputDatatype:
      return ChangeFirstDatatype(config, "input");
    case Fault::kMissingInput:
      return RemoveFirst(config, "input");
    case Fault::kUnknownBackend:
      return ReplaceBackend(config, kNoSuchBackend);
    case Fault::kConfigSyntax:
      return BreakSyntax(config);
    default:
      return std::string(config);
  }
}

absl::StatusOr<std::optional<std::string>> BreakModel(Fault fault, std::string_view model) {
  if (fault == Fault::kMissingModel) return std::nullopt;
  if (model.size() < 2) return absl::FailedPreconditionError("the model file is empty");
  if (fault == Fault::kTruncatedModel) return std::string(model.substr(0, model.size() / 2));
  // Noise of the same order: a reader that trusts a length in it must not be saved by the end of the file.
  return Noise(std::min<std::size_t>(model.size(), std::size_t{1} << 20));
}

bool IsIntendedError(Fault fault, std::string_view text) {
  const std::string_view pattern = InfoOf(fault).error_regex;
  if (pattern.empty()) return false;
  std::string own(text);
  if (const std::size_t state = own.find(" state: "); state != std::string::npos) own.erase(0, state + 8);
  const std::regex expression(std::string(pattern), std::regex::ECMAScript | std::regex::icase);
  return std::regex_search(own, expression);
}

}  // namespace tidemark::audit
