#include "resource/ledger.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/status.h"

namespace tidemark {

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

namespace {

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
  for (const auto& [id, entry] : rows_) {
    const LedgerRow& row = entry.row;
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

void Ledger::Count(const Entry& entry, std::uint64_t before, std::uint64_t after) noexcept {
  Account& account = accounts_.find(entry.row.device)->second;
  MemoryFigures& kind = account.kinds[static_cast<std::size_t>(entry.row.kind)];
  kind.now = kind.now - before + after;
  kind.high_water = std::max(kind.high_water, kind.now);
  if (!CountsAgainstBudget(entry.row.kind)) return;
  account.used = account.used - before + after;
  account.high_water = std::max(account.high_water, account.used);
  if (entry.mark == nullptr) return;
  MemoryFigures& figures = entry.mark->figures_.find(entry.row.device)->second;
  figures.now = figures.now - before + after;
  figures.high_water = std::max(figures.high_water, figures.now);
}

absl::StatusOr<RowId> Ledger::Open(ResourceKind kind, DeviceId device, std::uint64_t bytes, std::string_view owner,
                                   std::string_view site, bool resident, const RowClaim& claim) {
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
  Reservation* reservation = nullptr;
  std::uint64_t from_reservation = 0;
  if (CountsAgainstBudget(kind)) {
    if (claim.reservations != nullptr) reservation = claim.reservations->On(device);
    if (reservation != nullptr && reservation->ledger_ == this) {
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
  if (claim.mark != nullptr) claim.mark->figures_.try_emplace(device);
  const Entry& entry = rows_.emplace(id, Entry{std::move(row), claim.mark}).first->second;  // the last that may throw
  ++next_;
  Count(entry, 0, bytes);
  if (from_reservation > 0) {
    account.reserved -= from_reservation;
    reservation->bytes_ -= from_reservation;
  }
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
  Count(it->second, it->second.row.bytes, 0);
  rows_.erase(it);
}

void Ledger::Strand(RowId row, std::string_view reason) noexcept {
  absl::MutexLock lock(&mutex_);
  const auto it = rows_.find(row);
  if (it == rows_.end() || it->second.row.state == RowState::kStranded) return;
  LedgerRow& stranded = it->second.row;
  stranded.state = RowState::kStranded;
  stranded.reason = std::string(reason);
  stranded_.fetch_add(1, std::memory_order_relaxed);
  LOG_ERROR("stranded: {} of '{}' ({}, {} bytes on {}) could not be given back: {}", stranded.site, stranded.owner,
            ResourceKindName(stranded.kind), stranded.bytes, DeviceName(stranded.device), reason);
}

void Ledger::Resize(RowId row, std::uint64_t bytes) noexcept {
  absl::MutexLock lock(&mutex_);
  const auto it = rows_.find(row);
  if (it == rows_.end()) return;
  Count(it->second, it->second.row.bytes, bytes);
  it->second.row.bytes = bytes;
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

Reservation Ledger::ReserveRest(DeviceId device) {
  absl::MutexLock lock(&mutex_);
  Account& account = accounts_[device];
  const std::uint64_t rest = account.budget.has_value() ? FreeBytes(account) : 0;
  account.reserved += rest;
  return Reservation(this, device, rest);
}

std::optional<Ledger::Room> Ledger::RoomOn(DeviceId device) const {
  absl::MutexLock lock(&mutex_);
  const auto it = accounts_.find(device);
  if (it == accounts_.end() || !it->second.budget.has_value()) return std::nullopt;
  return Room{*it->second.budget, FreeBytes(it->second)};
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
  for (const auto& [device, account] : accounts_) {
    totals.memory[device] = MemoryFigures{account.used, account.high_water};
    totals.kinds[device] = account.kinds;
    if (account.budget.has_value()) totals.budgets[device] = *account.budget;
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

std::map<DeviceId, MemoryFigures> Ledger::FiguresOf(const MemoryMark& mark) const {
  absl::MutexLock lock(&mutex_);
  return mark.figures_;
}

}  // namespace tidemark
