#include <fmt/format.h>

#include <map>
#include <set>
#include <string>
#include <string_view>
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
      Finding& finding =
          out->Add(fmt::format("{}.{}", where, what), "must specify '{}' in step {} of ensemble '{}'", what, i, name);
      if (std::string_view(what) == "model_name") {
        finding.Says("", "the name of a model");
      } else {
        finding.Says("", "the model's tensor and the ensemble's")
            .Advise(what + std::string(" { key: \"…\" value: \"…\" }"));
      }
      complete = false;
    };
    require(!step.model_name().empty(), "model_name");
    require(!step.input_map().empty(), "input_map");
    require(!step.output_map().empty(), "output_map");
    for (const auto& [input, tensor] : step.input_map()) (*graph)[tensor].consumed = true;
    std::set<std::string> outputs;
    const std::map<std::string, std::string> output_map(step.output_map().begin(), step.output_map().end());
    for (const auto& [output, tensor] : output_map) {
      Node& node = (*graph)[tensor];
      if (node.producer != kNobody || !outputs.insert(tensor).second) {
        out->Add(fmt::format("{}.output_map[{}]", where, output),
                 "ensemble tensor '{}' can appear in an output map only once for ensemble '{}' step {}", tensor, name,
                 i)
            .Says(fmt::format("'{}' again", tensor), "a tensor of its own for each output");
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

// Names the tensor that was most likely meant: one that a step makes, or one that a step takes.
void ExplainTensor(const Graph& graph, bool made, const std::string& name, Finding& finding) {
  std::vector<std::string_view> candidates;
  for (const auto& [tensor, node] : graph) {
    if (made ? node.producer != kNobody : node.consumed && node.producer == kNobody) candidates.push_back(tensor);
  }
  finding.Says(fmt::format("'{}'", name), fmt::format("a tensor of some step's {}", made ? "output_map" : "input_map"));
  if (const std::string_view nearest = NearestName(name, candidates); !nearest.empty()) {
    finding.Says(fmt::format("'{}'", name), fmt::format("'{}'", nearest)).SetTo(QuotedText(nearest));
  }
}

void CheckUnwritten(const ModelConfig& config, const Graph& graph, const std::string& output, const std::string& where,
                    Findings* out) {
  const std::string ancestor = UnconnectedAncestor(config, graph, output);
  if (ancestor.empty()) {
    out->Add(where, "output '{}' for ensemble '{}' is not written", output, config.name())
        .Says("a tensor that no step writes", "one that follows from the ensemble's inputs");
    return;
  }
  out->Add(
         where,
         "output '{}' for ensemble '{}' is not written: at least one of its depending tensors, '{}', is not connected",
         output, config.name(), ancestor)
      .Says(fmt::format("a step that waits for '{}'", ancestor),
            fmt::format("'{}' as an input of the ensemble or in an output_map", ancestor));
}

// Where a tensor stands in the steps.
std::string PlaceOf(const ModelConfig& config, const std::string& tensor) {
  for (int i = 0; i < config.ensemble_scheduling().step_size(); ++i) {
    const auto& step = config.ensemble_scheduling().step(i);
    for (const auto& [key, value] : step.output_map()) {
      if (value == tensor) return fmt::format("ensemble_scheduling.step[{}].output_map[{}]", i, key);
    }
    for (const auto& [key, value] : step.input_map()) {
      if (value == tensor) return fmt::format("ensemble_scheduling.step[{}].input_map[{}]", i, key);
    }
  }
  return "ensemble_scheduling.step";
}

void CheckUnused(const ModelConfig& config, const Graph& graph, const std::set<std::string>& outputs, Findings* out) {
  for (const auto& [tensor, node] : graph) {
    if (outputs.contains(tensor) || (node.ready && node.consumed)) continue;
    Finding& finding =
        out->Add(PlaceOf(config, tensor), "ensemble tensor '{}' is unused in ensemble '{}'", tensor, config.name());
    if (node.ready) {
      finding.Says(fmt::format("'{}', which nobody takes", tensor), "a step's input or an output of the ensemble");
    } else {
      finding.Says(fmt::format("'{}', which nobody makes", tensor), "an input of the ensemble or a step's output");
    }
  }
}

void CheckGraph(const ModelConfig& config, Findings* out) {
  const std::string& name = config.name();
  Graph graph;
  if (!BuildGraph(config, &graph, out)) return;
  for (int i = 0; i < config.input_size(); ++i) {
    const auto& input = config.input(i);
    const auto found = graph.find(input.name());
    if (found == graph.end()) {
      ExplainTensor(graph, false, input.name(),
                    out->Add(fmt::format("input[{}].name", i), "ensemble input '{}' for ensemble {}' is not used",
                             input.name(), name));
    } else {
      found->second.ready = true;
    }
  }
  PropagateReadiness(config, &graph);
  std::set<std::string> outputs;
  for (int i = 0; i < config.output_size(); ++i) {
    const std::string& output = config.output(i).name();
    const std::string where = fmt::format("output[{}].name", i);
    outputs.insert(output);
    const auto found = graph.find(output);
    if (found == graph.end()) {
      ExplainTensor(graph, true, output,
                    out->Add(where, "ensemble output '{}' for ensemble {}' is not used", output, name));
    } else if (!found->second.ready) {
      CheckUnwritten(config, graph, output, where, out);
    }
  }
  CheckUnused(config, graph, outputs, out);
}

}  // namespace

void CheckEnsemble(const ModelConfig& config, Findings* out) {
  if (!config.has_ensemble_scheduling()) return;
  const std::string& name = config.name();
  if (config.platform() != "ensemble") {
    out->Add("platform", "ensemble scheduling cannot be set for model '{}' whose platform is not ensemble", name)
        .Says(config.platform().empty() ? std::string() : QuotedText(config.platform()),
              "\"ensemble\" with ensemble_scheduling")
        .SetTo("\"ensemble\"");
  }
  const auto refuse = [&](bool present, const char* field, const char* message) {
    if (!present) return;
    out->Add(field, message, name).Says(fmt::format("'{}'", field), "nothing of the kind in an ensemble").Remove();
  };
  refuse(!config.instance_group().empty(), "instance_group",
         "instance group should not be specified for ensemble '{}'");
  refuse(config.has_optimization(), "optimization", "optimization should not be specified for ensemble '{}'");
  refuse(!config.model_warmup().empty(), "model_warmup", "model_warmup can not be specified for ensemble '{}'");
  if (config.ensemble_scheduling().step().empty()) {
    out->Add("ensemble_scheduling.step", "must specify 'step' for ensemble '{}'", name)
        .Says("", "at least one step")
        .Advise("step [ { model_name: \"…\" model_version: -1 input_map { … } output_map { … } } ]");
    return;
  }
  CheckGraph(config, out);
}

}  // namespace tidemark
