#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "inference/model.h"
#include "resource/gate.h"

namespace tidemark {

enum class VersionState : std::uint8_t { kUnknown, kReady, kUnavailable, kLoading, kUnloading };
std::string_view VersionStateName(VersionState state);  // "READY", …

// A published version with its gate. The model dies while this lives on in old snapshots: the closed gate keeps
// everybody out. Last owner: whichever snapshot or handle lets go last; nothing but memory of this object hangs on it.
struct PublishedVersion {
  explicit PublishedVersion(Model* served) : model(served) {}
  Gate gate;
  Model* const model;
};

// Holds a request inside a version: until it is dropped the version is not unloaded. Move-only.
class ModelHandle {
 public:
  ModelHandle() = default;
  ModelHandle(ModelHandle&& other) noexcept = default;
  ModelHandle& operator=(ModelHandle&& other) noexcept {
    if (this != &other) {
      Reset();
      version_ = std::move(other.version_);
    }
    return *this;
  }
  ~ModelHandle() { Reset(); }

  // Empty when the gate is closed.
  static ModelHandle Enter(std::shared_ptr<PublishedVersion> version) {
    ModelHandle handle;
    if (version != nullptr && version->gate.Enter()) handle.version_ = std::move(version);
    return handle;
  }

  // A second hold on the same version, even if it is being unloaded; empty when this is.
  ModelHandle Another() const {
    ModelHandle handle;
    if (version_ != nullptr) version_->gate.EnterAgain();
    handle.version_ = version_;
    return handle;
  }

  explicit operator bool() const { return version_ != nullptr; }
  Model* operator->() const { return version_->model; }
  Model& operator*() const { return *version_->model; }
  void Reset() {
    if (version_ != nullptr) std::exchange(version_, nullptr)->gate.Leave();
  }

 private:
  std::shared_ptr<PublishedVersion> version_;
};

// What is known of one version, published or not.
struct VersionEntry {
  std::int64_t version = 0;
  VersionState state = VersionState::kUnknown;
  std::string reason;                           // index form: "unloaded", "Internal: …"; empty when READY or LOADING
  std::shared_ptr<PublishedVersion> published;  // set exactly in state READY
};

// Why an instance of a READY version can serve no more (its engine or device failed); OK for all others, READY or not.
absl::Status HealthOf(const VersionEntry& entry);

// All versions of one model, by number. Immutable once in the registry.
struct RegistryModel {
  std::string name;
  std::string key;  // the name, or with namespacing "NAMESPACE/NAME"
  std::map<std::int64_t, VersionEntry> versions;
};

// Key (see RegistryModel) to versions, as one immutable picture.
using RegistrySnapshot = std::map<std::string, std::shared_ptr<const RegistryModel>, std::less<>>;

// The table that requests are looked up in. Readers never wait for a load; only the lifecycle writes.
class Registry {
 public:
  Registry();

  std::shared_ptr<const RegistrySnapshot> Snapshot() const {
    absl::ReaderMutexLock lock(&mutex_);
    return snapshot_;
  }

  // The version, entered. `version` -1 = the highest READY one. Triton's look-up errors (protocol digest 1.3):
  // NOT_FOUND for what is unknown or has no READY version, UNAVAILABLE for a version that is not READY; with namespacing
  // INVALID_ARGUMENT for a name that no namespace or more than one has.
  absl::StatusOr<ModelHandle> Find(std::string_view name, std::int64_t version) const;

  // Puts the next picture in place. Called by the lifecycle alone, one caller at a time.
  void Publish(std::shared_ptr<const RegistrySnapshot> next) noexcept {
    absl::MutexLock lock(&mutex_);
    snapshot_.swap(next);  // the old picture dies after the lock
  }

 private:
  // Held for one copy or swap of a pointer. (std::atomic<shared_ptr> is a spin lock in libstdc++ 12, and one that the
  // thread sanitizer rightly calls a race: load() unlocks it without release order.)
  mutable absl::Mutex mutex_;
  std::shared_ptr<const RegistrySnapshot> snapshot_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidemark
