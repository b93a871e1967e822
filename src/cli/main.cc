#include <fmt/format.h>

#include <cstdio>
#include <span>
#include <string_view>

#include "backends/onnxruntime/onnxruntime_backend.h"
#include "cli/audit_command.h"
#include "cli/check_command.h"
#include "cli/engine_command.h"
#include "cli/serve_command.h"
#include "platform/lock_checks.h"
#include "platform/platform.h"

namespace {

constexpr std::string_view kUsage =
    "Usage: tidemark COMMAND [options]\n"
    "  serve    serve a model repository (also without COMMAND, and under the name tritonserver)\n"
    "  check    say everything that is wrong with models, without serving them\n"
    "  audit    find out whether a server gives memory back\n"
    "  engine   make a model for a test\n"
    "  version  print the version\n"
    "`tidemark COMMAND --help` shows the options.\n";

}  // namespace

int main(int argc, char** argv) {
  tidemark::UseOneHeapArena();
#ifdef NDEBUG
  tidemark::StopCheckingLocks();
#endif
  tidemark::DisableOnnxRuntimeTelemetry();  // must come before any thread and any environment of the engine
  const std::span<char* const> args(argv, static_cast<std::size_t>(argc));
  const std::string_view program = args.empty() ? "" : args[0];
  const std::string_view command = args.size() > 1 ? args[1] : "";
  if (program.ends_with("tritonserver") ||
      (command.starts_with("--") && command != "--help" && command != "--version")) {
    return tidemark::ServeMain(args.subspan(1));
  }
  if (command == "serve") return tidemark::ServeMain(args.subspan(2));
  if (command == "check") return tidemark::CheckMain(args.subspan(2));
  if (command == "audit") return tidemark::AuditMain(args.subspan(2));
  if (command == "engine") return tidemark::EngineMain(args.subspan(2));
  if (command == "version" || command == "--version") {
    fmt::print("tidemark {}\n", TIDEMARK_VERSION);
    return 0;
  }
  const bool asked = command == "help" || command == "--help" || command == "-h";
  fmt::print(asked ? stdout : stderr, "{}", kUsage);
  return asked ? 0 : 1;
}
