#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "audit/fault.h"
#include "audit/probe.h"
#include "audit/progress.h"
#include "audit/record.h"
#include "base/cancel.h"
#include "platform/platform.h"

namespace tidemark::audit {

struct Options {
  std::string url;             // a running server …
  std::string spawn;           // … or the command that starts one; exactly one of the two
  bool exact_command = false;  // add nothing to `spawn`
  std::filesystem::path repository;
  std::string model;
  int pid = 0;  // of the running server; 0: found by its port
  Fault fault = Fault::kOutputDatatype;
  std::string expect_error;       // a regular expression instead of the fault's own; empty: the fault's own
  std::string probe = "process";  // or "gpu:N"
  Limits limits;
  int baseline_cycles = 3;
  int failed_cycles = 6;
  int max_cycles = 60;
  int samples = 3;
  std::chrono::milliseconds sample_interval{50};
  std::chrono::milliseconds settle_limit{3000};
  std::chrono::seconds load_timeout{600};
  std::chrono::seconds start_timeout{120};
  std::chrono::milliseconds stop_grace{30000};
  std::filesystem::path server_log;  // where a spawned server's output goes
};

// INVALID_ARGUMENT when the options contradict each other or name nothing that exists.
absl::Status CheckOptions(const Options& options);

// The command of a spawned server: words split, {repository}, {http_port}, {grpc_port} and {metrics_port} replaced, and,
// for a program that is named tritonserver or tidemark, the options added without which the audit cannot work and that
// are not there: --model-control-mode=explicit, and --disable-auto-complete-config when the model has a configuration
// (else the server would quietly mend the faults).
absl::StatusOr<std::vector<std::string>> SpawnCommand(const Options& options, const std::string& repository,
                                                      int http_port, bool has_config);

// Runs the scenario and judges it: good cycles up to the mark, failed loads each followed by an unload, the model mended,
// one good cycle, the server stopped if it is ours. What goes wrong with the server on the way is a problem in the
// record, whose verdict is then "could not tell"; an error status means that the audit could not begin. The model's
// files are as before when this returns. Everything given must outlive the call.
absl::StatusOr<Record> RunScenario(const Options& options, Platform* platform, const ProcReader* reader,
                                   CancelFlag* cancel, Progress* progress);

}  // namespace tidemark::audit
