#include <fmt/format.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "repository/config_validate_internal.h"

namespace tidemark {
namespace {

using inference::ModelConfig;

constexpr int kNobody = -1;

// One tensor of the pipeline: the step that makes it, and the steps that take it.
struct Node {
  int producer = kNobody;  // also for the ensemble's own inputs
  bool ready = false;
  bool consumed = false;
};

// The tensors by name, which is a fixed order: Triton's is that of a hash map.
using Graph = std::map<std::string, Node>;

// Builds the graph. False when a step is so incomplete that the graph would mislead.
bool BuildGraph(const ModelConfig& config, Graph* graph, Findings* out) {
  const std::string& name = config.name();
  bool complete = true;
  for (int i = 0; i < config.ensemble_scheduling().step_size(); ++i) {
    const auto& step = config.ensemble_scheduling().step(i);
    const std::string where = fmt::format("ensemble_scheduling.step[{}]", i);
    const auto require = [&](bool present, const char* what) {
      if (present) return;
      out->Add(fmt::format("{}.{}", where, what), "must specify '{}' in step {} of ensemble '{}'", what, i, name);
      complete = false;
    };
    require(!step.model_name().empty(), "model_name");
    require(!step.input_map().empty(), "input_map");
    require(!step.output_map().empty(), "output_map");
    for (const auto& [input, tensor] : step.input_map()) (*graph)[tensor].consumed = true;
    std::set<std::string> outputs;
    for (const auto& [output, tensor] : step.output_map()) {
      Node& node = (*graph)[tensor];
      if (node.producer != kNobody || !outputs.insert(tensor).second) {
        out->Add(where + ".output_map",
                 "ensemble tensor '{}' can appear in an output map only once for ensemble '{}' step {}", tensor, name,
                 i);
        complete = false;
      }
      node.producer = i;
    }
  }
  return complete;
}

// A tensor is ready when all inputs of the step that makes it are.
void PropagateReadiness(const ModelConfig& config, Graph* graph) {
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& step : config.ensemble_scheduling().step()) {
      bool all = true;
      for (const auto& [input, tensor] : step.input_map()) all = all && graph->at(tensor).ready;
      if (!all) continue;
      for (const auto& [output, tensor] : step.output_map()) {
        Node& node = graph->at(tensor);
        changed = changed || !node.ready;
        node.ready = true;
      }
    }
  }
}

// From an output that is not written backwards, always to the first tensor that is not ready: the last one
// met.
std::string UnconnectedAncestor(const ModelConfig& config, const Graph& graph, const std::string& output) {
  std::set<std::string> seen = {output};
  std::string at = output;
  for (;;) {
    const Node& node = graph.at(at);
    if (node.producer == kNobody) break;
    std::set<std::string> inputs;
    for (const auto& [input, tensor] : config.ensemble_scheduling().step(node.producer).input_map()) {
      if (!graph.at(tensor).ready && !seen.contains(tensor)) inputs.insert(tensor);
    }
    if (inputs.empty()) break;
    at = *inputs.begin();
    seen.insert(at);
  }
  return at == output ? std::string() : at;
}

void CheckGraph(const ModelConfig& config, Findings* out) {
  const std::string& name = config.name();
  Graph graph;
  if (!BuildGraph(config, &graph, out)) return;
  for (const auto& input : config.input()) {
    const auto found = graph.find(input.name());
    if (found == graph.end()) {
      out->Add("input", "ensemble input '{}' for ensemble {}' is not used", input.name(), name);
    } else {
      found->second.ready = true;
    }
  }
  PropagateReadiness(config, &graph);
  std::set<std::string> outputs;
  for (const auto& output : config.output()) {
    outputs.insert(output.name());
    const auto found = graph.find(output.name());
    if (found == graph.end()) {
      out->Add("output", "ensemble output '{}' for ensemble {}' is not used", output.name(), name);
    } else if (!found->second.ready) {
      const std::string ancestor = UnconnectedAncestor(config, graph, output.name());
      if (ancestor.empty()) {
        out->Add("output", "output '{}' for ensemble '{}' is not written", output.name(), name);
      } else {
        out->Add("output",
                 "output '{}' for ensemble '{}' is not written: at least one of its depending tensors, '{}', "
                 "is not "
                 "connected",
                 output.name(), name, ancestor);
      }
    }
  }
  for (const auto& [tensor, node] : graph) {
    if (!outputs.contains(tensor) && (!node.ready || !node.consumed)) {
      out->Add("ensemble_scheduling.step", "ensemble tensor '{}' is unused in ensemble '{}'", tensor, name);
    }
  }
}

}  // namespace

void CheckEnsemble(const ModelConfig& config, Findings* out) {
  if (!config.has_ensemble_scheduling()) return;
  const std::string& name = config.name();
  if (config.platform() != "ensemble") {
    out->Add("platform", "ensemble scheduling cannot be set for model '{}' whose platform is not ensemble", name);
  }
  if (!config.instance_group().empty()) {
    out->Add("instance_group", "instance group should not be specified for ensemble '{}'", name);
  }
  if (config.has_optimization()) {
    out->Add("optimization", "optimization should not be specified for ensemble '{}'", name);
  }
  if (!config.model_warmup().empty()) {
    out->Add("model_warmup", "model_warmup can not be specified for ensemble '{}'", name);
  }
  if (config.ensemble_scheduling().step().empty()) {
    out->Add("ensemble_scheduling.step", "must specify 'step' for ensemble '{}'", name);
    return;
  }
  CheckGraph(config, out);
}

}  // namespace tidemark
