#pragma once

#include <optional>
#include <string>

namespace tidemark {

// The value of an environment variable; nothing when it is not set. Read at start-up, before there are threads that could
// change it.
std::optional<std::string> EnvironmentVariable(const char* name);

}  // namespace tidemark
