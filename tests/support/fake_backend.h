#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backend/backend.h"

namespace tidemark {

// What a fake engine does and what of it is alive. Outlives the backend.
struct FakeScript {
  // Called at "model", "model.end", "instance" and "instance.end" of a load, on the load's thread; may fail,
  // throw, or wait. Set before the first load.
  std::function<absl::Status(std::string_view step, std::string_view model)> at_step;
  // Called by every execution, warm-up included, with the instance's name; may wait.
  std::function<absl::Status(const Execution& execution, std::string_view instance)> on_execute;
  // Called once by every Execute, before the above; may wait.
  std::function<void(std::span<Execution* const> requests, std::string_view instance)> on_batch;
  bool thread_bound = false;
  bool warms_up_unasked = true;
  std::atomic<bool> healthy{true};
  std::atomic<int> live_models{0};
  std::atomic<int> live_instances{0};
  std::atomic<int> live_objects{0};  // engine objects that have a row
  std::atomic<int> models_made{0};
};

// Settings for BackendRegistry that hand the script to MakeFakeBackend.
BackendSettings FakeSettings(FakeScript& script);

// An engine that copies input i to output i and takes, for each model, memory, a file mapping (the version's
// "model.fake"), a library, an object, a thread and a heap with a block; for each instance memory, an object
// and a thread; and a block of the heap at an instance's first execution. Acquisitions: 7 + 3 for each
// instance, the scheduler's thread for each, and one at the warm-up of each.
absl::StatusOr<std::unique_ptr<Backend>> MakeFakeBackend(const BackendContext& context);
constexpr int FakeAcquisitions(int instances) { return 7 + 5 * instances; }

}  // namespace tidemark
