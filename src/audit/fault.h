#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tidemark::audit {

// A way to break a model so that loading it must fail.
enum class Fault {
  kNone,  // nothing is broken: the audited loads are good ones
  kOutputDatatype,
  kOutputShape,
  kInputDatatype,
  kMissingInput,
  kTruncatedModel,
  kGarbageModel,
  kMissingModel,
  kUnknownBackend,
  kConfigSyntax,
};

struct FaultInfo {
  Fault fault;
  std::string_view name;         // as on the command line
  std::string_view what;         // one line of help
  bool edits_config;             // else it edits the model file
  std::string_view error_regex;  // case-insensitive; the error's own part must match. Empty for kNone
};

std::span<const FaultInfo> AllFaults();
const FaultInfo& InfoOf(Fault fault);
// INVALID_ARGUMENT names the known ones.
absl::StatusOr<Fault> ParseFault(std::string_view name);

// The configuration with the fault in it. FAILED_PRECONDITION when the text has no place for it.
absl::StatusOr<std::string> BreakConfig(Fault fault, std::string_view config);

// What the model file becomes; nullopt: it is to be removed. FAILED_PRECONDITION for an empty file.
absl::StatusOr<std::optional<std::string>> BreakModel(Fault fault, std::string_view model);

// True when a load was refused for the reason that the fault is about. `text` is the server's error text; the phrases
// that every refused load has ("load failed for model 'm': version 1 is at UNAVAILABLE state: …") are left out of the
// match.
bool IsIntendedError(Fault fault, std::string_view text);

}  // namespace tidemark::audit
