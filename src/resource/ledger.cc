#include "resource/ledger.h"

#include <utility>

#include "base/log.h"
#include "base/status.h"

namespace tidemark {
namespace {

bool CountsAgainstBudget(ResourceKind kind) {
  switch (kind) {
    case ResourceKind::kHostMemory:
    case ResourceKind::kSmallHeap:
    case ResourceKind::kDeviceMemory:
    case ResourceKind::kPinnedMemory:
    case ResourceKind::kEngineObject:
      return true;
    default:
      return false;
  }
}

bool IsBelow(std::string_view path, std::string_view owner) {
  return path == owner || (path.size() > owner.size() && path.starts_with(owner) && path[owner.size()] == '/');
}

}  // namespace

std::string_view ResourceKindName(ResourceKind kind) {
  constexpr std::array<std::string_view, kResourceKinds> kNames = {
      "host_memory",   "file_mapping", "temp_directory", "library",      "thread",
      "engine_object", "small_heap",   "device_memory",  "pinned_memory"};
  return kNames.at(static_cast<std::size_t>(kind));
}

std::string DeviceName(DeviceId device) { return device == kHost ? "host" : fmt::format("gpu:{}", device); }

Reservation::Reservation(Reservation&& other) noexcept
    : ledger_(std::exchange(other.ledger_, nullptr)),
      device_(other.device_),
      bytes_(std::exchange(other.bytes_, 0)) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    Reset();
    ledger_ = std::exchange(other.ledger_, nullptr);
    device_ = other.device_;
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void Reservation::ShrinkTo(std::uint64_t bytes) noexcept {
  if (ledger_ == nullptr || bytes >= bytes_) return;
  ledger_->GiveBack(device_, bytes_ - bytes);
  bytes_ = bytes;
}

std::uint64_t LedgerTotals::BytesOf(DeviceId device) const {
  const auto it = bytes.find(device);
  if (it == bytes.end()) return 0;
  std::uint64_t sum = 0;
  for (std::size_t kind = 0; kind < kResourceKinds; ++kind) {
    if (CountsAgainstBudget(static_cast<ResourceKind>(kind))) sum += it->second[kind];
  }
  return sum;
}

Ledger::~Ledger() {
  absl::MutexLock lock(&mutex_);
  for (const auto& [id, entry] : rows_) {
    if (entry.row.state == RowState::kStranded) continue;
    LOG_ERROR("ledger row {} of '{}' ({}, {} bytes, {}) was never given back", id, entry.row.owner,
              ResourceKindName(entry.row.kind), entry.row.bytes, entry.row.site);
  }
}

absl::StatusOr<RowId> Ledger::Open(ResourceKind kind, DeviceId device, std::uint64_t bytes, std::string_view owner,
                                   std::string_view site, bool resident, Reservation* reservation) {
  absl::MutexLock lock(&mutex_);
  std::uint64_t from_reservation = 0;
  if (CountsAgainstBudget(kind)) {
    Account& account = accounts_[device];
    if (reservation != nullptr && reservation->ledger_ == this && reservation->device_ == device) {
      from_reservation = std::min(bytes, reservation->bytes_);
    }
    const std::uint64_t more = bytes - from_reservation;
    if (account.budget && account.used + account.reserved + more > *account.budget) {
      const std::uint64_t claimed = account.used + account.reserved;
      const std::uint64_t free = *account.budget > claimed ? *account.budget - claimed : 0;
      return absl::ResourceExhaustedError(
          fmt::format("{} of '{}' needs {} bytes on {}, but of its limit of {} bytes only {} are free", site, owner,
                      bytes, DeviceName(device), *account.budget, free + from_reservation));
    }
    account.used += bytes;
    account.reserved -= from_reservation;
    if (from_reservation > 0) reservation->bytes_ -= from_reservation;
  }
  const RowId id = next_++;
  Entry& entry = rows_[id];
  entry.row = LedgerRow{.id = id,
                        .kind = kind,
                        .device = device,
                        .bytes = bytes,
                        .owner = std::string(owner),
                        .site = std::string(site),
                        .state = RowState::kPending,
                        .resident = resident,
                        .reason = {}};
  return id;
}

void Ledger::MarkHeld(RowId row) noexcept {
  absl::MutexLock lock(&mutex_);
  if (const auto it = rows_.find(row); it != rows_.end()) it->second.row.state = RowState::kHeld;
}

void Ledger::Close(RowId row) noexcept {
  absl::MutexLock lock(&mutex_);
  const auto it = rows_.find(row);
  if (it == rows_.end()) return;
  if (CountsAgainstBudget(it->second.row.kind)) accounts_[it->second.row.device].used -= it->second.row.bytes;
  rows_.erase(it);
}

void Ledger::Strand(RowId row, std::string_view reason) noexcept {
  absl::MutexLock lock(&mutex_);
  const auto it = rows_.find(row);
  if (it == rows_.end() || it->second.row.state == RowState::kStranded) return;
  it->second.row.state = RowState::kStranded;
  it->second.row.reason = std::string(reason);
  stranded_.fetch_add(1, std::memory_order_relaxed);
  LOG_ERROR("stranded: {} of '{}' ({}, {} bytes on {}) could not be given back: {}", it->second.row.site,
            it->second.row.owner, ResourceKindName(it->second.row.kind), it->second.row.bytes,
            DeviceName(it->second.row.device), reason);
}

void Ledger::Resize(RowId row, std::uint64_t bytes) noexcept {
  absl::MutexLock lock(&mutex_);
  const auto it = rows_.find(row);
  if (it == rows_.end()) return;
  if (CountsAgainstBudget(it->second.row.kind)) {
    Account& account = accounts_[it->second.row.device];
    account.used = account.used - it->second.row.bytes + bytes;
  }
  it->second.row.bytes = bytes;
}

void Ledger::SetBudget(DeviceId device, std::optional<std::uint64_t> bytes) {
  absl::MutexLock lock(&mutex_);
  accounts_[device].budget = bytes;
}

absl::StatusOr<Reservation> Ledger::Reserve(DeviceId device, std::uint64_t bytes, std::string_view what) {
  absl::MutexLock lock(&mutex_);
  Account& account = accounts_[device];
  const std::uint64_t claimed = account.used + account.reserved;
  if (account.budget && claimed + bytes > *account.budget) {
    return absl::ResourceExhaustedError(
        fmt::format("'{}' needs {} bytes on {}, but of its limit of {} bytes only {} are free", what, bytes,
                    DeviceName(device), *account.budget, *account.budget > claimed ? *account.budget - claimed : 0));
  }
  account.reserved += bytes;
  return Reservation(this, device, bytes);
}

void Ledger::GiveBack(DeviceId device, std::uint64_t bytes) noexcept {
  absl::MutexLock lock(&mutex_);
  accounts_[device].reserved -= bytes;
}

LedgerTotals Ledger::Totals() const {
  absl::MutexLock lock(&mutex_);
  LedgerTotals totals;
  for (const auto& [id, entry] : rows_) {
    const LedgerRow& row = entry.row;
    if (row.state == RowState::kStranded) ++totals.stranded_rows;
    ++(row.resident ? totals.resident_rows : totals.rows);
    auto& sums = row.resident ? totals.resident_bytes : totals.bytes;
    sums[row.device][static_cast<std::size_t>(row.kind)] += row.bytes;
  }
  return totals;
}

std::vector<LedgerRow> Ledger::Rows() const {
  absl::MutexLock lock(&mutex_);
  std::vector<LedgerRow> rows;
  rows.reserve(rows_.size());
  for (const auto& [id, entry] : rows_) rows.push_back(entry.row);
  return rows;
}

std::vector<LedgerRow> Ledger::RowsOf(std::string_view owner) const {
  absl::MutexLock lock(&mutex_);
  std::vector<LedgerRow> rows;
  for (const auto& [id, entry] : rows_) {
    if (IsBelow(entry.row.owner, owner)) rows.push_back(entry.row);
  }
  return rows;
}

}  // namespace tidemark
