// `tidemark serve` with the backends that only tests have: repeat and square (decoupled_backends.h),
// accumulate (accumulate_backend.h), iterate (iterative_backend.h), faulty (faulty_backend.h). Takes the options of `tidemark serve`. Lies beside the tidemark program; tests/support/README.md says how tests use it.

#include "backends/onnxruntime/onnxruntime_backend.h"
#include "cli/serve_command.h"
#include "platform/platform.h"
#include "tests/support/accumulate_backend.h"
#include "tests/support/decoupled_backends.h"
#include "tests/support/faulty_backend.h"
#include "tests/support/iterative_backend.h"

int main(int argc, char** argv) {
  tidemark::UseOneHeapArena();
  tidemark::DisableOnnxRuntimeTelemetry();
  const tidemark::NamedBackendFactory backends[] = {{"repeat", &tidemark::CreateRepeatBackend},
                                                    {"square", &tidemark::CreateSquareBackend},
                                                    {"accumulate", &tidemark::CreateAccumulateBackend},
                                                    {"iterate", &tidemark::CreateIterativeBackend},
                                                    {"faulty", &tidemark::CreateFaultyBackend}};
  return tidemark::ServeMain(std::span<char* const>(argv, static_cast<std::size_t>(argc)).subspan(1), backends);
}
