#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backend/execution.h"
#include "base/cancel.h"
#include "proto/model_config.pb.h"
#include "resource/scope.h"

namespace tidemark {

class Gpus;
class ModelMetrics;

// What one load hands to a backend. Everything outlives the BackendModel made from it except `cancel`, which is good
// until CreateModel / CreateInstance returns.
struct ModelArtifact {
  std::string model_name;
  std::int64_t version = 0;
  std::filesystem::path model_directory;    // holds config.pbtxt and the version folders
  std::filesystem::path version_directory;  // holds the artifact
  bool auto_complete = true;                // --disable-auto-complete-config not given
  CancelFlag* cancel = nullptr;             // set when the load is cancelled; may be null
  ModelMetrics* metrics = nullptr;          // backend/model_metrics.h: where it may add its own; may be null
};

// Bytes by device (kHost for host memory).
using MemoryEstimate = std::map<DeviceId, std::uint64_t>;

// One executable copy of a model. Made by BackendModel::CreateInstance, undone by its destructor, which gives back
// everything that was not on the scope and joins every thread it started.
class BackendInstance {
 public:
  virtual ~BackendInstance() = default;

  // Runs the requests and fills status and times of each; the outputs are in place when it returns. One call at a time
  // for each instance, from whatever thread unless thread_bound(). A failed request fails alone. No exception leaves.
  virtual void Execute(std::span<Execution* const> requests) noexcept = 0;

  // True when Execute must always run on the instance's own thread (a device context); false allows a short execution
  // to run on the event loop.
  virtual bool thread_bound() const { return false; }

  // Cheap answer to "can this instance still serve?"; an error makes the model and the server not ready.
  virtual absl::Status Health() const { return absl::OkStatus(); }
};

// One loaded version in an engine: what its instances share. Instances die before it.
class BackendModel {
 public:
  virtual ~BackendModel() = default;

  // The configuration to serve: the given one, or what the engine completed. Checked against the model.
  virtual const inference::ModelConfig& config() const = 0;

  // `scope` is the instance's own and outlives the instance. `group` is one entry of config().instance_group, `index`
  // counts the instances of that group, `device` is a GPU number or kHost. May be called from several threads at once.
  virtual absl::StatusOr<std::unique_ptr<BackendInstance>> CreateInstance(Scope& scope,
                                                                          const inference::ModelInstanceGroup& group,
                                                                          std::string_view name, DeviceId device) = 0;

  // True when instances take inputs that lie in the memory of their own GPU, and outputs there (OutputSink::AllocateOn).
  virtual bool takes_device_memory() const { return false; }

  // Bytes on `device` that the engine keeps for reuse and would give back at Trim. Thread-safe, cheap.
  virtual std::uint64_t cached_bytes(DeviceId /*device*/) const { return 0; }

  // Gives back what can be had again (arenas, caches); the model goes on serving.
  virtual void Trim() noexcept {}
};

// One kind of engine. Made once, at the first use or at start-up; lives as long as the server.
//
// Contract, checked for every backend by tests/contract: a failing CreateModel or CreateInstance leaves nothing behind,
// whichever step failed; no exception crosses; nothing process-wide changes outside Create; threads are joined.
class Backend {
 public:
  virtual ~Backend() = default;

  // "onnxruntime", "identity", …
  virtual std::string_view name() const = 0;

  // Instances of a KIND_CPU group whose config gives no count.
  virtual int default_cpu_instances() const { return 1; }

  // True for an engine that runs on GPUs: groups without a kind become KIND_GPU where the machine has one.
  virtual bool uses_gpus() const { return false; }

  // Does it serve ragged inputs, made inputs and scattered outputs (RaggedPlan)? Configurations with them are refused
  // otherwise.
  virtual bool batches_ragged() const { return false; }

  // May a version without `model_warmup` be warmed up with one batch of zeros? False where an execution has an effect
  // or a length that the config decides.
  virtual bool warms_up_unasked() const { return true; }

  // Opens the version: checks `config` against the artifact, completing it first where auto-completion is on and the
  // config is incomplete. Everything taken goes through `scope`, which outlives the model. Thread-safe: loads overlap.
  virtual absl::StatusOr<std::unique_ptr<BackendModel>> CreateModel(const ModelArtifact& artifact,
                                                                    const inference::ModelConfig& config,
                                                                    Scope& scope) = 0;

  // Bytes that loading the version will take at its peak on each device, if known before anything is taken; nullopt:
  // not known. Only looked at on devices with a budget: too little costs a failed load, too much a wait or a refusal.
  virtual std::optional<MemoryEstimate> EstimateMemory(const ModelArtifact& /*artifact*/,
                                                       const inference::ModelConfig& /*config*/) const {
    return std::nullopt;
  }
};

// `--backend-config=<backend>,<key>=<value>`; global settings are merged in by the server.
using BackendSettings = std::map<std::string, std::string>;

// Makes one backend. `resident` is the scope of what the engine keeps for as long as the process lives (its library, its
// environment); `engine_directory` is where the product's engine libraries lie (<dir>/onnxruntime/…).
struct BackendContext {
  Scope& resident;
  BackendSettings settings;
  std::filesystem::path engine_directory;
  Gpus* gpus = nullptr;  // null on a machine without; outlives the backend
};
using BackendFactory = absl::StatusOr<std::unique_ptr<Backend>> (*)(const BackendContext& context);

}  // namespace tidemark
