#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backend/backend.h"
#include "backends/tensorrt/trt_copy.h"
#include "backends/tensorrt/trt_engine.h"
#include "backends/tensorrt/trt_io.h"
#include "backends/tensorrt/trt_model.h"

namespace tidemark {

// One executable copy of a plan on one GPU: a context for each optimization profile of its group (never two at once),
// one stream, one block of activation memory that the contexts share, buffers for the inputs and outputs at the largest
// size that configuration and profiles allow, and (optimization.cuda.graphs) captured graphs. All of it is taken in
// Create, on the instance's scope; an execution takes nothing, unless an output turns out larger than was foreseen.
//
// Tensors that a client keeps in memory of the same GPU are copied there, on the instance's stream, and never pass the
// host. Small tensors (all of the instance's together up to `zero_copy_bytes`) lie in page-locked host memory that the GPU
// reads and writes itself: no copies. Others are staged through page-locked memory in chunks, so that the copy by the CPU
// and that over the bus overlap.
//
// Execute runs requests of one shape together as one batch. It runs on whatever thread calls it.
class TrtInstance final : public BackendInstance {
 private:
  struct Private {};  // only a member function can name it

 public:
  // `model`, `engine`, `io` and `scope` outlive the instance.
  static absl::StatusOr<std::unique_ptr<TrtInstance>> Create(const TrtModel& model, TrtEngine& engine, const TrtIo& io,
                                                             Scope& scope, const inference::ModelInstanceGroup& group,
                                                             std::string_view name);
  TrtInstance(Private, const TrtModel& model, TrtEngine& engine, const TrtIo& io, Scope& scope, std::string_view name);
  ~TrtInstance() override;

  void Execute(std::span<Execution* const> requests) noexcept override;
  absl::Status Health() const override;

 private:
  // One tensor of the engine and its memory.
  struct Binding {
    const TrtTensor* tensor = nullptr;
    int config_index = -1;                   // position in ModelConfig.input or .output; -1: not in it
    std::size_t capacity = 0;                // bytes of its memory
    cuda::Pointer address = 0;               // what the library gets
    std::byte* host = nullptr;               // the same memory for the CPU, where it can reach it
    std::unique_ptr<TrtOutputMemory> grows;  // outputs whose size only an execution knows
  };
  struct Profile {
    int index = 0;
    nv::Context context;
    Scope::Handle handle = nullptr;
    std::vector<Shape> shapes;  // by binding: inputs as they were set last, outputs as they follow; empty: unknown
    std::uint64_t values = 0;   // which values of shape inputs it has seen
  };
  struct CapturedGraph {
    GpuGraph graph;
    std::int64_t lowest_batch = 0;  // serves batches from here up to its own
    std::vector<Shape> shapes;      // by binding
  };
  // By profile (position) and the dimensions of all inputs.
  using GraphKey = std::vector<std::int64_t>;

  // One execution of the engine: requests of one shape.
  struct Batch {
    absl::InlinedVector<Execution*, 16> requests;
    absl::InlinedVector<std::int64_t, 16> sizes;  // batch size of each; 1 for a model that does not batch
    std::int64_t total = 0;
    Profile* profile = nullptr;
    const CapturedGraph* graph = nullptr;
    const std::vector<Shape>* shapes = nullptr;  // by binding, for the whole batch
  };

  bool batching() const { return config_.max_batch_size() > 0; }
  const TrtFormat& FormatOf(const Binding& binding, const Profile& profile) const {
    return binding.tensor->formats[static_cast<std::size_t>(profile.index)];
  }

  // Creation, in this order.
  absl::Status Open(const inference::ModelInstanceGroup& group);
  absl::Status MakeContexts(const inference::ModelInstanceGroup& group);
  absl::Status MakeContextMemory();
  absl::Status SizeBindings();
  absl::Status SizeFor(Profile& profile);
  Shape LargestShape(const Binding& binding, const Profile& profile) const;
  absl::Status MakeBuffers();
  absl::Status BindBuffers();
  absl::Status CaptureGraphs();
  absl::Status CaptureGraph(Profile& profile, std::size_t position, const std::vector<Shape>& shapes,
                            std::int64_t lowest_batch);
  GraphKey KeyOf(std::size_t position, const std::vector<Shape>& shapes) const;

  // Execution.
  void RunAll(std::span<Execution* const> requests);
  absl::Status CheckRequest(const Execution& request, std::int64_t* batch_size) const;
  const InputTensor* InputOf(const Execution& request, const Binding& binding) const;
  bool SameShapes(const Execution& a, const Execution& b) const;
  void RunBatch(Batch& batch);
  // `again`: the batch failed before anything was asked of its requests; it may be tried in parts.
  absl::Status TryBatch(Batch& batch, bool* again);
  std::vector<Shape>& WantedShapes(const Batch& batch);
  absl::Status ChooseProfile(Batch& batch, const std::vector<Shape>& shapes);
  std::int64_t Distance(const Profile& profile, const std::vector<Shape>& shapes) const;
  absl::Status WhyOutOfRange(const Profile& profile, const std::vector<Shape>& shapes) const;
  void FindGraph(Batch& batch, std::vector<Shape>& shapes);
  absl::Status SetShapes(Profile& profile, const std::vector<Shape>& shapes);
  void FillShapeInputs(const Batch& batch);
  absl::Status CheckBytes(const Batch& batch) const;
  absl::Status CopyInputs(const Batch& batch);
  absl::Status CopyInput(const Batch& batch, const Binding& binding);
  absl::Status Enqueue(const Batch& batch);
  // Room for what is known before the execution; a request that gets none fails alone.
  absl::Status MakeOutputs(const Batch& batch, std::size_t index, const Shape& shape);
  // Fetches what lies at `from` (on the host: at `host`, when that is not null) into the pieces of an output.
  absl::Status Fetch(cuda::Pointer from, const std::byte* host, std::span<const TrtCopier::Piece> pieces);
  absl::Status StartOutputs(const Batch& batch);
  absl::Status FinishOutputs(const Batch& batch);
  absl::Status Wait();

  const TrtModel& model_;
  const inference::ModelConfig& config_;
  TrtEngine& engine_;
  const TrtIo& io_;
  Gpus& gpus_;
  const DeviceId device_;
  Scope& scope_;
  const std::string name_;

  TrtErrors errors_;  // outlives the contexts
  std::unique_ptr<TrtTemporaries> temporaries_;
  std::vector<Profile> profiles_;
  std::vector<Binding> bindings_;     // as io_.tensors
  std::vector<std::size_t> inputs_;   // positions in bindings_
  std::vector<std::size_t> outputs_;  // those that the configuration has
  std::map<GraphKey, CapturedGraph> graphs_;
  GpuStream stream_;
  GpuEvent done_;
  bool spin_ = false;                  // optimization.cuda.busy_wait_events
  std::unique_ptr<TrtCopier> copier_;  // null: all tensors lie in memory that both sides reach
  bool splits_ = false;                // outputs of a batch can be told apart: requests may be run together
  std::int64_t batch_limit_ = 1;
  std::atomic<bool> unhealthy_{false};  // the library lost its own state

  bool device_copies_ = false;  // of this execution: into memory of clients, which somebody has to wait for
  std::uint64_t values_ = 1;    // counts changes of the values of shape inputs

  // Scratch of an execution, kept for its memory.
  std::vector<Shape> wanted_;
  std::vector<std::vector<std::byte>> shape_values_;    // by binding: what the host memory of a shape input holds
  std::vector<std::vector<TrtCopier::Piece>> targets_;  // by binding, then by request
  GraphKey key_;
};

}  // namespace tidemark
