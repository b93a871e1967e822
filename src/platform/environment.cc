#include "platform/environment.h"

#include <cstdlib>

namespace tidemark {

std::optional<std::string> EnvironmentVariable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return value;
}

}  // namespace tidemark
