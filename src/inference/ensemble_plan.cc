#include "inference/ensemble_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/status.h"
#include "repository/config_io.h"

namespace tidemark {
namespace {

// How a tensor of the pipeline looks, from whatever was seen of it first.
struct Look {
  std::string from;  // model
  DataType data_type = DataType::kInvalid;
  Shape dims;  // without a batch dimension
  bool batches = false;
  Shape Full() const {
    Shape full = dims;
    if (batches) full.insert(full.begin(), -1);
    return full;
  }
};

bool Agree(const Shape& a, const Shape& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](std::int64_t x, std::int64_t y) { return x == y || x < 0 || y < 0; });
}

// The members' own shapes, as the ensemble sees them.
class Looks {
 public:
  explicit Looks(const inference::ModelConfig& ensemble) : ensemble_(ensemble) {}

  template <typename Declared>
  void Seed(const Declared& declared) {
    Look look;
    look.from = ensemble_.name();
    look.data_type = TypeOf(declared);
    look.dims = BackendDimsOf(declared);
    look.batches = ensemble_.max_batch_size() > 0;
    looks_.emplace(declared.name(), std::move(look));
  }

  // Member `model` has the tensor with this declaration.
  template <typename Declared>
  absl::Status See(const std::string& tensor, const ModelInfo& model, const Declared& declared) {
    Look look;
    look.from = model.name();
    look.data_type = TypeOf(declared);
    look.dims = DimsOf(declared);
    look.batches = model.max_batch_size() > 0;
    const auto [it, is_first] = looks_.emplace(tensor, look);
    const Look& first = it->second;
    if (is_first) return absl::OkStatus();
    if (first.data_type != look.data_type) {
      return absl::InvalidArgumentError(fmt::format(
          "in ensemble {}, ensemble tensor {}: inconsistent data type: {} is inferred from model {} while {} "
          "is inferred from model {}",
          ensemble_.name(), tensor, ConfigName(first.data_type), first.from, ConfigName(look.data_type), look.from));
    }
    if (!Agree(first.dims, look.dims) && !Agree(first.Full(), look.Full())) {
      return absl::InvalidArgumentError(fmt::format(
          "in ensemble {}, ensemble tensor {}: inconsistent shape: {} is inferred from model {} while {} is "
          "inferred from model {}",
          ensemble_.name(), tensor, ShapeText(AsSpan(first.Full())), first.from, ShapeText(AsSpan(look.Full())),
          look.from));
    }
    return absl::OkStatus();
  }

 private:
  const inference::ModelConfig& ensemble_;
  std::map<std::string, Look> looks_;
};

template <typename Tensors>
auto FindByName(const Tensors& tensors, const std::string& name) {
  return std::find_if(tensors.begin(), tensors.end(), [&](const auto& tensor) { return tensor.name() == name; });
}

// Maps by name, in a fixed order.
std::map<std::string, std::string> Sorted(const google::protobuf::Map<std::string, std::string>& map) {
  return {map.begin(), map.end()};
}

absl::Status CheckInputs(const inference::ModelConfig& config, const inference::ModelEnsembling::Step& step,
                         const ModelInfo& member, Looks& looks) {
  for (const auto& [input, tensor] : Sorted(step.input_map())) {
    if (FindByName(member.config().input(), input) == member.config().input().end()) {
      return absl::InvalidArgumentError(
          fmt::format("in ensemble {}, ensemble tensor {} is mapping to non-existing input {} in model {}",
                      config.name(), tensor, input, step.model_name()));
    }
  }
  for (const inference::ModelInput& input : member.config().input()) {
    const auto mapped = step.input_map().find(input.name());
    if (mapped != step.input_map().end()) {
      RETURN_IF_ERROR(looks.See(mapped->second, member, input));
    } else if (!input.optional()) {
      return absl::InvalidArgumentError(
          fmt::format("in ensemble {}, input {} in model {} is not mapped to any ensemble tensors", config.name(),
                      input.name(), step.model_name()));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOutputs(const inference::ModelConfig& config, const inference::ModelEnsembling::Step& step,
                          const ModelInfo& member, Looks& looks) {
  std::set<std::string> made;
  for (const auto& [output, tensor] : Sorted(step.output_map())) {
    const auto declared = FindByName(member.config().output(), output);
    if (declared == member.config().output().end()) {
      return absl::InvalidArgumentError(
          fmt::format("in ensemble {}, ensemble tensor {} is mapped from non-existing output {} in model {}",
                      config.name(), tensor, output, step.model_name()));
    }
    RETURN_IF_ERROR(looks.See(tensor, member, *declared));
    if (!made.insert(tensor).second) {
      return absl::InvalidArgumentError(
          fmt::format("in ensemble {}, multiple outputs in model {} are mapped to the same ensemble tensor {}",
                      config.name(), step.model_name(), tensor));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> MembersOf(const inference::ModelConfig& config) {
  std::vector<std::string> members;
  for (const auto& step : config.ensemble_scheduling().step()) {
    if (std::find(members.begin(), members.end(), step.model_name()) == members.end()) {
      members.push_back(step.model_name());
    }
  }
  return members;
}

std::size_t EnsemblePlan::FindTensor(std::string_view name) const {
  const auto it = std::find_if(tensors_.begin(), tensors_.end(), [&](const Tensor& t) { return t.name == name; });
  return it == tensors_.end() ? kNone : static_cast<std::size_t>(it - tensors_.begin());
}

std::size_t EnsemblePlan::OriginOf(std::size_t tensor) const {
  const std::size_t producer = tensors_[tensor].producer;
  return producer == kNone ? kNone : steps_[producer].output_origin();
}

std::size_t EnsemblePlan::TensorNumber(const std::string& name) {
  if (const std::size_t known = FindTensor(name); known != kNone) return known;
  tensors_.push_back({name, kNone, {}});
  return tensors_.size() - 1;
}

void EnsemblePlan::Connect(const inference::ModelConfig& config) {
  for (const inference::ModelInput& input : config.input()) TensorNumber(input.name());
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const auto& step = config.ensemble_scheduling().step(static_cast<int>(i));
    for (const auto& [input, name] : Sorted(step.input_map())) {
      const std::size_t tensor = TensorNumber(name);
      steps_[i].inputs.emplace_back(input, tensor);
      tensors_[tensor].consumers.push_back(i);
    }
    for (const auto& [output, name] : Sorted(step.output_map())) {
      const std::size_t tensor = TensorNumber(name);
      steps_[i].outputs.emplace_back(output, tensor);
      tensors_[tensor].producer = i;
    }
  }
}

// From the inputs on: a step is looked at when the origins of all of its inputs are known.
absl::Status EnsemblePlan::FindOrigins(const inference::ModelConfig& config) {
  std::vector<bool> known(steps_.size(), false);
  for (bool progress = true; std::exchange(progress, false);) {
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const auto unknown = [&](const auto& input) {
        const std::size_t producer = tensors_[input.second].producer;
        return producer != kNone && !known[producer];
      };
      Step& step = steps_[i];
      if (known[i] || std::any_of(step.inputs.begin(), step.inputs.end(), unknown)) continue;
      for (const auto& [input, tensor] : step.inputs) {
        const std::size_t origin = OriginOf(tensor);
        if (origin == kNone || origin == step.origin) continue;
        if (step.origin != kNone) {
          return absl::InvalidArgumentError(fmt::format(
              "in ensemble {}, step of model '{}' receives inputs originated from different decoupled models",
              config.name(), step.model));
        }
        step.origin = origin;
      }
      step.own_origin_ = step.decoupled ? i : step.origin;
      known[i] = true;
      progress = true;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<EnsemblePlan> EnsemblePlan::Create(const inference::ModelConfig& config, FindMember find) {
  EnsemblePlan plan;
  Looks looks(config);
  for (const inference::ModelInput& input : config.input()) looks.Seed(input);
  for (const inference::ModelOutput& output : config.output()) looks.Seed(output);
  for (const auto& step : config.ensemble_scheduling().step()) {
    Step& added = plan.steps_.emplace_back();
    added.model = step.model_name();
    added.version = step.model_version();
    ASSIGN_OR_RETURN(const ModelInfo* const member, find(step, added.key));
    added.decoupled = member->decoupled();
    plan.decoupled_ = plan.decoupled_ || added.decoupled;
    if (member->max_batch_size() != 0 && member->max_batch_size() < config.max_batch_size()) {
      return absl::InvalidArgumentError(
          fmt::format("ensemble {} allows maximum batch size {}, but it contains model {} which only allows maximum "
                      "batch size to be {}",
                      config.name(), config.max_batch_size(), step.model_name(), member->max_batch_size()));
    }
    RETURN_IF_ERROR(CheckInputs(config, step, *member, looks));
    RETURN_IF_ERROR(CheckOutputs(config, step, *member, looks));
  }
  plan.Connect(config);
  RETURN_IF_ERROR(plan.FindOrigins(config));
  return plan;
}

}  // namespace tidemark
