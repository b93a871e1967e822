#include <fmt/format.h>
#include <fmt/ranges.h>

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
    out->Add(where + ".kind", "{} has kind KIND_GPU but server does not support GPUs", who)
        .Says("KIND_GPU", "KIND_CPU, as this server has no GPUs")
        .SetTo("KIND_CPU");
  } else if (group.gpus().empty()) {
    out->Add(where + ".gpus",
             devices.gpus.empty() ? "{} has kind KIND_GPU but no GPUs are available"
                                  : "{} has kind KIND_GPU but specifies no GPUs",
             who)
        .Says("", devices.gpus.empty() ? "KIND_CPU, as there is no GPU" : "the ids of GPUs");
  } else {
    for (int i = 0; i < group.gpus_size(); ++i) {
      const std::int32_t gpu = group.gpus(i);
      if (std::find(devices.gpus.begin(), devices.gpus.end(), gpu) != devices.gpus.end()) continue;
      const std::string usable = fmt::format("{}", fmt::join(devices.gpus, ", "));
      out->Add(fmt::format("{}.gpus[{}]", where, i),
               "{} specifies invalid or unsupported gpu id {}. GPUs with at least the minimum required CUDA compute "
               "compatibility of {:.6f} are: {}",
               who, gpu, devices.minimum_compute_capability, usable)
          .Says(fmt::format("{}", gpu), usable.empty() ? std::string("no GPU, as there is none") : "one of " + usable);
    }
  }
}

void CheckProfiles(const ModelConfig& config, const ModelInstanceGroup& group, const std::string& where,
                   Findings* out) {
  if (group.profile().empty()) return;
  const std::string who =
      fmt::format("instance group {} of model {} and platform {}", group.name(), config.name(), config.platform());
  if (config.platform() != "tensorrt_plan") {
    out->Add(where + ".profile", "{}specifies profile field which is only supported for TensorRT models", who)
        .Says("'profile'", "nothing of the kind unless the platform is tensorrt_plan")
        .Remove();
    return;
  }
  for (int i = 0; i < group.profile_size(); ++i) {
    const std::string& profile = group.profile(i);
    const std::string at = fmt::format("{}.profile[{}]", where, i);
    constexpr const char* kExpected = "the number of a profile, from 0, in quotes";
    if (profile.empty()) {
      out->Add(at, "profile name must not be empty").Says("\"\"", kExpected).SetTo("\"0\"");
      continue;
    }
    const char* begin = profile.c_str();
    const char* end = begin + profile.size();
    while (begin != end && std::isspace(static_cast<unsigned char>(*begin)) != 0) ++begin;
    if (begin != end && *begin == '+') ++begin;
    int value = 0;
    if (std::from_chars(begin, end, value).ec != std::errc()) {
      out->Add(at, "unable to parse '{}': stoi", profile).Says(QuotedText(profile), kExpected).SetTo("\"0\"");
    } else if (value < 0) {
      out->Add(at,
               "{} specifies invalid profile {}. The field should contain the string representation of a non-negative "
               "integer.",
               who, profile)
          .Says(QuotedText(profile), kExpected)
          .SetTo("\"0\"");
    }
  }
}

}  // namespace

std::vector<Finding> ValidateInstanceGroups(const ModelConfig& config, const DeviceFacts& devices) {
  Findings out;
  if (config.platform() == "ensemble" || config.has_ensemble_scheduling()) return {};
  if (config.instance_group().empty()) {
    out.Add("instance_group", "must specify one or more 'instance group's for {}", config.name())
        .Says("", "at least one group");
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
                  ModelInstanceGroup::Kind_Name(group.kind()))
              .Says(fmt::format("[{}]", fmt::join(group.gpus(), ", ")),
                    fmt::format("no GPUs with {}", ModelInstanceGroup::Kind_Name(group.kind())))
              .Remove();
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
      out.Add(where + ".count", "{} asks for {} instances, more than {}", who, group.count(), kMaxInstances)
          .Says(fmt::format("{}", group.count()), fmt::format("{} at most", kMaxInstances))
          .SetTo("1");
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
      const auto variable = std::find_if(input.dims().begin(), input.dims().end(), [](auto dim) { return dim < 0; });
      if (variable != input.dims().end()) {
        out.Add(fmt::format("{}.dims[{}]", where, variable - input.dims().begin()),
                "warmup setting expects all variable-size dimensions are specified for input '{}'", name)
            .Says(fmt::format("{}", *variable), "a fixed size")
            .SetTo("1");
      }
      if (input.input_data_type_case() == inference::ModelWarmup::Input::INPUT_DATA_TYPE_NOT_SET) {
        out.Add(where + ".zero_data",
                "[request id: <id_unknown>] warmup setting expects input '{}' to have input_data_type set", name)
            .Says("", "zero_data, random_data or input_data_file")
            .SetTo("true");
      }
    }
  }
  return std::move(out).Take();
}

}  // namespace tidemark
