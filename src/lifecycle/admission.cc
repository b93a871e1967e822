#include "lifecycle/admission.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/time/clock.h"
#include "base/status.h"

namespace tidemark {

Admission::Operation::Operation(Admission& admission) : admission_(admission) {
  absl::MutexLock lock(&admission_.mutex_);
  ++admission_.operations_;
}

Admission::Operation::~Operation() {
  absl::MutexLock lock(&admission_.mutex_);
  --admission_.operations_;
  admission_.changed_.SignalAll();
}

Admission::Permit& Admission::Permit::operator=(Permit&& other) noexcept {
  if (this == &other) return *this;
  End();
  admission_ = std::exchange(other.admission_, nullptr);
  began_among_others_ = other.began_among_others_;
  starts_ = other.starts_;
  return *this;
}

void Admission::Permit::End() noexcept {
  if (admission_ == nullptr) return;
  absl::MutexLock lock(&admission_->mutex_);
  --admission_->running_;
  admission_->changed_.SignalAll();
  admission_ = nullptr;
}

bool Admission::Permit::contended() const {
  if (admission_ == nullptr) return false;
  absl::MutexLock lock(&admission_->mutex_);
  return began_among_others_ || admission_->starts_ != starts_;
}

bool Admission::Budgeted(const Demand& demand) const {
  return std::any_of(demand.devices.begin(), demand.devices.end(),
                     [this](DeviceId device) { return ledger_.RoomOn(device).has_value(); });
}

absl::Status Admission::Claim(const Demand& demand, bool last, Reservations& claims) const {
  const bool known = demand.estimate.has_value() && !demand.alone;
  if (!known && !last) {
    return absl::ResourceExhaustedError(fmt::format("'{}' takes what is left of the limits, alone", demand.what));
  }
  Reservations taken;
  for (const DeviceId device : demand.devices) {
    if (!ledger_.RoomOn(device).has_value()) continue;
    if (!known) {
      taken.Add(ledger_.ReserveRest(device));
      continue;
    }
    const auto needed = demand.estimate->find(device);
    if (needed == demand.estimate->end()) continue;
    absl::StatusOr<Reservation> claim = ledger_.Reserve(device, needed->second, demand.what);
    if (claim.ok()) {
      taken.Add(*std::move(claim));
    } else if (last && demand.measured) {
      taken.Add(ledger_.ReserveRest(device));
    } else {
      return claim.status();
    }
  }
  claims = std::move(taken);
  return absl::OkStatus();
}

absl::StatusOr<Admission::Permit> Admission::Enter(Operation& operation, const Demand& demand, const CancelFlag* cancel,
                                                   Reservations& claims) {
  if (!Budgeted(demand)) return Permit();
  const absl::Time deadline = absl::Now() + patience_;
  absl::MutexLock lock(&mutex_);
  const auto self = queue_.insert(queue_.end(), &operation);
  if (++operation.waiting_ == 1) ++waiting_operations_;
  changed_.SignalAll();  // perhaps this was the last that did not wait
  const absl::Cleanup leave = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    queue_.erase(self);
    if (--operation.waiting_ == 0) --waiting_operations_;
    changed_.SignalAll();
  };
  for (;;) {
    if (cancel != nullptr && cancel->cancelled()) {
      return absl::CancelledError(fmt::format("'{}' was cancelled while it waited for memory", demand.what));
    }
    const bool late = absl::Now() >= deadline;
    if (queue_.begin() == self || late) {
      const bool others = running_ > 0 || draining_ > 0;
      // Loads that only wait themselves give nothing back before one of them is refused.
      const bool last = !others && waiting_operations_ == operations_;
      const absl::Status claimed = Claim(demand, last || (late && !others), claims);
      if (claimed.ok()) {
        Permit permit;
        permit.admission_ = this;
        permit.began_among_others_ = others;
        permit.starts_ = ++starts_;
        ++running_;
        return permit;
      }
      if (last) return claimed;
      if (late) {
        return absl::ResourceExhaustedError(
            fmt::format("{}; waited {} for {} loads and {} unloads that are still running", MessageOf(claimed),
                        absl::FormatDuration(patience_), running_, draining_));
      }
    }
    changed_.WaitWithDeadline(&mutex_, deadline);
  }
}

void Admission::DrainStarted() {
  absl::MutexLock lock(&mutex_);
  ++draining_;
  ++starts_;
}

void Admission::DrainEnded() {
  absl::MutexLock lock(&mutex_);
  --draining_;
  changed_.SignalAll();
}

void Admission::Wake() {
  absl::MutexLock lock(&mutex_);
  changed_.SignalAll();
}

std::size_t Admission::waiting() const {
  absl::MutexLock lock(&mutex_);
  return queue_.size();
}

}  // namespace tidemark
