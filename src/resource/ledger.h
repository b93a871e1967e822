#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace tidemark {

// What a row is about.
enum class ResourceKind : std::uint8_t {
  kHostMemory,     // anonymous memory; bytes
  kFileMapping,    // a mapped file; bytes
  kTempDirectory,  // a directory with all that is in it
  kLibrary,        // an opened shared library
  kThread,         // a running thread
  kEngineObject,   // a session, an environment, …: what an engine made; bytes if known
  kSmallHeap,      // blocks below 64 KiB that an engine asked for, all of one heap in one row; bytes
  kDeviceMemory,   // memory of an accelerator; bytes
  kPinnedMemory,   // page-locked host memory; bytes
};
inline constexpr std::size_t kResourceKinds = 9;
std::string_view ResourceKindName(ResourceKind kind);
// Is it memory that a budget is about? Mapped files, directories, libraries and threads are not.
bool CountsAgainstBudget(ResourceKind kind);

// Where the bytes lie: the host, or an accelerator by its number.
using DeviceId = int;
inline constexpr DeviceId kHost = -1;
std::string DeviceName(DeviceId device);  // "host", "gpu:0"

enum class RowState : std::uint8_t {
  kPending,   // the row is open, the acquisition has not answered yet
  kHeld,      // taken
  kStranded,  // the release failed: never deleted, it is the bug report
};

using RowId = std::uint64_t;

struct LedgerRow {
  RowId id = 0;
  ResourceKind kind = ResourceKind::kHostMemory;
  DeviceId device = kHost;
  std::uint64_t bytes = 0;
  std::string owner;  // path of scopes: "model/identity/1/instance/0"
  std::string site;   // what it is for: "session", "weights"
  RowState state = RowState::kPending;
  bool resident = false;  // lives as long as the process, by declaration
  std::string reason;     // why it is stranded
};

class Ledger;

// A move-only claim on a device's budget. What is claimed counts as used until the claim dies; rows opened under it use
// it up first. Returned in full by destruction. The amount is guarded by the ledger (acquisitions of several threads may
// draw on it at once); moving it is for one thread alone.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation() { Reset(); }

  DeviceId device() const { return device_; }
  // What is still claimed and not yet used up by rows.
  std::uint64_t bytes() const;
  // Gives back all but `bytes`; never grows.
  void ShrinkTo(std::uint64_t bytes) noexcept;
  void Reset() noexcept { ShrinkTo(0); }

 private:
  friend class Ledger;
  Reservation(Ledger* ledger, DeviceId device, std::uint64_t bytes) : ledger_(ledger), device_(device), bytes_(bytes) {}

  Ledger* ledger_ = nullptr;
  DeviceId device_ = kHost;
  std::uint64_t bytes_ = 0;
};

// The claims of one load, at most one for each device. Used by one thread, but for what the ledger does with them.
class Reservations {
 public:
  // In place of an earlier claim on the same device.
  void Add(Reservation reservation) { of_device_[reservation.device()] = std::move(reservation); }
  // The claim on `device`, or null.
  Reservation* On(DeviceId device) {
    const auto it = of_device_.find(device);
    return it == of_device_.end() ? nullptr : &it->second;
  }
  void Reset() noexcept { of_device_.clear(); }

 private:
  std::map<DeviceId, Reservation> of_device_;
};

// Bytes of memory kinds now, and the most there ever were.
struct MemoryFigures {
  std::uint64_t now = 0;
  std::uint64_t high_water = 0;
};

// What the rows of one owner with all below it (a version with its instances) add up to, for each device. Kept by the
// ledger; read with Ledger::FiguresOf.
class MemoryMark {
 public:
  MemoryMark() = default;
  MemoryMark(const MemoryMark&) = delete;
  MemoryMark& operator=(const MemoryMark&) = delete;

 private:
  friend class Ledger;
  std::map<DeviceId, MemoryFigures> figures_;  // guarded by the ledger
};

// What a row is opened under besides its owner's name.
struct RowClaim {
  Reservations* reservations = nullptr;  // claimed before; used up first; looked at during the call only
  std::shared_ptr<MemoryMark> mark;      // counts the row; last owner: the scope or the last of its rows
};

// Sums over rows, as one consistent picture.
struct LedgerTotals {
  std::uint64_t rows = 0;  // all rows but resident ones
  std::uint64_t resident_rows = 0;
  std::uint64_t stranded_rows = 0;
  std::map<DeviceId, std::array<std::uint64_t, kResourceKinds>> bytes;           // without resident rows
  std::map<DeviceId, std::array<std::uint64_t, kResourceKinds>> resident_bytes;  // resident rows only
  std::map<DeviceId, MemoryFigures> memory;                             // bytes of memory kinds, resident rows included
  std::map<DeviceId, std::array<MemoryFigures, kResourceKinds>> kinds;  // bytes of each kind, resident rows included
  std::map<DeviceId, std::uint64_t> budgets;                            // of the devices that have one
  std::uint64_t BytesOf(DeviceId device) const;  // non-resident bytes of memory kinds (not file mappings)
};

// The list of everything that loads, engines and the server took and have not given back. A row is opened before the
// taking and closed after the giving back. Thread-safe; no call waits for anything but a short mutex. Lives longer than
// every Scope.
class Ledger {
 public:
  Ledger() = default;
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;
  ~Ledger();

  // Opens a pending row. RESOURCE_EXHAUSTED, naming needed, limit and free, when the device's budget does not cover
  // `bytes` beyond what the claim's reservations already hold.
  absl::StatusOr<RowId> Open(ResourceKind kind, DeviceId device, std::uint64_t bytes, std::string_view owner,
                             std::string_view site, bool resident, const RowClaim& claim);
  void MarkHeld(RowId row) noexcept;
  void Close(RowId row) noexcept;
  // The release failed: the row stays for ever and its device is no longer ready.
  void Strand(RowId row, std::string_view reason) noexcept;
  // Changes the bytes of a held row (a heap of small blocks grew or shrank). Not checked against the budget.
  void Resize(RowId row, std::uint64_t bytes) noexcept;

  // A limit on the memory rows of a device; nullopt lifts it.
  void SetBudget(DeviceId device, std::optional<std::uint64_t> bytes);
  // Claims `bytes` of the device's budget before anything is taken; RESOURCE_EXHAUSTED when it does not fit. Without a
  // budget always succeeds.
  absl::StatusOr<Reservation> Reserve(DeviceId device, std::uint64_t bytes, std::string_view what);
  // Claims all that is left of the device's budget (perhaps nothing), for a load that cannot say what it needs.
  Reservation ReserveRest(DeviceId device);
  // The device's budget and what of it is neither used nor claimed; nullopt without a budget.
  struct Room {
    std::uint64_t budget = 0;
    std::uint64_t free = 0;
  };
  std::optional<Room> RoomOn(DeviceId device) const;

  LedgerTotals Totals() const;
  std::vector<LedgerRow> Rows() const;
  // Rows and bytes whose owner path is `owner` or lies below it.
  std::vector<LedgerRow> RowsOf(std::string_view owner) const;
  std::map<DeviceId, MemoryFigures> FiguresOf(const MemoryMark& mark) const;
  std::uint64_t stranded_rows() const { return stranded_.load(std::memory_order_relaxed); }

 private:
  friend class Reservation;
  struct Account {
    std::optional<std::uint64_t> budget;
    std::uint64_t used = 0;        // rows of memory kinds
    std::uint64_t high_water = 0;  // the most that `used` ever was
    std::array<MemoryFigures, kResourceKinds> kinds{};
    std::uint64_t reserved = 0;  // claims not yet used up by rows
  };
  struct Entry {
    LedgerRow row;
    std::shared_ptr<MemoryMark> mark;  // may be null
  };

  // True when `more` bytes fit beside what is used and claimed.
  static bool Fits(const Account& account, std::uint64_t more);
  static std::uint64_t FreeBytes(const Account& account);
  // The entry's bytes change from `before` to `after` in the account and the mark; they are there already.
  void Count(const Entry& entry, std::uint64_t before, std::uint64_t after) noexcept
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  RowId next_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<RowId, Entry> rows_ ABSL_GUARDED_BY(mutex_);
  std::map<DeviceId, Account> accounts_ ABSL_GUARDED_BY(mutex_);
  std::atomic<std::uint64_t> stranded_{0};
};

}  // namespace tidemark
