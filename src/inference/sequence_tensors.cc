#include "inference/sequence_tensors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/status.h"
#include "repository/model_directory.h"
#include "repository/sequence_config.h"

namespace tidemark {
namespace {

using inference::ModelSequenceBatching;

template <typename Value>
std::string BytesOf(Value value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

// Bytes of a tensor of zeros: an empty string is its four length bytes.
std::size_t ZeroBytes(DataType data_type, const Shape& shape) {
  const std::int64_t elements = ElementCount(AsSpan(shape)).value_or(0);
  return static_cast<std::size_t>(elements) *
         (data_type == DataType::kBytes ? sizeof(std::uint32_t) : ElementByteSize(data_type));
}

}  // namespace

void SequenceState::Commit() {
  for (std::size_t i = 0; i < next.size(); ++i) {
    if (next[i].has_value()) current[i] = *std::exchange(next[i], std::nullopt);
  }
}

void SequenceState::Discard() {
  for (std::optional<StateTensor>& tensor : next) tensor.reset();
}

absl::StatusOr<std::unique_ptr<SequenceTensors>> SequenceTensors::Create(const ModelInfo& info,
                                                                         const std::filesystem::path& model_directory,
                                                                         BufferPool& buffers) {
  auto tensors = std::make_unique<SequenceTensors>(Private(), info, buffers);
  const ModelSequenceBatching& config = info.config().sequence_batching();
  tensors->control_shape_ = info.max_batch_size() > 0 ? Shape{1, 1} : Shape{1};
  for (const auto& input : config.control_input()) {
    if (!input.control().empty()) RETURN_IF_ERROR(tensors->AddControl(input.control(0), input.name()));
  }
  for (const auto& state : config.state()) RETURN_IF_ERROR(tensors->AddState(state, model_directory));
  return tensors;
}

absl::Status SequenceTensors::AddControl(const ModelSequenceBatching::Control& control, const std::string& name) {
  Control& added = controls_.emplace_back();
  added.name = name;
  added.data_type = ControlType(control);
  switch (control.kind()) {
    case ModelSequenceBatching::Control::CONTROL_SEQUENCE_START:
      added.kind = Control::Kind::kStart;
      break;
    case ModelSequenceBatching::Control::CONTROL_SEQUENCE_END:
      added.kind = Control::Kind::kEnd;
      break;
    case ModelSequenceBatching::Control::CONTROL_SEQUENCE_READY:
      added.kind = Control::Kind::kReady;
      break;
    default:
      added.kind = Control::Kind::kCorrelation;
      return absl::OkStatus();
  }
  if (control.int32_false_true_size() == 2) {
    added.when_false = BytesOf(control.int32_false_true(0));
    added.when_true = BytesOf(control.int32_false_true(1));
  } else if (control.fp32_false_true_size() == 2) {
    added.when_false = BytesOf(control.fp32_false_true(0));
    added.when_true = BytesOf(control.fp32_false_true(1));
  } else if (control.bool_false_true_size() == 2) {
    added.when_false = BytesOf(static_cast<std::uint8_t>(control.bool_false_true(0)));
    added.when_true = BytesOf(static_cast<std::uint8_t>(control.bool_false_true(1)));
  }
  return absl::OkStatus();
}

absl::Status SequenceTensors::AddState(const ModelSequenceBatching::State& state,
                                       const std::filesystem::path& model_directory) {
  if (!state.initial_state().empty() &&
      std::any_of(states_.begin(), states_.end(), [&](const State& s) { return s.input_name == state.input_name(); })) {
    return absl::InvalidArgumentError(
        fmt::format("State input name '{}' specified more than once.", state.input_name()));
  }
  State added;
  added.input_name = state.input_name();
  added.data_type = static_cast<DataType>(state.data_type());
  for (int i = 0; i < state.dims_size(); ++i) {
    const std::int64_t dim = state.initial_state().empty() ? state.dims(i) : state.initial_state(0).dims(i);
    added.shape.push_back(dim < 0 ? 1 : dim);
  }
  if (info_.max_batch_size() > 0) added.shape.insert(added.shape.begin(), 1);
  const std::size_t bytes = ZeroBytes(added.data_type, added.shape);
  added.initial.assign(bytes, '\0');
  if (!state.initial_state().empty()) {
    const ModelSequenceBatching::InitialState& initial = state.initial_state(0);
    if (initial.state_data_case() == ModelSequenceBatching::InitialState::kDataFile) {
      const std::filesystem::path file = std::filesystem::path(initial.data_file()).lexically_normal();
      if (file.is_absolute() || (!file.empty() && *file.begin() == "..")) {
        return absl::InvalidArgumentError(
            fmt::format("initial state file '{}' of state '{}' leads out of the model's 'initial_state' folder",
                        initial.data_file(), state.input_name()));
      }
      ASSIGN_OR_RETURN(added.initial, ReadFile(model_directory / "initial_state" / file, "initial state"));
      if (added.data_type != DataType::kBytes) {
        if (added.initial.size() < bytes) {
          return absl::InvalidArgumentError(
              fmt::format("initial_state setting expects {} bytes, but the data provided from {}only has {} bytes.",
                          bytes, initial.data_file(), added.initial.size()));
        }
        added.initial.resize(bytes);
      }
    }
  }
  const TensorInfo* declared = info_.FindOutput(state.output_name());
  if (declared != nullptr) {
    added.output = static_cast<std::size_t>(declared - info_.outputs().data());
  } else {
    std::size_t before = 0;  // states whose outputs are no declared ones either
    for (const State& other : states_) before += other.output >= info_.outputs().size() ? 1 : 0;
    added.output = info_.outputs().size() + before;
  }
  states_.push_back(std::move(added));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<SequenceState>> SequenceTensors::NewState() const {
  auto result = std::make_shared<SequenceState>();  // last owner: the sequence's slot, or its last execution
  result->next.resize(states_.size());
  for (const State& state : states_) {
    StateTensor& tensor = result->current.emplace_back();
    tensor.data_type = state.data_type;
    tensor.shape = state.shape;
    ASSIGN_OR_RETURN(tensor.data, buffers_.Allocate(state.initial.size()));
    if (!state.initial.empty()) std::memcpy(tensor.data.data(), state.initial.data(), state.initial.size());
  }
  return result;
}

absl::Status SequenceTensors::CheckId(const InferenceRequest& request) const {
  const bool is_text = std::holds_alternative<std::string>(request.sequence_id);
  for (const Control& control : controls_) {
    if (control.kind != Control::Kind::kCorrelation || is_text == (control.data_type == DataType::kBytes)) continue;
    return absl::InvalidArgumentError(
        fmt::format("{}sequence batching control '{}' data-type is '{}', but model '{}' expects '{}'", request.Prefix(),
                    control.name, is_text ? "BYTES" : "UINT64", info_.name(), ProtocolName(control.data_type)));
  }
  return absl::OkStatus();
}

std::string SequenceTensors::IdBytes(const Control& control, const CorrelationId& id) const {
  const auto* number = std::get_if<std::uint64_t>(&id);
  if (control.data_type == DataType::kBytes) {
    const std::string text = number == nullptr ? std::get<std::string>(id) : std::string();
    return BytesOf(static_cast<std::uint32_t>(text.size())) + text;
  }
  // The low bytes of a number that is narrower than the id.
  return BytesOf(number != nullptr ? *number : std::uint64_t{0}).substr(0, ElementByteSize(control.data_type));
}

void SequenceTensors::Append(ScheduledRequest& scheduled, std::shared_ptr<SequenceState> state, bool ready) const {
  const InferenceRequest& request = *scheduled.request;
  std::string& memory = scheduled.controls;
  std::vector<std::pair<std::size_t, std::size_t>> places;
  for (const Control& control : controls_) {
    const std::size_t begin = memory.size();
    switch (control.kind) {
      case Control::Kind::kStart:
        memory += ready && request.sequence_start ? control.when_true : control.when_false;
        break;
      case Control::Kind::kEnd:
        memory += ready && request.sequence_end ? control.when_true : control.when_false;
        break;
      case Control::Kind::kReady:
        memory += ready ? control.when_true : control.when_false;
        break;
      case Control::Kind::kCorrelation:
        memory += IdBytes(control, ready ? CorrelationId(request.sequence_id) : CorrelationId(std::uint64_t{0}));
        break;
    }
    const std::size_t bytes = memory.size() - begin;
    memory.resize((memory.size() + 7) / 8 * 8);  // the next one is aligned
    places.emplace_back(begin, bytes);
  }
  if (memory.size() < 64) memory.reserve(64);  // never inside the string object: the request moves
  std::size_t index = info_.inputs().size();
  const std::span<const std::byte> bytes = std::as_bytes(std::span(memory));
  for (std::size_t i = 0; i < controls_.size(); ++i, ++index) {
    scheduled.tensors.push_back({index, controls_[i].name, controls_[i].data_type, control_shape_,
                                 bytes.subspan(places[i].first, places[i].second)});
  }
  for (std::size_t i = 0; i < states_.size(); ++i, ++index) {
    const StateTensor& tensor = state->current[i];
    scheduled.tensors.push_back({index, states_[i].input_name, tensor.data_type, tensor.shape, tensor.data.bytes()});
  }
  scheduled.state = std::move(state);
}

void SequenceTensors::Strip(ScheduledRequest& scheduled) const {
  std::erase_if(scheduled.tensors, [&](const InputTensor& tensor) { return tensor.index >= info_.inputs().size(); });
  scheduled.controls.clear();
  scheduled.state.reset();
}

CorrelationId SequenceTensors::MakeId(std::uint64_t number) const {
  const bool text = std::any_of(controls_.begin(), controls_.end(), [](const Control& control) {
    return control.kind == Control::Kind::kCorrelation && control.data_type == DataType::kBytes;
  });
  return text ? CorrelationId(fmt::format("{}", number)) : CorrelationId(number);
}

absl::StatusOr<ScheduledRequest> SequenceTensors::MakeNull(const ScheduledRequest& like) const {
  ScheduledRequest null;
  null.is_null = true;
  null.request = std::make_unique<InferenceRequest>();
  std::size_t bytes = 0;
  for (const InputTensor& tensor : like.tensors) {
    if (tensor.index < info_.inputs().size()) bytes = std::max(bytes, ZeroBytes(tensor.data_type, tensor.shape));
  }
  ASSIGN_OR_RETURN(null.request->body, buffers_.Allocate(bytes));
  if (bytes != 0) std::memset(null.request->body.data(), 0, bytes);
  for (const InputTensor& tensor : like.tensors) {
    if (tensor.index >= info_.inputs().size()) continue;
    InputTensor& zero = null.tensors.emplace_back(tensor);
    zero.data = null.request->body.bytes().first(ZeroBytes(tensor.data_type, tensor.shape));
  }
  ASSIGN_OR_RETURN(std::shared_ptr<SequenceState> state, NewState());
  Append(null, std::move(state), false);
  return null;
}

std::optional<std::size_t> SequenceTensors::StateOfOutput(std::size_t index) const {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (states_[i].output == index) return i;
  }
  return std::nullopt;
}

}  // namespace tidemark
