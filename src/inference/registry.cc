#include "inference/registry.h"

#include "base/status.h"
#include "inference/model.h"

namespace tidemark {

std::string_view VersionStateName(VersionState state) {
  switch (state) {
    case VersionState::kReady:
      return "READY";
    case VersionState::kUnavailable:
      return "UNAVAILABLE";
    case VersionState::kLoading:
      return "LOADING";
    case VersionState::kUnloading:
      return "UNLOADING";
    case VersionState::kUnknown:
      break;
  }
  return "UNKNOWN";
}

absl::Status HealthOf(const VersionEntry& entry) {
  const ModelHandle handle = ModelHandle::Enter(entry.published);
  return handle ? handle->Health() : absl::OkStatus();
}

Registry::Registry() : snapshot_(std::make_shared<const RegistrySnapshot>()) {}

namespace {

// The model of that name in whatever namespace: clients cannot name one.
absl::StatusOr<const RegistryModel*> FindInNamespaces(const RegistrySnapshot& snapshot, std::string_view name) {
  const RegistryModel* found = nullptr;
  std::size_t count = 0;
  bool namespaces = false;
  for (const auto& [key, model] : snapshot) {
    namespaces = namespaces || key != model->name;
    if (key == model->name || model->name != name) continue;
    found = model.get();
    ++count;
  }
  if (count == 1) return found;
  const std::string unknown = fmt::format("Request for unknown model: '{}' is not found", name);
  if (count == 0) return namespaces ? absl::InvalidArgumentError(unknown) : absl::NotFoundError(unknown);
  return absl::InvalidArgumentError(
      fmt::format("There are {} identifiers of model '{}' in global map, model namespace must be provided to resolve "
                  "ambiguity.",
                  count, name));
}

}  // namespace

absl::StatusOr<ModelHandle> Registry::Find(std::string_view name, std::int64_t version) const {
  const std::shared_ptr<const RegistrySnapshot> snapshot = Snapshot();
  const auto exact = snapshot->find(name);
  const RegistryModel* model = exact != snapshot->end() ? exact->second.get() : nullptr;
  if (model == nullptr) {
    ASSIGN_OR_RETURN(model, FindInNamespaces(*snapshot, name));
  }
  const auto& versions = model->versions;
  if (version >= 0) {
    const auto it = versions.find(version);
    if (it == versions.end()) {
      return absl::NotFoundError(fmt::format("Request for unknown model: '{}' version {} is not found", name, version));
    }
    if (ModelHandle handle = ModelHandle::Enter(it->second.published); handle) return handle;
    if (snapshot != Snapshot()) return Find(name, version);  // replaced while we looked
    return absl::UnavailableError(
        fmt::format("Request for unknown model: '{}' version {} is not at ready state", name, version));
  }
  for (auto it = versions.rbegin(); it != versions.rend(); ++it) {
    if (ModelHandle handle = ModelHandle::Enter(it->second.published); handle) return handle;
  }
  // Either nothing is READY, or what was READY in this picture has been replaced meanwhile: then look again.
  if (snapshot != Snapshot()) return Find(name, version);
  return absl::NotFoundError(fmt::format("Request for unknown model: '{}' has no available versions", name));
}

}  // namespace tidemark
