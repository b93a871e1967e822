#include "inference/model.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace tidemark {
namespace {

// An output that the client named twice is answered once, as it was named first. All names are the model's by now.
void DropRepeatedOutputs(std::vector<RequestedOutput>& outputs) {
  auto end = outputs.begin();
  for (auto it = outputs.begin(); it != outputs.end(); ++it) {
    if (std::any_of(outputs.begin(), end, [&](const RequestedOutput& kept) { return kept.name == it->name; })) continue;
    if (end != it) *end = std::move(*it);
    ++end;
  }
  outputs.erase(end, outputs.end());
}

}  // namespace

Model::Model(Parts parts) : parts_(std::move(parts)) {
  if (parts_.statistics == nullptr) parts_.statistics = std::make_shared<ModelStatistics>();
  parts_.scheduler->Start(*parts_.statistics);
  if (parts_.answers != nullptr) parts_.answers->Start(*parts_.statistics);
}

Model::~Model() {
  // The order is the promise: instances, engine model, then what is left on the scope.
  parts_.scheduler.reset();
  parts_.answers.reset();
  parts_.backend_model.reset();
  parts_.metrics.reset();
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
  DropRepeatedOutputs(request->outputs);
  scheduled.request = std::move(request);
  if (parts_.answers != nullptr && parts_.answers->Find(scheduled)) {
    return parts_.scheduler->AnswerUnexecuted(std::move(scheduled.request));
  }
  parts_.scheduler->Enqueue(std::move(scheduled), may_run_inline);
}

absl::Status Model::Health() const { return parts_.scheduler->Health(); }

}  // namespace tidemark
