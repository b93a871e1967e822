#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "frontend/access_policy.h"
#include "frontend/http/cloud_request.h"
#include "frontend/http/message.h"

namespace tidemark {

// SageMaker's container contract: /ping and /invocations, and /models for endpoints with many models, in front of the
// ordinary routes, whose rules hold. /models knows those that were loaded through it; listing, loading and unloading are of
// the model-repository API. A load beyond a memory limit is answered with 507, so that the platform unloads another model.
//
// Thread-safe; outlives the HTTP server that calls it. Loads and unloads on their way may outlive it.
class SageMakerRoutes final : public HttpHandler {
 public:
  using Done = absl::AnyInvocable<void(absl::Status)>;
  // What the functions use outlives every request, load and unload.
  struct Parts {
    HttpHandler* routes = nullptr;  // the ordinary ones
    const AccessPolicy* access = nullptr;
    DefaultModel default_model;
    std::function<absl::Status()> serving;  // an error unless control requests are taken
    // ModelRepository's Mount and Unmount; the first may block.
    std::function<absl::Status(const std::string& name, const std::string& root)> mount;
    std::function<void(const std::string& name)> unmount;
    // Unmounts it and has everything forgotten that is kept by its name (Lifecycle::Forget).
    std::function<void(const std::string& name, absl::AnyInvocable<void()> done)> forget;
    std::function<void(const std::string& name, Done done)> load;
    std::function<void(const std::string& name, Done done)> unload;
    std::function<bool(std::string_view name)> is_ready;
    std::function<void(absl::AnyInvocable<void()>)> offload;  // runs what may block
    std::size_t max_json_bytes = std::size_t{64} << 20;
  };
  explicit SageMakerRoutes(Parts parts) : state_(std::make_shared<State>(std::move(parts))) {}

  void Handle(HttpRequest& request, ResponseSender sender) override;

 private:
  enum class Phase : std::uint8_t { kLoading, kLoaded, kUnloading };
  struct Entry {
    std::string url;
    Phase phase = Phase::kLoading;
  };
  struct State {
    explicit State(Parts p) : parts(std::move(p)) {}
    const Parts parts;
    absl::Mutex mutex;
    std::map<std::string, Entry, std::less<>> models ABSL_GUARDED_BY(mutex);
  };
  using SharedState = std::shared_ptr<State>;  // last owner: the routes, or the last load or unload on its way

  void Control(const SageMakerMatch& match, HttpRequest& request, ResponseSender sender);
  void Invoke(std::string_view model, HttpRequest& request, ResponseSender sender);
  void List(ResponseSender sender) const;
  void Show(std::string_view model, ResponseSender sender) const;
  void Load(HttpRequest& request, ResponseSender sender);
  void Unload(std::string_view model, ResponseSender sender);
  static void Loaded(const SharedState& state, const std::string& name, const absl::Status& status,
                     ResponseSender sender);
  static void Unloaded(const SharedState& state, const std::string& name, bool gone, const absl::Status& status,
                       ResponseSender sender);

  const SharedState state_;
};

}  // namespace tidemark
