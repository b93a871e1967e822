// How an ensemble is loaded: against members that are there by now.

#include <algorithm>
#include <map>
#include <utility>

#include "base/status.h"
#include "inference/ensemble_scheduler.h"
#include "lifecycle/load_transaction.h"
#include "repository/config_validate.h"
#include "repository/model_directory.h"
#include "repository/model_repository.h"

namespace tidemark {
namespace {

// The member in the picture: in the ensemble's namespace, else the only one of that name; nullptr otherwise.
const RegistryModel* FindMember(const RegistrySnapshot& snapshot, const std::string& ensemble,
                                const std::string& member) {
  const std::string beside = ModelKey(NamespaceOfKey(ensemble), member);
  if (const auto it = snapshot.find(beside); it != snapshot.end()) return it->second.get();
  const RegistryModel* found = nullptr;
  for (const auto& [key, model] : snapshot) {
    if (model->name != member) continue;
    if (found != nullptr) return nullptr;
    found = model.get();
  }
  return found;
}

// A member that was unloaded, or never loaded, is not available, whatever the registry remembers of it.
bool Available(const RegistryModel* model) {
  if (model == nullptr || model->versions.empty()) return false;
  return std::any_of(model->versions.begin(), model->versions.end(), [](const auto& entry) {
    const VersionEntry& version = entry.second;
    return version.state != VersionState::kUnloading &&
           !(version.state == VersionState::kUnavailable && version.reason == "unloaded");
  });
}

absl::Status CheckAvailable(const inference::ModelConfig& config, const RegistrySnapshot& snapshot,
                            const std::string& ensemble) {
  std::vector<std::string> missing;
  for (const std::string& member : MembersOf(config)) {
    if (!Available(FindMember(snapshot, ensemble, member))) missing.push_back(member);
  }
  if (missing.empty()) return absl::OkStatus();
  std::sort(missing.begin(), missing.end());
  return absl::InvalidArgumentError(fmt::format("ensemble {} contains models that are not available or ambiguous: {}",
                                                config.name(), fmt::join(missing, ", ")));
}

// Why the member has no version that could serve the step.
absl::Status NotLoaded(const std::string& ensemble, const RegistryModel& model, std::int64_t version) {
  const bool any = std::any_of(model.versions.begin(), model.versions.end(),
                               [](const auto& entry) { return entry.second.state == VersionState::kReady; });
  if (any) {
    return absl::InvalidArgumentError(fmt::format(
        "ensemble '{}' depends on '{}' whose required version {} is not loaded.", ensemble, model.name, version));
  }
  std::string reasons;
  for (const auto& [number, entry] : model.versions) {
    if (entry.reason.empty() || entry.reason == "unloaded") continue;
    reasons += fmt::format("version {} is at {} state: {};", number, VersionStateName(entry.state), entry.reason);
  }
  return absl::InvalidArgumentError(
      reasons.empty() ? fmt::format("ensemble '{}' depends on '{}' which has no loaded version.", ensemble, model.name)
                      : fmt::format("ensemble '{}' depends on '{}' which has no loaded version. Model '{}' loading "
                                    "failed with error: {}",
                                    ensemble, model.name, model.name, reasons));
}

}  // namespace

absl::StatusOr<EnsemblePlan> LoadTransaction::PlanEnsemble(const inference::ModelConfig& config) {
  if (parts_.registry == nullptr) return absl::UnimplementedError("this server has no ensembles");
  const std::shared_ptr<const RegistrySnapshot> snapshot = parts_.registry->Snapshot();
  RETURN_IF_ERROR(CheckAvailable(config, *snapshot, source_.key));
  std::vector<ModelHandle> members;  // stay while they are looked at
  return EnsemblePlan::Create(
      config, [&](const inference::ModelEnsembling::Step& step, std::string& key) -> absl::StatusOr<const ModelInfo*> {
        const RegistryModel& model = *FindMember(*snapshot, source_.key, step.model_name());
        key = model.key;
        absl::StatusOr<ModelHandle> handle = parts_.registry->Find(model.key, step.model_version());
        if (!handle.ok()) return NotLoaded(config.name(), model, step.model_version());
        members.push_back(*std::move(handle));
        return &members.back()->info();
      });
}

absl::StatusOr<std::unique_ptr<Model>> LoadTransaction::RunEnsemble() {
  config_ = source_.config;
  ASSIGN_OR_RETURN(EnsemblePlan plan, PlanEnsemble(config_));
  // What the configuration says of it does not matter.
  if (plan.decoupled() || config_.has_model_transaction_policy()) {
    config_.mutable_model_transaction_policy()->set_decoupled(plan.decoupled());
  }
  RETURN_IF_ERROR(StatusOf(ValidateConfig(config_)));
  RETURN_IF_ERROR(StatusOf(ValidateModelIo(config_)));
  std::map<std::string, std::vector<std::string>> labels;
  for (const inference::ModelOutput& output : config_.output()) {
    ASSIGN_OR_RETURN(labels[output.name()], ReadLabels(source_.directory, source_.name, output));
  }
  model_.scope = std::make_unique<Scope>(
      *parts_.ledger, *parts_.platform, owner_,
      Scope::Options{.cancel = parts_.cancel, .reservations = &reservations_, .resident = false});
  model_.info = std::make_unique<ModelInfo>(config_, version_, labels);
  model_.scheduler =
      std::make_unique<EnsembleScheduler>(*model_.info, std::move(plan), *parts_.registry, *parts_.buffers);
  RETURN_IF_ERROR(Equip());
  auto model = std::make_unique<Model>(std::move(model_));
  model->scope().EndLoad();
  return model;
}

}  // namespace tidemark
