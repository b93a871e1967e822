#include "inference/registry.h"

#include "base/status.h"

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

Registry::Registry() : snapshot_(std::make_shared<const RegistrySnapshot>()) {}

absl::StatusOr<ModelHandle> Registry::Find(std::string_view name, std::int64_t version) const {
  const std::shared_ptr<const RegistrySnapshot> snapshot = Snapshot();
  const auto model = snapshot->find(name);
  if (model == snapshot->end()) {
    return absl::NotFoundError(fmt::format("Request for unknown model: '{}' is not found", name));
  }
  const auto& versions = model->second->versions;
  if (version >= 0) {
    const auto it = versions.find(version);
    if (it == versions.end()) {
      return absl::NotFoundError(
          fmt::format("Request for unknown model: '{}' version {} is not found", name, version));
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
