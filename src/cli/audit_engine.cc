#include "cli/audit_engine.h"

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "audit/child_process.h"
#include "audit/model_files.h"
#include "base/status.h"

namespace tidemark {
namespace {

namespace fs = std::filesystem;

constexpr char kModel[] = "identity";
constexpr std::chrono::minutes kBuildLimit{15};

// This program, as a word of a command that is split like a shell's.
absl::StatusOr<std::string> Self() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return absl::InternalError(fmt::format("cannot find this program: {}", error.message()));
  return self.string();
}

std::string Config(const AuditEngine& engine, bool tensorrt) {
  return fmt::format(
      "{}\nmax_batch_size: 0\ninput {{ name: \"{}\" data_type: TYPE_FP32 dims: {} }}\n"
      "output {{ name: \"{}\" data_type: TYPE_FP32 dims: {} }}\n",
      tensorrt ? "platform: \"tensorrt_plan\"" : "backend: \"onnxruntime\"", engine.input, engine.elements,
      engine.output, engine.elements);
}

// `tidemark engine identity` as a child that ends before a server starts: what a builder leaves in its process is gone.
absl::Status BuildEngineFile(const AuditEngine& engine, const std::string& self, const fs::path& file,
                             const fs::path& log) {
  std::vector<std::string> words = {self,      "engine", "identity", "--elements", fmt::format("{}", engine.elements),
                                    "--dtype", "FP32",   "-o",       file.string()};
  const std::string& library = engine.builder_library.empty() ? engine.library : engine.builder_library;
  if (!library.empty()) {
    words.emplace_back("--library");
    words.push_back(library);
  }
  ASSIGN_OR_RETURN(auto child, audit::ChildProcess::Start(words, log));
  if (!child->WaitForExit(std::chrono::duration_cast<std::chrono::milliseconds>(kBuildLimit))) {
    return absl::DeadlineExceededError(fmt::format("the engine was not built within {} minutes", kBuildLimit.count()));
  }
  std::error_code error;
  if (child->ExitText().value_or("") == "exit code 0" && fs::exists(file, error)) return absl::OkStatus();
  const auto text = audit::ReadFile(log);
  return absl::FailedPreconditionError(
      fmt::format("the engine could not be built ({}): {}", child->ExitText().value_or("?"), text.ok() ? *text : ""));
}

}  // namespace

absl::Status PrepareAuditEngine(const AuditEngine& engine, const fs::path& folder, bool probe_given,
                                audit::Options& options) {
  const bool tensorrt = engine.name == "tensorrt";
  if (!tensorrt && engine.name != "onnxruntime") {
    return absl::InvalidArgumentError(fmt::format("--engine '{}': expected tensorrt or onnxruntime", engine.name));
  }
  ASSIGN_OR_RETURN(const std::string self, Self());
  const fs::path version = folder / "repository" / kModel / "1";
  std::error_code error;
  fs::remove_all(version, error);
  fs::create_directories(version, error);
  if (error) return absl::InvalidArgumentError(fmt::format("cannot create {}: {}", version.string(), error.message()));
  const fs::path file = version / (tensorrt ? "model.plan" : "model.onnx");
  if (engine.plan.empty()) {
    RETURN_IF_ERROR(BuildEngineFile(engine, self, file, folder / "engine.log"));
  } else {
    fs::copy_file(engine.plan, file, fs::copy_options::overwrite_existing, error);
    if (error) return absl::InvalidArgumentError(fmt::format("cannot copy '{}': {}", engine.plan, error.message()));
  }
  RETURN_IF_ERROR(audit::WriteFileAtomically(version.parent_path() / "config.pbtxt", Config(engine, tensorrt)));
  options.repository = folder / "repository";
  options.model = kModel;
  if (options.url.empty() && options.spawn.empty()) {
    options.spawn = fmt::format(
        "'{}' --model-repository={{repository}} --http-port={{http_port}} --metrics-port={{metrics_port}}", self);
    if (tensorrt && !engine.library.empty()) {
      options.spawn += fmt::format(" '--backend-config=tensorrt,library={}'", engine.library);
    }
  }
  if (tensorrt && !probe_given) options.probe = "gpu:0";
  return absl::OkStatus();
}

}  // namespace tidemark
