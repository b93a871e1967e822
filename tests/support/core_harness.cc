#include "tests/support/core_harness.h"

#include <cstring>
#include <utility>

#include "absl/synchronization/notification.h"
#include "base/status.h"

namespace tidemark {

CoreHarness::CoreHarness(Options options) : options_(std::move(options)) {
  std::map<std::string, BackendSettings> settings = options_.settings;
  settings["fake"] = FakeSettings(script);
  backends = std::make_unique<BackendRegistry>(ledger, platform, options_.engine_directory, std::move(settings));
  backends->Add("fake", &MakeFakeBackend);
  for (const auto& [name, factory] : options_.backends) backends->Add(name, factory);
}

CoreHarness::~CoreHarness() {
  Destroy();
  DestroyBackends();
}

void CoreHarness::DestroyBackends() {
  backends.reset();
  gpu_scope.reset();
  gpus.reset();
}

absl::Status CoreHarness::Start() {
  if (!options_.cuda_library.empty()) {
    gpu_scope = std::make_unique<Scope>(ledger, platform, "server/gpus", Scope::Options{.resident = true});
    ASSIGN_OR_RETURN(gpus, Gpus::Open(*gpu_scope, options_.cuda_library));
    RETURN_IF_ERROR(gpus->Use(0));  // the context is no load's
    backends->SetGpus(gpus.get());
  }
  RepositoryOptions repositories;
  repositories.namespacing = options_.namespacing;
  repositories.roots.push_back(folder.repository());
  for (const std::string& name : options_.more_repositories) {
    std::filesystem::create_directories(folder.path() / name);
    repositories.roots.push_back(folder.path() / name);
  }
  repositories.auto_complete = options_.auto_complete;
  ASSIGN_OR_RETURN(repository, ModelRepository::Create(repositories));
  if (options_.response_cache_bytes != 0) cache = std::make_unique<ResponseCache>(options_.response_cache_bytes);
  if (options_.rate_limit) rate_limiter = std::make_unique<RateLimiter>(options_.rate_limits);
  ASSIGN_OR_RETURN(lifecycle,
                   Lifecycle::Create(options_.lifecycle, Lifecycle::Parts{.platform = &platform,
                                                                          .ledger = &ledger,
                                                                          .registry = &registry,
                                                                          .repository = repository.get(),
                                                                          .backends = backends.get(),
                                                                          .buffers = &buffers,
                                                                          .cache = cache.get(),
                                                                          .rate_limiter = rate_limiter.get()}));
  return lifecycle->StartUp();
}

absl::Status CoreHarness::Load(std::string_view name, LoadOverrides overrides) {
  absl::Notification answered;
  absl::Status status;
  lifecycle->Load(std::string(name), std::move(overrides), [&](absl::Status result) {
    status = std::move(result);
    answered.Notify();
  });
  answered.WaitForNotification();
  return status;
}

absl::Status CoreHarness::Unload(std::string_view name) {
  absl::Notification answered;
  absl::Status status;
  lifecycle->Unload(std::string(name), false, [&](absl::Status result) {
    status = std::move(result);
    answered.Notify();
  });
  answered.WaitForNotification();
  return status;
}

std::string CoreHarness::StateOf(std::string_view name) const {
  std::string text;
  bool found = false;
  const absl::StatusOr<std::vector<IndexEntry>> index = lifecycle->Index(false);
  if (!index.ok()) return std::string(MessageOf(index.status()));
  for (const IndexEntry& entry : *index) {
    if (entry.name != name) continue;
    found = true;
    if (entry.state.empty()) continue;
    text += entry.version + ":" + entry.state + (entry.reason.empty() ? "" : "(" + entry.reason + ")") + ";";
  }
  return found ? text : "-";
}

absl::Status CoreHarness::Submit(std::string_view name, std::int64_t version, std::vector<float> values,
                                 bool may_run_inline, std::function<void(absl::StatusOr<std::vector<float>>)> done) {
  ASSIGN_OR_RETURN(ModelHandle handle, registry.Find(name, version));
  auto request = std::make_unique<InferenceRequest>();
  RequestInput& input = request->inputs.emplace_back();
  input.name = "INPUT0";
  input.data_type = DataType::kFp32;
  input.shape = {static_cast<std::int64_t>(values.size())};
  if (handle->info().max_batch_size() > 0) input.shape.insert(input.shape.begin(), 1);
  ASSIGN_OR_RETURN(input.owned, buffers.Allocate(values.size() * sizeof(float)));
  std::memcpy(input.owned.data(), values.data(), values.size() * sizeof(float));
  input.data = input.owned.bytes();
  request->sequence_id = sequence_id;
  request->sequence_start = request->sequence_end = sequence_id != 0;
  request->on_complete = [done = std::move(done)](std::unique_ptr<InferenceRequest> answered) {
    absl::StatusOr<std::vector<float>> result = absl::UnknownError("no answer");
    if (!answered->response.status.ok()) {
      result = answered->response.status;
    } else {
      const Buffer& data = answered->response.outputs.at(0).data;
      std::vector<float> out(data.size() / sizeof(float));
      std::memcpy(out.data(), data.data(), data.size());
      result = std::move(out);
    }
    answered.reset();  // leaves the gate
    done(std::move(result));
  };
  Model& model = *handle;
  request->set_model(std::move(handle));
  model.Submit(std::move(request), may_run_inline);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> CoreHarness::Infer(std::string_view name, std::int64_t version,
                                                      std::vector<float> values, bool may_run_inline) {
  absl::Notification answered;
  absl::StatusOr<std::vector<float>> result;
  RETURN_IF_ERROR(Submit(name, version, std::move(values), may_run_inline, [&](auto answer) {
    result = std::move(answer);
    answered.Notify();
  }));
  answered.WaitForNotification();
  return result;
}

}  // namespace tidemark
