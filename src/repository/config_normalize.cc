#include "repository/config_normalize.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace tidemark {
namespace {

using inference::ModelConfig;
using inference::ModelInstanceGroup;

bool IsPlatform(const ModelConfig& config, std::string_view platform) { return config.platform() == platform; }

bool HasFile(const VersionListing& listing, std::string_view name) { return listing.files.contains(name); }
bool HasDirectory(const VersionListing& listing, std::string_view name) { return listing.directories.contains(name); }
bool HasEntry(const VersionListing& listing, std::string_view name) {
  return HasFile(listing, name) || HasDirectory(listing, name);
}

// Sets what is still empty. An empty value leaves the field alone.
void FillIn(ModelConfig* config, std::string_view backend, std::string_view platform, std::string_view filename) {
  if (config->backend().empty()) config->set_backend(std::string(backend));
  if (config->platform().empty()) config->set_platform(std::string(platform));
  if (config->default_model_filename().empty()) config->set_default_model_filename(std::string(filename));
}

bool CompleteTensorFlow(const VersionListing& listing, ModelConfig* config) {
  if (!config->platform().empty()) return false;
  if (!config->backend().empty() && config->backend() != "tensorflow") return false;
  const std::string& filename = config->default_model_filename();
  if (filename == "model.graphdef" || (filename.empty() && HasFile(listing, "model.graphdef"))) {
    FillIn(config, "tensorflow", "tensorflow_graphdef", "model.graphdef");
    return true;
  }
  if (filename == "model.savedmodel" || (filename.empty() && HasDirectory(listing, "model.savedmodel"))) {
    FillIn(config, "tensorflow", "tensorflow_savedmodel", "model.savedmodel");
    return true;
  }
  return config->backend() == "tensorflow";
}

bool CompleteTensorRt(const VersionListing& listing, ModelConfig* config) {
  const std::string& filename = config->default_model_filename();
  const bool guessed =
      config->backend().empty() && (IsPlatform(*config, "tensorrt_plan") || filename == "model.plan" ||
                                    (config->platform().empty() && filename.empty() && HasFile(listing, "model.plan")));
  if (config->backend() != "tensorrt" && !guessed) return false;
  FillIn(config, "tensorrt", "tensorrt_plan", "model.plan");
  return true;
}

// May the listing decide? Not against a platform or a file name that was written down.
bool Unspecified(const ModelConfig& config) {
  return config.platform().empty() && config.default_model_filename().empty();
}

bool CompleteOnnx(const VersionListing& listing, ModelConfig* config) {
  const bool guessed = config->backend().empty() &&
                       (IsPlatform(*config, "onnxruntime_onnx") || config->default_model_filename() == "model.onnx" ||
                        (Unspecified(*config) && HasEntry(listing, "model.onnx")));
  if (config->backend() != "onnxruntime" && !guessed) return false;
  FillIn(config, "onnxruntime", "onnxruntime_onnx", "model.onnx");
  return true;
}

bool CompleteOpenVino(const VersionListing& listing, ModelConfig* config) {
  const bool guessed = config->backend().empty() && (config->default_model_filename() == "model.xml" ||
                                                     (Unspecified(*config) && HasEntry(listing, "model.xml")));
  if (config->backend() != "openvino" && !guessed) return false;
  // The engine reads ONNX as well: an openvino model whose only artifact is model.onnx means that file.
  const bool onnx = !HasEntry(listing, "model.xml") && HasEntry(listing, "model.onnx");
  FillIn(config, "openvino", "", onnx ? "model.onnx" : "model.xml");
  return true;
}

bool CompletePyTorch(const VersionListing& listing, ModelConfig* config) {
  const std::string& filename = config->default_model_filename();
  const bool libtorch = IsPlatform(*config, "pytorch_libtorch") || IsPlatform(*config, "libtorch");
  const bool aoti = IsPlatform(*config, "torch_aoti");
  const bool chosen = config->backend() == "pytorch";
  if (!chosen) {
    if (!config->backend().empty()) return false;
    const bool listed = Unspecified(*config) && (HasFile(listing, "model.pt") || HasFile(listing, "model.pt2"));
    if (!libtorch && !aoti && filename != "model.pt" && filename != "model.pt2" && !listed) return false;
  }
  if (libtorch) {
    FillIn(config, "pytorch", "", "");  // the backend supplies the file's name
  } else if (aoti || filename == "model.pt2" ||
             (filename.empty() && !HasFile(listing, "model.pt") && HasFile(listing, "model.pt2"))) {
    FillIn(config, "pytorch", "torch_aoti", "model.pt2");
  } else {
    FillIn(config, "pytorch", "pytorch_libtorch", "model.pt");
  }
  return true;
}

bool CompletePython(const VersionListing& listing, ModelConfig* config) {
  const bool guessed = config->backend().empty() && (config->default_model_filename() == "model.py" ||
                                                     (Unspecified(*config) && HasEntry(listing, "model.py")));
  if (config->backend() != "python" && !guessed) return false;
  FillIn(config, "python", "", "model.py");
  return true;
}

std::optional<ModelInstanceGroup> PreferredOf(const InstanceDefaults& defaults,
                                              std::optional<ModelInstanceGroup::Kind> kind) {
  for (const ModelInstanceGroup& group : defaults.preferred) {
    if (group.kind() == ModelInstanceGroup::KIND_GPU && defaults.gpus.empty()) continue;
    if (!kind || group.kind() == *kind) return group;
  }
  return std::nullopt;
}

void ResolveKind(const InstanceDefaults& defaults, ModelInstanceGroup* group) {
  if (group->kind() != ModelInstanceGroup::KIND_AUTO) return;
  const bool usable =
      !defaults.gpus.empty() && std::all_of(group->gpus().begin(), group->gpus().end(), [&](std::int32_t gpu) {
        return std::find(defaults.gpus.begin(), defaults.gpus.end(), gpu) != defaults.gpus.end();
      });
  group->set_kind(usable ? ModelInstanceGroup::KIND_GPU : ModelInstanceGroup::KIND_CPU);
}

std::int32_t DefaultCount(const ModelInstanceGroup& group, const std::string& backend) {
  const bool two =
      group.kind() == ModelInstanceGroup::KIND_CPU && (backend == "onnxruntime" || backend == "tensorflow");
  return two ? 2 : 1;
}

}  // namespace

absl::Status CompleteBackendFields(std::string_view directory_name, const VersionListing& listing,
                                   ModelConfig* config) {
  if (config->name().empty()) config->set_name(std::string(directory_name));
  if (config->platform() == "ensemble" || config->has_ensemble_scheduling()) return absl::OkStatus();
  if (CompleteTensorFlow(listing, config) || CompleteTensorRt(listing, config) || CompleteOnnx(listing, config) ||
      CompleteOpenVino(listing, config) || CompletePyTorch(listing, config) || CompletePython(listing, config)) {
    return absl::OkStatus();
  }
  if (!config->backend().empty() || !Unspecified(*config)) return absl::OkStatus();
  const std::string& name = config->name();
  const std::size_t dot = name.find('.');
  if (dot == std::string::npos || dot + 1 == name.size()) {
    return absl::InvalidArgumentError(
        fmt::format("Invalid model name: Could not determine backend for model '{}' with no backend in model "
                    "configuration. Expected model name of the form 'model.<backend_name>'.",
                    name));
  }
  config->set_backend(name.substr(dot + 1));
  config->set_default_model_filename("model." + config->backend());
  return absl::OkStatus();
}

void NormalizeConfig(ModelConfig* config) {
  if (config->version_policy().policy_choice_case() == inference::ModelVersionPolicy::POLICY_CHOICE_NOT_SET) {
    config->mutable_version_policy()->mutable_latest()->set_num_versions(1);
  }
  const std::int32_t max_batch = config->max_batch_size();
  if (config->has_dynamic_batching() && max_batch > 0 && config->dynamic_batching().preferred_batch_size().empty()) {
    config->mutable_dynamic_batching()->add_preferred_batch_size(max_batch);
  }
  if (config->has_sequence_batching()) {
    auto* sequence = config->mutable_sequence_batching();
    if (sequence->max_sequence_idle_microseconds() == 0) sequence->set_max_sequence_idle_microseconds(1'000'000);
    if (sequence->has_oldest() && max_batch > 0 && sequence->oldest().preferred_batch_size().empty()) {
      sequence->mutable_oldest()->add_preferred_batch_size(max_batch);
    }
  }
  if (config->has_ensemble_scheduling()) return;
  auto* optimization = config->mutable_optimization();
  if (!optimization->has_input_pinned_memory()) optimization->mutable_input_pinned_memory()->set_enable(true);
  if (!optimization->has_output_pinned_memory()) optimization->mutable_output_pinned_memory()->set_enable(true);
}

void NormalizeInstanceGroups(const InstanceDefaults& defaults, ModelConfig* config) {
  if (config->has_ensemble_scheduling() || config->platform() == "ensemble") return;
  if (config->instance_group().empty()) {
    ModelInstanceGroup* group = config->add_instance_group();
    if (const auto preferred = PreferredOf(defaults, std::nullopt)) {
      group->set_kind(preferred->kind());
      group->set_count(preferred->count());
      *group->mutable_gpus() = preferred->gpus();
    }
    group->set_name(config->name());
  }
  for (int i = 0; i < config->instance_group_size(); ++i) {
    ModelInstanceGroup* group = config->mutable_instance_group(i);
    if (group->name().empty()) group->set_name(fmt::format("{}_{}", config->name(), i));
    ResolveKind(defaults, group);
    if (const auto preferred = PreferredOf(defaults, group->kind())) {
      if (group->gpus().empty()) *group->mutable_gpus() = preferred->gpus();
      if (group->count() < 1) group->set_count(preferred->count());
    }
    if (group->count() < 1) group->set_count(DefaultCount(*group, config->backend()));
    if (group->kind() == ModelInstanceGroup::KIND_GPU && group->gpus().empty()) {
      for (const std::int32_t gpu : defaults.gpus) group->add_gpus(gpu);
    }
  }
}

std::vector<std::string> InstanceNames(const ModelInstanceGroup& group) {
  std::vector<std::string> names;
  for (std::int32_t i = 0; i < group.count(); ++i) names.push_back(fmt::format("{}_{}", group.name(), i));
  return names;
}

}  // namespace tidemark
