#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/cancel.h"
#include "platform/platform.h"
#include "resource/ledger.h"

namespace tidemark {

// Owns what was taken through it and gives it back newest first when it dies. Holding a scope is holding the resources;
// there is no other owner and no "attached later".
//
// Every acquisition runs in this order: make room in the undo list; open the ledger row (pending; budget checked); ask
// the platform; mark the row held; put the undo entry in place. The first two may fail with nothing taken; after the
// platform's answer nothing can fail. An exception from the platform or an engine closes the row and goes on.
//
// Thread-safe (engines call from their own threads); the platform is called outside the lock. A release that fails
// strands its row. The ledger, the platform and a parent scope outlive the scope.
class Scope {
 public:
  // What an acquisition hands out besides its result, for an early Release.
  using Handle = void*;

  struct Options {
    const CancelFlag* cancel = nullptr;    // once set, every acquisition answers CANCELLED; good until EndLoad
    Reservations* reservations = nullptr;  // claimed before; used up first; good until EndLoad
    bool resident = false;                 // rows live as long as the process, by declaration
  };

  Scope(Ledger& ledger, Platform& platform, std::string owner) : Scope(ledger, platform, std::move(owner), Options()) {}
  Scope(Ledger& ledger, Platform& platform, std::string owner, Options options);
  // A child: owner path "<parent>/<name>", the options of the outermost scope. It must die before its parent.
  Scope(Scope& parent, std::string_view name);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  const std::string& owner() const { return owner_; }
  Ledger& ledger() const { return ledger_; }
  // True once the load that this scope belongs to was cancelled.
  bool cancelled() const;
  // True from the making of a load's scope (one that was given a flag or a reservation) until EndLoad.
  bool loading() const {
    return root_->cancel_.load(std::memory_order_relaxed) != nullptr ||
           root_->reservations_.load(std::memory_order_relaxed) != nullptr;
  }
  // The load has ended well: cancelling it no longer stops acquisitions, its reservation is no longer drawn on; when this
  // returns no acquisition looks at either of them any more. Called on the outermost scope, for it and all below it.
  void EndLoad() noexcept;

  // Bytes of memory kinds that the outermost scope and all below it hold, and held at most, on each device.
  std::map<DeviceId, MemoryFigures> MemoryUse() const { return ledger_.FiguresOf(*root_->mark_); }

  // Why the newest of the acquisitions that failed under the outermost scope since the last call did so; OK when none
  // did. For a load whose engine reports a refused allocation in words of its own, or not at all.
  absl::Status TakeRefusal();

  struct Memory {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    Handle handle = nullptr;
  };
  // Zero-filled whole pages. Rows of kind host_memory.
  absl::StatusOr<Memory> AllocateHost(std::size_t bytes, std::string_view site);

  struct File {
    std::span<const std::byte> data;
    Handle handle = nullptr;
  };
  absl::StatusOr<File> MapFile(const std::filesystem::path& path, std::string_view site);

  // A piece of a client's shared-memory object; see Platform::MapShared. Rows of kind file_mapping: the memory is the
  // client's.
  struct Shared {
    SharedMapping mapping;
    Handle handle = nullptr;
  };
  absl::StatusOr<Shared> MapShared(const std::string& key, std::uint64_t offset, std::uint64_t bytes,
                                   std::string_view site);
  absl::Status CheckShared(const Shared& shared) const { return platform_.CheckShared(shared.mapping); }

  absl::StatusOr<std::filesystem::path> MakeTempDirectory(std::string_view prefix, std::string_view site);

  // A library and its symbols. The symbol addresses are good for as long as the scope.
  struct Library {
    void* library = nullptr;
    Handle handle = nullptr;
  };
  absl::StatusOr<Library> OpenLibrary(const std::filesystem::path& path, std::string_view site);
  absl::StatusOr<void*> Symbol(const Library& library, const char* name) const;

  // A thread that runs `body` until `stop` was called; giving it back is stop() and join. `stop` must not fail, must
  // not wait and is called exactly once.
  absl::StatusOr<Handle> StartThread(std::string_view name, std::function<void()> body, std::function<void()> stop,
                                     std::string_view site);

  // Something that an engine makes (session, environment, memory of its own): `create` makes it, `release` undoes it.
  // `bytes` if known. When `create` fails or throws nothing was taken and `release` is not called.
  absl::StatusOr<Handle> Acquire(ResourceKind kind, DeviceId device, std::uint64_t bytes, std::string_view site,
                                 absl::FunctionRef<absl::Status()> create, std::function<absl::Status()> release);

  // Gives one thing back early; the handle is then dead.
  void Release(Handle handle);

  // Memory of AllocateHost goes to another owner, who unmaps it: the row closes, the handle is then dead.
  void Disown(const Memory& memory) noexcept;
  // `other`, as many bytes of the same platform, takes the place of memory.data, which goes to another owner as above.
  // The row stays.
  void Exchange(Memory& memory, std::byte* other) noexcept;

  // Changes the bytes of a held row.
  void Resize(Handle handle, std::uint64_t bytes) noexcept;

  // Gives everything back now, newest first. The destructor does the same.
  void ReleaseAll() noexcept;

 private:
  struct Entry {
    RowId row = 0;
    std::function<absl::Status()> release;
    std::list<Entry>::iterator self;
    std::shared_ptr<std::byte*> memory;  // of AllocateHost: where it lies; last owner: this or `release`
  };

  absl::StatusOr<RowId> OpenRow(ResourceKind kind, DeviceId device, std::uint64_t bytes, std::string_view site);
  void NoteRefusal(const absl::Status& status);
  absl::StatusOr<Handle> TryTake(ResourceKind kind, DeviceId device, std::uint64_t bytes, std::string_view site,
                                 absl::FunctionRef<absl::StatusOr<std::function<absl::Status()>>()> take);
  absl::StatusOr<Handle> Take(ResourceKind kind, DeviceId device, std::uint64_t bytes, std::string_view site,
                              absl::FunctionRef<absl::StatusOr<std::function<absl::Status()>>()> take);
  void Undo(std::list<Entry>& entry) noexcept;

  Ledger& ledger_;
  Platform& platform_;
  Scope* const parent_;
  Scope* const root_;
  const std::string owner_;
  const bool resident_;
  // These five are of the outermost scope only. Both pointers are read under load_mutex_ unless they are null.
  const std::shared_ptr<MemoryMark> mark_;  // last owner: this scope or the last of its rows (a stranded one)
  mutable absl::Mutex load_mutex_;
  std::atomic<const CancelFlag*> cancel_;
  std::atomic<Reservations*> reservations_;
  absl::Status refusal_ ABSL_GUARDED_BY(load_mutex_);
  std::atomic<int> children_{0};
  absl::Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidemark
