#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backend/backend.h"

namespace tidemark {

// Keeps the engine from starting its telemetry (a thread, a database file in the user's cache folder, three
// descriptors) when its environment is made. Changes the process' environment, so main calls it before any thread
// starts; calling it again does nothing new.
void DisableOnnxRuntimeTelemetry();

// The backend that runs ONNX models with ONNX Runtime on the CPU. Opens the engine's library, makes its environment
// and loads and drops a built-in model, all under resident rows, so that what the engine keeps for good is there before
// the first model is.
//
// Settings (--backend-config=onnxruntime,KEY=VALUE):
//   library                  path of the engine's library; default ENGINE_DIRECTORY/onnxruntime/libonnxruntime.so
//   default-max-batch-size   what auto-completion gives a model that can batch; default 4
//   map-weights              how large weights that lie in model.onnx reach the engine: `private` (default) maps a copy
//                            in the temporary folder that nobody can change, `in-place` maps model.onnx itself, `no`
//                            lets the engine copy them into its memory
//   heap-cache-bytes         how much freed engine memory each model keeps for its next execution; default 256 MiB
//
// NOT_FOUND when the library is not there, UNIMPLEMENTED when it is too old, both naming path and remedy.
absl::StatusOr<std::unique_ptr<Backend>> CreateOnnxRuntimeBackend(const BackendContext& context);

}  // namespace tidemark
