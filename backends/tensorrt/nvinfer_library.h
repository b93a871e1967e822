#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "backends/tensorrt/nvinfer_abi.h"
#include "backends/tensorrt/nvinfer_objects.h"
#include "backends/tensorrt/plan_header.h"
#include "resource/scope.h"

namespace tidemark {

// One opened TensorRT library: libnvinfer or libnvinfer_lean of version 10 or 11. It stays in the process until that
// ends, on resident rows. Thread-safe.
class TrtLibrary {
 private:
  struct Private {};  // only a member function can name it

 public:
  // NOT_FOUND when it cannot be opened or is no TensorRT library; UNIMPLEMENTED, naming its version and the oldest that is
  // known, for one that no table fits. The plug-in library beside it, if there is one, is registered.
  static absl::StatusOr<std::unique_ptr<TrtLibrary>> Open(Scope& resident, const std::filesystem::path& path);
  explicit TrtLibrary(Private) {}
  TrtLibrary(const TrtLibrary&) = delete;
  TrtLibrary& operator=(const TrtLibrary&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const TrtVersion& version() const { return version_; }
  bool lean() const { return lean_; }
  // "TensorRT 11.2.1.2 (lean) at 'libnvinfer_lean.so.11'".
  std::string Text() const;

  // A new runtime, to be deleted with nv::DeleteShell. INTERNAL "unable to create TensorRT runtime: …". The first one is
  // asked a few questions whose answers are known: a table that does not fit is found out before it is used.
  absl::StatusOr<nv::Runtime> CreateRuntime() const;
  nv::Engine EngineOf(void* shell) const { return {*abi_, version_.number(), shell}; }
  nv::Context ContextOf(void* shell) const { return {*abi_, version_.number(), shell}; }

 private:
  absl::Status Resolve(Scope& resident, const Scope::Library& library);
  // OK also where there are none.
  absl::Status RegisterPlugins(Scope& resident) const;
  absl::Status SelfCheck(const nv::Runtime& runtime) const;

  std::filesystem::path path_;
  TrtVersion version_;
  bool lean_ = false;
  const nv::Abi* abi_ = nullptr;
  nv::CreateRuntime* create_runtime_ = nullptr;
  mutable std::atomic<bool> checked_{false};
};

// The TensorRT libraries of this server, side by side, opened one by one as plans need them. Thread-safe.
class TrtLibraries {
 public:
  // `named`: files and folders that the settings name; if there are none, the usual places are searched: `folder` (beside
  // the other engines), the loader's own folders, and Python installations of NVIDIA's wheels. `resident` outlives it.
  TrtLibraries(Scope& resident, const std::vector<std::filesystem::path>& named, const std::filesystem::path& folder);

  // Libraries to try for a plan of that version, best first: those of exactly the version, the full one before the lean
  // one; without any, one of the same major version, which will say itself why it cannot (or, with `newer_will_do`, run a
  // version-compatible plan that carries its own runtime). NOT_FOUND naming what there is when there is nothing to try.
  absl::StatusOr<std::vector<const TrtLibrary*>> For(const TrtVersion& plan, bool newer_will_do);

  // Opens those that were named. NOT_FOUND or UNIMPLEMENTED with the first that cannot be used.
  absl::Status OpenNamed();

 private:
  struct Candidate {
    std::filesystem::path path;
    bool tried = false;
    std::unique_ptr<TrtLibrary> library;
    absl::Status error;
  };
  void AddFolder(const std::filesystem::path& folder) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddPythonFolders() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const TrtLibrary* Try(Candidate& candidate) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Known() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Scope& resident_;
  absl::Mutex mutex_;
  std::vector<std::unique_ptr<Candidate>> candidates_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidemark
