#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/cancel.h"
#include "proto/model_config.pb.h"
#include "resource/ledger.h"

namespace tidemark {

// Lets instances execute only while they hold what their `instance_group.rate_limiter` asks for
// (`--rate-limit=execution_count`). Resources are names with counts: one pool for the server (`global`) or one for each
// device, instances on the CPU being one device. Of the instances that wait, the one with the smallest
// executions x priority comes first; another one passes it only where the two want nothing in common.
//
// Thread-safe; one short mutex for each begin and end of an execution. Outlives its members.
class RateLimiter {
 public:
  // `--rate-limit-resource=<name>:<count>[:<device>]`.
  struct Limit {
    std::string name;
    std::uint64_t count = 0;
    std::optional<DeviceId> device;  // absent: each device has as many
  };

  // One instance. Dies when it does not execute.
  class Member {
   private:
    struct Private {};
    using Key = std::pair<std::string, DeviceId>;  // device kEverywhere for a global one

   public:
    Member(Private, RateLimiter& limiter, std::map<Key, std::uint64_t> demands, std::uint64_t priority)
        : limiter_(limiter), demands_(std::move(demands)), priority_(priority) {}
    ~Member();
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;

    // Waits for its turn and takes its resources. CANCELLED, with nothing taken, once `cancel` (may be null) is set.
    absl::Status Begin(CancelFlag* cancel);
    // Gives them back. With `more` it waits again from this very moment on, so that its rank counts before others are
    // looked at; Begin must follow.
    void End(bool more);

   private:
    friend class RateLimiter;

    RateLimiter& limiter_;
    const std::map<Key, std::uint64_t> demands_;
    const std::uint64_t priority_;
    // Guarded by limiter_.mutex_.
    std::uint64_t executions_ = 0;
    bool granted_ = false;
    bool waits_ = false;
    absl::CondVar turn_;
  };

  // Without limits a resource has as much as the instance that wants most of it; with any, each has what they say,
  // nothing where they do not name it.
  explicit RateLimiter(std::vector<Limit> limits) : limits_(std::move(limits)) {}
  RateLimiter(const RateLimiter&) = delete;
  RateLimiter& operator=(const RateLimiter&) = delete;

  // An instance on `device`; null when it asks for nothing: such instances never wait. INVALID_ARGUMENT when a resource
  // is global for one instance and not for another, or when the limits would never let it execute.
  absl::StatusOr<std::unique_ptr<Member>> Add(const inference::ModelRateLimiter& config, DeviceId device);

  // How many wait at the moment.
  std::size_t waiting() const;

 private:
  using Key = Member::Key;
  static constexpr DeviceId kEverywhere = -2;
  struct Pool {
    std::uint64_t in_use = 0;
    std::map<std::uint64_t, int> demands;  // of members, and how many have it
  };

  // What the limits say of a resource, or what the members want at most.
  std::uint64_t Capacity(const Key& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Check(const Key& key, std::uint64_t count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Remove(Member& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Wait(Member& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Lets everybody go whose turn it is.
  void Grant() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::vector<Limit> limits_;
  mutable absl::Mutex mutex_;
  std::map<Key, Pool> pools_ ABSL_GUARDED_BY(mutex_);
  std::vector<Member*> members_ ABSL_GUARDED_BY(mutex_);
  std::vector<Member*> waiting_ ABSL_GUARDED_BY(mutex_);  // those that came first in front
};

}  // namespace tidemark
