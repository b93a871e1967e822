#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "platform/platform.h"

namespace tidemark {

// How the n-th acquisition fails.
enum class Fault {
  kNone,
  kOnce,        // that one answers RESOURCE_EXHAUSTED
  kFromThenOn,  // that one and every later one
  kThrow,       // that one throws
  kCancel,      // that one calls the cancel callback and then succeeds
};

// What Fault::kThrow throws.
class InjectedException : public std::exception {
 public:
  const char* what() const noexcept override { return "injected failure (exception)"; }
};

// A Platform that counts acquisitions and makes one of them fail; everything else goes to the real one.
// Thread-safe.
class FaultPlatform final : public Platform {
 public:
  // Part of every injected error's text.
  static constexpr std::string_view kText = "injected failure";

  explicit FaultPlatform(Platform& real) : real_(real) {}

  // From now on acquisitions count from 0, and number `n` fails as said.
  void Arm(Fault fault, std::int64_t n, std::function<void()> cancel = nullptr);
  void Disarm() { Arm(Fault::kNone, 0); }
  // Since the last Arm.
  bool fired() const;
  std::int64_t acquisitions() const;

  // Releases of these kinds answer an error (after having released, so that the test itself leaks nothing).
  void FailReleases(bool memory, bool others = false);

  absl::StatusOr<std::byte*> MapMemory(std::size_t bytes) override;
  absl::Status UnmapMemory(std::byte* data, std::size_t bytes) override;
  absl::StatusOr<MappedFile> MapFile(const std::filesystem::path& path) override;
  absl::Status UnmapFile(MappedFile file) override;
  absl::StatusOr<SharedMapping> MapShared(const std::string& key, std::uint64_t offset, std::uint64_t bytes) override;
  absl::Status UnmapShared(const SharedMapping& mapping) override;
  absl::Status CheckShared(const SharedMapping& mapping) const override { return real_.CheckShared(mapping); }
  absl::StatusOr<std::filesystem::path> MakeTempDirectory(std::string_view prefix) override;
  absl::Status RemoveTree(const std::filesystem::path& path) override;
  void RemoveTempDirectories() noexcept override { real_.RemoveTempDirectories(); }
  absl::StatusOr<void*> OpenLibrary(const std::filesystem::path& path) override;
  absl::Status CloseLibrary(void* library) override;
  absl::StatusOr<void*> Symbol(void* library, const char* name) override { return real_.Symbol(library, name); }
  absl::StatusOr<Thread*> StartThread(std::string_view name, std::function<void()> body) override;
  absl::Status JoinThread(Thread* thread) override;
  absl::Status Foreign(std::string_view site, absl::FunctionRef<absl::Status()> create) override;
  void TrimHeap() override { real_.TrimHeap(); }

 private:
  absl::Status Meet(std::string_view what);
  absl::Status Released(absl::Status status, bool memory);

  Platform& real_;
  mutable absl::Mutex mutex_;
  Fault fault_ ABSL_GUARDED_BY(mutex_) = Fault::kNone;
  std::int64_t target_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  bool fired_ ABSL_GUARDED_BY(mutex_) = false;
  bool fail_memory_ ABSL_GUARDED_BY(mutex_) = false;
  bool fail_others_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> cancel_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidemark
