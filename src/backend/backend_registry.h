#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "backend/backend.h"
#include "resource/scope.h"

namespace tidemark {

// A backend to be added under its name.
struct NamedBackendFactory {
  std::string_view name;
  BackendFactory factory = nullptr;
};

// The engines of this server. Each is opened at its first use, under resident rows of its own, and lives as long as the
// server; an engine that could not be opened is tried again at the next load. Thread-safe. No global registration: the
// server's composition root names the factories.
class BackendRegistry {
 public:
  // `settings`: backend name to its --backend-config pairs; those of "" are for every backend.
  BackendRegistry(Ledger& ledger, Platform& platform, std::filesystem::path engine_directory,
                  std::map<std::string, BackendSettings> settings);
  ~BackendRegistry();
  BackendRegistry(const BackendRegistry&) = delete;
  BackendRegistry& operator=(const BackendRegistry&) = delete;

  // Before the first Get.
  void Add(std::string name, BackendFactory factory);

  // The GPUs that backends may use; null (as at first) for none. Before the first Get; outlives the registry.
  void SetGpus(Gpus* gpus) { gpus_ = gpus; }
  Gpus* gpus() const { return gpus_; }

  // INVALID_ARGUMENT with Triton's text for a backend that this server does not have; the factory's error otherwise.
  absl::StatusOr<Backend*> Get(std::string_view name);

  // The names that Add was called with.
  std::vector<std::string> Names() const;

 private:
  struct Slot {
    BackendFactory factory = nullptr;
    absl::Mutex mutex;  // held while the engine opens, so that it opens once
    std::unique_ptr<Scope> resident ABSL_GUARDED_BY(mutex);
    std::unique_ptr<Backend> backend ABSL_GUARDED_BY(mutex);
  };

  Gpus* gpus_ = nullptr;
  Ledger& ledger_;
  Platform& platform_;
  const std::filesystem::path engine_directory_;
  const std::map<std::string, BackendSettings> settings_;
  std::map<std::string, Slot, std::less<>> slots_;
};

}  // namespace tidemark
