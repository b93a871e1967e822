#include "audit/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <regex>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "audit/child_process.h"
#include "audit/config_text.h"
#include "audit/environment.h"
#include "audit/http_client.h"
#include "audit/interrupt.h"
#include "audit/model_files.h"
#include "audit/statistics.h"
#include "audit/verdict.h"
#include "base/clock.h"
#include "base/status.h"

namespace tidemark::audit {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

double SecondsSince(std::int64_t nanos) { return static_cast<double>(NowNanos() - nanos) * 1e-9; }

// A text for one line of a report: newlines and what is beyond 400 bytes are left out.
std::string OneLine(std::string_view text) {
  std::string line;
  for (const char c : text.substr(0, 400)) line += c == '\n' || c == '\r' ? ' ' : c;
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

class Runner {
 public:
  Runner(const Options& options, Platform* platform, const ProcReader* reader, CancelFlag* cancel, Progress* progress)
      : options_(options),
        platform_(platform),
        reader_(reader),
        cancel_(cancel),
        progress_(progress),
        waiter_(cancel) {}

  absl::StatusOr<Record> Run();

 private:
  // Before the scenario; an error ends the audit without a record.
  absl::Status Prepare();
  absl::Status PrepareProbe();
  absl::Status PrepareCopy();

  // The scenario itself; an error becomes a problem of the record.
  absl::Status Scenario();
  absl::Status Spawn();
  absl::Status Attach();
  absl::Status AwaitReady();
  absl::Status SetTarget(int pid, int group);
  absl::Status GoodCycle(Phase phase, int number);
  absl::Status FailedCycle(int number);
  absl::Status FailedCycles();
  absl::Status BreakModelFiles();
  absl::StatusOr<Cycle> Load(Phase phase, int number);
  absl::Status Unload(Cycle& cycle);
  absl::Status AwaitGone();
  absl::Status TakeReading(Phase phase, Step step, int cycle);
  bool Stable(const std::vector<std::vector<std::int64_t>>& samples) const;
  bool Intended(const std::string& whole) const;
  void ReportCycle(const Cycle& cycle);

  // After it, whatever happened.
  void Conclude(const absl::Status& scenario);
  void StopServer();
  void ReloadIfItWasLoaded();

  const Options& options_;
  Platform* platform_;
  const ProcReader* reader_;
  CancelFlag* cancel_;
  Progress* progress_;
  Waiter waiter_;

  Record record_;
  std::int64_t began_ = NowNanos();
  std::unique_ptr<Probe> probe_;
  Target target_;
  fs::path repository_;  // the one that the server reads
  fs::path temporary_;
  std::unique_ptr<ModelFiles> files_;
  std::unique_ptr<ChildProcess> child_;
  Endpoint endpoint_;
  std::unique_ptr<RepositoryClient> client_;
  bool first_load_done_ = false;
  bool was_loaded_ = false;
  bool index_works_ = true;
  std::optional<std::string> server_config_;  // as JSON, taken during the first good load
};

absl::Status Runner::PrepareProbe() {
  if (options_.probe == "process") {
    probe_ = MakeProcessProbe(reader_, options_.limits);
    return absl::OkStatus();
  }
  const int device = std::stoi(options_.probe.substr(4));  // checked by CheckOptions
  ASSIGN_OR_RETURN(auto nvml, OpenNvml());
  ASSIGN_OR_RETURN(const int count, nvml->DeviceCount());
  if (device >= count) {
    return absl::InvalidArgumentError(
        fmt::format("--probe {}: NVML knows {} GPUs, the first is gpu:0", options_.probe, count));
  }
  probe_ = MakeGpuProbe(reader_, std::move(nvml), device, options_.limits);
  record_.environment.gpu = probe_->DeviceText();
  return absl::OkStatus();
}

absl::Status Runner::PrepareCopy() {
  ASSIGN_OR_RETURN(temporary_, platform_->MakeTempDirectory("tidemark-audit-"));
  repository_ = temporary_ / "repository";
  std::error_code error;
  fs::create_directory(repository_, error);
  if (error) return absl::InternalError(fmt::format("cannot create {}: {}", repository_.string(), error.message()));
  return CopyModel(options_.repository, options_.model, repository_);
}

absl::Status Runner::Prepare() {
  DescribeMachine(record_.environment);
  record_.environment.probe = options_.probe;
  record_.settings = {options_.model,
                      std::string(InfoOf(options_.fault).name),
                      options_.baseline_cycles,
                      options_.failed_cycles,
                      std::max(options_.max_cycles, options_.failed_cycles),
                      options_.samples,
                      static_cast<double>(options_.sample_interval.count()) / 1000,
                      static_cast<double>(options_.settle_limit.count()) / 1000};
  progress_->SetTotal(3 + options_.baseline_cycles + options_.failed_cycles);
  RETURN_IF_ERROR(PrepareProbe());
  record_.quantities = probe_->quantities();
  repository_ = options_.repository;
  if (!options_.spawn.empty()) RETURN_IF_ERROR(PrepareCopy());
  ASSIGN_OR_RETURN(files_, ModelFiles::Open(repository_ / options_.model));
  if (files_->mended_at_open() > 0) {
    record_.notes.push_back(
        fmt::format("An earlier audit had been killed; {} files were put back first.", files_->mended_at_open()));
  }
  return absl::OkStatus();
}

absl::Status Runner::SetTarget(int pid, int group) {
  ASSIGN_OR_RETURN(const ProcReader::Stat stat, reader_->ReadStat(pid));
  target_ = {pid, group, stat.start_ticks};
  record_.environment.pid = pid;
  return absl::OkStatus();
}

absl::Status Runner::Spawn() {
  ASSIGN_OR_RETURN(const int port, PickFreePort());
  ASSIGN_OR_RETURN(const auto config, files_->ReadConfig());
  ASSIGN_OR_RETURN(record_.environment.command, SpawnCommand(options_, repository_.string(), port, config.has_value()));
  ASSIGN_OR_RETURN(child_, ChildProcess::Start(record_.environment.command, options_.server_log));
  endpoint_ = {"127.0.0.1", port};
  RETURN_IF_ERROR(SetTarget(child_->pid(), child_->pid()));
  return absl::OkStatus();
}

absl::Status Runner::Attach() {
  int pid = options_.pid;
  if (pid == 0) {
    const auto found = reader_->FindListener(endpoint_.port);
    if (!found.ok()) return WithContext(found.status(), "cannot find the server's process (give it with --pid)");
    pid = *found;
  }
  return SetTarget(pid, 0);
}

absl::Status Runner::AwaitReady() {
  const std::int64_t deadline = NowNanos() + std::chrono::nanoseconds(options_.start_timeout).count();
  milliseconds pause{5};
  std::string last = "no answer";
  bool live_at_last = false;
  while (NowNanos() < deadline) {
    const auto ready = client_->Get("/v2/health/ready");
    if (ready.ok() && ready->ok()) return absl::OkStatus();
    if (ready.ok()) {
      const auto live = client_->Get("/v2/health/live");
      live_at_last = live.ok() && live->ok();
      if (live_at_last && (ready->status == 404 || ready->status == 405)) return absl::OkStatus();
      last = fmt::format("/v2/health/ready says {}", ready->status);
    } else {
      last = std::string(MessageOf(ready.status()));
    }
    if (child_ != nullptr && child_->WaitForExit(milliseconds(0))) {
      return absl::UnavailableError(fmt::format("the server ended before it was ready: {}; see {}",
                                                child_->ExitText().value_or("?"), options_.server_log.string()));
    }
    if (!waiter_.WaitFor(pause)) return absl::CancelledError("interrupted");
    pause = std::min(pause * 2, milliseconds(200));
  }
  if (live_at_last) return absl::OkStatus();  // alive; some servers are not ready until a model is
  return absl::DeadlineExceededError(
      fmt::format("the server was not ready within {} s: {}", options_.start_timeout.count(), last));
}

bool Runner::Stable(const std::vector<std::vector<std::int64_t>>& samples) const {
  for (std::size_t q = 0; q < samples.size(); ++q) {
    if (!record_.quantities[q].judged) continue;
    const auto [low, high] = std::minmax_element(samples[q].begin(), samples[q].end());
    if (static_cast<double>(*high - *low) > record_.quantities[q].settle_tolerance) return false;
  }
  return true;
}

absl::Status Runner::TakeReading(Phase phase, Step step, int cycle) {
  Reading reading;
  reading.phase = phase;
  reading.step = step;
  reading.cycle = cycle;
  reading.samples.resize(record_.quantities.size());
  const std::int64_t start = NowNanos();
  const std::int64_t limit = std::chrono::nanoseconds(options_.settle_limit).count();
  const auto wanted = static_cast<std::size_t>(options_.samples);
  while (true) {
    ASSIGN_OR_RETURN(const std::vector<std::int64_t> values, probe_->Read(target_));
    for (std::size_t q = 0; q < values.size(); ++q) {
      auto& series = reading.samples[q];
      if (series.size() == wanted) series.erase(series.begin());
      series.push_back(values[q]);
    }
    if (reading.samples[0].size() == wanted) {
      reading.settled = Stable(reading.samples);
      if (reading.settled || NowNanos() - start > limit) break;
    }
    if (!waiter_.WaitFor(options_.sample_interval)) return absl::CancelledError("interrupted");
  }
  for (const auto& series : reading.samples) reading.medians.push_back(Median(series));
  reading.settle_seconds = SecondsSince(start);
  reading.seconds = SecondsSince(began_);
  record_.readings.push_back(std::move(reading));
  return absl::OkStatus();
}

bool Runner::Intended(const std::string& whole) const {
  const std::string text = whole.substr(0, 8192);  // std::regex recurses for every character
  if (options_.expect_error.empty()) return IsIntendedError(options_.fault, text);
  return std::regex_search(text, std::regex(options_.expect_error, std::regex::ECMAScript | std::regex::icase));
}

absl::StatusOr<Cycle> Runner::Load(Phase phase, int number) {
  Cycle cycle;
  cycle.phase = phase;
  cycle.number = number;
  const std::int64_t start = NowNanos();
  ASSIGN_OR_RETURN(const HttpAnswer answer, client_->Load(options_.model));
  cycle.load_seconds = SecondsSince(start);
  cycle.load_status = answer.status;
  if (!answer.ok()) cycle.load_text = answer.ErrorText();
  return cycle;
}

absl::Status Runner::AwaitGone() {
  const std::int64_t deadline = NowNanos() + std::chrono::nanoseconds(options_.load_timeout).count();
  milliseconds pause{1};
  while (index_works_) {
    const auto index = client_->Index();
    if (absl::IsInternal(index.status())) {
      index_works_ = false;
      record_.notes.push_back(
          "The server has no repository index; its answer to an unload was taken for the end of it.");
      break;
    }
    RETURN_IF_ERROR(index.status());
    const bool there = std::any_of(index->begin(), index->end(), [&](const IndexEntry& entry) {
      return entry.name == options_.model &&
             (entry.state == "READY" || entry.state == "LOADING" || entry.state == "UNLOADING");
    });
    if (!there) break;
    if (NowNanos() > deadline) {
      return absl::DeadlineExceededError(fmt::format("'{}' is still in the repository index {} s after its unload",
                                                     options_.model, options_.load_timeout.count()));
    }
    if (!waiter_.WaitFor(pause)) return absl::CancelledError("interrupted");
    pause = std::min(pause * 2, milliseconds(50));
  }
  return absl::OkStatus();
}

absl::Status Runner::Unload(Cycle& cycle) {
  const std::int64_t start = NowNanos();
  ASSIGN_OR_RETURN(const HttpAnswer answer, client_->Unload(options_.model));
  cycle.unload_status = answer.status;
  if (!answer.ok()) cycle.unload_text = answer.ErrorText();
  RETURN_IF_ERROR(AwaitGone());
  cycle.unload_seconds = SecondsSince(start);
  return absl::OkStatus();
}

absl::Status Runner::GoodCycle(Phase phase, int number) {
  ASSIGN_OR_RETURN(Cycle cycle, Load(phase, number));
  if (cycle.load_status != 200) {
    record_.cycles.push_back(cycle);
    const std::string_view when =
        phase == Phase::kRestored ? "after the failed loads the good model" : "the good model";
    return absl::FailedPreconditionError(
        fmt::format("{} was refused with {}: {}", when, cycle.load_status, OneLine(cycle.load_text)));
  }
  cycle.as_intended = true;
  if (!first_load_done_) {
    first_load_done_ = true;
    if (std::string note = probe_->OnFirstLoad(target_); !note.empty()) record_.notes.push_back(std::move(note));
    record_.quantities = probe_->quantities();
    if (const auto config = client_->Config(options_.model); config.ok() && config->ok()) server_config_ = config->body;
  }
  RETURN_IF_ERROR(TakeReading(phase, Step::kLoaded, number));
  RETURN_IF_ERROR(Unload(cycle));
  record_.cycles.push_back(cycle);
  if (cycle.unload_status != 200) {
    return absl::FailedPreconditionError(fmt::format("the unload of the good model was answered with {}: {}",
                                                     cycle.unload_status, OneLine(cycle.unload_text)));
  }
  RETURN_IF_ERROR(TakeReading(phase, Step::kIdle, number));
  ReportCycle(cycle);
  return absl::OkStatus();
}

absl::Status Runner::FailedCycle(int number) {
  if (options_.fault == Fault::kNone) return GoodCycle(Phase::kFailed, number);
  ASSIGN_OR_RETURN(Cycle cycle, Load(Phase::kFailed, number));
  cycle.as_intended = cycle.load_status != 200 && Intended(cycle.load_text);
  RETURN_IF_ERROR(Unload(cycle));
  record_.cycles.push_back(cycle);
  RETURN_IF_ERROR(TakeReading(Phase::kFailed, Step::kIdle, number));
  ReportCycle(cycle);
  if (cycle.load_status == 200) {
    return absl::FailedPreconditionError(
        fmt::format("the load with the fault '{}' succeeded; the server mended it (automatic completion of "
                    "configurations?), or {} is not the folder that it reads",
                    InfoOf(options_.fault).name, repository_.string()));
  }
  return absl::OkStatus();
}

absl::Status Runner::FailedCycles() {
  int number = 0;
  while (number < options_.failed_cycles) RETURN_IF_ERROR(FailedCycle(++number));
  if (number < options_.max_cycles && NeedsMoreCycles(record_)) {
    progress_->Line(fmt::format("  memory seems to grow, but is still close to the mark: up to {} cycles more",
                                options_.max_cycles - number));
    while (number < options_.max_cycles && NeedsMoreCycles(record_)) RETURN_IF_ERROR(FailedCycle(++number));
    record_.notes.push_back(
        fmt::format("Growth was suspected after {} failed loads; {} were run.", options_.failed_cycles, number));
  }
  std::string example;
  int odd = 0;
  for (const Cycle& cycle : record_.cycles) {
    if (cycle.phase != Phase::kFailed || cycle.as_intended) continue;
    if (odd++ == 0) example = fmt::format("{} {}", cycle.load_status, OneLine(cycle.load_text));
  }
  if (odd == 0) return absl::OkStatus();
  record_.problems.push_back(fmt::format("{} of {} failed loads did not report the intended error ({}), but: {}", odd,
                                         number, InfoOf(options_.fault).name, example));
  return absl::OkStatus();
}

absl::Status Runner::BreakModelFiles() {
  const FaultInfo& info = InfoOf(options_.fault);
  if (options_.fault == Fault::kNone) return absl::OkStatus();
  if (!info.edits_config) {
    ASSIGN_OR_RETURN(const fs::path path, files_->FindModelFile());
    ASSIGN_OR_RETURN(const std::string content, ReadFile(path));
    ASSIGN_OR_RETURN(const auto broken, BreakModel(options_.fault, content));
    return files_->Break(path, broken);
  }
  ASSIGN_OR_RETURN(const auto own, files_->ReadConfig());
  absl::StatusOr<std::string> broken = absl::FailedPreconditionError("the model has no config.pbtxt");
  if (own.has_value()) broken = BreakConfig(options_.fault, *own);
  if (!broken.ok() && server_config_.has_value()) {
    ASSIGN_OR_RETURN(const std::string completed, ConfigTextFromJson(*server_config_));
    const auto second = BreakConfig(options_.fault, completed);
    if (second.ok()) {
      record_.notes.push_back(fmt::format("The configuration with the fault was written from the server's own: {}.",
                                          MessageOf(broken.status())));
      broken = second;
    }
  }
  RETURN_IF_ERROR(WithContext(broken.status(), fmt::format("the fault '{}' does not fit this model", info.name)));
  return files_->Break(files_->ConfigPath(), *broken);
}

void Runner::ReportCycle(const Cycle& cycle) {
  const std::array<std::string_view, 5> names = {"", "good", "failed", "good again", ""};
  const int total = cycle.phase == Phase::kBaseline ? options_.baseline_cycles
                    : cycle.phase == Phase::kFailed ? std::max(options_.failed_cycles, cycle.number)
                                                    : 1;
  const Reading& now = record_.readings.back();
  std::size_t q = 0;
  while (q + 1 < record_.quantities.size() && !record_.quantities[q].judged) ++q;
  std::string level = FormatAmount(static_cast<double>(now.medians[q]), record_.quantities[q].unit);
  for (auto it = record_.readings.rbegin(); it != record_.readings.rend(); ++it) {
    if (it->phase != Phase::kBaseline || it->step != Step::kIdle || cycle.phase == Phase::kBaseline) continue;
    level += fmt::format(" ({} from the mark)", FormatAmount(static_cast<double>(now.medians[q] - it->medians[q]),
                                                             record_.quantities[q].unit, true));
    break;
  }
  progress_->Step(fmt::format("{} {}/{}: load {} in {:.0f} ms, unload {} in {:.0f} ms, {} {}",
                              options_.fault == Fault::kNone && cycle.phase == Phase::kFailed
                                  ? "audited"
                                  : names[static_cast<std::size_t>(cycle.phase)],
                              cycle.number, total, cycle.load_status, cycle.load_seconds * 1000, cycle.unload_status,
                              cycle.unload_seconds * 1000, record_.quantities[q].label, level));
  if (!cycle.as_intended) {
    progress_->Line(fmt::format("  not the intended answer, but {}: {}", cycle.load_status, OneLine(cycle.load_text)));
  }
}

absl::Status Runner::Scenario() {
  if (options_.spawn.empty()) {
    ASSIGN_OR_RETURN(endpoint_, ParseEndpoint(options_.url));
  } else {
    RETURN_IF_ERROR(Spawn());
  }
  record_.environment.url = fmt::format("{}:{}", endpoint_.host, endpoint_.port);
  client_ = std::make_unique<RepositoryClient>(endpoint_, options_.load_timeout, cancel_);
  RETURN_IF_ERROR(AwaitReady());
  if (options_.spawn.empty()) RETURN_IF_ERROR(Attach());
  DescribeServer(*client_, record_.environment);
  if (const auto index = client_->Index(); options_.spawn.empty() && index.ok()) {
    was_loaded_ = std::any_of(index->begin(), index->end(), [&](const IndexEntry& entry) {
      return entry.name == options_.model && entry.state == "READY";
    });
  }
  if (was_loaded_) {
    record_.notes.push_back("The model was loaded when the audit began; it was unloaded, and loaded again at the end.");
    Cycle unused;
    RETURN_IF_ERROR(Unload(unused));
  }
  RETURN_IF_ERROR(TakeReading(Phase::kReady, Step::kIdle, 0));
  progress_->Step(fmt::format("server ready: {} {} at {}, process {}", record_.environment.server_name,
                              record_.environment.server_version, record_.environment.url, target_.pid));
  for (int i = 1; i <= options_.baseline_cycles; ++i) RETURN_IF_ERROR(GoodCycle(Phase::kBaseline, i));
  RETURN_IF_ERROR(BreakModelFiles());
  const absl::Status failed = FailedCycles();
  RETURN_IF_ERROR(files_->Mend());
  RETURN_IF_ERROR(failed);
  return GoodCycle(Phase::kRestored, 1);
}

void Runner::StopServer() {
  if (child_ == nullptr) return;
  const bool died = child_->WaitForExit(milliseconds(0));
  const std::string how = child_->Stop(options_.stop_grace);
  if (died) {
    record_.problems.push_back(fmt::format("the server died: {}; see {}", how, options_.server_log.string()));
    return;
  }
  if (how != "exit code 0") record_.notes.push_back(fmt::format("The server stopped with {}.", how));
  Reading reading;
  reading.phase = Phase::kStopped;
  reading.medians = probe_->ReadAfterEnd();
  for (const std::int64_t value : reading.medians) reading.samples.push_back({value});
  reading.seconds = SecondsSince(began_);
  record_.readings.push_back(std::move(reading));
  progress_->Step(fmt::format("server stopped: {}", how));
}

void Runner::ReloadIfItWasLoaded() {
  if (!was_loaded_) return;
  RepositoryClient client(endpoint_, options_.load_timeout, nullptr);  // also after an interrupt
  const auto answer = client.Load(options_.model);
  if (!answer.ok() || !answer->ok()) {
    record_.problems.push_back(
        fmt::format("'{}' was loaded when the audit began and could not be loaded again: {}", options_.model,
                    answer.ok() ? OneLine(answer->ErrorText()) : std::string(MessageOf(answer.status()))));
  }
}

void Runner::Conclude(const absl::Status& scenario) {
  // A server that dies answers nothing first and is seen to be gone a moment later: give that moment.
  if (absl::IsUnavailable(scenario) && child_ != nullptr) child_->WaitForExit(milliseconds(1000));
  const bool died = child_ != nullptr && child_->WaitForExit(milliseconds(0));
  if (const absl::Status mended = files_->Mend(); !mended.ok()) {
    record_.problems.emplace_back(MessageOf(mended));
  }
  StopServer();
  if (!scenario.ok()) record_.problems.emplace_back(MessageOf(scenario));
  if (scenario.ok() || !died) ReloadIfItWasLoaded();
  if (const absl::Status finished = files_->Finish(); !finished.ok()) {
    record_.problems.emplace_back(MessageOf(finished));
  }
  record_.seconds = SecondsSince(began_);
  record_.verdict = MakeVerdict(record_);
}

absl::StatusOr<Record> Runner::Run() {
  absl::Cleanup remove_temporary = [this] {
    if (!temporary_.empty()) (void)platform_->RemoveTree(temporary_);
  };
  RETURN_IF_ERROR(Prepare());
  Conclude(Scenario());
  files_.reset();
  return std::move(record_);
}

bool Mentions(const std::vector<std::string>& words, std::string_view option) {
  return std::any_of(words.begin(), words.end(),
                     [option](const std::string& word) { return word.find(option) != std::string::npos; });
}

}  // namespace

absl::Status CheckOptions(const Options& options) {
  const auto invalid = [](std::string text) { return absl::InvalidArgumentError(text); };
  if (options.url.empty() == options.spawn.empty()) return invalid("give either --url or --spawn");
  if (!options.url.empty()) RETURN_IF_ERROR(ParseEndpoint(options.url).status());
  if (!options.spawn.empty() && options.spawn.find("{http_port}") == std::string::npos) {
    return invalid("--spawn has no {http_port}: the audit could not tell the server where to listen");
  }
  if (!options.spawn.empty() && options.spawn.find("{repository}") == std::string::npos) {
    return invalid("--spawn has no {repository}: the server would not read the copy of the model that is broken");
  }
  if (options.pid != 0 && options.url.empty()) return invalid("--pid goes with --url");
  if (options.baseline_cycles < 2) return invalid("--baseline: at least 2 good cycles are needed for a mark");
  if (options.failed_cycles < 4) return invalid("--cycles: at least 4 are needed for a growth with an interval");
  if (options.samples < 1) return invalid("--samples: at least 1");
  if (options.probe != "process" && !std::regex_match(options.probe, std::regex("gpu:[0-9]{1,3}"))) {
    return invalid(fmt::format("unknown probe '{}'; expected process or gpu:N", options.probe));
  }
  std::error_code error;
  if (!fs::is_directory(options.repository / options.model, error)) {
    return absl::NotFoundError(
        fmt::format("the repository {} has no model '{}'", options.repository.string(), options.model));
  }
  try {
    const std::regex checked(options.expect_error, std::regex::ECMAScript);
  } catch (const std::regex_error& bad) {
    return invalid(fmt::format("--expect-error '{}' is no regular expression: {}", options.expect_error, bad.what()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> SpawnCommand(const Options& options, const std::string& repository,
                                                      int http_port, bool has_config) {
  ASSIGN_OR_RETURN(std::vector<std::string> words, SplitCommand(options.spawn));
  const auto replace = [&words](std::string_view placeholder, const std::string& value) {
    for (std::string& word : words) {
      for (std::size_t at = 0; (at = word.find(placeholder, at)) != std::string::npos; at += value.size()) {
        word.replace(at, placeholder.size(), value);
      }
    }
  };
  replace("{repository}", repository);
  replace("{http_port}", std::to_string(http_port));
  for (const std::string_view placeholder : {"{grpc_port}", "{metrics_port}"}) {
    if (!Mentions(words, placeholder)) continue;
    ASSIGN_OR_RETURN(const int port, PickFreePort());
    replace(placeholder, std::to_string(port));
  }
  // The program may stand behind others: env NAME=VALUE tritonserver …
  const auto first_option =
      std::find_if(words.begin(), words.end(), [](const std::string& word) { return word.starts_with('-'); });
  const bool known = std::any_of(words.begin(), first_option, [](const std::string& word) {
    const std::string program = fs::path(word).filename().string();
    return program == "tritonserver" || program == "tidemark";
  });
  if (options.exact_command || !known) return words;
  if (!Mentions(words, "--model-control-mode")) words.push_back("--model-control-mode=explicit");
  if (has_config && !Mentions(words, "auto-complete-config") && !Mentions(words, "--strict-model-config")) {
    words.push_back("--disable-auto-complete-config");
  }
  return words;
}

absl::StatusOr<Record> RunScenario(const Options& options, Platform* platform, const ProcReader* reader,
                                   CancelFlag* cancel, Progress* progress) {
  RETURN_IF_ERROR(CheckOptions(options));
  return Runner(options, platform, reader, cancel, progress).Run();
}

}  // namespace tidemark::audit
