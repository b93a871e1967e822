#include "backends/openvino/openvino_backend.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "backends/openvino/adapter.h"
#include "backends/openvino/built_in_model.h"
#include "backends/openvino/openvino_model.h"
#include "base/log.h"
#include "base/status.h"

namespace tidemark {
namespace {

constexpr std::string_view kModule = "libtidemark_openvino_adapter.so";

// Where the adapter may lie: with the engine (installed), or in the build tree's lib/ beside engines/.
std::vector<std::filesystem::path> Candidates(const std::filesystem::path& engines) {
  return {engines / "openvino" / kModule, (engines / ".." / "lib" / kModule).lexically_normal(), engines / kModule};
}

absl::StatusOr<std::filesystem::path> FindModule(const std::filesystem::path& engines) {
  const std::vector<std::filesystem::path> candidates = Candidates(engines);
  std::error_code error;
  for (const std::filesystem::path& path : candidates) {
    if (std::filesystem::exists(path, error)) return path;
  }
  std::vector<std::string> names;
  for (const std::filesystem::path& path : candidates) names.push_back(fmt::format("'{}'", path.string()));
  return absl::UnavailableError(fmt::format(
      "the openvino engine is not here: its adapter was looked for at {}; run tools/setup.sh, which fetches OpenVINO, "
      "build again, and check --engine-directory",
      fmt::join(names, ", ")));
}

absl::StatusOr<OpenVinoAdapter*> OpenAdapter(Scope& resident, const std::filesystem::path& engines) {
  ASSIGN_OR_RETURN(const std::filesystem::path path, FindModule(engines));
  const absl::StatusOr<Scope::Library> library = resident.OpenLibrary(path, "openvino adapter");
  if (!library.ok()) {
    if (library.status().code() != absl::StatusCode::kNotFound) return library.status();
    return absl::UnavailableError(
        fmt::format("the openvino engine cannot be opened: {}; its libraries belong into '{}', where tools/setup.sh "
                    "puts them",
                    MessageOf(library.status()), (engines / "openvino" / "libs").string()));
  }
  ASSIGN_OR_RETURN(void* const symbol, resident.Symbol(*library, kOpenVinoAdapterSymbol));
  const auto factory = reinterpret_cast<OpenVinoAdapterFactory>(symbol);
  const auto slot = std::make_shared<std::unique_ptr<OpenVinoAdapter>>();  // last owner: the row's release
  ASSIGN_OR_RETURN(const Scope::Handle handle,
                   resident.Acquire(
                       ResourceKind::kEngineObject, kHost, 0, "openvino adapter",
                       [&]() -> absl::Status {
                         slot->reset(factory(kOpenVinoAdapterVersion));
                         if (*slot != nullptr) return absl::OkStatus();
                         return absl::UnavailableError(fmt::format(
                             "the openvino adapter '{}' is of another build than the server", path.string()));
                       },
                       [slot] {
                         slot->reset();
                         return absl::OkStatus();
                       }));
  static_cast<void>(handle);
  return slot->get();
}

// Compiles and runs one built-in model; everything it takes is given back.
absl::Status RunBuiltIn(OpenVinoAdapter& adapter, Scope& resident, const std::string& text) {
  Scope scope(resident, "built-in model");
  constexpr std::string_view kWhat = "the openvino engine cannot run its built-in model";
  ASSIGN_OR_RETURN(OpenVinoCore* const core, HoldOpenVino<OpenVinoCore>(scope, 0, "core", kWhat, [&](auto* made) {
                     return adapter.CreateCore(made);
                   }));
  ASSIGN_OR_RETURN(OpenVinoNetwork* const network,
                   HoldOpenVino<OpenVinoNetwork>(scope, 0, "read model", kWhat,
                                                 [&](auto* made) { return core->ReadText(text, made); }));
  ASSIGN_OR_RETURN(OpenVinoCompiled* const compiled,
                   HoldOpenVino<OpenVinoCompiled>(scope, 0, "compiled model", kWhat, [&](auto* made) {
                     return core->Compile(*network, OpenVinoSettings(), made);
                   }));
  ASSIGN_OR_RETURN(OpenVinoRequest* const request,
                   HoldOpenVino<OpenVinoRequest>(scope, 0, "infer request", kWhat,
                                                 [&](auto* made) { return compiled->CreateRequest(made); }));
  constexpr std::array<std::int64_t, 2> kShape = {kBuiltInWidth, kBuiltInWidth};
  const std::array<float, kBuiltInWidth* kBuiltInWidth> zeros = {};
  for (std::size_t port = 0; port < network->inputs().size(); ++port) {
    RETURN_IF_ERROR(OpenVinoStatus(request->SetInput(port, kShape, zeros.data(), sizeof(zeros)), kWhat));
  }
  RETURN_IF_ERROR(OpenVinoStatus(request->Start(), kWhat));
  return OpenVinoStatus(request->Finish(), kWhat);
}

class OpenVinoBackend final : public Backend {
 public:
  OpenVinoBackend(OpenVinoAdapter& adapter, BackendSettings settings)
      : adapter_(adapter), settings_(std::move(settings)) {}

  std::string_view name() const override { return "openvino"; }

  absl::StatusOr<std::unique_ptr<BackendModel>> CreateModel(const ModelArtifact& artifact,
                                                            const inference::ModelConfig& config,
                                                            Scope& scope) override {
    try {
      return OpenVinoModel::Create(adapter_, settings_, artifact, config, scope);
    } catch (const std::exception& error) {
      return absl::InternalError(fmt::format("unable to load model '{}': {}", artifact.model_name, error.what()));
    }
  }

 private:
  OpenVinoAdapter& adapter_;  // held by the resident scope
  const BackendSettings settings_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateOpenVinoBackend(const BackendContext& context) {
  ASSIGN_OR_RETURN(OpenVinoAdapter* const adapter, OpenAdapter(context.resident, context.engine_directory));
  RETURN_IF_ERROR(RunBuiltIn(*adapter, context.resident, BuiltInIr()));
  RETURN_IF_ERROR(RunBuiltIn(*adapter, context.resident, BuiltInOnnx()));
  LOG_INFO("OpenVINO {} opened", adapter->engine_version());
  return std::make_unique<OpenVinoBackend>(*adapter, context.settings);
}

}  // namespace tidemark
