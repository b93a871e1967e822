#include "backend/batch_execution.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <list>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "base/status.h"

namespace tidemark {
namespace {

// Rows of the request in the batch; 0 when it has no input to tell by.
std::int64_t Rows(const Execution& request) {
  return request.inputs.empty() || request.inputs[0].shape.empty() ? 0 : request.inputs[0].shape[0];
}

bool Stackable(const Execution& first, const Execution& other, const RaggedPlan* plan) {
  return std::equal(first.inputs.begin(), first.inputs.end(), other.inputs.begin(), other.inputs.end(),
                    [&](const InputTensor& a, const InputTensor& b) {
                      if (plan != nullptr && plan->ragged(a.index)) {
                        return a.index == b.index && a.data_type == b.data_type;
                      }
                      return a.index == b.index && a.data_type == b.data_type && !b.shape.empty() &&
                             b.shape[0] == Rows(other) && a.shape.size() == b.shape.size() &&
                             std::equal(a.shape.begin() + 1, a.shape.end(), b.shape.begin() + 1);
                    });
}

// Bytes of the first `rows` of `total` rows of a tensor; nullopt when its data is cut.
std::optional<std::size_t> BytesOfRows(DataType data_type, std::span<const std::byte> data, std::int64_t elements) {
  if (data_type != DataType::kBytes) return static_cast<std::size_t>(elements) * ElementByteSize(data_type);
  std::size_t at = 0;
  for (std::int64_t i = 0; i < elements; ++i) {
    std::uint32_t length = 0;
    if (data.size() - at < sizeof length) return std::nullopt;
    std::memcpy(&length, data.data() + at, sizeof length);
    at += sizeof length;
    if (data.size() - at < length) return std::nullopt;
    at += length;
  }
  return at;
}

// Takes the outputs of the whole.
class WholeSink final : public OutputSink {
 public:
  WholeSink(std::span<Execution* const> requests, BufferPool& buffers) : requests_(requests), buffers_(buffers) {}

  bool Wants(std::size_t index) const override {
    return std::any_of(requests_.begin(), requests_.end(),
                       [&](const Execution* request) { return request->outputs->Wants(index); });
  }

  absl::StatusOr<std::span<std::byte>> Allocate(std::size_t index, DataType data_type,
                                                std::span<const std::int64_t> shape, std::size_t bytes) override {
    ASSIGN_OR_RETURN(Buffer buffer, buffers_.Allocate(bytes));
    const std::span<std::byte> memory = buffer.bytes();
    RETURN_IF_ERROR(Give(index, data_type, shape, std::move(buffer)));
    return memory;
  }

  absl::Status Give(std::size_t index, DataType data_type, std::span<const std::int64_t> shape, Buffer data) override {
    Output& output = outputs_.emplace_back();
    output.index = index;
    output.data_type = data_type;
    output.shape = Shape(shape.begin(), shape.end());
    output.data = std::move(data);
    return absl::OkStatus();
  }

  // Cuts every output into the requests' own, those that `plan` (may be null) names by their shapes; the status of each.
  void Scatter(std::int64_t total, const RaggedPlan* plan) {
    for (const Output& output : outputs_) {
      absl::Status status = requests_.size() == 1 ? absl::OkStatus() : Check(output, total);
      std::span<const std::byte> rest = output.data.bytes();
      for (Execution* request : requests_) {
        std::optional<Shape> shape;
        if (plan != nullptr) shape = plan->PartShape(output.index, *request);
        if (shape.has_value()) {
          status = absl::OkStatus();
        } else if (status.ok()) {
          shape = output.shape;
          if (requests_.size() > 1) (*shape)[0] = Rows(*request);
        }
        if (!status.ok()) {
          if (request->status.ok()) request->status = status;
          continue;
        }
        // Of a request that has failed, too: the next one's part begins behind its own.
        const absl::Status cut = ScatterOne(output, *request, *shape, rest);
        if (request->status.ok()) request->status = cut;
      }
    }
  }

 private:
  struct Output {
    std::size_t index = 0;
    DataType data_type = DataType::kInvalid;
    Shape shape;
    Buffer data;
  };

  static absl::Status Check(const Output& output, std::int64_t total) {
    if (!output.shape.empty() && output.shape[0] == total) return absl::OkStatus();
    return absl::InternalError(
        fmt::format("output {} of a batch of {} has shape {}: its first dimension is not the batch", output.index,
                    total, ShapeText(AsSpan(output.shape))));
  }

  static absl::Status ScatterOne(const Output& output, Execution& request, const Shape& shape,
                                 std::span<const std::byte>& rest) {
    const std::int64_t elements = ElementCount(AsSpan(shape)).value_or(0);
    const std::optional<std::size_t> bytes = BytesOfRows(output.data_type, rest, elements);
    if (!bytes.has_value() || *bytes > rest.size()) {
      rest = {};  // nobody knows where the next part begins
      return absl::InternalError(fmt::format("output {} of a batch is shorter than its shape {}", output.index,
                                             ShapeText(AsSpan(output.shape))));
    }
    const std::span<const std::byte> own = rest.first(*bytes);
    rest = rest.subspan(*bytes);
    if (!request.status.ok() || !request.outputs->Wants(output.index)) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::span<std::byte> target,
                     request.outputs->Allocate(output.index, output.data_type, AsSpan(shape), own.size()));
    if (!own.empty()) std::memcpy(target.data(), own.data(), own.size());
    return absl::OkStatus();
  }

  const std::span<Execution* const> requests_;
  BufferPool& buffers_;
  absl::InlinedVector<Output, 4> outputs_;
};

// Set when nobody waits for any of the requests any more.
class CommonCancel {
 public:
  explicit CommonCancel(std::span<Execution* const> requests) {
    if (std::any_of(requests.begin(), requests.end(), [](const Execution* r) { return r->cancel == nullptr; })) return;
    waiting_ = requests.size();
    flag_.emplace();
    for (const Execution* request : requests) {
      watches_.emplace_back(request->cancel, [this] {
        if (waiting_.fetch_sub(1) == 1) flag_->Cancel();
      });
    }
  }
  CancelFlag* get() { return flag_.has_value() ? &*flag_ : nullptr; }

 private:
  std::atomic<std::size_t> waiting_{0};
  std::optional<CancelFlag> flag_;
  std::list<ScopedOnCancel> watches_;  // dies first
};

// The inputs of all requests behind each other, in `memory`; false when they do not fit together or memory is short.
bool Gather(std::span<Execution* const> requests, const RaggedPlan* plan, std::int64_t total,
            std::vector<InputTensor>& inputs, std::vector<Buffer>& memory) {
  const Execution& first = *requests[0];
  for (const Execution* request : requests) {
    if (requests.size() > 1 && (Rows(*request) <= 0 || !Stackable(first, *request, plan))) return false;
  }
  for (std::size_t i = 0; i < first.inputs.size(); ++i) {
    std::size_t bytes = 0;
    for (const Execution* request : requests) bytes += request->inputs[i].data.size();
    absl::StatusOr<Buffer> buffer = first.buffers->Allocate(bytes);
    if (!buffer.ok()) return false;
    std::byte* at = buffer->data();
    for (const Execution* request : requests) {
      const std::span<const std::byte> data = request->inputs[i].data;
      if (!data.empty()) std::memcpy(at, data.data(), data.size());
      at += data.size();
    }
    InputTensor& input = inputs.emplace_back(first.inputs[i]);
    if (plan != nullptr && plan->ragged(input.index)) {
      std::int64_t elements = 0;
      for (const Execution* request : requests) {
        elements += ElementCount(AsSpan(request->inputs[i].shape)).value_or(0);
      }
      input.shape = {elements};
    } else if (requests.size() > 1) {
      input.shape[0] = total;
    }
    input.data = buffer->bytes();
    memory.push_back(*std::move(buffer));
  }
  return true;
}

std::int64_t LatestDeadline(std::span<Execution* const> requests) {
  std::int64_t latest = 0;
  for (const Execution* request : requests) {
    if (request->deadline_nanos == 0) return 0;
    latest = std::max(latest, request->deadline_nanos);
  }
  return latest;
}

// False when the requests have to be run one by one.
bool RunAsOne(std::span<Execution* const> requests, const RaggedPlan* plan, absl::FunctionRef<void(Execution&)> run) {
  std::vector<InputTensor> inputs;
  std::vector<Buffer> memory;
  std::int64_t total = 0;
  for (const Execution* request : requests) total += Rows(*request);
  if (requests[0]->buffers == nullptr || !Gather(requests, plan, total, inputs, memory)) return false;
  if (plan != nullptr) {
    absl::Status made = plan->Make(requests, *requests[0]->buffers, inputs, memory);
    if (!made.ok() && requests.size() > 1) return false;
    if (!made.ok()) {
      requests[0]->status = std::move(made);
      return true;
    }
  }
  WholeSink sink(requests, *requests[0]->buffers);
  CommonCancel cancel(requests);
  Execution whole;
  whole.inputs = inputs;
  whole.outputs = &sink;
  whole.cancel = cancel.get();
  whole.deadline_nanos = LatestDeadline(requests);
  whole.buffers = requests[0]->buffers;
  whole.parameters = requests[0]->parameters;
  whole.request_id = requests[0]->request_id;
  run(whole);
  if (requests.size() > 1 && !whole.status.ok() && !absl::IsCancelled(whole.status) &&
      !absl::IsDeadlineExceeded(whole.status)) {
    return false;
  }
  for (Execution* request : requests) {
    request->status = whole.status;
    request->infer_start_nanos = whole.infer_start_nanos;
    request->infer_end_nanos = whole.infer_end_nanos;
  }
  if (whole.status.ok()) sink.Scatter(total, plan);
  return true;
}

}  // namespace

void ExecuteAsBatch(std::span<Execution* const> requests, bool stacks,
                    absl::FunctionRef<void(Execution& request)> run) noexcept {
  if (requests.size() > 1 && stacks) {
    try {
      if (RunAsOne(requests, nullptr, run)) return;
    } catch (const std::exception&) {
      // No memory for the lists: one by one takes none.
    }
  }
  for (Execution* request : requests) run(*request);
}

void ExecuteRagged(std::span<Execution* const> requests, const RaggedPlan& plan,
                   absl::FunctionRef<void(Execution& request)> run) noexcept {
  const auto run_together = [&](std::span<Execution* const> some) {
    try {
      return RunAsOne(some, &plan, run);
    } catch (const std::exception&) {
      return false;
    }
  };
  if (requests.size() > 1 && run_together(requests)) return;
  for (Execution* request : requests) {
    if (run_together({&request, 1})) continue;
    request->status = absl::ResourceExhaustedError("there is no memory to put the request's inputs together");
  }
}

}  // namespace tidemark
