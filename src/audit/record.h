#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tidemark::audit {

// What an audit measured and concluded. Plain data, filled by the scenario, judged by verdict.h, written by
// results_json.h and report_html.h. docs/audit.md describes the JSON form.

enum class Unit { kBytes, kCount };

// One figure that a probe reads: its name, its unit and the limits it is judged by.
struct Quantity {
  std::string id;     // "anonymous", "rss", "descriptors", "threads", "gpu_process", "gpu_device"
  std::string label;  // for people
  Unit unit = Unit::kBytes;
  bool judged = false;          // false: recorded and shown only
  double growth_threshold = 0;  // per failed cycle; growth proven to be above it is suspicious
  double tolerance = 0;         // above the mark; a final level within it counts as "back at the mark"
  double settle_tolerance = 0;  // consecutive samples that differ by no more count as stable
};

// A value that a probe could not read is kNotRead.
inline constexpr std::int64_t kNotRead = -1;

enum class Phase { kReady, kBaseline, kFailed, kRestored, kStopped };
enum class Step { kIdle, kLoaded };  // after the unload / while the model is loaded

// One reading: several samples of every quantity, and their medians. The outer index is the quantity.
struct Reading {
  Phase phase = Phase::kReady;
  Step step = Step::kIdle;
  int cycle = 0;        // from 1; 0 outside cycles
  double seconds = 0;   // since the audit began
  bool settled = true;  // false: still moving when the settle limit was reached
  double settle_seconds = 0;
  std::vector<std::vector<std::int64_t>> samples;
  std::vector<std::int64_t> medians;
};

// One load and the unload after it.
struct Cycle {
  Phase phase = Phase::kBaseline;
  int number = 0;
  int load_status = 0;  // HTTP
  double load_seconds = 0;
  std::string load_text;     // the server's error text, unshortened; empty on success
  bool as_intended = false;  // a good load succeeded / a failed one failed with the intended error
  int unload_status = 0;
  double unload_seconds = 0;  // until the repository index says that the model is gone
  std::string unload_text;
};

struct Environment {
  std::string server_name;
  std::string server_version;
  std::vector<std::string> server_extensions;
  std::string url;
  std::vector<std::string> command;  // of a spawned server, as it was run
  int pid = 0;
  std::string host;
  std::string kernel;
  std::string cpu;
  int cpu_count = 0;
  std::int64_t memory_bytes = 0;
  std::string probe;  // "process", "gpu:0"
  std::string gpu;    // name, UUID and driver, if any
  std::string auditor_version;
  std::string started;  // ISO 8601, UTC
};

struct Settings {
  std::string model;
  std::string fault;
  int baseline_cycles = 3;
  int failed_cycles = 6;
  int max_cycles = 60;
  int samples = 3;
  double sample_interval_seconds = 0.05;
  double settle_limit_seconds = 3;
};

enum class Outcome { kNoLeak = 0, kLeak = 1, kCouldNotTell = 2 };

// The judgement of one quantity.
struct Judgement {
  int quantity = 0;
  std::int64_t mark = 0;
  std::int64_t final_level = 0;
  double growth = 0;      // mean growth per failed cycle, the first one left out
  double growth_low = 0;  // its 95 % confidence interval
  double growth_high = 0;
  double late_growth = 0;  // mean growth over the second half of the failed cycles
  double theil_sen = 0;    // the median of all pairwise slopes
  double noise = 0;        // median spread of the samples within one idle reading
  double sensitivity = 0;  // growth per cycle that this run could not have missed
  Outcome outcome = Outcome::kCouldNotTell;
  std::string reason;
};

struct Verdict {
  Outcome outcome = Outcome::kCouldNotTell;
  std::string headline;              // one sentence
  std::vector<std::string> reasons;  // what stands behind it
  std::vector<Judgement> judgements;
};

struct Record {
  Environment environment;
  Settings settings;
  std::vector<Quantity> quantities;
  std::vector<Reading> readings;
  std::vector<Cycle> cycles;
  std::vector<std::string> notes;     // things a reader should know, e.g. where the configuration came from
  std::vector<std::string> problems;  // what kept the scenario from running as planned; any → could not tell
  double seconds = 0;
  Verdict verdict;
};

}  // namespace tidemark::audit
