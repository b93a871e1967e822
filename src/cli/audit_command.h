#pragma once

#include <span>

namespace tidemark {

// `tidemark audit`: finds out whether a server gives memory back after failed loads; writes results.json, report.html and,
// for a server that it starts, server.log. `args` without program and command name. The exit status: 0 no leak, 1 leak,
// 2 could not tell (a bad command line included). Blocks SIGINT and SIGTERM in this thread while it runs.
int AuditMain(std::span<char* const> args);

}  // namespace tidemark
