#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/tensorrt/nvinfer_library.h"
#include "backends/tensorrt/trt_callbacks.h"
#include "resource/gpu.h"
#include "resource/scope.h"

namespace tidemark {

// One deserialised plan on one device, with its runtime and the allocator that all its memory comes from: rows
// "TensorRT runtime", "TensorRT engine", "weights" below <model>/<version>/engine/gpu:N. Instances make their contexts
// from it, from any thread, and delete them before it dies. Gives everything back in the legal order: engine, runtime.
class TrtEngine {
 private:
  struct Private {};  // only a member function can name it

 public:
  struct Options {
    bool host_code = false;  // the plan may bring a runtime of its own along, which is code that runs here
  };

  // The plan may be unmapped afterwards. INTERNAL "unable to create TensorRT engine: <the library's reason>", or
  // RESOURCE_EXHAUSTED when the memory was refused.
  static absl::StatusOr<std::unique_ptr<TrtEngine>> Load(const TrtLibrary& library, Gpus& gpus, Scope& scope,
                                                         DeviceId device, std::span<const std::byte> plan,
                                                         const Options& options);
  TrtEngine(Private, const TrtLibrary& library, Gpus& gpus, Scope& scope, DeviceId device);
  ~TrtEngine();
  TrtEngine(const TrtEngine&) = delete;
  TrtEngine& operator=(const TrtEngine&) = delete;

  const TrtLibrary& library() const { return library_; }
  Gpus& gpus() const { return gpus_; }
  DeviceId device() const { return device_; }
  const nv::Engine& engine() const { return engine_; }

  // A context whose activation memory the caller supplies, on the caller's scope (which dies first): rows "execution
  // context" and "context memory". `errors` outlives it. `name` goes into the error: "unable to create TensorRT context".
  struct Context {
    nv::Context context;
    Scope::Handle handle = nullptr;
  };
  absl::StatusOr<Context> CreateContext(Scope& scope, TrtErrors& errors);

 private:
  absl::Status MakeRuntime(const Options& options);
  absl::Status Deserialize(std::span<const std::byte> plan);

  const TrtLibrary& library_;
  Gpus& gpus_;
  const DeviceId device_;
  Scope scope_;
  TrtErrors errors_;
  TrtAllocator allocator_;
  nv::Runtime runtime_;
  nv::Engine engine_;
  Scope::Handle runtime_handle_ = nullptr;
  Scope::Handle engine_handle_ = nullptr;
};

}  // namespace tidemark
