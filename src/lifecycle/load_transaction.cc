#include "lifecycle/load_transaction.h"

#include <algorithm>
#include <exception>
#include <map>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "lifecycle/warmup.h"
#include "repository/config_io.h"
#include "repository/config_normalize.h"
#include "repository/config_validate.h"
#include "repository/model_directory.h"
#include "repository/sequence_config.h"
#include "resource/gpu.h"

namespace tidemark {
namespace {

// What this server, or the backend, does not schedule is refused by name instead of being served wrongly.
absl::Status RefuseUnscheduled(const inference::ModelConfig& config, const Backend& backend) {
  if (backend.batches_ragged()) return absl::OkStatus();
  const auto ragged = std::find_if(config.input().begin(), config.input().end(),
                                   [](const inference::ModelInput& input) { return input.allow_ragged_batch(); });
  if (ragged != config.input().end()) {
    return absl::UnimplementedError(fmt::format(
        "model '{}' sets 'allow_ragged_batch' for input '{}'; the backend '{}' does not batch ragged inputs",
        config.name(), ragged->name(), backend.name()));
  }
  if (!config.batch_input().empty() || !config.batch_output().empty()) {
    return absl::UnimplementedError(
        fmt::format("model '{}' has 'batch_input' or 'batch_output'; the backend '{}' does not batch ragged inputs",
                    config.name(), backend.name()));
  }
  return absl::OkStatus();
}

// `model_metrics` of the configuration may give the buckets of the first-response histogram.
std::vector<double> FirstResponseBuckets(const inference::ModelConfig& config) {
  for (const auto& control : config.model_metrics().metric_control()) {
    const auto& bounds = control.histogram_options().buckets();
    if (control.metric_identifier().family() != "nv_inference_first_response_histogram_ms" || bounds.empty()) continue;
    return {bounds.begin(), bounds.end()};
  }
  return LatencyDistributions::DefaultBuckets();
}

StatisticsBook::Tags TagsOf(const inference::ModelConfig& config) {
  StatisticsBook::Tags tags;
  for (const auto& [key, value] : config.metric_tags()) tags.emplace("_" + key, value);
  return tags;
}

}  // namespace

LoadTransaction::LoadTransaction(Parts parts, const ModelSource& source, std::int64_t version, std::string owner,
                                 std::shared_ptr<Scope> files)
    : parts_(parts), source_(source), version_(version), owner_(std::move(owner)) {
  model_.files = std::move(files);
}

LoadTransaction::~LoadTransaction() { RollBack(); }

absl::StatusOr<std::unique_ptr<Model>> LoadTransaction::Run() {
  absl::StatusOr<std::unique_ptr<Model>> result = absl::InternalError("the load did not run");
  try {
    result = RunSteps();
  } catch (const std::bad_alloc&) {
    result = absl::ResourceExhaustedError("out of host memory");
  } catch (const std::exception& error) {
    result = absl::InternalError(fmt::format("exception: {}", error.what()));
  } catch (...) {
    result = absl::InternalError("unknown exception");
  }
  if (result.ok()) return result;
  worth_another_try_ = absl::IsResourceExhausted(result.status()) && permit_.contended();
  RollBack();
  const absl::Status status = parts_.cancel != nullptr && parts_.cancel->cancelled()
                                  ? absl::CancelledError(fmt::format("load cancelled: {}", MessageOf(result.status())))
                                  : result.status();
  std::size_t left = 0;
  for (const LedgerRow& row : parts_.ledger->RowsOf(owner_)) {
    if (row.state != RowState::kStranded) ++left;
  }
  if (left != 0) LOG_ERROR("a failed load of '{}' left {} ledger rows under '{}'", source_.name, left, owner_);
  return status;
}

absl::StatusOr<std::unique_ptr<Model>> LoadTransaction::RunSteps() {
  if (IsEnsemble(source_.config)) return RunEnsemble();
  const std::int64_t start = NowNanos();
  RETURN_IF_ERROR(Resolve());
  RETURN_IF_ERROR(Reserve());
  const std::int64_t reserved = NowNanos();
  RETURN_IF_ERROR(Initialise());
  const std::int64_t initialised = NowNanos();
  RETURN_IF_ERROR(WarmUp());
  LOG_VERBOSE(1, "timing of a load: admission {} us, model and instances {} us, warm-up {} us",
              (reserved - start) / 1000, (initialised - reserved) / 1000, (NowNanos() - initialised) / 1000);
  model_.scheduler = std::move(scheduler_);
  RETURN_IF_ERROR(Equip());
  auto model = std::make_unique<Model>(std::move(model_));
  model->scope().EndLoad();
  reservations_.Reset();
  permit_.End();
  return model;
}

absl::Status LoadTransaction::Equip() {
  const inference::ModelConfig& config = model_.info->config();
  const bool cached = parts_.cache != nullptr && config.response_cache().enable();
  if (cached) {
    ASSIGN_OR_RETURN(model_.answers, ModelAnswers::Create(*parts_.cache, *parts_.ledger, *parts_.platform, owner_,
                                                          *model_.info, *parts_.buffers));
  }
  if (parts_.cancel != nullptr && parts_.cancel->cancelled()) return absl::CancelledError("before the commit");
  if (parts_.statistics == nullptr) return absl::OkStatus();
  model_.statistics =
      parts_.statistics->Open(source_.key, version_, FirstResponseBuckets(config), TagsOf(config), cached);
  return absl::OkStatus();
}

absl::Status LoadTransaction::Resolve() {
  config_ = source_.config;
  artifact_.model_name = source_.name;
  artifact_.version = version_;
  artifact_.model_directory = source_.directory;
  artifact_.version_directory = source_.directory / fmt::format("{}", version_);
  artifact_.auto_complete = parts_.auto_complete;
  artifact_.cancel = parts_.cancel;
  ASSIGN_OR_RETURN(backend_, parts_.backends->Get(config_.backend()));
  RETURN_IF_ERROR(RefuseUnscheduled(config_, *backend_));
  InstanceDefaults defaults;
  if (backend_->default_cpu_instances() > 1) {
    inference::ModelInstanceGroup preferred;
    preferred.set_kind(inference::ModelInstanceGroup::KIND_CPU);
    preferred.set_count(backend_->default_cpu_instances());
    defaults.preferred.push_back(preferred);
  }
  DeviceFacts devices;
  if (const Gpus* gpus = parts_.backends->gpus(); gpus != nullptr && backend_->uses_gpus()) {
    for (const DeviceId gpu : gpus->Usable()) devices.gpus.push_back(gpu);
  }
  devices.gpu_build = backend_->uses_gpus();
  defaults.gpus = devices.gpus;
  NormalizeInstanceGroups(defaults, &config_);
  Findings findings;
  findings.Append(ValidateInstanceGroups(config_, devices));
  findings.Append(ValidateWarmup(config_));
  findings.Append(ValidateSequenceStates(config_));
  return StatusOf(findings.list());
}

absl::Status LoadTransaction::Reserve() {
  Admission::Demand demand;
  demand.what = fmt::format("{} version {}", source_.name, version_);
  demand.devices.push_back(kHost);
  for (const inference::ModelInstanceGroup& group : config_.instance_group()) {
    demand.devices.insert(demand.devices.end(), group.gpus().begin(), group.gpus().end());
  }
  demand.estimate = backend_->EstimateMemory(artifact_, config_);
  if (!demand.estimate.has_value()) {
    demand.estimate = parts_.measured;
    demand.measured = true;
  }
  demand.alone = parts_.alone;
  ASSIGN_OR_RETURN(permit_, parts_.admission->Enter(*parts_.operation, demand, parts_.cancel, reservations_));
  return absl::OkStatus();
}

absl::Status LoadTransaction::Open() {
  model_.scope = std::make_unique<Scope>(
      *parts_.ledger, *parts_.platform, owner_,
      Scope::Options{.cancel = parts_.cancel, .reservations = &reservations_, .resident = false});
  model_.metrics = std::make_unique<ModelMetrics>();
  artifact_.metrics = model_.metrics.get();
  ASSIGN_OR_RETURN(const inference::ModelConfig for_engine, EngineConfig(config_));
  ASSIGN_OR_RETURN(model_.backend_model, backend_->CreateModel(artifact_, for_engine, *model_.scope));
  return absl::OkStatus();
}

absl::Status LoadTransaction::Validate() {
  inference::ModelConfig completed = ClientConfig(model_.backend_model->config(), config_);
  NormalizeConfig(&completed);
  NormalizeInstanceGroups(InstanceDefaults{}, &completed);
  Findings findings;
  findings.Append(ValidateConfig(completed));
  findings.Append(ValidateModelIo(completed));
  std::map<std::string, std::vector<std::string>> labels;
  for (int i = 0; i < completed.output_size(); ++i) {
    const inference::ModelOutput& output = completed.output(i);
    auto lines = ReadLabels(source_.directory, source_.name, output);
    if (lines.ok()) {
      labels[output.name()] = *std::move(lines);
    } else {
      findings.AddWithCode(lines.status().code(), fmt::format("output[{}].label_filename", i), "{}",
                           MessageOf(lines.status()));
    }
  }
  RETURN_IF_ERROR(StatusOf(findings.list()));
  model_.info = std::make_unique<ModelInfo>(completed, version_, labels);
  model_.info->set_takes_device_memory(model_.backend_model->takes_device_memory());
  return absl::OkStatus();
}

absl::Status LoadTransaction::Initialise() {
  RETURN_IF_ERROR(Open());
  RETURN_IF_ERROR(Validate());
  std::unique_ptr<SequenceTensors> sequences;
  if (model_.info->config().has_sequence_batching()) {
    ASSIGN_OR_RETURN(sequences, SequenceTensors::Create(*model_.info, source_.directory, *parts_.buffers));
  }
  ASSIGN_OR_RETURN(scheduler_, InstanceScheduler::Create(*model_.scope, *model_.backend_model, *model_.info,
                                                         *parts_.buffers, std::move(sequences), parts_.rate_limiter));
  Gpus* const gpus = parts_.backends->gpus();
  if (gpus == nullptr) return absl::OkStatus();
  for (const inference::ModelInstanceGroup& group : model_.info->config().instance_group()) {
    for (const std::int32_t gpu : group.gpus()) {
      RETURN_IF_ERROR(gpus->CheckLoadLimit(gpu, InstanceNames(group).back()));
    }
  }
  return absl::OkStatus();
}

absl::Status LoadTransaction::WarmUp() {
  const ModelInfo& info = *model_.info;
  static_cast<void>(model_.scope->TakeRefusal());  // what an engine did without until here is its own affair
  for (const inference::ModelWarmup& sample : info.config().model_warmup()) {
    if (sample.batch_size() == 0) {
      LOG_VERBOSE(1, "Skipping batch 0 warmup sample '{}'", sample.name());
      continue;
    }
    const std::uint32_t rounds = std::max<std::uint32_t>(sample.count(), 1);
    for (std::uint32_t i = 0; i < rounds; ++i) {
      static_cast<void>(model_.scope->TakeRefusal());
      if (absl::Status status =
              scheduler_->WarmUp(parts_.cancel, sample.batch_size(),
                                 [&] { return MakeWarmupRequest(info, sample, source_.directory, *parts_.buffers); });
          !status.ok()) {
        const absl::Status refusal = model_.scope->TakeRefusal();  // the engine was refused something: that is why
        if (!refusal.ok() && !absl::IsCancelled(status)) status = refusal;
        return absl::Status(status.code(),
                            fmt::format("failed to run warmup sample '{}': {}; ", sample.name(), MessageOf(status)));
      }
    }
  }
  if (info.config().model_warmup().empty() && backend_->warms_up_unasked()) {
    const absl::Status status =
        scheduler_->WarmUp(parts_.cancel, 1, [&] { return MakeZeroRequest(info, *parts_.buffers); });
    if (absl::IsResourceExhausted(status) || absl::IsCancelled(status)) return status;
    if (!status.ok()) RETURN_IF_ERROR(model_.scope->TakeRefusal());  // the engine was refused something: that is why
    // Zeros of a made-up shape are nobody's promise: a model may refuse them and still serve.
    if (!status.ok()) LOG_VERBOSE(1, "model '{}' refused a batch of zeros: {}", source_.name, MessageOf(status));
  }
  return absl::OkStatus();
}

std::vector<Finding> LoadTransaction::Check(bool open) {
  Findings out;
  try {
    CheckSteps(open, out);
  } catch (const std::bad_alloc&) {
    out.AddWithCode(absl::StatusCode::kResourceExhausted, "", "out of host memory");
  } catch (const std::exception& error) {
    out.AddWithCode(absl::StatusCode::kInternal, "", "exception: {}", error.what());
  }
  RollBack();
  return std::move(out).Take();
}

void LoadTransaction::CheckSteps(bool open, Findings& out) {
  if (IsEnsemble(source_.config)) {
    out.Append(ValidateModelIo(source_.config));  // whether it fits its members is seen when they are there
    return;
  }
  out.Take(Resolve());
  const auto without_engine = [&] { out.Append(ValidateModelIo(config_)); };
  if (backend_ == nullptr || !open) return without_engine();
  if (absl::Status status = Reserve(); !status.ok()) {
    out.Take(status);
    return without_engine();
  }
  if (absl::Status status = Open(); !status.ok()) {
    out.Take(status);
    return without_engine();
  }
  if (absl::Status status = Validate(); !status.ok()) return out.Take(status);
  for (int i = 0; i < model_.info->config().model_warmup_size(); ++i) {
    const inference::ModelWarmup& sample = model_.info->config().model_warmup(i);
    if (sample.batch_size() == 0) continue;
    const absl::Status made = MakeWarmupRequest(*model_.info, sample, source_.directory, *parts_.buffers).status();
    if (made.ok()) continue;
    out.AddWithCode(made.code(), fmt::format("model_warmup[{}]", i), "failed to run warmup sample '{}': {}; ",
                    sample.name(), MessageOf(made));
  }
}

void LoadTransaction::RollBack() noexcept {
  scheduler_.reset();
  model_.scheduler.reset();
  model_.answers.reset();
  model_.backend_model.reset();
  model_.metrics.reset();
  model_.info.reset();
  model_.scope.reset();
  model_.files.reset();
  reservations_.Reset();
  permit_.End();
}

}  // namespace tidemark
