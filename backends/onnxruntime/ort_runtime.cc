#include "backends/onnxruntime/ort_runtime.h"

#include <cstdio>
#include <new>
#include <utility>

#include "base/log.h"
#include "base/status.h"

namespace tidemark {
namespace {

thread_local EngineHeap* current_heap = nullptr;

void WriteEngineLog(void* /*context*/, int severity, const char* category, const char* id, const char* where,
                    const char* message) {
  static_cast<void>(category);
  if (severity <= 1) {
    LOG_VERBOSE(1, "onnxruntime: {}: {} ({})", id, message, where);
  } else if (severity == 2) {
    LOG_WARNING("onnxruntime: {}: {} ({})", id, message, where);
  } else {
    LOG_ERROR("onnxruntime: {}: {} ({})", id, message, where);
  }
}

}  // namespace

// What the engine holds in its hands as an allocator; `base` comes first so that the two have one address.
struct OrtRuntime::HeapAllocator {
  ort::Allocator base;
  EngineHeap* fallback = nullptr;
  const ort::MemoryInfo* memory_info = nullptr;

  static HeapAllocator* Of(ort::Allocator* allocator) { return reinterpret_cast<HeapAllocator*>(allocator); }
  static const HeapAllocator* Of(const ort::Allocator* allocator) {
    return reinterpret_cast<const HeapAllocator*>(allocator);
  }

  // The engine's own allocator throws when there is nothing to be had, and its code counts on that.
  static void* Allocate(ort::Allocator* allocator, std::size_t bytes) {
    if (bytes == 0) return nullptr;
    EngineHeap* heap = current_heap != nullptr ? current_heap : Of(allocator)->fallback;
    void* block = heap->Allocate(bytes);
    if (block == nullptr) throw std::bad_alloc();
    return block;
  }
  static void Free(ort::Allocator* /*allocator*/, void* block) { EngineHeap::Free(block); }
  static const ort::MemoryInfo* Info(const ort::Allocator* allocator) { return Of(allocator)->memory_info; }
};

OrtRuntime::OrtRuntime(Private, Scope& resident) : resident_(resident) {}

ort::Allocator* OrtRuntime::allocator() const { return &allocator_->base; }

ScopedHeap::ScopedHeap(EngineHeap* heap) : previous_(std::exchange(current_heap, heap)) {}
ScopedHeap::~ScopedHeap() { current_heap = previous_; }

absl::Status OrtRuntime::Take(ort::Status* status, absl::StatusCode caller) const {
  if (status == nullptr) return absl::OkStatus();
  const int code = api_.GetErrorCode(status);
  std::string text = fmt::format("onnx runtime error {}: {}", code, api_.GetErrorMessage(status));
  api_.ReleaseStatus(status);
  if (code == ort::kLoadCancelled) return absl::CancelledError(text);
  if (code == ort::kInvalidArgument) return absl::Status(caller, text);
  return absl::InternalError(text);
}

absl::StatusOr<std::unique_ptr<OrtRuntime>> OrtRuntime::Open(Scope& resident, const std::filesystem::path& library) {
  auto runtime = std::make_unique<OrtRuntime>(Private(), resident);
  RETURN_IF_ERROR(runtime->OpenLibrary(library));
  RETURN_IF_ERROR(runtime->MakeEnvironment());
  return runtime;
}

absl::Status OrtRuntime::OpenLibrary(const std::filesystem::path& library) {
  std::error_code error;
  if (!std::filesystem::exists(library, error)) {
    return absl::NotFoundError(
        fmt::format("the onnxruntime engine is not installed: looked for its library at '{}'. Run tools/setup.sh to "
                    "get it, or name another place with --backend-config=onnxruntime,library=PATH",
                    library.string()));
  }
  ASSIGN_OR_RETURN(const Scope::Library opened, resident_.OpenLibrary(library, "engine library"));
  ASSIGN_OR_RETURN(void* const entry, resident_.Symbol(opened, "OrtGetApiBase"));
  const ort::ApiBase* base = reinterpret_cast<const ort::ApiBase* (*)()>(entry)();
  version_ = base->version();
  // Asking for more than a library offers makes it print; its version says beforehand.
  int major = 0;
  int minor = 0;
  const void* table = nullptr;
  if (std::sscanf(version_.c_str(), "%d.%d", &major, &minor) == 2 &&
      (major > 1 || minor >= static_cast<int>(ort::kApiVersion))) {
    table = base->get_api(ort::kApiVersion);
  }
  if (table == nullptr) {
    return absl::UnimplementedError(
        fmt::format("'{}' is ONNX Runtime {}, which does not offer version {} of its interface; needed is {} or newer "
                    "(tools/setup.sh gets one)",
                    library.string(), version_, ort::kApiVersion, ort::kOldestLibrary));
  }
  api_ = ort::Api::FromTable(table);
  return absl::OkStatus();
}

absl::Status OrtRuntime::MakeEnvironment() {
  ASSIGN_OR_RETURN(heap_, EngineHeap::Create(resident_, 0));
  ASSIGN_OR_RETURN(
      memory_info_handle_,
      resident_.Acquire(
          ResourceKind::kEngineObject, kHost, 0, "memory description",
          [&] { return Take(api_.CreateCpuMemoryInfo(ort::kDeviceAllocator, ort::kDefaultMemory, &memory_info_)); },
          [this] {
            api_.ReleaseMemoryInfo(memory_info_);
            return absl::OkStatus();
          }));
  allocator_ = std::make_unique<HeapAllocator>();
  allocator_->base.alloc = &HeapAllocator::Allocate;
  allocator_->base.reserve = &HeapAllocator::Allocate;
  allocator_->base.free = &HeapAllocator::Free;
  allocator_->base.info = &HeapAllocator::Info;
  allocator_->fallback = heap_.get();
  allocator_->memory_info = memory_info_;
  ASSIGN_OR_RETURN(env_handle_, resident_.Acquire(
                                    ResourceKind::kEngineObject, kHost, 0, "environment",
                                    [&] {
                                      return Take(api_.CreateEnvWithCustomLogger(&WriteEngineLog, nullptr,
                                                                                 ort::kLogWarning, "tidemark", &env_));
                                    },
                                    [this] {
                                      api_.ReleaseEnv(env_);
                                      return absl::OkStatus();
                                    }));
  return Take(api_.RegisterAllocator(env_, allocator()));
}

OrtRuntime::~OrtRuntime() {
  if (env_handle_ != nullptr) {
    // The environment may be shared with another runtime of this process; its allocator must not be.
    const absl::Status status = Take(api_.UnregisterAllocator(env_, memory_info_));
    if (!status.ok()) LOG_WARNING("onnxruntime: the allocator could not be taken back: {}", MessageOf(status));
    resident_.Release(env_handle_);
  }
  resident_.Release(memory_info_handle_);
  heap_.reset();
}

}  // namespace tidemark
