#include "tests/support/decoupled_backends.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/status.h"

namespace tidemark {
namespace {

// Waits until `end`; false when the request was cancelled first.
bool WaitUntil(absl::Time end, CancelFlag* cancel) {
  absl::Mutex mutex;
  bool cancelled = cancel != nullptr && cancel->cancelled();
  {
    const ScopedOnCancel on_cancel(cancel, [&] {
      absl::MutexLock lock(&mutex);
      cancelled = true;
    });
    absl::MutexLock lock(&mutex);
    mutex.AwaitWithDeadline(absl::Condition(&cancelled), end);
  }
  return !cancelled;
}

template <typename Element>
absl::StatusOr<std::vector<Element>> Read(const Execution& request, std::string_view name) {
  for (const InputTensor& input : request.inputs) {
    if (input.name != name) continue;
    std::vector<Element> values(input.data.size() / sizeof(Element));
    if (!values.empty()) std::memcpy(values.data(), input.data.data(), values.size() * sizeof(Element));
    return values;
  }
  return absl::InvalidArgumentError(fmt::format("the request has no input '{}'", name));
}

template <typename Element>
absl::Status Write(OutputSink& outputs, std::size_t index, DataType data_type, Element value) {
  if (!outputs.Wants(index)) return absl::OkStatus();
  constexpr std::int64_t kShape[] = {1};
  ASSIGN_OR_RETURN(const std::span<std::byte> target, outputs.Allocate(index, data_type, kShape, sizeof value));
  std::memcpy(target.data(), &value, sizeof value);
  return absl::OkStatus();
}

absl::Status Repeat(Execution& request) {
  const absl::Time begin = absl::Now();
  ASSIGN_OR_RETURN(const std::vector<std::int32_t> in, Read<std::int32_t>(request, "IN"));
  ASSIGN_OR_RETURN(const std::vector<std::uint32_t> delay, Read<std::uint32_t>(request, "DELAY"));
  ASSIGN_OR_RETURN(const std::vector<std::uint32_t> wait, Read<std::uint32_t>(request, "WAIT"));
  if (delay.size() != in.size()) {
    return absl::InvalidArgumentError(fmt::format(
        "expected IN and DELAY to have the same number of elements, got {} and {}", in.size(), delay.size()));
  }
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (delay[i] != 0 && !WaitUntil(absl::Now() + absl::Milliseconds(delay[i]), request.cancel)) {
      return absl::CancelledError("");
    }
    if (in[i] < 0) return absl::InvalidArgumentError("negative element");
    RETURN_IF_ERROR(Write(*request.outputs, 0, DataType::kInt32, in[i]));
    RETURN_IF_ERROR(Write(*request.outputs, 1, DataType::kUint32, static_cast<std::uint32_t>(i)));
    RETURN_IF_ERROR(request.outputs->Send());
  }
  const absl::Time end = begin + absl::Milliseconds(wait.empty() ? 0 : wait[0]);
  return WaitUntil(end, request.cancel) ? absl::OkStatus() : absl::CancelledError("");
}

absl::Status Square(Execution& request) {
  ASSIGN_OR_RETURN(const std::vector<std::int32_t> in, Read<std::int32_t>(request, "IN"));
  if (in.size() != 1) return absl::InvalidArgumentError(fmt::format("IN has {} elements, expected 1", in.size()));
  for (std::int32_t i = 0; i < in[0]; ++i) {
    RETURN_IF_ERROR(Write(*request.outputs, 0, DataType::kInt32, in[0]));
    RETURN_IF_ERROR(request.outputs->Send());
  }
  return absl::OkStatus();
}

using Body = absl::Status (*)(Execution& request);

class DecoupledInstance final : public BackendInstance {
 public:
  explicit DecoupledInstance(Body body) : body_(body) {}
  void Execute(std::span<Execution* const> requests) noexcept override {
    for (Execution* request : requests) request->status = body_(*request);
  }
  bool thread_bound() const override { return true; }

 private:
  const Body body_;
};

class DecoupledModel final : public BackendModel {
 public:
  DecoupledModel(inference::ModelConfig config, Body body) : config_(std::move(config)), body_(body) {}
  const inference::ModelConfig& config() const override { return config_; }
  absl::StatusOr<std::unique_ptr<BackendInstance>> CreateInstance(Scope& /*scope*/,
                                                                  const inference::ModelInstanceGroup& /*group*/,
                                                                  std::string_view /*name*/,
                                                                  DeviceId /*device*/) override {
    return std::make_unique<DecoupledInstance>(body_);
  }

 private:
  const inference::ModelConfig config_;
  const Body body_;
};

class DecoupledBackend final : public Backend {
 public:
  DecoupledBackend(std::string_view name, Body body) : name_(name), body_(body) {}
  std::string_view name() const override { return name_; }
  bool warms_up_unasked() const override { return false; }
  absl::StatusOr<std::unique_ptr<BackendModel>> CreateModel(const ModelArtifact& /*artifact*/,
                                                            const inference::ModelConfig& config,
                                                            Scope& /*scope*/) override {
    return std::make_unique<DecoupledModel>(config, body_);
  }

 private:
  const std::string name_;
  const Body body_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateRepeatBackend(const BackendContext& /*context*/) {
  return std::make_unique<DecoupledBackend>("repeat", &Repeat);
}

absl::StatusOr<std::unique_ptr<Backend>> CreateSquareBackend(const BackendContext& /*context*/) {
  return std::make_unique<DecoupledBackend>("square", &Square);
}

}  // namespace tidemark
