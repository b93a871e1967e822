#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <string>
#include <vector>

#include "repository/config_validate_internal.h"

namespace tidemark {
namespace {

using inference::ModelConfig;
using inference::ModelInstanceGroup;

// More instances than this are a slip of the pen: each has a thread and its own copy of what the engine
// keeps.
constexpr std::int32_t kMaxInstances = 4096;

void CheckGpus(const ModelConfig& config, const ModelInstanceGroup& group, const std::string& where,
               const DeviceFacts& devices, Findings* out) {
  const std::string who = fmt::format("instance group {} of model {}", group.name(), config.name());
  if (!devices.gpu_build) {
    out->Add(where + ".kind", "{} has kind KIND_GPU but server does not support GPUs", who);
  } else if (group.gpus().empty()) {
    out->Add(where + ".gpus",
             devices.gpus.empty() ? "{} has kind KIND_GPU but no GPUs are available"
                                  : "{} has kind KIND_GPU but specifies no GPUs",
             who);
  } else {
    for (const std::int32_t gpu : group.gpus()) {
      if (std::find(devices.gpus.begin(), devices.gpus.end(), gpu) != devices.gpus.end()) continue;
      out->Add(where + ".gpus",
               "{} specifies invalid or unsupported gpu id {}. GPUs with at least the minimum required CUDA "
               "compute "
               "compatibility of {:.6f} are: {}",
               who, gpu, devices.minimum_compute_capability, fmt::format("{}", fmt::join(devices.gpus, ", ")));
    }
  }
}

void CheckProfiles(const ModelConfig& config, const ModelInstanceGroup& group, const std::string& where,
                   Findings* out) {
  if (group.profile().empty()) return;
  const std::string who =
      fmt::format("instance group {} of model {} and platform {}", group.name(), config.name(), config.platform());
  if (config.platform() != "tensorrt_plan") {
    out->Add(where + ".profile", "{}specifies profile field which is only supported for TensorRT models", who);
    return;
  }
  for (const std::string& profile : group.profile()) {
    if (profile.empty()) {
      out->Add(where + ".profile", "profile name must not be empty");
      continue;
    }
    const char* begin = profile.c_str();
    const char* end = begin + profile.size();
    while (begin != end && std::isspace(static_cast<unsigned char>(*begin)) != 0) ++begin;
    if (begin != end && *begin == '+') ++begin;
    int value = 0;
    if (std::from_chars(begin, end, value).ec != std::errc()) {
      out->Add(where + ".profile", "unable to parse '{}': stoi", profile);
    } else if (value < 0) {
      out->Add(where + ".profile",
               "{} specifies invalid profile {}. The field should contain the string representation of a "
               "non-negative "
               "integer.",
               who, profile);
    }
  }
}

}  // namespace

std::vector<Finding> ValidateInstanceGroups(const ModelConfig& config, const DeviceFacts& devices) {
  Findings out;
  if (config.platform() == "ensemble") return {};
  if (config.instance_group().empty()) {
    out.Add("instance_group", "must specify one or more 'instance group's for {}", config.name());
  }
  for (int i = 0; i < config.instance_group_size(); ++i) {
    const ModelInstanceGroup& group = config.instance_group(i);
    const std::string where = fmt::format("instance_group[{}]", i);
    const std::string who = fmt::format("instance group {} of model {}", group.name(), config.name());
    switch (group.kind()) {
      case ModelInstanceGroup::KIND_MODEL:
      case ModelInstanceGroup::KIND_CPU:
        if (!group.gpus().empty()) {
          out.Add(where + ".gpus", "{} has kind {} but specifies one or more GPUs", who,
                  ModelInstanceGroup::Kind_Name(group.kind()));
        }
        break;
      case ModelInstanceGroup::KIND_GPU:
        CheckGpus(config, group, where, devices, &out);
        break;
      case ModelInstanceGroup::KIND_AUTO:
        out.AddWithCode(absl::StatusCode::kInternal, where + ".kind", "{} has unexpected kind KIND_AUTO", who);
        break;
      default:
        out.Add(where + ".kind", "{} has unknown kind {}", who, static_cast<int>(group.kind()));
    }
    if (group.count() > kMaxInstances) {
      out.Add(where + ".count", "{} asks for {} instances, more than {}", who, group.count(), kMaxInstances);
    }
    CheckProfiles(config, group, where, &out);
  }
  return std::move(out).Take();
}

std::vector<Finding> ValidateWarmup(const ModelConfig& config) {
  Findings out;
  for (int i = 0; i < config.model_warmup_size(); ++i) {
    const inference::ModelWarmup& sample = config.model_warmup(i);
    std::vector<std::string> names;
    for (const auto& [name, unused] : sample.inputs()) names.push_back(name);
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      const auto& input = sample.inputs().at(name);
      const std::string where = fmt::format("model_warmup[{}].inputs[{}]", i, name);
      if (std::any_of(input.dims().begin(), input.dims().end(), [](std::int64_t dim) { return dim < 0; })) {
        out.Add(where + ".dims", "warmup setting expects all variable-size dimensions are specified for input '{}'",
                name);
      }
      if (input.input_data_type_case() == inference::ModelWarmup::Input::INPUT_DATA_TYPE_NOT_SET) {
        out.Add(where, "[request id: <id_unknown>] warmup setting expects input '{}' to have input_data_type set",
                name);
      }
    }
  }
  return std::move(out).Take();
}

}  // namespace tidemark
