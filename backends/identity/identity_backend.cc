#include "backends/identity/identity_backend.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <list>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "backend/model_metrics.h"
#include "backends/identity/identity_config.h"
#include "base/clock.h"
#include "base/status.h"

namespace tidemark {
namespace {

// Wakes a waiting thread; callbacks of cancel flags pull it.
class Bell {
 public:
  void Ring() {
    absl::MutexLock lock(&mutex_);
    condition_.SignalAll();
  }

  // Waits until `until` (NowNanos clock) answers a time that has passed; asked again after each Ring.
  template <typename Until>
  void Wait(Until until) {
    absl::MutexLock lock(&mutex_);
    for (;;) {
      const std::int64_t left = until() - NowNanos();
      if (left <= 0) return;
      condition_.WaitWithTimeout(&mutex_, absl::Nanoseconds(left));
    }
  }

 private:
  absl::Mutex mutex_;
  absl::CondVar condition_;
};

absl::Status WaitForCreation(CancelFlag* cancel, std::int64_t nanos, std::string_view model) {
  if (nanos > 0) {
    const std::int64_t end = NowNanos() + nanos;
    Bell bell;
    const ScopedOnCancel ring(cancel, [&bell] { bell.Ring(); });
    bell.Wait([&] { return cancel != nullptr && cancel->cancelled() ? 0 : end; });
  }
  if (cancel != nullptr && cancel->cancelled()) {
    return absl::CancelledError(fmt::format("the load of model '{}' was cancelled", model));
  }
  return absl::OkStatus();
}

// OK while somebody still waits for the answer.
absl::Status StillWanted(const Execution& request) {
  if (request.cancel != nullptr && request.cancel->cancelled()) {
    return absl::CancelledError("the request was cancelled");
  }
  if (request.deadline_nanos != 0 && NowNanos() >= request.deadline_nanos) {
    return absl::DeadlineExceededError("the request's deadline passed during the execution");
  }
  return absl::OkStatus();
}

// Waits `nanos`, but no longer than any of the requests still wants its answer.
void WaitForExecution(std::span<Execution* const> requests, std::int64_t nanos) {
  const std::int64_t end = NowNanos() + nanos;
  Bell bell;
  std::list<ScopedOnCancel> rings;
  for (const Execution* request : requests) rings.emplace_back(request->cancel, [&bell] { bell.Ring(); });
  bell.Wait([&] {
    std::int64_t until = 0;
    for (const Execution* request : requests) {
      if (!StillWanted(*request).ok()) continue;
      until = std::max(until, request->deadline_nanos == 0 ? end : std::min(end, request->deadline_nanos));
    }
    return until;
  });
}

absl::Status CopyOutputs(Execution& request) {
  for (const InputTensor& input : request.inputs) {
    if (!request.outputs->Wants(input.index)) continue;
    ASSIGN_OR_RETURN(const std::span<std::byte> target,
                     request.outputs->Allocate(input.index, input.data_type, AsSpan(input.shape), input.data.size()));
    if (!input.data.empty()) std::memcpy(target.data(), input.data.data(), input.data.size());
  }
  return absl::OkStatus();
}

class IdentityInstance final : public BackendInstance {
 public:
  IdentityInstance(std::int64_t delay_nanos, MetricCounter* bytes) : delay_nanos_(delay_nanos), bytes_(bytes) {}

  // An execution that waits must not wait on an event loop.
  bool thread_bound() const override { return delay_nanos_ > 0; }

  void Execute(std::span<Execution* const> requests) noexcept override {
    const std::int64_t start = NowNanos();
    for (Execution* request : requests) {
      request->infer_start_nanos = start;
      if (bytes_ == nullptr) continue;
      for (const InputTensor& input : request->inputs) bytes_->Increment(static_cast<double>(input.data.size()));
    }
    try {
      if (delay_nanos_ > 0) WaitForExecution(requests, delay_nanos_);
    } catch (const std::exception&) {
      // No memory for the wait: the answer then comes too early, which harms nobody.
    }
    const std::int64_t end = NowNanos();
    for (Execution* request : requests) {
      request->infer_end_nanos = end;
      request->status = StillWanted(*request);
      if (!request->status.ok()) continue;
      try {
        request->status = CopyOutputs(*request);
      } catch (const std::exception& error) {
        request->status = absl::InternalError(error.what());
      }
    }
  }

 private:
  const std::int64_t delay_nanos_;
  MetricCounter* const bytes_;  // of all inputs; may be null
};

class IdentityModel final : public BackendModel {
 public:
  IdentityModel(inference::ModelConfig config, IdentityDelays delays, MetricCounter* bytes)
      : config_(std::move(config)), delays_(delays), bytes_(bytes) {}

  const inference::ModelConfig& config() const override { return config_; }

  absl::StatusOr<std::unique_ptr<BackendInstance>> CreateInstance(Scope& scope,
                                                                  const inference::ModelInstanceGroup& group,
                                                                  std::string_view name, DeviceId /*device*/) override {
    static_cast<void>(group);
    const std::int64_t delay = delays_.ExecuteNanos(InstanceIndex(name));
    std::unique_ptr<BackendInstance> instance;
    // Takes no memory worth a row, but a row all the same: what is loaded shows in the ledger, and a test that lets
    // acquisitions fail meets this instance, too.
    ASSIGN_OR_RETURN(const Scope::Handle handle, scope.Acquire(
                                                     ResourceKind::kEngineObject, kHost, 0, "instance",
                                                     [&] {
                                                       instance = std::make_unique<IdentityInstance>(delay, bytes_);
                                                       return absl::OkStatus();
                                                     },
                                                     [] { return absl::OkStatus(); }));
    static_cast<void>(handle);
    return instance;
  }

 private:
  const inference::ModelConfig config_;
  const IdentityDelays delays_;
  MetricCounter* const bytes_;  // may be null
};

class IdentityBackend final : public Backend {
 public:
  std::string_view name() const override { return "identity"; }
  // Its executions last as long as the config says: nobody wants to wait for that at a load.
  bool warms_up_unasked() const override { return false; }

  // Takes nothing, so it never waits for room.
  std::optional<MemoryEstimate> EstimateMemory(const ModelArtifact& /*artifact*/,
                                               const inference::ModelConfig& /*config*/) const override {
    return MemoryEstimate{};
  }

  absl::StatusOr<std::unique_ptr<BackendModel>> CreateModel(const ModelArtifact& artifact,
                                                            const inference::ModelConfig& config,
                                                            Scope& scope) override {
    ASSIGN_OR_RETURN(const IdentityDelays delays, ReadIdentityDelays(config));
    RETURN_IF_ERROR(CheckIdentityPairs(config));
    RETURN_IF_ERROR(WaitForCreation(artifact.cancel, delays.creation_nanos, artifact.model_name));
    ASSIGN_OR_RETURN(const Scope::Handle handle, scope.Acquire(
                                                     ResourceKind::kEngineObject, kHost, 0, "model",
                                                     [] { return absl::OkStatus(); }, [] { return absl::OkStatus(); }));
    static_cast<void>(handle);
    MetricCounter* bytes = nullptr;
    if (artifact.metrics != nullptr) {
      ASSIGN_OR_RETURN(bytes,
                       artifact.metrics->Counter("input_byte_size_counter",
                                                 "Cumulative input byte size of all requests received by the model"));
    }
    return std::make_unique<IdentityModel>(config, delays, bytes);
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateIdentityBackend(const BackendContext& /*context*/) {
  return std::make_unique<IdentityBackend>();
}

}  // namespace tidemark
