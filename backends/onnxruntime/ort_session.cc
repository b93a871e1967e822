#include "backends/onnxruntime/ort_session.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "base/log.h"
#include "base/status.h"

namespace tidemark {
namespace {

constexpr const char* kFolderKey = "session.model_external_initializers_file_folder_path";

// Where the engine finds the weights that are not in the bytes it is given.
struct WeightsPlace {
  std::filesystem::path folder;
  std::string file;
};

// The engine refuses links that lead out of the folder, so the real place of the model is named where that does no
// harm: where no other file is named relative to it.
WeightsPlace PlaceOf(const OnnxFile& file, const OnnxFacts& facts) {
  std::filesystem::path path = file.path;
  if (facts.external_files.empty()) {
    std::error_code error;
    std::filesystem::path real = std::filesystem::canonical(path, error);
    if (!error) path = std::move(real);
  }
  return {path.parent_path(), path.filename().string()};
}

// Writes the file's bytes to a new file in a temporary directory of `scope`, which goes with the scope.
absl::StatusOr<WeightsPlace> CopyOf(const OnnxFile& file, Scope& scope) {
  ASSIGN_OR_RETURN(std::filesystem::path folder, scope.MakeTempDirectory("tidemark-", "private copy of the weights"));
  WeightsPlace place{std::move(folder), "weights.onnx"};
  std::ofstream out(place.folder / place.file, std::ios::binary);
  out.write(reinterpret_cast<const char*>(file.bytes.data()), static_cast<std::streamsize>(file.bytes.size()));
  out.close();
  if (!out) {
    return absl::ResourceExhaustedError(fmt::format("cannot write {} bytes to '{}': is the disk full?",
                                                    file.bytes.size(), (place.folder / place.file).string()));
  }
  return place;
}

std::uint64_t MappedBytes(const OnnxFile& file, const OnnxFacts& facts, bool inline_weights) {
  std::uint64_t bytes = 0;
  if (inline_weights) {
    for (const OnnxInlineWeights& weights : facts.inline_weights) bytes += weights.data_end - weights.data_begin;
  }
  for (const std::string& external : facts.external_files) {
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(file.path.parent_path() / external, error);
    if (!error) bytes += size;
  }
  return bytes;
}

absl::StatusOr<OnnxValue> ReadValue(const OrtRuntime& runtime, const ort::TypeInfo* info, std::string name) {
  const ort::Api& api = runtime.api();
  OnnxValue value;
  value.name = std::move(name);
  int kind = 0;
  RETURN_IF_ORT_ERROR(runtime, api.GetOnnxTypeFromTypeInfo(info, &kind));
  value.kind = static_cast<OnnxKind>(kind);
  const ort::TensorInfo* tensor = nullptr;
  RETURN_IF_ORT_ERROR(runtime, api.CastTypeInfoToTensorInfo(info, &tensor));
  if (tensor == nullptr) return value;
  RETURN_IF_ORT_ERROR(runtime, api.GetTensorElementType(tensor, &value.element_type));
  std::size_t rank = 0;
  RETURN_IF_ORT_ERROR(runtime, api.GetDimensionsCount(tensor, &rank));
  std::vector<std::int64_t> dims(rank);
  std::vector<const char*> symbols(rank);
  RETURN_IF_ORT_ERROR(runtime, api.GetDimensions(tensor, dims.data(), rank));
  RETURN_IF_ORT_ERROR(runtime, api.GetSymbolicDimensions(tensor, symbols.data(), rank));
  for (std::size_t i = 0; i < rank; ++i) {
    value.dims.push_back({dims[i], symbols[i] == nullptr ? "" : symbols[i]});
  }
  value.has_shape = true;
  return value;
}

using CountFunction = ort::Status* (*)(const ort::Session*, std::size_t*);
using NameFunction = ort::Status* (*)(const ort::Session*, std::size_t, ort::Allocator*, char**);
using TypeFunction = ort::Status* (*)(const ort::Session*, std::size_t, ort::TypeInfo**);

absl::StatusOr<std::vector<OnnxValue>> ReadValues(const OrtRuntime& runtime, const ort::Session* session,
                                                  CountFunction count_of, NameFunction name_of, TypeFunction type_of) {
  const ort::Api& api = runtime.api();
  ort::Allocator* allocator = nullptr;
  RETURN_IF_ORT_ERROR(runtime, api.GetAllocatorWithDefaultOptions(&allocator));
  std::size_t count = 0;
  RETURN_IF_ORT_ERROR(runtime, count_of(session, &count));
  std::vector<OnnxValue> values;
  for (std::size_t i = 0; i < count; ++i) {
    char* text = nullptr;
    RETURN_IF_ORT_ERROR(runtime, name_of(session, i, allocator, &text));
    std::string name = text;
    RETURN_IF_ORT_ERROR(runtime, api.AllocatorFree(allocator, text));
    ort::TypeInfo* raw = nullptr;
    RETURN_IF_ORT_ERROR(runtime, type_of(session, i, &raw));
    const OrtTypeInfoPtr info(raw, {&api});
    ASSIGN_OR_RETURN(OnnxValue value, ReadValue(runtime, info.get(), std::move(name)));
    values.push_back(std::move(value));
  }
  return values;
}

}  // namespace

// One thread of the engine: parked until the engine hands it a body. A thread handle of the engine points to one.
struct OrtSession::Worker {
  Scope* scope = nullptr;
  Scope::Handle handle = nullptr;
  absl::Mutex mutex;
  ort::ThreadBody body ABSL_GUARDED_BY(mutex) = nullptr;
  void* argument ABSL_GUARDED_BY(mutex) = nullptr;
  bool unwanted ABSL_GUARDED_BY(mutex) = false;

  void Run(EngineHeap* heap) {
    ort::ThreadBody work = nullptr;
    void* with = nullptr;
    {
      absl::MutexLock lock(&mutex);
      mutex.Await(absl::Condition(
          +[](Worker* self) ABSL_NO_THREAD_SAFETY_ANALYSIS { return self->body != nullptr || self->unwanted; }, this));
      work = body;
      with = argument;
    }
    const ScopedHeap use(heap);
    if (work != nullptr) work(with);
  }
  void Begin(ort::ThreadBody work, void* with) {
    absl::MutexLock lock(&mutex);
    body = work;
    argument = with;
  }
  // A thread at work is told to end by the engine.
  void Stop() {
    absl::MutexLock lock(&mutex);
    unwanted = true;
  }
};

absl::Status OrtSession::Threads::Park(int count) {
  for (int i = 0; i < count; ++i) {
    auto worker = std::make_unique<Worker>();
    worker->scope = scope;
    Worker* const fixed = worker.get();
    ASSIGN_OR_RETURN(worker->handle, scope->StartThread(
                                         "ort-worker", [fixed, use = heap] { fixed->Run(use); },
                                         [fixed] { fixed->Stop(); }, "engine thread"));
    absl::MutexLock lock(&mutex);
    parked.push_back(std::move(worker));
  }
  return absl::OkStatus();
}

void OrtSession::Threads::Dismiss() noexcept {
  std::vector<std::unique_ptr<Worker>> rest;
  {
    absl::MutexLock lock(&mutex);
    rest.swap(parked);
  }
  for (const auto& worker : rest) scope->Release(worker->handle);
}

void* OrtSession::Threads::Start(void* self, ort::ThreadBody body, void* argument) {
  auto* threads = static_cast<Threads*>(self);
  absl::MutexLock lock(&threads->mutex);
  if (threads->parked.empty()) {
    threads->error = absl::InternalError("the engine asked for more threads than the configuration says");
    return nullptr;
  }
  std::unique_ptr<Worker> worker = std::move(threads->parked.back());
  threads->parked.pop_back();
  worker->Begin(body, argument);
  return worker.release();
}

void OrtSession::Threads::Join(void* thread) {
  const std::unique_ptr<Worker> worker(static_cast<Worker*>(thread));
  worker->scope->Release(worker->handle);
}

absl::StatusOr<std::unique_ptr<OrtSession>> OrtSession::Create(OrtRuntime& runtime, Scope& scope, const OnnxFile& file,
                                                               const OnnxFacts& facts, const Options& options) {
  auto session = std::make_unique<OrtSession>(Private(), runtime, scope);
  RETURN_IF_ERROR(session->Open(file, facts, options));
  return session;
}

absl::Status OrtSession::Open(const OnnxFile& file, const OnnxFacts& facts, const Options& options) {
  ASSIGN_OR_RETURN(heap_, EngineHeap::Create(scope_, options.settings.keep_memory ? options.heap_cache_bytes : 0));
  threads_.scope = &scope_;
  threads_.heap = heap_.get();
  const ort::Api& api = runtime_.api();
  ort::SessionOptions* raw = nullptr;
  RETURN_IF_ORT_ERROR(runtime_, api.CreateSessionOptions(&raw));
  const OrtOptionsPtr native(raw, {&api});
  RETURN_IF_ERROR(Configure(native.get(), options));

  std::string slim;
  std::span<const std::byte> bytes = file.bytes;
  // Files named by the model are looked for beside what holds its own weights, so with such files there is no copy.
  const bool move_out = options.weights != WeightsIn::kEngine && !file.path.empty() && !facts.inline_weights.empty() &&
                        (options.weights == WeightsIn::kModelFile || facts.external_files.empty());
  Scope copy(scope_, "weights copy");  // its directory may go when the session has the file mapped
  if (move_out || !facts.external_files.empty()) {
    WeightsPlace place = PlaceOf(file, facts);
    if (move_out && options.weights == WeightsIn::kPrivateFile) {
      ASSIGN_OR_RETURN(place, CopyOf(file, copy));
    }
    RETURN_IF_ORT_ERROR(runtime_, api.AddSessionConfigEntry(native.get(), kFolderKey, place.folder.c_str()));
    if (move_out) {
      slim = MoveWeightsOut(file.bytes, facts, place.file);
      bytes = std::as_bytes(std::span(slim));
    }
  }
  return Make(native.get(), bytes, MappedBytes(file, facts, move_out), options);
}

absl::Status OrtSession::Configure(ort::SessionOptions* native, const Options& options) {
  const ort::Api& api = runtime_.api();
  const SessionSettings& settings = options.settings;
  RETURN_IF_ORT_ERROR(runtime_, api.SetSessionLogId(native, options.name.c_str()));
  RETURN_IF_ORT_ERROR(runtime_, api.SetIntraOpNumThreads(native, settings.intra_threads));
  RETURN_IF_ORT_ERROR(runtime_, api.SetInterOpNumThreads(native, settings.inter_threads));
  RETURN_IF_ORT_ERROR(runtime_, api.SetSessionExecutionMode(native, settings.parallel ? 1 : 0));
  RETURN_IF_ORT_ERROR(runtime_, api.SetSessionGraphOptimizationLevel(native, settings.graph_level));
  RETURN_IF_ORT_ERROR(runtime_, api.DisableCpuMemArena(native));
  RETURN_IF_ORT_ERROR(runtime_, settings.memory_pattern ? api.EnableMemPattern(native) : api.DisableMemPattern(native));
  std::vector<std::pair<std::string, std::string>> entries = {{"session.use_env_allocators", "1"},
                                                              {"session.intra_op.allow_spinning", "0"},
                                                              {"session.inter_op.allow_spinning", "0"}};
  for (const auto& [key, value] : settings.entries) {
    if (key == "session.use_env_allocators" || key == kFolderKey) {
      return absl::InvalidArgumentError(fmt::format(
          "model '{}': parameter '{}' cannot be set: the server keeps account of the engine's memory and files by it",
          options.name, key));
    }
    const auto ours =
        std::find_if(entries.begin(), entries.end(), [&name = key](const auto& entry) { return entry.first == name; });
    if (ours != entries.end()) {
      ours->second = value;
    } else {
      entries.emplace_back(key, value);
    }
  }
  for (const auto& [key, value] : entries) {
    RETURN_IF_ORT_ERROR(runtime_, api.AddSessionConfigEntry(native, key.c_str(), value.c_str()));
  }
  RETURN_IF_ORT_ERROR(runtime_, api.SessionOptionsSetCustomCreateThreadFn(native, &Threads::Start));
  RETURN_IF_ORT_ERROR(runtime_, api.SessionOptionsSetCustomThreadCreationOptions(native, &threads_));
  return runtime_.Take(api.SessionOptionsSetCustomJoinThreadFn(native, &Threads::Join));
}

absl::Status OrtSession::Make(ort::SessionOptions* native, std::span<const std::byte> bytes, std::uint64_t mapped_bytes,
                              const Options& options) {
  const ort::Api& api = runtime_.api();
  if (mapped_bytes > 0) {
    // The engine maps the files itself, as part of the session; this row stands for that.
    ASSIGN_OR_RETURN(weights_handle_, scope_.Acquire(
                                          ResourceKind::kFileMapping, kHost, mapped_bytes, "weights, by the engine",
                                          [] { return absl::OkStatus(); }, [] { return absl::OkStatus(); }));
  }
  const SessionSettings& settings = options.settings;
  RETURN_IF_ERROR(threads_.Park(settings.intra_threads - 1 + (settings.parallel ? settings.inter_threads - 1 : 0)));
  const ScopedOnCancel stop(options.cancel, [this, native, &api] {
    static_cast<void>(runtime_.Take(api.SessionOptionsSetLoadCancellationFlag(native, true)));
  });
  const ScopedHeap use(heap_.get());
  absl::StatusOr<Scope::Handle> handle = scope_.Acquire(
      ResourceKind::kEngineObject, kHost, 0, "session",
      [&] {
        return Explain(
            runtime_.Take(api.CreateSessionFromArray(runtime_.env(), bytes.data(), bytes.size(), native, &session_)));
      },
      [this] {
        runtime_.api().ReleaseSession(session_);
        return absl::OkStatus();
      });
  if (!handle.ok()) return handle.status();
  session_handle_ = *handle;
  threads_.Dismiss();
  heap_->Trim();
  // An engine that went on after a failed allocation has made a session that is not what was asked for.
  return Explain(absl::OkStatus());
}

absl::Status OrtSession::Explain(const absl::Status& status) {
  absl::Status cause = heap_->last_error();
  {
    absl::MutexLock lock(&threads_.mutex);
    if (cause.ok()) cause = threads_.error;
  }
  if (cause.ok()) return status;
  if (status.ok()) return cause;
  return absl::Status(cause.code(), fmt::format("{} ({})", MessageOf(status), MessageOf(cause)));
}

OrtSession::OrtSession(Private, OrtRuntime& runtime, Scope& scope) : runtime_(runtime), scope_(scope) {}

OrtSession::~OrtSession() {
  scope_.Release(session_handle_);
  threads_.Dismiss();
  scope_.Release(weights_handle_);
  heap_.reset();
}

absl::StatusOr<ModelIo> OrtSession::ReadIo() const {
  const ort::Api& api = runtime_.api();
  ModelIo io;
  ASSIGN_OR_RETURN(io.inputs, ReadValues(runtime_, session_, api.SessionGetInputCount, api.SessionGetInputName,
                                         api.SessionGetInputTypeInfo));
  ASSIGN_OR_RETURN(io.outputs, ReadValues(runtime_, session_, api.SessionGetOutputCount, api.SessionGetOutputName,
                                          api.SessionGetOutputTypeInfo));
  ASSIGN_OR_RETURN(io.overridable,
                   ReadValues(runtime_, session_, api.SessionGetOverridableInitializerCount,
                              api.SessionGetOverridableInitializerName, api.SessionGetOverridableInitializerTypeInfo));
  return io;
}

absl::Status CheckExternalFiles(const OnnxFacts& facts, const std::filesystem::path& model,
                                const std::filesystem::path& root) {
  namespace fs = std::filesystem;
  for (const std::string& name : facts.external_files) {
    const fs::path relative(name);
    const bool leads_out = relative.is_absolute() || name.empty() ||
                           std::any_of(relative.begin(), relative.end(), [](const fs::path& p) { return p == ".."; });
    std::error_code error;
    const fs::path file = model.parent_path() / relative;
    const fs::path real = leads_out ? fs::path() : fs::canonical(file, error);
    if (!leads_out && error) {
      return absl::NotFoundError(
          fmt::format("failed to stat file {}: '{}' keeps weights in it", file.string(), model.string()));
    }
    const fs::path real_root = fs::canonical(root, error);
    const bool inside =
        !leads_out &&
        std::mismatch(real_root.begin(), real_root.end(), real.begin(), real.end()).first == real_root.end();
    if (!inside) {
      return absl::InvalidArgumentError(
          fmt::format("'{}' keeps weights in '{}', which leads out of the model's directory '{}'", model.string(), name,
                      root.string()));
    }
  }
  return absl::OkStatus();
}

}  // namespace tidemark
