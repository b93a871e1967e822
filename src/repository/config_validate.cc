#include "repository/config_validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "repository/config_validate_internal.h"

namespace tidemark {
namespace {

using inference::ModelConfig;
using inference::ModelQueuePolicy;

// The platforms that go with a backend whose platform is fixed; nothing for any other. The pairs "torch_aoti" and
// "libtorch" with pytorch are refused by Triton, too.
std::vector<std::string_view> PlatformsOf(std::string_view backend) {
  if (backend == "tensorflow") return {"tensorflow_graphdef", "tensorflow_savedmodel"};
  if (backend == "tensorrt") return {"tensorrt_plan"};
  if (backend == "onnxruntime") return {"onnxruntime_onnx"};
  if (backend == "pytorch") return {"pytorch_libtorch"};
  return {};
}

constexpr std::string_view kPlatforms[] = {
    "ensemble",   "onnxruntime_onnx",    "tensorrt_plan",        "pytorch_libtorch",
    "torch_aoti", "tensorflow_graphdef", "tensorflow_savedmodel"};

std::string OrNothing(std::string_view text) { return text.empty() ? std::string() : QuotedText(text); }

void CheckPlatform(const ModelConfig& config, Findings* out) {
  const std::string& name = config.name();
  const std::string& platform = config.platform();
  const std::string& backend = config.backend();
  const bool ensemble = platform == "ensemble";
  if (backend.empty() && !ensemble) {
    Finding& finding = out->Add("platform", "unexpected platform type '{}' for {}", platform, name);
    const std::string_view nearest =
        NearestName(platform, std::vector<std::string_view>(std::begin(kPlatforms), std::end(kPlatforms)));
    finding.Says(OrNothing(platform), "a platform with a backend of its own, or 'backend'");
    if (!nearest.empty()) finding.Says(OrNothing(platform), QuotedText(nearest)).SetTo(QuotedText(nearest));
  }
  const std::vector<std::string_view> fitting = PlatformsOf(backend);
  if (!backend.empty() && ensemble) {
    out->Add("backend", "Ensemble model '{}' must have platform type 'ensemble' and empty backend type", name)
        .Says(QuotedText(backend), "no backend for an ensemble")
        .Remove();
  } else if (!platform.empty() && !fitting.empty() &&
             std::find(fitting.begin(), fitting.end(), platform) == fitting.end()) {
    out->Add("platform", "unexpected 'platform' and 'backend' pair, got:{}, {}", platform, backend)
        .Says(QuotedText(platform), fmt::format("{} with backend \"{}\"", QuotedText(fitting.front()), backend))
        .SetTo(QuotedText(fitting.front()));
  }
}

void CheckIdentity(const ModelConfig& config, Findings* out) {
  const std::string& name = config.name();
  if (name.empty()) {
    out->Add("name", "model configuration must specify 'name'").Says("", "the name of the model's directory");
  }
  CheckPlatform(config, out);
  if (config.max_batch_size() < 0) {
    out->Add("max_batch_size", "'max_batch_size' must be non-negative value for {}", name)
        .Says(fmt::format("{}", config.max_batch_size()), "0 (no batching) or more")
        .SetTo("0");
  }
  if (config.version_policy().policy_choice_case() == inference::ModelVersionPolicy::POLICY_CHOICE_NOT_SET) {
    out->Add("version_policy", "must specify 'version policy' for {}", name)
        .Says("", "latest, all or specific")
        .SetTo("{ latest { num_versions: 1 } }");
  }
}

bool Delays(const ModelQueuePolicy& policy) {
  return policy.default_timeout_microseconds() != 0 && policy.timeout_action() == ModelQueuePolicy::DELAY;
}

void CheckPriorities(const ModelConfig& config, const std::set<std::uint64_t>& keys, Findings* out) {
  const auto& batching = config.dynamic_batching();
  const std::uint64_t levels = batching.priority_levels();
  if (levels > 0 && (batching.default_priority_level() == 0 || batching.default_priority_level() > levels)) {
    const std::uint64_t now = batching.default_priority_level();
    out->Add("dynamic_batching.default_priority_level", "default priority level must be in range [1, {}] for {}",
             levels, config.name())
        .Says(now == 0 ? std::string() : fmt::format("{}", now), fmt::format("from 1 to {}", levels))
        .SetTo(fmt::format("{}", now == 0 ? (levels + 1) / 2 : levels));
  }
  for (const std::uint64_t key : keys) {
    if (levels > 0 && (key == 0 || key > levels)) {
      out->Add(fmt::format("dynamic_batching.priority_queue_policy[{}]", key),
               "priority queue policy must have priority level in range [1, {}] for {}", levels, config.name())
          .Says(fmt::format("key {}", key), fmt::format("a key from 1 to {}", levels))
          .Advise("raise 'priority_levels', or remove the policy");
    }
  }
}

void CheckOrdering(const ModelConfig& config, const std::set<std::uint64_t>& keys, Findings* out) {
  const auto& batching = config.dynamic_batching();
  if (!batching.preserve_ordering()) return;
  const std::string& name = config.name();
  if (batching.priority_levels() > 1) {
    out->Add("dynamic_batching.priority_levels",
             "Only one priority level is allowed when 'preserve_ordering' is true for {}", name)
        .Says(fmt::format("{}", batching.priority_levels()), "1 with preserve_ordering: true")
        .Advise("set 'priority_levels' to 1, or 'preserve_ordering' to false");
  }
  constexpr std::string_view kDelay =
      "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for {}";
  const auto refuse = [&](const std::string& where) {
    out->Add(where + ".timeout_action", kDelay, name)
        .Says("DELAY", "REJECT with preserve_ordering: true")
        .SetTo("REJECT");
  };
  if (Delays(batching.default_queue_policy())) refuse("dynamic_batching.default_queue_policy");
  for (const std::uint64_t key : keys) {
    if (Delays(batching.priority_queue_policy().at(key))) {
      refuse(fmt::format("dynamic_batching.priority_queue_policy[{}]", key));
    }
  }
}

void CheckDynamicBatching(const ModelConfig& config, Findings* out) {
  if (!config.has_dynamic_batching()) return;
  const auto& batching = config.dynamic_batching();
  CheckPreferredSizes(batching.preferred_batch_size(), config, "dynamic_batching.preferred_batch_size",
                      "dynamic batching", "size", out);
  std::set<std::uint64_t> keys;  // in a fixed order
  for (const auto& [key, unused] : batching.priority_queue_policy()) keys.insert(key);
  CheckPriorities(config, keys, out);
  CheckOrdering(config, keys, out);
}

void CheckMetrics(const ModelConfig& config, Findings* out) {
  for (int i = 0; i < config.model_metrics().metric_control_size(); ++i) {
    const auto& control = config.model_metrics().metric_control(i);
    const std::string where = fmt::format("model_metrics.metric_control[{}]", i);
    const std::string identifier = where + ".metric_identifier";
    const std::string options = where + ".histogram_options";
    if (!control.has_metric_identifier()) {
      out->Add(identifier, "metric control must specify 'metric_identifier'")
          .Says("", "the family of the metric")
          .SetTo("{ family: \"nv_inference_first_response_histogram_ms\" }");
    } else if (control.metric_identifier().family().empty()) {
      out->Add(identifier + ".family", "metric identifier must specify non-empty 'family'")
          .Says("", "the name of a metric family")
          .SetTo("\"nv_inference_first_response_histogram_ms\"");
    }
    if (!control.has_histogram_options()) {
      out->Add(options, "metric control must specify 'histogram_options'")
          .Says("", "the upper bounds of the buckets")
          .SetTo("{ buckets: [ 1, 10, 100, 1000 ] }");
    } else if (control.histogram_options().buckets().empty()) {
      out->Add(options + ".buckets", "histogram options must specify non-empty 'buckets'")
          .Says("no bucket", "at least one upper bound")
          .SetTo("[ 1, 10, 100, 1000 ]");
    }
  }
}

void DoubtRateLimiter(const ModelConfig& config, Findings* out) {
  std::set<std::string> global;
  std::set<std::string> local;
  for (const auto& group : config.instance_group()) {
    for (const auto& resource : group.rate_limiter().resources()) {
      (resource.global() ? global : local).insert(resource.name());
    }
  }
  for (int g = 0; g < config.instance_group_size(); ++g) {
    const auto& resources = config.instance_group(g).rate_limiter().resources();
    for (int r = 0; r < resources.size(); ++r) {
      const std::string where = fmt::format("instance_group[{}].rate_limiter.resources[{}]", g, r);
      if (resources[r].global() && local.contains(resources[r].name())) {
        out->Add(where + ".global",
                 "Resource \"{}\" is present as both global and device-specific resource in the model configuration.",
                 resources[r].name())
            .Says("true", "the same for every resource of that name")
            .Advise("an error with --rate-limit=execution_count")
            .AsWarning();
      }
      if (resources[r].count() == 0) {
        out->Add(where + ".count", "resource '{}' has count 0, so it limits nothing", resources[r].name())
            .Says("0", "1 or more")
            .SetTo("1")
            .AsWarning();
      }
    }
  }
}

}  // namespace

void CheckPreferredSizes(const google::protobuf::RepeatedField<std::int32_t>& sizes, const ModelConfig& config,
                         std::string_view field, std::string_view what, std::string_view size, Findings* out) {
  const std::int32_t most = config.max_batch_size();
  for (int i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 0 && sizes[i] <= most) continue;
    const std::string where = fmt::format("{}[{}]", field, i);
    Finding& finding =
        sizes[i] <= 0 ? out->Add(where, "{} preferred {} must be positive for {}", what, size, config.name())
                      : out->Add(where, "{} preferred {} must be <= max batch size for {}", what, size, config.name());
    finding.Says(fmt::format("{}", sizes[i]), most > 0 ? fmt::format("from 1 to max_batch_size, {}", most)
                                                       : std::string("no preferred size, as max_batch_size is 0"));
    const bool repeated = std::find(sizes.begin(), sizes.end(), most) != sizes.end();
    if (most > 0 && !repeated) {
      finding.SetTo(fmt::format("{}", most));
    } else {
      finding.Remove();
    }
  }
}

std::vector<Finding> ValidateConfig(const ModelConfig& config) {
  Findings out;
  CheckIdentity(config, &out);
  CheckDynamicBatching(config, &out);
  CheckSequenceBatching(config, &out);
  CheckEnsemble(config, &out);
  if (config.platform() == "ensemble" && !config.has_ensemble_scheduling()) {
    out.Add("ensemble_scheduling", "ensemble scheduling must be set for ensemble {} whose platform is ensemble",
            config.name())
        .Says("", "the steps of the ensemble")
        .Advise(
            "ensemble_scheduling { step [ { model_name: \"…\" model_version: -1 input_map { … } output_map { … } } ] "
            "}");
  }
  if (config.model_transaction_policy().decoupled() && config.response_cache().enable()) {
    out.Add("response_cache.enable",
            "Response Cache does not currently support model {} with 'decoupled' transaction policy. Please "
            "disable the response cache.",
            config.name())
        .Says("true", "false for a decoupled model")
        .SetTo("false");
  }
  CheckMetrics(config, &out);
  return std::move(out).Take();
}

std::vector<Finding> FindDoubts(const ModelConfig& config) {
  Findings out;
  for (int i = 0; i < config.ensemble_scheduling().step_size(); ++i) {
    const auto& step = config.ensemble_scheduling().step(i);
    if (step.model_version() != 0) continue;
    out.Add(
           fmt::format("ensemble_scheduling.step[{}].model_version", i),
           "step {} asks for version 0 of model '{}', which is what an absent 'model_version' means; the latest version "
           "is -1",
           i, step.model_name())
        .Says("0", "-1 for the latest version")
        .SetTo("-1")
        .AsWarning();
  }
  if (config.has_dynamic_batching() && config.max_batch_size() == 0) {
    out.Add("dynamic_batching", "dynamic batching has no effect on model '{}', whose max_batch_size is 0",
            config.name())
        .Says("dynamic_batching with max_batch_size 0", "max_batch_size of 2 or more")
        .Advise("set 'max_batch_size' if the model has a batch dimension, or remove 'dynamic_batching'")
        .AsWarning();
  }
  if (config.version_policy().has_latest() && config.version_policy().latest().num_versions() == 0) {
    out.Add("version_policy.latest.num_versions",
            "the policy 'latest' with 'num_versions' 0 selects no version of '{}'", config.name())
        .Says("0", "1 or more")
        .SetTo("1")
        .AsWarning();
  }
  DoubtRateLimiter(config, &out);
  return std::move(out).Take();
}

}  // namespace tidemark
