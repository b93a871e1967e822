#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "backend/backend.h"
#include "base/cancel.h"
#include "resource/ledger.h"

namespace tidemark {

// Decides when a load may begin to take memory on devices that have a budget. What is known to fit begins at once; what
// does not fit waits for other loads, and for versions on their way out, as long as there are any, first come, first
// served; then it is refused with needed, limit and free. A load that cannot say what it needs takes what is left, alone.
// Where no device has a budget nobody ever waits.
//
// Thread-safe. Waiting blocks the calling thread: whatever gives memory back must not need that thread.
class Admission {
 public:
  // `patience`: how long a load waits before it is refused although others are still running.
  Admission(Ledger& ledger, absl::Duration patience) : ledger_(ledger), patience_(patience) {}
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  // One load of one model with all its versions, from before its first Enter until its memory is published or given
  // back. Others wait for it.
  class Operation {
   public:
    explicit Operation(Admission& admission);
    ~Operation();
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;

   private:
    friend class Admission;
    Admission& admission_;
    int waiting_ = 0;  // versions of it; guarded by the admission
  };

  // What one version's load needs.
  struct Demand {
    std::string what;                        // for texts: "name version 1"
    std::vector<DeviceId> devices;           // that it touches
    std::optional<MemoryEstimate> estimate;  // at most; nullopt: not known
    // The estimate is what an earlier load measured: where it does not fit at last, the load may try with what is left.
    bool measured = false;
    bool alone = false;  // begin only when nobody else is loading, and take all that is left
  };

  // While it lives the load counts as running. Dies before the operation.
  class Permit {
   public:
    Permit() = default;
    Permit(Permit&& other) noexcept { *this = std::move(other); }
    Permit& operator=(Permit&& other) noexcept;
    ~Permit() { End(); }

    void End() noexcept;
    // True when somebody else was loading or leaving on a device with a budget during this permit: memory that was
    // refused to it may be there another time.
    bool contended() const;

   private:
    friend class Admission;
    Admission* admission_ = nullptr;
    bool began_among_others_ = false;
    std::uint64_t starts_ = 0;  // of the admission, when this one began
  };

  // Waits for room, then claims it in `claims`. RESOURCE_EXHAUSTED when it will not fit; CANCELLED once `cancel` (may be
  // null) is set, if somebody calls Wake then.
  absl::StatusOr<Permit> Enter(Operation& operation, const Demand& demand, const CancelFlag* cancel,
                               Reservations& claims);

  // A version was withdrawn; its memory is back.
  void DrainStarted();
  void DrainEnded();

  // Lets those who wait look at their cancel flags.
  void Wake();

  // Loads that wait for room now.
  std::size_t waiting() const;

 private:
  bool Budgeted(const Demand& demand) const;
  // Claims what the demand needs, or says what is missing with nothing claimed. `last`: nobody else is running.
  absl::Status Claim(const Demand& demand, bool last, Reservations& claims) const;

  Ledger& ledger_;
  const absl::Duration patience_;
  mutable absl::Mutex mutex_;
  absl::CondVar changed_;
  int operations_ ABSL_GUARDED_BY(mutex_) = 0;          // alive
  int waiting_operations_ ABSL_GUARDED_BY(mutex_) = 0;  // with a version in the queue
  int running_ ABSL_GUARDED_BY(mutex_) = 0;             // permits
  int draining_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t starts_ ABSL_GUARDED_BY(mutex_) = 0;     // permits and drains that ever began
  std::list<Operation*> queue_ ABSL_GUARDED_BY(mutex_);  // one entry for each waiting version
};

}  // namespace tidemark
