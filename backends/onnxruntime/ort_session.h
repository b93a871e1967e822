#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "backends/onnxruntime/model_io.h"
#include "backends/onnxruntime/onnx_probe.h"
#include "backends/onnxruntime/ort_runtime.h"
#include "backends/onnxruntime/session_settings.h"
#include "base/cancel.h"
#include "resource/engine_heap.h"
#include "resource/scope.h"

namespace tidemark {

// The bytes of a model and where they came from.
struct OnnxFile {
  std::span<const std::byte> bytes;
  std::filesystem::path path;  // empty for a model that lies in no file
};

// Where the engine finds large weights that lie inside the model's file.
enum class WeightsIn {
  kEngine,       // it parses and copies them
  kPrivateFile,  // it maps a copy of the file that nobody else can change, deleted once the session has it mapped
  kModelFile,    // it maps the model's file: nothing is copied, but who changes the file in place changes the model
};

// One session of the engine with its heap and its threads, all on one scope: rows from before the making until after
// the giving back. The destructor gives everything back, in the order session (which joins its threads), heap. The
// engine's Run may be called from several threads at once.
class OrtSession {
 private:
  struct Private {};  // only a member function can name it

 public:
  OrtSession(Private, OrtRuntime& runtime, Scope& scope);
  struct Options {
    std::string name;  // for the engine's log
    SessionSettings settings;
    WeightsIn weights = WeightsIn::kPrivateFile;
    std::size_t heap_cache_bytes = 0;
    CancelFlag* cancel = nullptr;  // ends Create; may be null
  };

  // CANCELLED, RESOURCE_EXHAUSTED, or INTERNAL "onnx runtime error <code>: <text>".
  static absl::StatusOr<std::unique_ptr<OrtSession>> Create(OrtRuntime& runtime, Scope& scope, const OnnxFile& file,
                                                            const OnnxFacts& facts, const Options& options);
  ~OrtSession();
  OrtSession(const OrtSession&) = delete;
  OrtSession& operator=(const OrtSession&) = delete;

  OrtRuntime& runtime() const { return runtime_; }
  ort::Session* get() const { return session_; }
  EngineHeap& heap() const { return *heap_; }

  // Inputs and outputs as the engine understood them, inferred output shapes included.
  absl::StatusOr<ModelIo> ReadIo() const;

 private:
  struct Worker;
  // The engine's threads, one row each. All are started before the engine is asked for a session and wait: the engine
  // (1.32) never comes back when it gets only some of the threads that it asks for. Lives at a fixed place.
  struct Threads {
    Scope* scope = nullptr;
    EngineHeap* heap = nullptr;
    absl::Mutex mutex;
    std::vector<std::unique_ptr<Worker>> parked ABSL_GUARDED_BY(mutex);
    absl::Status error ABSL_GUARDED_BY(mutex);

    absl::Status Park(int count);
    // Ends those that the engine did not want.
    void Dismiss() noexcept;
    // The engine's hooks.
    static void* Start(void* self, ort::ThreadBody body, void* argument);
    static void Join(void* thread);
  };

  absl::Status Open(const OnnxFile& file, const OnnxFacts& facts, const Options& options);
  absl::Status Configure(ort::SessionOptions* native, const Options& options);
  absl::Status Make(ort::SessionOptions* native, std::span<const std::byte> bytes, std::uint64_t mapped_bytes,
                    const Options& options);
  // What went wrong beneath the engine, which only says that something did.
  absl::Status Explain(const absl::Status& status);

  OrtRuntime& runtime_;
  Scope& scope_;
  std::unique_ptr<EngineHeap> heap_;
  Threads threads_;
  ort::Session* session_ = nullptr;
  Scope::Handle weights_handle_ = nullptr;
  Scope::Handle session_handle_ = nullptr;
};

// Does every external file lie beside the model or below? INVALID_ARGUMENT naming the file that does not, NOT_FOUND one
// that is not there. Symbolic links may lead anywhere within `root`.
absl::Status CheckExternalFiles(const OnnxFacts& facts, const std::filesystem::path& model,
                                const std::filesystem::path& root);

}  // namespace tidemark
