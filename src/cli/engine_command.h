#pragma once

#include <span>

namespace tidemark {

// `tidemark engine KIND …`: writes a test model in a process of its own, so that whatever the making needs is gone with
// it. `args` without program and command name. The exit status: 0, or 1 for a bad command line or a failed write.
int EngineMain(std::span<char* const> args);

}  // namespace tidemark
