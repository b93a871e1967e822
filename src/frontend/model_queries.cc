#include "frontend/model_queries.h"

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>

#include "base/status.h"

namespace tidemark {

absl::Status CheckNotExiting(const Lifecycle& lifecycle) {
  return lifecycle.state() == ServerState::kExiting ? absl::UnavailableError("Server exiting") : absl::OkStatus();
}

absl::Status CheckServing(const Lifecycle& lifecycle) {
  return lifecycle.accepting() ? absl::OkStatus() : absl::UnavailableError("Server not ready");
}

absl::StatusOr<std::int64_t> ParseModelVersion(std::string_view text) {
  if (text.empty()) return -1;
  const std::string copy(text);
  char* end = nullptr;
  errno = 0;
  const std::int64_t version = std::strtoll(copy.c_str(), &end, 10);
  if (end == copy.c_str() || errno == ERANGE) {
    return absl::InvalidArgumentError(fmt::format(
        "failed to get model version from specified version string '{}' (details: stol), version should be an "
        "integral value > 0",
        text));
  }
  if (version < 0) {
    return absl::InvalidArgumentError(
        fmt::format("invalid model version specified '{}' , version should be an integral value > 0", text));
  }
  return version;
}

absl::StatusOr<ModelHandle> FindModel(const Registry& registry, const Lifecycle& lifecycle, std::string_view name,
                                      std::string_view version) {
  ASSIGN_OR_RETURN(const std::int64_t number, ParseModelVersion(version));
  RETURN_IF_ERROR(CheckServing(lifecycle));
  return registry.Find(name, number);
}

absl::StatusOr<bool> IsModelReady(const Registry& registry, const Lifecycle& lifecycle, std::string_view name,
                                  std::string_view version) {
  const absl::StatusOr<ModelHandle> handle = FindModel(registry, lifecycle, name, version);
  if (handle.ok()) return (*handle)->Health().ok();
  // Known but not READY is "no" here; what is not known at all has the usual error.
  const std::shared_ptr<const RegistrySnapshot> snapshot = registry.Snapshot();
  const auto model = snapshot->find(name);
  const absl::StatusOr<std::int64_t> number = ParseModelVersion(version);
  const bool known = number.ok() && CheckServing(lifecycle).ok() && model != snapshot->end() &&
                     (*number < 0 || model->second->versions.contains(*number));
  if (!known) return handle.status();
  return false;
}

std::vector<std::int64_t> ListedVersions(const Registry& registry, const ModelInfo& model, std::string_view version) {
  if (!version.empty()) return {model.version()};
  std::vector<std::int64_t> versions;
  const std::shared_ptr<const RegistrySnapshot> snapshot = registry.Snapshot();
  if (const auto found = snapshot->find(model.name()); found != snapshot->end()) {
    for (const auto& [number, entry] : found->second->versions) {
      if (entry.state == VersionState::kReady) versions.push_back(number);
    }
  }
  return versions;
}

absl::Status VisitStatistics(const Registry& registry, const Lifecycle& lifecycle, std::string_view name,
                             std::string_view version,
                             absl::FunctionRef<void(std::string_view name, std::int64_t version, Model& model)> visit) {
  ASSIGN_OR_RETURN(const std::int64_t wanted, ParseModelVersion(version));
  RETURN_IF_ERROR(CheckServing(lifecycle));
  const std::shared_ptr<const RegistrySnapshot> snapshot = registry.Snapshot();
  bool model_ready = false;
  bool found = false;
  for (const auto& [key, model] : *snapshot) {
    if (!name.empty() && key != name) continue;
    for (const auto& [number, entry] : model->versions) {
      const ModelHandle handle = ModelHandle::Enter(entry.published);
      if (!handle) continue;
      model_ready = true;
      if (wanted >= 0 && number != wanted) continue;
      found = true;
      visit(model->name, number, *handle);
    }
  }
  if (name.empty() || found) return absl::OkStatus();
  return absl::InvalidArgumentError(model_ready
                                        ? fmt::format("requested model version is not available for model '{}'", name)
                                        : fmt::format("requested model '{}' is not available", name));
}

}  // namespace tidemark
