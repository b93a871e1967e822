#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "repository/config_validate_internal.h"

namespace tidemark {
namespace {

using inference::ModelConfig;
using Control = inference::ModelSequenceBatching::Control;
using State = inference::ModelSequenceBatching::State;
using InitialState = inference::ModelSequenceBatching::InitialState;

// The values of one boolean control. `where` is its path.
void CheckBooleanControl(const Control& control, const std::string& name, const std::string& where, Findings* out) {
  const std::string& kind = inference::ModelSequenceBatching_Control_Kind_Name(control.kind());
  const std::array<std::pair<std::string_view, int>, 3> lists = {{{"int32_false_true", control.int32_false_true_size()},
                                                                  {"fp32_false_true", control.fp32_false_true_size()},
                                                                  {"bool_false_true", control.bool_false_true_size()}}};
  const auto set = std::count_if(lists.begin(), lists.end(), [](const auto& list) { return list.second > 0; });
  if (set == 0) {
    out->Add(where + ".int32_false_true",
             "sequence batching must specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' for {} "
             "for {}",
             kind, name)
        .Says("", "the value for false and the value for true, in the tensor's type")
        .SetTo("[ 0, 1 ]");
  } else if (set > 1) {
    out->Add(where,
             "sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' and "
             "'bool_false_true' for {} for {}",
             kind, name)
        .Says(fmt::format("{} lists of values", set), "one list, in the tensor's type")
        .Advise("keep the list of the tensor's type");
  }
  if (set != 1) return;
  for (const auto& [list, size] : lists) {
    if (size == 0 || size == 2) continue;
    out->Add(fmt::format("{}.{}", where, list),
             "sequence batching control '{}' must have exactly 2 entries for {} for {}", list, kind, name)
        .Says(fmt::format("{} {}", size, size == 1 ? "entry" : "entries"), "2 entries: false, true")
        .SetTo(list == "bool_false_true" ? "[ false, true ]" : "[ 0, 1 ]");
  }
}

void CheckCorrelationControl(const Control& control, const std::string& name, const std::string& where, Findings* out) {
  const std::pair<const char*, int> lists[] = {{"int32_false_true", control.int32_false_true_size()},
                                               {"fp32_false_true", control.fp32_false_true_size()},
                                               {"bool_false_true", control.bool_false_true_size()}};
  for (const auto& [list, size] : lists) {
    if (size == 0) continue;
    out->Add(fmt::format("{}.{}", where, list),
             "sequence batching must not specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' "
             "for CONTROL_SEQUENCE_CORRID for {}",
             name)
        .Says(fmt::format("'{}'", list), "only 'data_type' for a correlation id")
        .Remove();
  }
  const inference::DataType type = control.data_type();
  if (type != inference::TYPE_UINT64 && type != inference::TYPE_INT64 && type != inference::TYPE_UINT32 &&
      type != inference::TYPE_INT32 && type != inference::TYPE_STRING) {
    out->Add(where + ".data_type",
             "unexpected data type for control CONTROL_SEQUENCE_CORRID for {}. Allowed data types are TYPE_UINT64, "
             "TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING",
             name)
        .Says(type == inference::TYPE_INVALID ? std::string() : inference::DataType_Name(type),
              "TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 or TYPE_STRING")
        .SetTo("TYPE_UINT64");
  }
}

void CheckControlNames(const ModelConfig& config, Findings* out) {
  const auto& inputs = config.sequence_batching().control_input();
  std::set<std::string> seen;
  for (int i = 0; i < inputs.size(); ++i) {
    const std::string where = fmt::format("sequence_batching.control_input[{}].name", i);
    if (inputs[i].name().empty()) {
      out->Add(where, "sequence batching control tensor must have a name for {}", config.name())
          .Says("", "the name of an input of the model");
    } else if (!seen.insert(inputs[i].name()).second) {
      out->Add(where, "sequence batching control tensor '{}' is specified for multiple control kinds for {}",
               inputs[i].name(), config.name())
          .Says(fmt::format("'{}' again", inputs[i].name()), "another input for each control");
    }
  }
}

// Triton walks all controls once for each kind; so does this, that the first finding is the same.
void CheckControls(const ModelConfig& config, Findings* out) {
  CheckControlNames(config, out);
  const std::string& name = config.name();
  const auto& inputs = config.sequence_batching().control_input();
  for (const Control::Kind kind : {Control::CONTROL_SEQUENCE_START, Control::CONTROL_SEQUENCE_END,
                                   Control::CONTROL_SEQUENCE_READY, Control::CONTROL_SEQUENCE_CORRID}) {
    int count = 0;
    for (int i = 0; i < inputs.size(); ++i) {
      for (int k = 0; k < inputs[i].control_size(); ++k) {
        const Control& control = inputs[i].control(k);
        if (control.kind() != kind) continue;
        const std::string where = fmt::format("sequence_batching.control_input[{}].control[{}]", i, k);
        const std::string& kind_name = inference::ModelSequenceBatching_Control_Kind_Name(kind);
        if (++count == 2) {
          out->Add(where + ".kind", "sequence batching specifies multiple {} tensors for {}", kind_name, name)
              .Says(kind_name + " again", "each kind once");
        }
        if (kind == Control::CONTROL_SEQUENCE_CORRID) {
          CheckCorrelationControl(control, name, where, out);
        } else {
          CheckBooleanControl(control, name, where, out);
        }
      }
    }
  }
}

void CheckInitialDims(const State& state, const InitialState& initial, const std::string& where, Findings* out) {
  const std::string& name = state.input_name();
  if (initial.dims_size() != state.dims_size()) {
    out->Add(
           where + ".dims",
           "Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for state input '{}'. "
           "{} != {}",
           name, initial.dims_size(), state.dims_size())
        .Says(fmt::format("{} dimensions", initial.dims_size()),
              fmt::format("{} dimensions, as the state has", state.dims_size()));
    return;
  }
  for (int d = 0; d < initial.dims_size(); ++d) {
    const std::string at = fmt::format("{}.dims[{}]", where, d);
    const std::int64_t ours = initial.dims(d);
    const std::int64_t declared = state.dims(d);
    if (ours == -1) {
      Finding& finding =
          out->Add(at, "'initial_state' field for state input name '{}' contains variable dimensions.", name)
              .Says("-1", declared > 0 ? fmt::format("{}", declared) : std::string("a fixed size"));
      if (declared > 0) finding.SetTo(fmt::format("{}", declared));
    } else if (declared != -1 && ours != declared) {
      out->Add(at, "'initial_state' dim for input name '{}' doesn't match 'state' dim description. {} != {}", name,
               ours, declared)
          .Says(fmt::format("{}", ours), fmt::format("{}, as the state has", declared))
          .SetTo(fmt::format("{}", declared));
    }
  }
}

void CheckInitialState(const State& state, const std::string& path, std::set<std::string>* seen, Findings* out) {
  const std::string& name = state.input_name();
  if (state.initial_state_size() == 0) return;
  if (state.initial_state_size() > 1) {
    out->Add(path + ".initial_state[1]",
             "initial_state field for state input '{}' must contain exactly one or zero element. Found '{}' elements.",
             name, state.initial_state_size())
        .Says(fmt::format("{} elements", state.initial_state_size()), "one or none")
        .Remove();
  }
  const InitialState& initial = state.initial_state(0);
  const std::string where = path + ".initial_state[0]";
  if (initial.data_type() != state.data_type()) {
    out->Add(where + ".data_type",
             "The data type used for 'initial_state' field of state '{}' does not match the state data type.", name)
        .Says(inference::DataType_Name(initial.data_type()),
              fmt::format("{}, as the state has", inference::DataType_Name(state.data_type())))
        .SetTo(inference::DataType_Name(state.data_type()));
  }
  if (initial.name().empty()) {
    out->Add(where + ".name", "Field 'name' must be set when using initial_state for state input '{}'.", name)
        .Says("", "a name")
        .SetTo(QuotedText(name + "_initial"));
  }
  if (!seen->insert(name).second) {
    out->Add(path + ".input_name", "State input name '{}' specified more than once.", name)
        .Says(fmt::format("'{}' again", name), "each state once");
  }
  CheckInitialDims(state, initial, where, out);
  if (initial.state_data_case() == InitialState::STATE_DATA_NOT_SET) {
    out->Add(where + ".zero_data", "initial_state setting expects state'{}' to have state_data set", name)
        .Says("", "zero_data or data_file")
        .SetTo("true");
  }
}

void CheckStateMemory(const State& state, const ModelConfig& config, const std::string& path, Findings* out) {
  if (!state.use_growable_memory()) return;
  if (!state.use_same_buffer_for_input_output()) {
    out->Add(path + ".use_same_buffer_for_input_output",
             "In order to 'use_growable_memory', you must also enable 'use_single_buffer' for state input name '{}'.",
             state.input_name())
        .Says("false", "true with use_growable_memory")
        .SetTo("true")
        .AsWarning();
  }
  for (const auto& group : config.instance_group()) {
    if (group.kind() == inference::ModelInstanceGroup::KIND_GPU) continue;
    out->Add(path + ".use_growable_memory",
             "'use_growable_memory' can only work with KIND_GPU model instances right now. Please either change the "
             "instance type to KIND_GPU or set 'use_growable_memory' to false for state input '{}'.",
             state.input_name())
        .Says("true", "false without KIND_GPU")
        .SetTo("false")
        .AsWarning();
    break;
  }
}

}  // namespace

void CheckSequenceBatching(const ModelConfig& config, Findings* out) {
  if (!config.has_sequence_batching()) return;
  if (config.response_cache().enable()) {
    out->Add("response_cache.enable",
             "Response Cache does not currently support model {} with sequence batching scheduler. Please disable the "
             "response cache.",
             config.name())
        .Says("true", "false with sequence_batching")
        .SetTo("false");
  }
  CheckControls(config, out);
  const auto& sequence = config.sequence_batching();
  if (sequence.has_oldest()) {
    CheckPreferredSizes(sequence.oldest().preferred_batch_size(), config,
                        "sequence_batching.oldest.preferred_batch_size", "sequence batching", "batch size", out);
  }
  const float utilization = sequence.direct().minimum_slot_utilization();
  if (sequence.has_direct() && !(utilization >= 0.0F && utilization <= 1.0F)) {
    out->Add("sequence_batching.direct.minimum_slot_utilization",
             "sequence batching minimum slot utilization must be in range (0.0, 1.0] for {}", config.name())
        .Says(fmt::format("{}", utilization), "from 0 to 1")
        .SetTo(utilization > 1.0F && utilization <= 100.0F ? fmt::format("{}", utilization / 100.0F) : "1.0");
  }
}

std::vector<Finding> ValidateSequenceStates(const ModelConfig& config) {
  Findings out;
  const auto& states = config.sequence_batching().state();
  std::set<std::string> initial;
  std::set<std::string> inputs;
  std::set<std::string> outputs;
  for (int i = 0; i < states.size(); ++i) {
    const std::string path = fmt::format("sequence_batching.state[{}]", i);
    CheckInitialState(states[i], path, &initial, &out);
    const auto twice = [&](const char* what, const std::string& name, std::set<std::string>* seen) {
      if (seen->insert(name).second) return true;
      out.Add(fmt::format("{}.{}", path, what),
              "Detected duplicate '{}' in the state configuration: '{}.' This state configuration will be ignored.",
              what, name)
          .Says(fmt::format("'{}' again", name), "each state once")
          .AsWarning();
      return false;
    };
    if (twice("input_name", states[i].input_name(), &inputs)) twice("output_name", states[i].output_name(), &outputs);
    CheckStateMemory(states[i], config, path, &out);
  }
  return std::move(out).Take();
}

}  // namespace tidemark
