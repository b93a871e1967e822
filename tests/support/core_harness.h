#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backend/backend_registry.h"
#include "inference/rate_limiter.h"
#include "inference/registry.h"
#include "inference/response_cache.h"
#include "lifecycle/lifecycle.h"
#include "repository/model_repository.h"
#include "resource/buffer_pool.h"
#include "resource/gpu.h"
#include "resource/ledger.h"
#include "tests/support/fake_backend.h"
#include "tests/support/fault_platform.h"
#include "tests/support/model_directory.h"

namespace tidemark {

// The whole core of a server without its front ends: a repository in a folder of its own, the fake backend
// (others can be added) and a lifecycle. Everything goes through a FaultPlatform.
class CoreHarness {
 public:
  struct Options {
    Options() { lifecycle.mode = ControlMode::kExplicit; }
    Lifecycle::Options lifecycle;
    std::vector<std::string> more_repositories;  // folders beside "repository"
    std::vector<std::pair<std::string, BackendFactory>> backends;
    std::filesystem::path engine_directory;
    std::map<std::string, BackendSettings> settings;  // by backend
    std::filesystem::path cuda_library;               // empty: a machine without GPUs
    bool auto_complete = true;
    bool namespacing = false;
    std::uint64_t response_cache_bytes = 0;  // 0: no cache
    bool rate_limit = false;
    std::vector<RateLimiter::Limit> rate_limits;
  };
  CoreHarness() : CoreHarness(Options()) {}
  explicit CoreHarness(Options options);
  ~CoreHarness();

  // Makes the lifecycle; what was added to the folder is there by then. Start-up's status.
  absl::Status Start();
  void Destroy() { lifecycle.reset(); }
  // After Destroy: the backends and the GPUs, with their resident rows.
  void DestroyBackends();

  // Waits for the answer.
  absl::Status Load(std::string_view name, LoadOverrides overrides = {});
  absl::Status Unload(std::string_view name);
  // "1:READY;2:UNAVAILABLE(unloaded);" of one model, "" when the index has it without versions, "-" when it
  // has it not.
  std::string StateOf(std::string_view name) const;

  // One inference of four floats (a batch of one where the model batches); enters the version like a front end does.
  absl::StatusOr<std::vector<float>> Infer(std::string_view name, std::int64_t version = -1,
                                           std::vector<float> values = {1, 2, 3, 4}, bool may_run_inline = false);
  // The same without waiting.
  absl::Status Submit(std::string_view name, std::int64_t version, std::vector<float> values, bool may_run_inline,
                      std::function<void(absl::StatusOr<std::vector<float>>)> done);

  std::uint64_t rows() const { return ledger.Totals().rows; }

  TestFolder folder;
  FakeScript script;
  std::unique_ptr<Platform> real = CreateLinuxPlatform();
  FaultPlatform platform{*real};
  Ledger ledger;
  Registry registry;
  BufferPool buffers{platform};
  std::unique_ptr<Gpus> gpus;  // outlived by what names it in its releases: see DestroyBackends
  std::unique_ptr<Scope> gpu_scope;
  std::unique_ptr<ModelRepository> repository;
  std::unique_ptr<BackendRegistry> backends;
  std::unique_ptr<ResponseCache> cache;  // null: none
  std::unique_ptr<RateLimiter> rate_limiter;
  std::unique_ptr<Lifecycle> lifecycle;
  std::uint64_t sequence_id = 0;  // not 0: each request is a whole sequence of this id

 private:
  const Options options_;
};

}  // namespace tidemark
