#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backend/backend.h"

namespace tidemark {

// The second CPU engine, for `backend: "openvino"` only: IR (model.xml with model.bin) and ONNX models on the CPU.
//
// Opens the adapter module and with it OpenVINO, and loads, runs and drops a built-in model, so that what the engine
// keeps for as long as the process lives is taken under the resident scope. UNAVAILABLE, naming where it was looked for
// and how to get it, when the engine is not there.
//
// Parameters of a model's configuration (those of the same name given by --backend-config=openvino,<key>=<value> are
// the defaults for all models, allow_narrow_integers excepted):
//   INFERENCE_PRECISION_HINT  f32 (default), f16, bf16, or dynamic for the engine's choice; HINT_BF16 / ENFORCE_BF16
//                             = YES is Triton's way to say bf16
//   INFERENCE_NUM_THREADS     threads of one inference, default 1; also CPU_THREADS_NUM
//   NUM_STREAMS               inferences that run at the same time, default 1; also CPU_THROUGHPUT_STREAMS
//   allow_narrow_integers     true: serve INT64, UINT64 and FP64 outputs although the engine calculates with 32 bits
absl::StatusOr<std::unique_ptr<Backend>> CreateOpenVinoBackend(const BackendContext& context);

}  // namespace tidemark
