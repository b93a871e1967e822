#include "inference/model.h"

#include <utility>

#include "base/clock.h"

namespace tidemark {

Model::Model(Parts parts) : parts_(std::move(parts)) {
  parts_.scheduler->Start(statistics_);
}

Model::~Model() {
  // The order is the promise: instances, engine model, then what is left on the scope.
  parts_.scheduler.reset();
  parts_.backend_model.reset();
  parts_.scope.reset();
  parts_.files.reset();
}

void Model::Submit(std::unique_ptr<InferenceRequest> request, bool may_run_inline) {
  if (request->times.received == 0) request->times.received = NowNanos();
  ScheduledRequest scheduled;
  if (absl::Status status = info().Prepare(*request, scheduled.tensors, scheduled.batch); !status.ok()) {
    request->response.status = std::move(status);
    auto done = std::move(request->on_complete);
    done(std::move(request));
    return;
  }
  scheduled.request = std::move(request);
  parts_.scheduler->Enqueue(std::move(scheduled), may_run_inline);
}

absl::Status Model::Health() const { return parts_.scheduler->Health(); }

}  // namespace tidemark
