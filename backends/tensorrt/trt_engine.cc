#include "backends/tensorrt/trt_engine.h"

#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"

namespace tidemark {
namespace {

// Why the library made nothing: memory that was refused to it, else its own words.
absl::Status WhyNot(std::string_view what, TrtAllocator& allocator, const TrtErrors& errors, const LogCapture& log) {
  const absl::Status refusal = allocator.TakeRefusal();
  const std::string said = errors.Text(log.text().empty() ? "the library gave no reason" : log.text());
  if (!refusal.ok()) {
    return absl::Status(refusal.code(), fmt::format("{}: {} ({})", what, MessageOf(refusal), said));
  }
  if (errors.Has(nv::ErrorCode::kFailedAllocation)) {
    return absl::ResourceExhaustedError(fmt::format("{}: {}", what, said));
  }
  return absl::InternalError(fmt::format("{}: {}", what, said));
}

}  // namespace

TrtEngine::TrtEngine(Private /*only Load*/, const TrtLibrary& library, Gpus& gpus, Scope& scope, DeviceId device)
    : library_(library),
      gpus_(gpus),
      device_(device),
      scope_(scope, fmt::format("engine/{}", DeviceName(device))),
      allocator_(gpus, scope_, device) {}

absl::StatusOr<std::unique_ptr<TrtEngine>> TrtEngine::Load(const TrtLibrary& library, Gpus& gpus, Scope& scope,
                                                           DeviceId device, std::span<const std::byte> plan,
                                                           const Options& options) {
  auto engine = std::make_unique<TrtEngine>(Private(), library, gpus, scope, device);
  const std::int64_t start = NowNanos();
  RETURN_IF_ERROR(engine->MakeRuntime(options));
  const std::int64_t made = NowNanos();
  RETURN_IF_ERROR(engine->Deserialize(plan));
  LOG_VERBOSE(1, "timing of a plan: runtime {} us, deserialize {} us", (made - start) / 1000,
              (NowNanos() - made) / 1000);
  return engine;
}

TrtEngine::~TrtEngine() {
  scope_.Release(engine_handle_);
  scope_.Release(runtime_handle_);
}

absl::Status TrtEngine::MakeRuntime(const Options& options) {
  RETURN_IF_ERROR(gpus_.Use(device_));
  ASSIGN_OR_RETURN(runtime_handle_,
                   scope_.Acquire(
                       ResourceKind::kEngineObject, device_, 0, "TensorRT runtime",
                       [&]() -> absl::Status {
                         ASSIGN_OR_RETURN(runtime_, library_.CreateRuntime());
                         return absl::OkStatus();
                       },
                       [this]() -> absl::Status {
                         RETURN_IF_ERROR(gpus_.Use(device_));  // of a lost device nothing can be given back
                         nv::DeleteShell(runtime_.shell());
                         return absl::OkStatus();
                       }));
  runtime_.set_error_recorder(&errors_);
  runtime_.set_gpu_allocator(&allocator_);
  runtime_.set_host_code_allowed(options.host_code);
  if (!options.host_code) runtime_.set_tempfile_flags(0);
  return absl::OkStatus();
}

absl::Status TrtEngine::Deserialize(std::span<const std::byte> plan) {
  const auto create = [&]() -> absl::Status {
    const TrtAllocator::AllocateFor use(scope_, "weights");
    LogCapture log;
    errors_.Clear();
    static_cast<void>(allocator_.TakeRefusal());
    void* const shell = runtime_.deserialize(plan.data(), plan.size());
    if (reinterpret_cast<std::uintptr_t>(shell) < nv::kLowestPointer) {
      return WhyNot("unable to create TensorRT engine", allocator_, errors_, log);
    }
    engine_ = library_.EngineOf(shell);
    return absl::OkStatus();
  };
  ASSIGN_OR_RETURN(engine_handle_, scope_.Acquire(ResourceKind::kEngineObject, device_, 0, "TensorRT engine", create,
                                                  [this]() -> absl::Status {
                                                    RETURN_IF_ERROR(gpus_.Use(device_));
                                                    nv::DeleteShell(engine_.shell());
                                                    return absl::OkStatus();
                                                  }));
  return absl::OkStatus();
}

absl::StatusOr<TrtEngine::Context> TrtEngine::CreateContext(Scope& scope, TrtErrors& errors) {
  RETURN_IF_ERROR(gpus_.Use(device_));
  Context made;
  const auto slot = std::make_shared<void*>(nullptr);  // last owner: the release closure on the scope
  const auto create = [&]() -> absl::Status {
    const TrtAllocator::AllocateFor use(scope, "context memory");
    LogCapture log;
    errors_.Clear();
    static_cast<void>(allocator_.TakeRefusal());
    *slot = engine_.create_context(nv::Strategy::kUserManaged);
    if (reinterpret_cast<std::uintptr_t>(*slot) < nv::kLowestPointer) {
      return WhyNot("unable to create TensorRT context", allocator_, errors_, log);
    }
    return absl::OkStatus();
  };
  ASSIGN_OR_RETURN(made.handle, scope.Acquire(ResourceKind::kEngineObject, device_, 0, "execution context", create,
                                              [this, slot]() -> absl::Status {
                                                RETURN_IF_ERROR(gpus_.Use(device_));
                                                nv::DeleteShell(*slot);
                                                return absl::OkStatus();
                                              }));
  made.context = library_.ContextOf(*slot);
  if (made.context.engine() != engine_.shell()) {
    scope.Release(made.handle);
    return absl::InternalError(
        fmt::format("unable to create TensorRT context: {} does not answer as its version should", library_.Text()));
  }
  made.context.set_error_recorder(&errors);
  return made;
}

}  // namespace tidemark
