#pragma once

#include <string>

#include "audit/record.h"

namespace tidemark::audit {

// One self-contained page, light and dark, without scripts: the verdict, the memory line, every figure, the server's
// answers, the environment.
std::string ReportHtml(const Record& record);

}  // namespace tidemark::audit
