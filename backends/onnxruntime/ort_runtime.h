#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/onnxruntime/ort_api.h"
#include "resource/engine_heap.h"
#include "resource/scope.h"

namespace tidemark {

// Releases what the engine's table made; for unique_ptr.
template <typename T, void (*ort::Api::*Release)(T*)>
struct OrtDeleter {
  const ort::Api* api = nullptr;
  void operator()(T* object) const { (api->*Release)(object); }
};
using OrtValuePtr = std::unique_ptr<ort::Value, OrtDeleter<ort::Value, &ort::Api::ReleaseValue>>;
using OrtTensorInfoPtr =
    std::unique_ptr<ort::TensorInfo, OrtDeleter<ort::TensorInfo, &ort::Api::ReleaseTensorTypeAndShapeInfo>>;
using OrtTypeInfoPtr = std::unique_ptr<ort::TypeInfo, OrtDeleter<ort::TypeInfo, &ort::Api::ReleaseTypeInfo>>;
using OrtOptionsPtr =
    std::unique_ptr<ort::SessionOptions, OrtDeleter<ort::SessionOptions, &ort::Api::ReleaseSessionOptions>>;

// While one of these lives on a thread, the engine's memory on that thread comes from `heap`.
class ScopedHeap {
 public:
  explicit ScopedHeap(EngineHeap* heap);
  ~ScopedHeap();
  ScopedHeap(const ScopedHeap&) = delete;
  ScopedHeap& operator=(const ScopedHeap&) = delete;

 private:
  EngineHeap* const previous_;
};

// The engine's library and its one environment, under resident rows of the scope given to Open. Its allocator serves
// each thread from the heap that ScopedHeap named there, else from a resident heap; blocks find their heap by
// themselves when they are freed. Thread-safe. Outlives every session; dies before its scope.
class OrtRuntime {
 private:
  struct Private {};  // only a member function can name it

 public:
  OrtRuntime(Private, Scope& resident);
  // Tries `library`; errors as CreateOnnxRuntimeBackend says.
  static absl::StatusOr<std::unique_ptr<OrtRuntime>> Open(Scope& resident, const std::filesystem::path& library);
  ~OrtRuntime();
  OrtRuntime(const OrtRuntime&) = delete;
  OrtRuntime& operator=(const OrtRuntime&) = delete;

  const ort::Api& api() const { return api_; }
  ort::Env* env() const { return env_; }
  const ort::MemoryInfo* memory_info() const { return memory_info_; }
  ort::Allocator* allocator() const;
  const std::string& version() const { return version_; }
  Scope& resident() const { return resident_; }

  // Takes the engine's status and gives it back as ours: "onnx runtime error <code>: <text>". `caller` is the code of
  // what the engine calls an invalid argument; the rest is INTERNAL, or CANCELLED for a cancelled load.
  absl::Status Take(ort::Status* status, absl::StatusCode caller = absl::StatusCode::kInternal) const;

 private:
  struct HeapAllocator;

  absl::Status OpenLibrary(const std::filesystem::path& library);
  absl::Status MakeEnvironment();

  Scope& resident_;
  ort::Api api_;
  std::string version_;
  std::unique_ptr<EngineHeap> heap_;  // for memory that no load and no execution asked for
  std::unique_ptr<HeapAllocator> allocator_;
  ort::MemoryInfo* memory_info_ = nullptr;
  ort::Env* env_ = nullptr;
  Scope::Handle memory_info_handle_ = nullptr;
  Scope::Handle env_handle_ = nullptr;
};

// RETURN_IF_ERROR for a call of the engine's table.
#define RETURN_IF_ORT_ERROR(runtime, call) RETURN_IF_ERROR((runtime).Take(call))

}  // namespace tidemark
