#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tidemark {

// A read-only, private mapping of a whole file. `data` is null for an empty file.
struct MappedFile {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
};

// A piece of a POSIX shared-memory object, readable, writable and shared with whoever else has it. The client that made
// the object may cut it at any time: see Platform::CheckShared.
struct SharedMapping {
  std::byte* data = nullptr;  // the first byte that was asked for
  std::size_t bytes = 0;
  // Of the platform only:
  void* base = nullptr;    // whole pages around it
  std::size_t mapped = 0;  // from `base`
  std::uint64_t end = 0;   // behind the last byte, in the object
  int fd = -1;             // by which its size is asked
  int guard = -1;          // see platform/shared_memory.h
};

// THE DOOR: the one place where the product asks the operating system, the loader or an engine for anything that a load
// may take. Every call that takes something has its release beside it. Only `resource`, `audit` and `server` see this
// interface; everybody else takes through a `Scope`, which opens a ledger row first.
//
// Thread-safe. Releases never allocate from a limited source and never wait for a request. A test wraps a real Platform
// to fail, throw or cancel at the n-th call (see tests/support/fault_platform.h).
class Platform {
 public:
  virtual ~Platform() = default;

  // Anonymous, zero-filled, private memory in whole pages. `bytes` > 0. RESOURCE_EXHAUSTED when the kernel refuses.
  virtual absl::StatusOr<std::byte*> MapMemory(std::size_t bytes) = 0;
  virtual absl::Status UnmapMemory(std::byte* data, std::size_t bytes) = 0;

  // Maps a regular file read-only. The descriptor is closed before this returns. NOT_FOUND, PERMISSION_DENIED, …
  virtual absl::StatusOr<MappedFile> MapFile(const std::filesystem::path& path) = 0;
  virtual absl::Status UnmapFile(MappedFile file) = 0;

  // Maps `bytes` bytes at `offset` (any) of the shared-memory object `key`: a name in /dev/shm, with or without slashes in
  // front; nothing else can be reached. INVALID_ARGUMENT for a key that is no such name or names no plain object,
  // NOT_FOUND when it cannot be opened, OUT_OF_RANGE when the object does not have those bytes, RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<SharedMapping> MapShared(const std::string& key, std::uint64_t offset,
                                                  std::uint64_t bytes) = 0;
  virtual absl::Status UnmapShared(const SharedMapping& mapping) = 0;
  // FAILED_PRECONDITION once the object has become shorter than what is mapped, or a part of it could not be reached:
  // what was read since the last good check may be zeros, what was written may be lost. Touching such a mapping is
  // safe. Takes nothing.
  virtual absl::Status CheckShared(const SharedMapping& mapping) const = 0;

  // A new, empty directory (mode 0700) in the temporary folder, its name beginning with `prefix`, locked (flock) for as
  // long as it is ours; RemoveTree deletes it with all that is in it.
  virtual absl::StatusOr<std::filesystem::path> MakeTempDirectory(std::string_view prefix) = 0;
  virtual absl::Status RemoveTree(const std::filesystem::path& path) = 0;
  // Removes every directory that MakeTempDirectory made and RemoveTree did not remove: for a process that exits
  // without undoing the rest.
  virtual void RemoveTempDirectories() noexcept = 0;
  // Removes directories of that prefix that a process made which is no longer there (nobody holds their lock): what a
  // SIGKILL left. Returns how many.
  virtual int RemoveStaleTempDirectories(std::string_view /*prefix*/) { return 0; }

  // A shared library, symbols local to it. A plain file name is looked up by the loader's rules.
  virtual absl::StatusOr<void*> OpenLibrary(const std::filesystem::path& path) = 0;
  virtual absl::Status CloseLibrary(void* library) = 0;
  // NOT_FOUND when the library has no such symbol. Takes nothing.
  virtual absl::StatusOr<void*> Symbol(void* library, const char* name) = 0;

  // A thread that runs `body`; `name` (15 characters at most) is what `ps` shows. Exactly one JoinThread per start.
  class Thread;
  virtual absl::StatusOr<Thread*> StartThread(std::string_view name, std::function<void()> body) = 0;
  virtual absl::Status JoinThread(Thread* thread) = 0;

  // An acquisition that an engine makes for us (a session, a context): runs `create` and returns what it returned. It
  // goes through here so that whoever wraps the platform meets it like every other acquisition. Exceptions pass.
  virtual absl::Status Foreign(std::string_view site, absl::FunctionRef<absl::Status()> create) = 0;

  // From now on the calling thread gives way to others that want the processor: for loads beside requests. Threads that
  // it starts through StartThread do not; those that an engine starts by itself do.
  virtual void LowerThreadPriority() {}

  // Gives pages that the C library's allocator keeps for later back to the kernel. Takes nothing; may take
  // milliseconds; never called on a request thread.
  virtual void TrimHeap() = 0;
};

// Makes the C library's heap one that TrimHeap can empty: one arena, since the ends of the others are kept for ever (a few
// MiB for each load thread). Called first thing in main.
void UseOneHeapArena();

// From now on closing the library only counts: it stays mapped until the process ends. For libraries whose threads or
// exit handlers do not survive their own code (NVIDIA's). Does nothing when it cannot be done.
void KeepLibrary(void* library) noexcept;

// Raises the limit on open descriptors to the most that this process may have. Called when a server starts.
void RaiseDescriptorLimit();

// The real machine.
std::unique_ptr<Platform> CreateLinuxPlatform();

}  // namespace tidemark
