#pragma once

#include <span>

#include "backend/backend_registry.h"

namespace tidemark {

// `tidemark serve`: runs the server until SIGINT or SIGTERM. `args` without program and command name. The exit status:
// 0 after an orderly stop, 1 for a bad command line, a failed start or a stop that ran out of time.
// `more_backends`: those beside the product's own.
int ServeMain(std::span<char* const> args, std::span<const NamedBackendFactory> more_backends = {});

}  // namespace tidemark
