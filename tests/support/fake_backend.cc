#include "tests/support/fake_backend.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "base/status.h"
#include "resource/engine_heap.h"

namespace tidemark {
namespace {

absl::Status Step(FakeScript& script, std::string_view step, std::string_view model) {
  return script.at_step ? script.at_step(step, model) : absl::OkStatus();
}

absl::Status TakeObject(FakeScript& script, Scope& scope, std::string_view site) {
  return scope
      .Acquire(
          ResourceKind::kEngineObject, kHost, 0, site,
          [&script] {
            ++script.live_objects;
            return absl::OkStatus();
          },
          [&script] {
            --script.live_objects;
            return absl::OkStatus();
          })
      .status();
}

absl::Status TakeThread(Scope& scope, std::string_view name) {
  auto stop = std::make_shared<absl::Notification>();  // last owner: the thread's body or the undo entry
  return scope
      .StartThread(
          name, [stop] { stop->WaitForNotification(); }, [stop] { stop->Notify(); }, "engine thread")
      .status();
}

class FakeInstance final : public BackendInstance {
 public:
  FakeInstance(FakeScript& script, EngineHeap& heap, std::string_view name)
      : script_(script), heap_(heap), name_(name) {
    ++script_.live_instances;
  }
  ~FakeInstance() override {
    EngineHeap::Free(scratch_);
    --script_.live_instances;
  }

  void Execute(std::span<Execution* const> requests) noexcept override {
    if (script_.on_batch) script_.on_batch(requests, name_);
    for (Execution* request : requests) request->status = Run(*request);
  }
  bool thread_bound() const override { return script_.thread_bound; }
  absl::Status Health() const override {
    return script_.healthy ? absl::OkStatus() : absl::InternalError("the fake engine is ill");
  }

 private:
  absl::Status Run(Execution& request) {
    if (scratch_ == nullptr) scratch_ = heap_.Allocate(128 << 10);
    if (scratch_ == nullptr)
      return absl::InternalError("fake engine: no scratch memory");  // not telling why, as engines do
    request.infer_start_nanos = NowNanos();
    if (script_.on_execute) RETURN_IF_ERROR(script_.on_execute(request, name_));
    request.infer_end_nanos = NowNanos();
    for (const InputTensor& input : request.inputs) {
      if (!request.outputs->Wants(input.index)) continue;
      ASSIGN_OR_RETURN(const auto out,
                       request.outputs->Allocate(input.index, input.data_type, AsSpan(input.shape), input.data.size()));
      std::memcpy(out.data(), input.data.data(), input.data.size());
    }
    return absl::OkStatus();
  }

  FakeScript& script_;
  EngineHeap& heap_;
  const std::string name_;
  void* scratch_ = nullptr;
};

class FakeModel final : public BackendModel {
 public:
  FakeModel(FakeScript& script, const ModelArtifact& artifact, inference::ModelConfig config)
      : script_(script), name_(artifact.model_name), config_(std::move(config)) {
    ++script_.live_models;
    ++script_.models_made;
  }
  ~FakeModel() override {
    EngineHeap::Free(block_);
    --script_.live_models;
  }

  absl::Status Open(const ModelArtifact& artifact, Scope& scope) {
    RETURN_IF_ERROR(Step(script_, "model", name_));
    RETURN_IF_ERROR(scope.AllocateHost(256 << 10, "weights").status());
    RETURN_IF_ERROR(scope.MapFile(artifact.version_directory / "model.fake", "model file").status());
    RETURN_IF_ERROR(scope.OpenLibrary("libz.so.1", "engine library").status());
    RETURN_IF_ERROR(TakeObject(script_, scope, "session"));
    RETURN_IF_ERROR(TakeThread(scope, "fake model"));
    ASSIGN_OR_RETURN(heap_, EngineHeap::Create(scope, 0));
    block_ = heap_->Allocate(96 << 10);
    if (block_ == nullptr) return heap_->last_error();
    return Step(script_, "model.end", name_);
  }

  const inference::ModelConfig& config() const override { return config_; }

  absl::StatusOr<std::unique_ptr<BackendInstance>> CreateInstance(Scope& scope,
                                                                  const inference::ModelInstanceGroup& /*group*/,
                                                                  std::string_view name, DeviceId /*device*/) override {
    RETURN_IF_ERROR(Step(script_, "instance", name_));
    RETURN_IF_ERROR(scope.AllocateHost(64 << 10, "instance memory").status());
    RETURN_IF_ERROR(TakeObject(script_, scope, "context"));
    RETURN_IF_ERROR(TakeThread(scope, "fake instance"));
    auto instance = std::make_unique<FakeInstance>(script_, *heap_, name);
    RETURN_IF_ERROR(Step(script_, "instance.end", name_));
    return instance;
  }

 private:
  FakeScript& script_;
  const std::string name_;
  const inference::ModelConfig config_;
  std::unique_ptr<EngineHeap> heap_;
  void* block_ = nullptr;
};

class FakeBackend final : public Backend {
 public:
  explicit FakeBackend(FakeScript& script) : script_(script) {}
  std::string_view name() const override { return "fake"; }
  bool warms_up_unasked() const override { return script_.warms_up_unasked; }
  absl::StatusOr<std::unique_ptr<BackendModel>> CreateModel(const ModelArtifact& artifact,
                                                            const inference::ModelConfig& config,
                                                            Scope& scope) override {
    auto model = std::make_unique<FakeModel>(script_, artifact, config);
    RETURN_IF_ERROR(model->Open(artifact, scope));
    return model;
  }

 private:
  FakeScript& script_;
};

}  // namespace

BackendSettings FakeSettings(FakeScript& script) {
  return {{"script", fmt::format("{}", reinterpret_cast<std::uintptr_t>(&script))}};
}

absl::StatusOr<std::unique_ptr<Backend>> MakeFakeBackend(const BackendContext& context) {
  auto* script = reinterpret_cast<FakeScript*>(std::stoull(context.settings.at("script")));
  return std::make_unique<FakeBackend>(*script);
}

}  // namespace tidemark
