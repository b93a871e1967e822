#include "repository/config_validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "repository/config_validate_internal.h"

namespace tidemark {
namespace {

using inference::ModelConfig;
using inference::ModelQueuePolicy;
using Control = inference::ModelSequenceBatching::Control;

// Backends whose platform is fixed. The pairs "torch_aoti" and "libtorch" with pytorch are refused by Triton,
// too.
bool PlatformFits(const ModelConfig& config) {
  const std::string& platform = config.platform();
  const std::string& backend = config.backend();
  if (platform.empty()) return true;
  if (backend == "tensorflow") return platform == "tensorflow_graphdef" || platform == "tensorflow_savedmodel";
  if (backend == "tensorrt") return platform == "tensorrt_plan";
  if (backend == "onnxruntime") return platform == "onnxruntime_onnx";
  if (backend == "pytorch") return platform == "pytorch_libtorch";
  return true;
}

void CheckIdentity(const ModelConfig& config, Findings* out) {
  const std::string& name = config.name();
  if (name.empty()) out->Add("name", "model configuration must specify 'name'");
  const bool ensemble = config.platform() == "ensemble";
  if (config.backend().empty() && !ensemble) {
    out->Add("platform", "unexpected platform type '{}' for {}", config.platform(), name);
  }
  if (!config.backend().empty() && ensemble) {
    out->Add("backend", "Ensemble model '{}' must have platform type 'ensemble' and empty backend type", name);
  } else if (!PlatformFits(config)) {
    out->Add("platform", "unexpected 'platform' and 'backend' pair, got:{}, {}", config.platform(), config.backend());
  }
  if (config.max_batch_size() < 0) {
    out->Add("max_batch_size", "'max_batch_size' must be non-negative value for {}", name);
  }
  if (config.version_policy().policy_choice_case() == inference::ModelVersionPolicy::POLICY_CHOICE_NOT_SET) {
    out->Add("version_policy", "must specify 'version policy' for {}", name);
  }
}

bool Delays(const ModelQueuePolicy& policy) {
  return policy.default_timeout_microseconds() != 0 && policy.timeout_action() == ModelQueuePolicy::DELAY;
}

// Preferred batch sizes of the dynamic or the oldest-sequence batcher.
template <typename Sizes>
void CheckPreferred(const Sizes& sizes, const ModelConfig& config, std::string_view field, std::string_view what,
                    std::string_view size, Findings* out) {
  for (int i = 0; i < sizes.size(); ++i) {
    if (sizes[i] <= 0) {
      out->Add(fmt::format("{}[{}]", field, i), "{} preferred {} must be positive for {}", what, size, config.name());
    } else if (sizes[i] > config.max_batch_size()) {
      out->Add(fmt::format("{}[{}]", field, i), "{} preferred {} must be <= max batch size for {}", what, size,
               config.name());
    }
  }
}

void CheckDynamicBatching(const ModelConfig& config, Findings* out) {
  if (!config.has_dynamic_batching()) return;
  const std::string& name = config.name();
  const auto& batching = config.dynamic_batching();
  CheckPreferred(batching.preferred_batch_size(), config, "dynamic_batching.preferred_batch_size", "dynamic batching",
                 "size", out);
  const std::uint64_t levels = batching.priority_levels();
  if (levels > 0 && (batching.default_priority_level() == 0 || batching.default_priority_level() > levels)) {
    out->Add("dynamic_batching.default_priority_level", "default priority level must be in range [1, {}] for {}",
             levels, name);
  }
  std::set<std::uint64_t> keys;  // in a fixed order
  for (const auto& [key, unused] : batching.priority_queue_policy()) keys.insert(key);
  for (const std::uint64_t key : keys) {
    if (levels > 0 && (key == 0 || key > levels)) {
      out->Add(fmt::format("dynamic_batching.priority_queue_policy[{}]", key),
               "priority queue policy must have priority level in range [1, {}] for {}", levels, name);
    }
  }
  if (!batching.preserve_ordering()) return;
  if (levels > 1) {
    out->Add("dynamic_batching.priority_levels",
             "Only one priority level is allowed when 'preserve_ordering' is true for {}", name);
  }
  constexpr std::string_view kDelay =
      "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for {}";
  if (Delays(batching.default_queue_policy())) out->Add("dynamic_batching.default_queue_policy", kDelay, name);
  for (const std::uint64_t key : keys) {
    if (Delays(batching.priority_queue_policy().at(key))) {
      out->Add(fmt::format("dynamic_batching.priority_queue_policy[{}]", key), kDelay, name);
    }
  }
}

// The values of one boolean control. `where` is its path.
void CheckBooleanControl(const Control& control, const std::string& name, const std::string& where, Findings* out) {
  const std::string& kind = inference::ModelSequenceBatching_Control_Kind_Name(control.kind());
  const std::array<std::pair<std::string_view, int>, 3> lists = {{{"int32_false_true", control.int32_false_true_size()},
                                                                  {"fp32_false_true", control.fp32_false_true_size()},
                                                                  {"bool_false_true", control.bool_false_true_size()}}};
  const auto set = std::count_if(lists.begin(), lists.end(), [](const auto& list) { return list.second > 0; });
  if (set == 0) {
    out->Add(where,
             "sequence batching must specify either 'int32_false_true', 'fp32_false_true' or "
             "'bool_false_true' for {} "
             "for {}",
             kind, name);
  } else if (set > 1) {
    out->Add(where,
             "sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' and "
             "'bool_false_true' for {} for {}",
             kind, name);
  }
  if (set != 1) return;
  for (const auto& [list, size] : lists) {
    if (size > 0 && size != 2) {
      out->Add(fmt::format("{}.{}", where, list),
               "sequence batching control '{}' must have exactly 2 entries for {} for {}", list, kind, name);
    }
  }
}

void CheckCorrelationControl(const Control& control, const std::string& name, const std::string& where, Findings* out) {
  if (control.int32_false_true_size() > 0 || control.fp32_false_true_size() > 0 || control.bool_false_true_size() > 0) {
    out->Add(where,
             "sequence batching must not specify either 'int32_false_true', 'fp32_false_true' or "
             "'bool_false_true' "
             "for CONTROL_SEQUENCE_CORRID for {}",
             name);
  }
  const inference::DataType type = control.data_type();
  if (type != inference::TYPE_UINT64 && type != inference::TYPE_INT64 && type != inference::TYPE_UINT32 &&
      type != inference::TYPE_INT32 && type != inference::TYPE_STRING) {
    out->Add(where + ".data_type",
             "unexpected data type for control CONTROL_SEQUENCE_CORRID for {}. Allowed data types are "
             "TYPE_UINT64, "
             "TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING",
             name);
  }
}

// Triton walks all controls once for each kind; so does this, that the first finding is the same.
void CheckControls(const ModelConfig& config, Findings* out) {
  const std::string& name = config.name();
  const auto& inputs = config.sequence_batching().control_input();
  std::set<std::string> seen_names;
  for (int i = 0; i < inputs.size(); ++i) {
    const std::string where = fmt::format("sequence_batching.control_input[{}].name", i);
    if (inputs[i].name().empty()) {
      out->Add(where, "sequence batching control tensor must have a name for {}", name);
    } else if (!seen_names.insert(inputs[i].name()).second) {
      out->Add(where, "sequence batching control tensor '{}' is specified for multiple control kinds for {}",
               inputs[i].name(), name);
    }
  }
  for (const Control::Kind kind : {Control::CONTROL_SEQUENCE_START, Control::CONTROL_SEQUENCE_END,
                                   Control::CONTROL_SEQUENCE_READY, Control::CONTROL_SEQUENCE_CORRID}) {
    int count = 0;
    for (int i = 0; i < inputs.size(); ++i) {
      for (int k = 0; k < inputs[i].control_size(); ++k) {
        const Control& control = inputs[i].control(k);
        if (control.kind() != kind) continue;
        const std::string where = fmt::format("sequence_batching.control_input[{}].control[{}]", i, k);
        if (++count == 2) {
          out->Add(where, "sequence batching specifies multiple {} tensors for {}",
                   inference::ModelSequenceBatching_Control_Kind_Name(kind), name);
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

void CheckSequenceBatching(const ModelConfig& config, Findings* out) {
  if (!config.has_sequence_batching()) return;
  if (config.response_cache().enable()) {
    out->Add("response_cache.enable",
             "Response Cache does not currently support model {} with sequence batching scheduler. Please "
             "disable the "
             "response cache.",
             config.name());
  }
  CheckControls(config, out);
  const auto& sequence = config.sequence_batching();
  if (sequence.has_oldest()) {
    CheckPreferred(sequence.oldest().preferred_batch_size(), config, "sequence_batching.oldest.preferred_batch_size",
                   "sequence batching", "batch size", out);
  }
  const float utilization = sequence.direct().minimum_slot_utilization();
  if (sequence.has_direct() && !(utilization >= 0.0F && utilization <= 1.0F)) {
    out->Add("sequence_batching.direct.minimum_slot_utilization",
             "sequence batching minimum slot utilization must be in range (0.0, 1.0] for {}", config.name());
  }
}

void CheckMetrics(const ModelConfig& config, Findings* out) {
  for (int i = 0; i < config.model_metrics().metric_control_size(); ++i) {
    const auto& control = config.model_metrics().metric_control(i);
    const std::string where = fmt::format("model_metrics.metric_control[{}]", i);
    if (!control.has_metric_identifier()) {
      out->Add(where, "metric control must specify 'metric_identifier'");
    } else if (control.metric_identifier().family().empty()) {
      out->Add(where + ".metric_identifier.family", "metric identifier must specify non-empty 'family'");
    }
    if (!control.has_histogram_options()) {
      out->Add(where, "metric control must specify 'histogram_options'");
    } else if (control.histogram_options().buckets().empty()) {
      out->Add(where + ".histogram_options.buckets", "histogram options must specify non-empty 'buckets'");
    }
  }
}

}  // namespace

absl::Status StatusOf(const std::vector<Finding>& findings) {
  if (findings.empty()) return absl::OkStatus();
  std::string text = findings.front().message;
  for (std::size_t i = 1; i < findings.size(); ++i) {
    text += fmt::format("\nalso {}: {}", findings[i].field, findings[i].message);
  }
  return absl::Status(findings.front().code, text);
}

std::vector<Finding> ValidateConfig(const ModelConfig& config) {
  Findings out;
  CheckIdentity(config, &out);
  CheckDynamicBatching(config, &out);
  CheckSequenceBatching(config, &out);
  CheckEnsemble(config, &out);
  if (config.platform() == "ensemble" && !config.has_ensemble_scheduling()) {
    out.Add("ensemble_scheduling", "ensemble scheduling must be set for ensemble {} whose platform is ensemble",
            config.name());
  }
  if (config.model_transaction_policy().decoupled() && config.response_cache().enable()) {
    out.Add("response_cache.enable",
            "Response Cache does not currently support model {} with 'decoupled' transaction policy. Please "
            "disable "
            "the response cache.",
            config.name());
  }
  CheckMetrics(config, &out);
  return std::move(out).Take();
}

}  // namespace tidemark
