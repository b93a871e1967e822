#include "backend/backend_registry.h"

#include <utility>

#include "base/log.h"
#include "base/status.h"

namespace tidemark {

BackendRegistry::BackendRegistry(Ledger& ledger, Platform& platform, std::filesystem::path engine_directory,
                                 std::map<std::string, BackendSettings> settings)
    : ledger_(ledger),
      platform_(platform),
      engine_directory_(std::move(engine_directory)),
      settings_(std::move(settings)) {}

BackendRegistry::~BackendRegistry() {
  for (auto& [name, slot] : slots_) {
    absl::MutexLock lock(&slot.mutex);
    slot.backend.reset();
    slot.resident.reset();
  }
}

void BackendRegistry::Add(std::string name, BackendFactory factory) { slots_[std::move(name)].factory = factory; }

absl::StatusOr<Backend*> BackendRegistry::Get(std::string_view name) {
  const auto it = slots_.find(name);
  if (it == slots_.end()) {
    std::string known;
    for (const auto& [other, slot] : slots_) known += fmt::format("{}'{}'", known.empty() ? "" : ", ", other);
    return absl::InvalidArgumentError(
        fmt::format("unable to find backend library for backend '{}', try specifying runtime on the model "
                    "configuration. This server has the backends {}.",
                    name, known));
  }
  Slot& slot = it->second;
  absl::MutexLock lock(&slot.mutex);
  if (slot.backend != nullptr) return slot.backend.get();
  auto resident = std::make_unique<Scope>(ledger_, platform_, fmt::format("backend/{}", name),
                                          Scope::Options{.cancel = nullptr, .reservations = nullptr, .resident = true});
  BackendSettings settings;
  if (const auto common = settings_.find(""); common != settings_.end()) settings = common->second;
  if (const auto own = settings_.find(std::string(name)); own != settings_.end()) {
    for (const auto& [key, value] : own->second) settings[key] = value;
  }
  ASSIGN_OR_RETURN(auto backend,
                   slot.factory(BackendContext{*resident, std::move(settings), engine_directory_, gpus_}));
  LOG_INFO("opened backend '{}'", name);
  slot.resident = std::move(resident);
  slot.backend = std::move(backend);
  return slot.backend.get();
}

std::vector<std::string> BackendRegistry::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, slot] : slots_) names.push_back(name);
  return names;
}

}  // namespace tidemark
