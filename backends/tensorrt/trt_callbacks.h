#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "backends/tensorrt/nvinfer_abi.h"
#include "resource/gpu.h"

// What TensorRT calls back: logger, error recorder, allocators. All of it may be called from any thread, throws nothing
// and takes no lock that is held while the library is called.
namespace tidemark {

// The logger for libraries of that major version, as createInferRuntime takes it. It has no state and is never
// destroyed: a library keeps its first logger for good.
void* TrtLogger(int major);

// While one of these lives, errors that the library logs on this thread are kept in it, too (those that no recorder
// gets: before there is one).
class LogCapture {
 public:
  LogCapture();
  ~LogCapture();
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;
  // What was logged, one after the other; "" when nothing was.
  const std::string& text() const { return text_; }
  void Add(std::string_view text) noexcept;

 private:
  LogCapture* const previous_;
  std::string text_;
};

// `text` with control characters written as \xNN: an old library prints the plan's version as raw bytes.
std::string Printable(std::string_view text);

// What the library reported, bounded. Outlives the objects it was set on.
class TrtErrors final : public nv::ErrorRecorder {
 public:
  std::int32_t getNbErrors() const noexcept override;
  nv::ErrorCode getErrorCode(std::int32_t index) const noexcept override;
  const char* getErrorDesc(std::int32_t index) const noexcept override;
  bool hasOverflowed() const noexcept override;
  void clear() noexcept override;
  bool reportError(nv::ErrorCode code, const char* text) noexcept override;
  std::int32_t incRefCount() noexcept override;
  std::int32_t decRefCount() noexcept override;

  // Forgets what was reported.
  void Clear() noexcept { clear(); }
  // All that was reported since, or `otherwise` when nothing was.
  std::string Text(std::string_view otherwise) const;
  bool Has(nv::ErrorCode code) const;

 private:
  static constexpr std::size_t kKept = 16;
  struct Error {
    nv::ErrorCode code;
    std::string text;
  };
  mutable absl::Mutex mutex_;
  std::deque<Error> errors_ ABSL_GUARDED_BY(mutex_);
  bool overflowed_ ABSL_GUARDED_BY(mutex_) = false;
  std::int32_t references_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Device memory that a library asks for, each block a row. A block belongs to the scope that the calling thread named
// with AllocateFor, else (the library's own threads) to the allocator's own. Outlives the runtime, engine and contexts
// made with it; dies before its scope.
class TrtAllocator final : public nv::GpuAllocator {
 public:
  TrtAllocator(Gpus& gpus, Scope& scope, DeviceId device) : gpus_(gpus), scope_(scope), device_(device) {}

  void* allocate(std::uint64_t bytes, std::uint64_t alignment, std::uint32_t flags) noexcept override;
  void* reallocate(void* block, std::uint64_t alignment, std::uint64_t bytes) noexcept override;
  bool deallocate(void* block) noexcept override;
  void* allocateAsync(std::uint64_t bytes, std::uint64_t alignment, std::uint32_t flags,
                      void* stream) noexcept override;
  bool deallocateAsync(void* block, void* stream) noexcept override;

  // While one of these lives, blocks that this thread's calls need are taken from `scope` under the name `site`.
  class AllocateFor {
   public:
    AllocateFor(Scope& scope, std::string_view site);
    ~AllocateFor();
    AllocateFor(const AllocateFor&) = delete;
    AllocateFor& operator=(const AllocateFor&) = delete;

   private:
    friend class TrtAllocator;
    AllocateFor* const previous_;
    Scope& scope_;
    const std::string_view site_;
  };

  // Why the last request since the last call was refused; OK when none was.
  absl::Status TakeRefusal();

 private:
  struct Block {
    Scope* scope = nullptr;
    Scope::Handle handle = nullptr;
  };

  Gpus& gpus_;
  Scope& scope_;
  const DeviceId device_;
  absl::Mutex mutex_;
  std::map<void*, Block> blocks_ ABSL_GUARDED_BY(mutex_);
  absl::Status refusal_ ABSL_GUARDED_BY(mutex_);
};

// Temporaries of one context's executions. All of them are used on the instance's one stream, so that a block that was
// given back serves the next request at once: after the first executions nothing is taken any more. One thread at a
// time, as its context.
class TrtTemporaries final : public nv::GpuAllocator {
 public:
  TrtTemporaries(Gpus& gpus, Scope& scope, DeviceId device) : gpus_(gpus), scope_(scope), device_(device) {}

  void* allocate(std::uint64_t bytes, std::uint64_t alignment, std::uint32_t flags) noexcept override;
  void* reallocate(void* block, std::uint64_t alignment, std::uint64_t bytes) noexcept override;
  bool deallocate(void* block) noexcept override;
  void* allocateAsync(std::uint64_t bytes, std::uint64_t alignment, std::uint32_t flags,
                      void* stream) noexcept override;
  bool deallocateAsync(void* block, void* stream) noexcept override;

  // A capture must not take memory: requests that no kept block serves are refused meanwhile.
  void set_capturing(bool capturing);
  absl::Status TakeRefusal();

 private:
  struct Block {
    GpuMemory memory;
    bool used = false;
  };

  Gpus& gpus_;
  Scope& scope_;
  const DeviceId device_;
  absl::Mutex mutex_;
  std::vector<Block> blocks_ ABSL_GUARDED_BY(mutex_);
  bool capturing_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status refusal_ ABSL_GUARDED_BY(mutex_);
};

// Memory of one output whose size only the execution knows: a block that grows when it must, and the shape that the
// last execution told. One thread at a time, as its context. Unset from the context, or the context deleted, before it
// dies.
class TrtOutputMemory final : public nv::OutputAllocator {
 public:
  TrtOutputMemory(Gpus& gpus, Scope& scope, DeviceId device) : gpus_(gpus), scope_(scope), device_(device) {}

  void* reallocateOutput(const char* name, void* current, std::uint64_t bytes,
                         std::uint64_t alignment) noexcept override;
  void* reallocateOutputAsync(const char* name, void* current, std::uint64_t bytes, std::uint64_t alignment,
                              void* stream) noexcept override;
  void notifyShape(const char* name, const nv::Dims& shape) noexcept override;

  // Room for `bytes`, taken beforehand.
  absl::Status Reserve(std::size_t bytes);
  cuda::Pointer address() const { return memory_.address; }
  const nv::Dims& shape() const { return shape_; }
  absl::Status TakeRefusal();

 private:
  Gpus& gpus_;
  Scope& scope_;
  const DeviceId device_;
  GpuMemory memory_;
  std::vector<Scope::Handle> outgrown_;  // freed when nothing runs any more: at the next Reserve
  nv::Dims shape_;
  absl::Status refusal_;
};

}  // namespace tidemark
