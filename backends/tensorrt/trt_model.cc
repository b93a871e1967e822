#include "backends/tensorrt/trt_model.h"

#include <set>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "backends/tensorrt/plan_header.h"
#include "backends/tensorrt/trt_config.h"
#include "backends/tensorrt/trt_graph_spec.h"
#include "backends/tensorrt/trt_instance.h"
#include "base/log.h"
#include "base/status.h"
#include "repository/config_normalize.h"
#include "repository/model_directory.h"

namespace tidemark {

absl::StatusOr<std::filesystem::path> PlanPath(const ModelArtifact& artifact, const inference::ModelConfig& config,
                                               const GpuFacts& gpu) {
  inference::ModelConfig named;
  named.set_name(config.name());
  named.set_default_model_filename(config.default_model_filename());
  const auto it = config.cc_model_filenames().find(fmt::format("{}.{}", gpu.major, gpu.minor));
  if (it != config.cc_model_filenames().end()) named.set_default_model_filename(it->second);
  return ArtifactPath(artifact.model_directory, artifact.version, named, "model.plan", /*look_inside=*/true);
}

absl::StatusOr<std::unique_ptr<TrtModel>> TrtModel::Create(TrtLibraries& libraries, Gpus& gpus,
                                                           const TrtSettings& settings, const ModelArtifact& artifact,
                                                           const inference::ModelConfig& given, Scope& scope) {
  auto model = std::make_unique<TrtModel>(Private(), gpus, settings, given);
  std::set<DeviceId> devices;
  for (const auto& group : given.instance_group()) devices.insert(group.gpus().begin(), group.gpus().end());
  for (const DeviceId device : devices) RETURN_IF_ERROR(model->LoadOn(libraries, artifact, scope, device));
  if (model->engines_.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("unable to load model '{}', its instance groups name no GPU", given.name()));
  }
  if (artifact.auto_complete) {
    const DeviceId first = given.instance_group(0).gpus(0);
    const TrtIo& io = model->engines_.at(first).io;
    if (absl::Status status = CompleteTrtConfig(io, &model->config_); !status.ok()) return model->WithTypes(status, io);
  }
  RETURN_IF_ERROR(model->Check());
  return model;
}

absl::Status TrtModel::LoadOn(TrtLibraries& libraries, const ModelArtifact& artifact, Scope& scope, DeviceId device) {
  if (device < 0 || static_cast<std::size_t>(device) >= gpus_.devices().size()) {
    return absl::InvalidArgumentError(
        fmt::format("unable to load model '{}': there is no GPU {}", config_.name(), device));
  }
  const GpuFacts& gpu = gpus_.devices()[static_cast<std::size_t>(device)];
  ASSIGN_OR_RETURN(const std::filesystem::path path, PlanPath(artifact, config_, gpu));
  ASSIGN_OR_RETURN(const Scope::File file, scope.MapFile(path, "plan"));
  absl::Cleanup unmap = [&scope, &file] { scope.Release(file.handle); };
  ASSIGN_OR_RETURN(const TrtVersion version, ReadPlanHeader(file.data, path.string()));
  ASSIGN_OR_RETURN(const auto choice, libraries.For(version, settings_.host_code));
  absl::Status status = absl::InternalError("no library");
  for (const TrtLibrary* library : choice) {
    absl::StatusOr<std::unique_ptr<TrtEngine>> engine =
        TrtEngine::Load(*library, gpus_, scope, device, file.data, {.host_code = settings_.host_code});
    if (engine.ok()) {
      Loaded loaded;
      ASSIGN_OR_RETURN(loaded.io, ReadTrtIo((*engine)->engine()));
      loaded.engine = *std::move(engine);
      engines_[device] = std::move(loaded);
      LOG_VERBOSE(1, "Created new engine on GPU device {} for {} by {}", device, config_.name(), library->Text());
      return absl::OkStatus();
    }
    status = absl::Status(engine.status().code(),
                          fmt::format("{} (the plan '{}' was built by TensorRT {}, tried was {})",
                                      MessageOf(engine.status()), path.string(), version.Text(), library->Text()));
    // Another library helps against what this one says of the plan, and against nothing else.
    if (!absl::IsInternal(status)) return status;
  }
  return status;
}

// A configuration that cannot be completed may have wrong types besides, which do not depend on what is missing.
absl::Status TrtModel::WithTypes(const absl::Status& status, const TrtIo& io) const {
  Findings out;
  out.Take(status);
  for (Finding& finding : CheckTrtConfig(io, config_, 0, config_.name())) {
    if (finding.field.ends_with(".data_type") && !finding.found.empty()) out.Append({std::move(finding)});
  }
  return StatusOf(out.list());
}

absl::Status TrtModel::Check() const {
  Findings out;
  std::set<std::string> said;  // the same tensor is wrong for each group and each GPU: it is said once
  for (int g = 0; g < config_.instance_group_size(); ++g) {
    const inference::ModelInstanceGroup& group = config_.instance_group(g);
    const std::vector<std::string> names = InstanceNames(group);
    for (const DeviceId device : group.gpus()) {
      std::vector<Finding> found =
          CheckTrtConfig(engines_.at(device).io, config_, g, names.empty() ? group.name() : names[0]);
      std::erase_if(found, [&](const Finding& finding) {
        const std::string& what = finding.expected.empty() ? finding.message : finding.expected;
        return !said.insert(fmt::format("{}\n{}\n{}", finding.field, finding.found, what)).second;
      });
      out.Append(std::move(found));
    }
  }
  if (config_.optimization().cuda().graphs()) out.Take(GraphSpecsOf(config_).status());
  return StatusOf(out.list());
}

absl::StatusOr<std::unique_ptr<BackendInstance>> TrtModel::CreateInstance(Scope& scope,
                                                                          const inference::ModelInstanceGroup& group,
                                                                          std::string_view name, DeviceId device) {
  const auto it = engines_.find(device);
  if (it == engines_.end()) {
    return absl::InvalidArgumentError(
        fmt::format("unable to load model '{}', TensorRT backend supports only GPU device", config_.name()));
  }
  return TrtInstance::Create(*this, *it->second.engine, it->second.io, scope, group, name);
}

}  // namespace tidemark
