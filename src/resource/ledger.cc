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
  constexpr std::array<std::string_view, kResourceKinds> kNames = {"host_memory", "file_mapping",  "temp_directory",
                                                                   "library",     "thread",        "engine_object",
                                                                   "small_heap",  "device_memory", "pinned_memory"};
  return kNames.at(static_cast<std::size_t>(kind));
}

std::string DeviceName(DeviceId device) { return device == kHost ? "host" : fmt::format("gpu:{}", device); }

Reservation::Reservation(Reservation&& other) noexcept
    : ledger_(std::exchange(other.ledger_, nullptr)), device_(other.device_), bytes_(std::exchange(other.bytes_, 0)) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    Reset();
    ledger_ = std::exchange(other.ledger_, nullptr);
    device_ = other.device_;
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

std::uint64_t Reservation::bytes() const {
  if (ledger_ == nullptr) return 0;
  absl::MutexLock lock(&ledger_->mutex_);
  return bytes_;
}

void Reservation::ShrinkTo(std::uint64_t bytes) noexcept {
  if (ledger_ == nullptr) return;
  absl::MutexLock lock(&ledger_->mutex_);
  if (bytes >= bytes_) return;
  ledger_->accounts_.at(device_).reserved -= bytes_ - bytes;
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
  for (const auto& [id, row] : rows_) {
    if (row.state == RowState::kStranded) continue;
    LOG_ERROR("ledger row {} of '{}' ({}, {} bytes, {}) was never given back", id, row.owner,
              ResourceKindName(row.kind), row.bytes, row.site);
  }
}

bool Ledger::Fits(const Account& account, std::uint64_t more) {
  return !account.budget || more == 0 || more <= FreeBytes(account);
}

std::uint64_t Ledger::FreeBytes(const Account& account) {
  const std::uint64_t claimed = account.used + account.reserved;
  return *account.budget > claimed ? *account.budget - claimed : 0;
}

absl::StatusOr<RowId> Ledger::Open(ResourceKind kind, DeviceId device, std::uint64_t bytes, std::string_view owner,
                                   std::string_view site, bool resident, Reservation* reservation) {
  // All that can run out of memory comes before the books change.
  LedgerRow row{.id = 0,
                .kind = kind,
                .device = device,
                .bytes = bytes,
                .owner = std::string(owner),
                .site = std::string(site),
                .state = RowState::kPending,
                .resident = resident,
                .reason = {}};
  absl::MutexLock lock(&mutex_);
  Account& account = accounts_[device];
  std::uint64_t from_reservation = 0;
  if (CountsAgainstBudget(kind)) {
    if (reservation != nullptr && reservation->ledger_ == this && reservation->device_ == device) {
      from_reservation = std::min(bytes, reservation->bytes_);
    }
    if (!Fits(account, bytes - from_reservation)) {
      return absl::ResourceExhaustedError(
          fmt::format("{} of '{}' needs {} bytes on {}, but of its limit of {} bytes only {} are free", site, owner,
                      bytes, DeviceName(device), *account.budget, FreeBytes(account) + from_reservation));
    }
  }
  const RowId id = next_;
  row.id = id;
  rows_.emplace(id, std::move(row));  // the last step that may throw
  ++next_;
  if (CountsAgainstBudget(kind)) {
    account.used += bytes;
    account.reserved -= from_reservation;
    if (from_reservation > 0) reservation->bytes_ -= from_reservation;
  }
  return id;
}

void Ledger::MarkHeld(RowId row) noexcept {
  absl::MutexLock lock(&mutex_);
  if (const auto it = rows_.find(row); it != rows_.end()) it->second.state = RowState::kHeld;
}

void Ledger::Close(RowId row) noexcept {
  absl::MutexLock lock(&mutex_);
  const auto it = rows_.find(row);
  if (it == rows_.end()) return;
  if (CountsAgainstBudget(it->second.kind)) accounts_[it->second.device].used -= it->second.bytes;
  rows_.erase(it);
}

void Ledger::Strand(RowId row, std::string_view reason) noexcept {
  absl::MutexLock lock(&mutex_);
  const auto it = rows_.find(row);
  if (it == rows_.end() || it->second.state == RowState::kStranded) return;
  it->second.state = RowState::kStranded;
  it->second.reason = std::string(reason);
  stranded_.fetch_add(1, std::memory_order_relaxed);
  LOG_ERROR("stranded: {} of '{}' ({}, {} bytes on {}) could not be given back: {}", it->second.site, it->second.owner,
            ResourceKindName(it->second.kind), it->second.bytes, DeviceName(it->second.device), reason);
}

void Ledger::Resize(RowId row, std::uint64_t bytes) noexcept {
  absl::MutexLock lock(&mutex_);
  const auto it = rows_.find(row);
  if (it == rows_.end()) return;
  if (CountsAgainstBudget(it->second.kind)) {
    Account& account = accounts_[it->second.device];
    account.used = account.used - it->second.bytes + bytes;
  }
  it->second.bytes = bytes;
}

void Ledger::SetBudget(DeviceId device, std::optional<std::uint64_t> bytes) {
  absl::MutexLock lock(&mutex_);
  accounts_[device].budget = bytes;
}

absl::StatusOr<Reservation> Ledger::Reserve(DeviceId device, std::uint64_t bytes, std::string_view what) {
  absl::MutexLock lock(&mutex_);
  Account& account = accounts_[device];
  if (!Fits(account, bytes)) {
    return absl::ResourceExhaustedError(
        fmt::format("'{}' needs {} bytes on {}, but of its limit of {} bytes only {} are free", what, bytes,
                    DeviceName(device), *account.budget, FreeBytes(account)));
  }
  account.reserved += bytes;
  return Reservation(this, device, bytes);
}

LedgerTotals Ledger::Totals() const {
  absl::MutexLock lock(&mutex_);
  LedgerTotals totals;
  for (const auto& [id, row] : rows_) {
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
  for (const auto& [id, row] : rows_) rows.push_back(row);
  return rows;
}

std::vector<LedgerRow> Ledger::RowsOf(std::string_view owner) const {
  absl::MutexLock lock(&mutex_);
  std::vector<LedgerRow> rows;
  for (const auto& [id, row] : rows_) {
    if (IsBelow(row.owner, owner)) rows.push_back(row);
  }
  return rows;
}

}  // namespace tidemark
