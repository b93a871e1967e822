#pragma once

#include <span>

namespace tidemark {

// `tidemark check`: says everything that is wrong with models, without serving them, and can repair it. `args` without
// program and command name. The exit status: 0 no error (warnings at most), 1 errors, 2 a bad command line or a path that
// holds no model.
int CheckMain(std::span<char* const> args);

}  // namespace tidemark
