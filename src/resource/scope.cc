#include "resource/scope.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "base/log.h"
#include "base/status.h"

namespace tidemark {

Scope::Scope(Ledger& ledger, Platform& platform, std::string owner, Options options)
    : ledger_(ledger),
      platform_(platform),
      parent_(nullptr),
      root_(this),
      owner_(std::move(owner)),
      resident_(options.resident),
      mark_(std::make_shared<MemoryMark>()),
      cancel_(options.cancel),
      reservations_(options.reservations) {}

Scope::Scope(Scope& parent, std::string_view name)
    : ledger_(parent.ledger_),
      platform_(parent.platform_),
      parent_(&parent),
      root_(parent.root_),
      owner_(fmt::format("{}/{}", parent.owner_, name)),
      resident_(parent.resident_),
      cancel_(nullptr),
      reservations_(nullptr) {
  parent.children_.fetch_add(1, std::memory_order_relaxed);
}

Scope::~Scope() {
  ReleaseAll();
  if (const int children = children_.load(); children != 0) {
    LOG_ERROR("scope '{}' died before {} of its children", owner_, children);
  }
  if (parent_ != nullptr) parent_->children_.fetch_sub(1, std::memory_order_relaxed);
}

bool Scope::cancelled() const {
  if (root_->cancel_.load(std::memory_order_acquire) == nullptr) return false;
  absl::ReaderMutexLock lock(&root_->load_mutex_);  // EndLoad waits for us, so the flag lives while we look at it
  const CancelFlag* cancel = root_->cancel_.load(std::memory_order_acquire);
  return cancel != nullptr && cancel->cancelled();
}

void Scope::EndLoad() noexcept {
  absl::MutexLock lock(&load_mutex_);
  cancel_.store(nullptr, std::memory_order_release);
  reservations_.store(nullptr, std::memory_order_release);
}

absl::Status Scope::TakeRefusal() {
  absl::MutexLock lock(&root_->load_mutex_);
  return std::exchange(root_->refusal_, absl::OkStatus());
}

void Scope::NoteRefusal(const absl::Status& status) {
  absl::MutexLock lock(&root_->load_mutex_);
  root_->refusal_ = status;
}

absl::StatusOr<RowId> Scope::OpenRow(ResourceKind kind, DeviceId device, std::uint64_t bytes, std::string_view site) {
  const auto open_with = [&](Reservations* reservations) {
    return ledger_.Open(kind, device, bytes, owner_, site, resident_, RowClaim{reservations, root_->mark_});
  };
  if (root_->reservations_.load(std::memory_order_acquire) == nullptr) return open_with(nullptr);
  absl::ReaderMutexLock lock(&root_->load_mutex_);
  return open_with(root_->reservations_.load(std::memory_order_acquire));
}

absl::StatusOr<Scope::Handle> Scope::TryTake(ResourceKind kind, DeviceId device, std::uint64_t bytes,
                                             std::string_view site,
                                             absl::FunctionRef<absl::StatusOr<std::function<absl::Status()>>()> take) {
  if (cancelled()) {
    return absl::CancelledError(fmt::format("the load was cancelled before {} of '{}' was taken", site, owner_));
  }
  std::list<Entry> room(1);
  Entry& entry = room.front();
  entry.self = room.begin();
  ASSIGN_OR_RETURN(entry.row, OpenRow(kind, device, bytes, site));
  absl::Cleanup close_row = [this, &entry] { ledger_.Close(entry.row); };
  ASSIGN_OR_RETURN(entry.release, take());
  std::move(close_row).Cancel();
  ledger_.MarkHeld(entry.row);
  absl::MutexLock lock(&mutex_);
  entries_.splice(entries_.end(), room);
  return static_cast<Handle>(&entry);
}

absl::StatusOr<Scope::Handle> Scope::Take(ResourceKind kind, DeviceId device, std::uint64_t bytes,
                                          std::string_view site,
                                          absl::FunctionRef<absl::StatusOr<std::function<absl::Status()>>()> take) {
  try {
    absl::StatusOr<Handle> taken = TryTake(kind, device, bytes, site, take);
    if (!taken.ok()) NoteRefusal(taken.status());
    return taken;
  } catch (const std::exception& error) {
    NoteRefusal(
        absl::InternalError(fmt::format("exception while {} of '{}' was taken: {}", site, owner_, error.what())));
    throw;
  }
}

absl::StatusOr<Scope::Memory> Scope::AllocateHost(std::size_t bytes, std::string_view site) {
  constexpr std::size_t kPage = 4096;
  Memory memory;
  if (bytes > SIZE_MAX - kPage) {
    return absl::ResourceExhaustedError(
        fmt::format("{} of '{}' needs {} bytes: more than there can be", site, owner_, bytes));
  }
  memory.bytes = (std::max<std::size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
  const auto slot = std::make_shared<std::byte*>(nullptr);
  std::function<absl::Status()> undo = [this, slot, size = memory.bytes] { return platform_.UnmapMemory(*slot, size); };
  ASSIGN_OR_RETURN(memory.handle, Take(ResourceKind::kHostMemory, kHost, memory.bytes, site,
                                       [&]() -> absl::StatusOr<std::function<absl::Status()>> {
                                         ASSIGN_OR_RETURN(*slot, platform_.MapMemory(memory.bytes));
                                         return std::move(undo);
                                       }));
  memory.data = *slot;
  static_cast<Entry*>(memory.handle)->memory = slot;
  return memory;
}

absl::StatusOr<Scope::File> Scope::MapFile(const std::filesystem::path& path, std::string_view site) {
  File file;
  const auto slot = std::make_shared<MappedFile>();
  std::function<absl::Status()> undo = [this, slot] { return platform_.UnmapFile(*slot); };
  ASSIGN_OR_RETURN(file.handle, Take(ResourceKind::kFileMapping, kHost, 0, site,
                                     [&]() -> absl::StatusOr<std::function<absl::Status()>> {
                                       ASSIGN_OR_RETURN(*slot, platform_.MapFile(path));
                                       return std::move(undo);
                                     }));
  Resize(file.handle, slot->bytes);
  file.data = {slot->data, slot->bytes};
  return file;
}

absl::StatusOr<Scope::Shared> Scope::MapShared(const std::string& key, std::uint64_t offset, std::uint64_t bytes,
                                               std::string_view site) {
  Shared shared;
  const auto slot = std::make_shared<SharedMapping>();
  std::function<absl::Status()> undo = [this, slot] { return platform_.UnmapShared(*slot); };
  ASSIGN_OR_RETURN(shared.handle, Take(ResourceKind::kFileMapping, kHost, bytes, site,
                                       [&]() -> absl::StatusOr<std::function<absl::Status()>> {
                                         ASSIGN_OR_RETURN(*slot, platform_.MapShared(key, offset, bytes));
                                         return std::move(undo);
                                       }));
  shared.mapping = *slot;
  return shared;
}

absl::StatusOr<std::filesystem::path> Scope::MakeTempDirectory(std::string_view prefix, std::string_view site) {
  const auto slot = std::make_shared<std::filesystem::path>();
  std::function<absl::Status()> undo = [this, slot] { return platform_.RemoveTree(*slot); };
  ASSIGN_OR_RETURN(const Handle handle, Take(ResourceKind::kTempDirectory, kHost, 0, site,
                                             [&]() -> absl::StatusOr<std::function<absl::Status()>> {
                                               ASSIGN_OR_RETURN(*slot, platform_.MakeTempDirectory(prefix));
                                               return std::move(undo);
                                             }));
  static_cast<void>(handle);
  return *slot;
}

absl::StatusOr<Scope::Library> Scope::OpenLibrary(const std::filesystem::path& path, std::string_view site) {
  Library library;
  const auto slot = std::make_shared<void*>(nullptr);
  std::function<absl::Status()> undo = [this, slot] { return platform_.CloseLibrary(*slot); };
  ASSIGN_OR_RETURN(library.handle,
                   Take(ResourceKind::kLibrary, kHost, 0, site, [&]() -> absl::StatusOr<std::function<absl::Status()>> {
                     ASSIGN_OR_RETURN(*slot, platform_.OpenLibrary(path));
                     return std::move(undo);
                   }));
  library.library = *slot;
  return library;
}

absl::StatusOr<void*> Scope::Symbol(const Library& library, const char* name) const {
  return platform_.Symbol(library.library, name);
}

absl::StatusOr<Scope::Handle> Scope::StartThread(std::string_view name, std::function<void()> body,
                                                 std::function<void()> stop, std::string_view site) {
  const auto slot = std::make_shared<Platform::Thread*>(nullptr);
  std::function<absl::Status()> undo = [this, slot, halt = std::move(stop)] {
    halt();
    return platform_.JoinThread(*slot);
  };
  return Take(ResourceKind::kThread, kHost, 0, site, [&]() -> absl::StatusOr<std::function<absl::Status()>> {
    ASSIGN_OR_RETURN(*slot, platform_.StartThread(name, std::move(body)));
    return std::move(undo);
  });
}

absl::StatusOr<Scope::Handle> Scope::Acquire(ResourceKind kind, DeviceId device, std::uint64_t bytes,
                                             std::string_view site, absl::FunctionRef<absl::Status()> create,
                                             std::function<absl::Status()> release) {
  return Take(kind, device, bytes, site, [&]() -> absl::StatusOr<std::function<absl::Status()>> {
    RETURN_IF_ERROR(platform_.Foreign(site, create));
    return std::move(release);
  });
}

void Scope::Undo(std::list<Entry>& entry) noexcept {
  absl::Status status;
  try {
    status = entry.front().release();
  } catch (const std::exception& error) {
    status = absl::InternalError(fmt::format("exception: {}", error.what()));
  } catch (...) {
    status = absl::InternalError("unknown exception");
  }
  if (status.ok()) {
    ledger_.Close(entry.front().row);
  } else {
    ledger_.Strand(entry.front().row, MessageOf(status));
  }
}

void Scope::Release(Handle handle) {
  if (handle == nullptr) return;
  std::list<Entry> taken;
  {
    absl::MutexLock lock(&mutex_);
    taken.splice(taken.begin(), entries_, static_cast<Entry*>(handle)->self);
  }
  Undo(taken);
}

void Scope::Disown(const Memory& memory) noexcept {
  std::list<Entry> taken;
  {
    absl::MutexLock lock(&mutex_);
    taken.splice(taken.begin(), entries_, static_cast<Entry*>(memory.handle)->self);
  }
  ledger_.Close(taken.front().row);
}

void Scope::Exchange(Memory& memory, std::byte* other) noexcept {
  memory.data = other;
  *static_cast<Entry*>(memory.handle)->memory = other;
}

void Scope::Resize(Handle handle, std::uint64_t bytes) noexcept {
  ledger_.Resize(static_cast<Entry*>(handle)->row, bytes);
}

void Scope::ReleaseAll() noexcept {
  for (;;) {
    std::list<Entry> taken;
    {
      absl::MutexLock lock(&mutex_);
      if (entries_.empty()) return;
      taken.splice(taken.begin(), entries_, std::prev(entries_.end()));
    }
    Undo(taken);
  }
}

}  // namespace tidemark
