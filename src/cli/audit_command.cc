#include "cli/audit_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "audit/interrupt.h"
#include "audit/model_files.h"
#include "audit/report_html.h"
#include "audit/results_json.h"
#include "audit/scenario.h"
#include "audit/verdict.h"
#include "base/status.h"
#include "cli/audit_engine.h"

namespace tidemark {
namespace {

namespace fs = std::filesystem;

constexpr int kCouldNotTell = static_cast<int>(audit::Outcome::kCouldNotTell);

struct CommandLine {
  audit::Options options;
  std::string fault = "output-datatype";
  double growth_kib = -1;
  double tolerance_mib = -1;
  int sample_interval_ms = 50;
  int settle_ms = 3000;
  int load_timeout_s = 600;
  int start_timeout_s = 120;
  int stop_grace_ms = 30000;
  std::string repository;
  std::string output = "audit-out";
  AuditEngine engine;
  bool probe_given = false;
  bool quiet = false;
  bool plain = false;
  bool self_test = false;
  std::string self_test_server;
  std::int64_t self_test_leak = 65536;
};

std::string FaultHelp() {
  std::string help = "What is broken in the model:";
  for (const audit::FaultInfo& info : audit::AllFaults()) help += fmt::format("\n  {}: {}", info.name, info.what);
  return help;
}

void Declare(CLI::App& app, CommandLine& line) {
  audit::Options& options = line.options;
  app.add_option("--url", options.url, "A running server, HOST:PORT");
  app.add_option("--spawn", options.spawn,
                 "The command that starts a server, with {repository} and {http_port} in it (also {grpc_port}, "
                 "{metrics_port}); the model is copied for it");
  app.add_flag("--exact-command", options.exact_command, "Add no options to the --spawn command");
  app.add_option(
      "--repository", line.repository,
      "The model repository; with --url the folder that the server reads, whose model is broken in place and "
      "put back");
  app.add_option("--model", options.model, "The model");
  app.add_option("--pid", options.pid, "The running server's process (found by its port)");
  app.add_option("--fault", line.fault, FaultHelp() + "\n ");
  app.add_option("--expect-error", options.expect_error,
                 "A regular expression for the error of a failed load (the fault's own)");
  app.add_option_function<std::string>(
      "--probe",
      [&line](const std::string& text) {
        line.options.probe = text;
        line.probe_given = true;
      },
      "process (anonymous memory of the process tree) or gpu:N (NVML)");
  app.add_option("--engine", line.engine.name,
                 "From nothing: build an FP32 identity for tensorrt (probe gpu:0) or onnxruntime and audit this server "
                 "with it (or the one of --spawn)");
  app.add_option("--engine-library", line.engine.library, "With --engine tensorrt: the libnvinfer to run with");
  app.add_option("--builder-library", line.engine.builder_library, "... and to build with, if it is another one");
  app.add_option("--plan", line.engine.plan, "... a ready plan instead of building one");
  app.add_option("--input-name", line.engine.input, "... the names of that plan's tensors (INPUT0, OUTPUT0)");
  app.add_option("--output-name", line.engine.output);
  app.add_option("--elements", line.engine.elements, "... elements of each tensor (16777216)");
  app.add_option("--baseline", options.baseline_cycles, "Good cycles before the mark (3)");
  app.add_option("--cycles", options.failed_cycles, "Failed loads (6)");
  app.add_option("--max-cycles", options.max_cycles, "Up to so many when growth is suspected (60)");
  app.add_option("--samples", options.samples, "Samples per reading, of which the median counts (3)");
  app.add_option("--sample-interval-ms", line.sample_interval_ms, "Pause between samples (50)");
  app.add_option("--settle-ms", line.settle_ms, "A reading waits at most so long for stable samples (3000)");
  app.add_option("--growth-kib", line.growth_kib, "Growth per failed load that counts (process 4, gpu 64)");
  app.add_option("--tolerance-mib", line.tolerance_mib,
                 "A level so far above the mark is still at it (process 1, gpu 4)");
  app.add_option("--load-timeout-s", line.load_timeout_s, "For each load and unload (600)");
  app.add_option("--start-timeout-s", line.start_timeout_s, "Until a spawned server is ready (120)");
  app.add_option("--stop-grace-ms", line.stop_grace_ms, "Between SIGTERM and SIGKILL (30000)");
  app.add_option("-o,--output", line.output, "Folder for results.json, report.html and server.log (audit-out)");
  app.add_flag("--plain", line.plain, "Plain lines even on a terminal");
  app.add_flag("-q,--quiet", line.quiet, "Only the verdict");
  app.add_flag("--self-test", line.self_test, "Positive and negative control with a server that leaks on purpose");
  app.add_option("--self-test-server", line.self_test_server,
                 "That server (tidemark-leaky-server beside this program)");
  app.add_option("--self-test-leak-bytes", line.self_test_leak, "What it leaks with each failed load (65536)");
}

absl::Status Complete(CommandLine& line) {
  audit::Options& options = line.options;
  ASSIGN_OR_RETURN(options.fault, audit::ParseFault(line.fault));
  options.repository = line.repository;
  options.limits.growth_threshold = line.growth_kib * 1024;
  options.limits.tolerance = line.tolerance_mib * 1024 * 1024;
  options.sample_interval = std::chrono::milliseconds(line.sample_interval_ms);
  options.settle_limit = std::chrono::milliseconds(line.settle_ms);
  options.load_timeout = std::chrono::seconds(line.load_timeout_s);
  options.start_timeout = std::chrono::seconds(line.start_timeout_s);
  options.stop_grace = std::chrono::milliseconds(line.stop_grace_ms);
  if (line.sample_interval_ms < 0 || line.settle_ms < 0 || line.load_timeout_s < 1 || line.start_timeout_s < 1 ||
      line.stop_grace_ms < 1) {
    return absl::InvalidArgumentError("times must not be negative, timeouts at least 1");
  }
  if (!line.engine.name.empty()) return PrepareAuditEngine(line.engine, line.output, line.probe_given, options);
  if (!line.self_test && (line.repository.empty() || options.model.empty())) {
    return absl::InvalidArgumentError("--repository and --model are needed");
  }
  return absl::OkStatus();
}

struct Machinery {
  std::unique_ptr<Platform> platform;
  audit::ProcReader reader;
  std::unique_ptr<audit::Interrupt> interrupt;
};

// One audit with its outputs in `folder`.
absl::StatusOr<audit::Verdict> RunOne(audit::Options options, const fs::path& folder, const CommandLine& line,
                                      Machinery& machinery) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return absl::InvalidArgumentError(fmt::format("cannot create {}: {}", folder.string(), error.message()));
  options.server_log = folder / "server.log";
  fs::remove(options.server_log, error);
  audit::Progress progress(line.quiet ? nullptr : stderr, line.plain);
  ASSIGN_OR_RETURN(const audit::Record record, audit::RunScenario(options, machinery.platform.get(), &machinery.reader,
                                                                  &machinery.interrupt->flag(), &progress));
  progress.Clear();
  RETURN_IF_ERROR(audit::WriteFileAtomically(folder / "results.json", audit::ResultsJson(record)));
  RETURN_IF_ERROR(audit::WriteFileAtomically(folder / "report.html", audit::ReportHtml(record)));
  return record.verdict;
}

void PrintVerdict(const audit::Verdict& verdict, const fs::path& folder) {
  fmt::print("{}\n", verdict.headline);
  for (const std::string& reason : verdict.reasons) fmt::print("  {}\n", reason);
  fmt::print("  {}\n", (folder / "report.html").string());
}

// The control: a server that leaks must be found leaking, and the same server without its leak must not.
absl::StatusOr<int> SelfTest(const CommandLine& line, Machinery& machinery) {
  std::error_code error;
  fs::path server = line.self_test_server;
  if (server.empty()) server = fs::read_symlink("/proc/self/exe", error).parent_path() / "tidemark-leaky-server";
  if (!fs::exists(server, error)) {
    return absl::NotFoundError(fmt::format("--self-test needs {}, which is built with the tests", server.string()));
  }
  const fs::path folder = line.output;
  const fs::path model = folder / "repository" / "identity";
  fs::create_directories(model / "1", error);
  RETURN_IF_ERROR(audit::WriteFileAtomically(model / "1" / "model.bin", std::string(4096, 'm')));
  RETURN_IF_ERROR(audit::WriteFileAtomically(
      model / "config.pbtxt",
      "backend: \"identity\"\nmax_batch_size: 0\ninput { name: \"INPUT0\" data_type: TYPE_FP32 dims: 16 }\n"
      "output { name: \"OUTPUT0\" data_type: TYPE_FP32 dims: 16 }\n"));
  bool right = true;
  for (const std::int64_t leak : {line.self_test_leak, std::int64_t{0}}) {
    audit::Options options = line.options;
    options.url.clear();
    options.repository = folder / "repository";
    options.model = "identity";
    options.probe = "process";
    options.spawn = fmt::format("'{}' --repository {{repository}} --http-port {{http_port}} --leak-bytes {}",
                                server.string(), leak);
    const fs::path output = folder / (leak > 0 ? "leaking" : "clean");
    if (!line.quiet) fmt::print(stderr, "a server that leaks {} bytes with each failed load:\n", leak);
    ASSIGN_OR_RETURN(const audit::Verdict verdict, RunOne(options, output, line, machinery));
    PrintVerdict(verdict, output);
    right = right && verdict.outcome == (leak > 0 ? audit::Outcome::kLeak : audit::Outcome::kNoLeak);
  }
  fmt::print("{}\n", right ? "Self-test passed: the leak was seen, and nothing was seen without it."
                           : "Self-test FAILED: this auditor's verdicts are worth nothing on this machine.");
  return right ? 0 : kCouldNotTell;
}

absl::StatusOr<int> Run(CommandLine& line) {
  RETURN_IF_ERROR(Complete(line));
  Machinery machinery;
  machinery.platform = CreateLinuxPlatform();
  ASSIGN_OR_RETURN(machinery.interrupt, audit::Interrupt::Create(machinery.platform.get()));
  if (line.self_test) return SelfTest(line, machinery);
  RETURN_IF_ERROR(audit::CheckOptions(line.options));
  ASSIGN_OR_RETURN(const audit::Verdict verdict, RunOne(line.options, line.output, line, machinery));
  PrintVerdict(verdict, line.output);
  return static_cast<int>(verdict.outcome);
}

}  // namespace

int AuditMain(std::span<char* const> args) {
  CommandLine line;
  CLI::App app(
      "Finds out whether a server gives memory back after failed model loads. Exit status: 0 no leak, 1 leak, 2 could "
      "not tell.",
      "tidemark audit");
  Declare(app, line);
  std::vector<std::string> words(args.rbegin(), args.rend());  // CLI11 takes them from the back
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kCouldNotTell;
  }
  const absl::StatusOr<int> result = Run(line);
  if (result.ok()) return *result;
  fmt::print(stderr, "tidemark audit: {}\n", MessageOf(result.status()));
  return kCouldNotTell;
}

}  // namespace tidemark
