#pragma once

#include <span>

namespace tidemark {

// `tidemark serve`: runs the server until SIGINT or SIGTERM. `args` without program and command name. The exit status:
// 0 after an orderly stop, 1 for a bad command line, a failed start or a stop that ran out of time.
int ServeMain(std::span<char* const> args);

}  // namespace tidemark
