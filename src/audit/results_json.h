#pragma once

#include <string>

#include "audit/record.h"

namespace tidemark::audit {

// The version of the form that ResultsJson writes; docs/audit.md describes it. It rises when a reader of the older form
// would misread the newer one; new members alone do not raise it.
inline constexpr int kResultsVersion = 1;

// The whole record as indented JSON, with a newline at the end.
std::string ResultsJson(const Record& record);

}  // namespace tidemark::audit
