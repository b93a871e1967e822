#include "cli/engine_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "audit/model_files.h"
#include "audit/onnx_model.h"
#include "backends/tensorrt/engine_builder.h"
#include "base/status.h"
#include "platform/platform.h"
#include "resource/ledger.h"
#include "resource/scope.h"

namespace tidemark {
namespace {

struct EngineOptions {
  audit::OnnxModelSpec spec;
  std::string dtype = "FP32";
  std::string output;
  std::string config;
  std::string name;
  // TensorRT only.
  EngineSpec engine;
  EngineLibraries libraries;
  std::vector<std::string> shapes;
  double workspace_mib = -1;
};

void AddTensorRtOptions(CLI::App& command, EngineOptions& options) {
  using Precision = EngineSpec::Precision;
  using Hardware = EngineSpec::Hardware;
  static const std::map<std::string, Precision> kPrecisions = {
      {"fp32", Precision::kFp32}, {"tf32", Precision::kTf32}, {"fp16", Precision::kFp16}, {"bf16", Precision::kBf16}};
  static const std::map<std::string, Hardware> kHardware = {
      {"none", Hardware::kThisGpu},
      {"same-compute-capability", Hardware::kSameComputeCapability},
      {"ampere-plus", Hardware::kAmperePlus}};
  const char* group = "TensorRT (output ends in .plan)";
  command.add_option("--library", options.libraries.builder, "The full libnvinfer (libnvinfer.so.11)")->group(group);
  command.add_option("--builder-resources", options.libraries.resources, "The folder of libnvinfer_builder_resource_*")
      ->group(group);
  command
      .add_option("--shapes", options.shapes,
                  "INPUT:MIN/OPT/MAX, like x:1x16/8x16/64x16; may be repeated, an input's second entry begins the "
                  "second profile")
      ->group(group);
  command
      .add_option("--precision", options.engine.precision, "fp32 (no TF32), tf32; with TensorRT 10 fp16 and bf16, too")
      ->transform(CLI::CheckedTransformer(kPrecisions))
      ->group(group);
  command
      .add_flag("--version-compatible", options.engine.version_compatible,
                "For lean runtimes of this and later versions; the lean runtime is left out of the plan")
      ->group(group);
  command
      .add_flag("--with-lean-runtime", options.engine.include_lean_runtime,
                "With --version-compatible: put the lean runtime into the plan (host code)")
      ->group(group);
  command.add_option("--hardware-compatibility", options.engine.hardware, "none, same-compute-capability, ampere-plus")
      ->transform(CLI::CheckedTransformer(kHardware))
      ->group(group);
  command.add_option("--optimization-level", options.engine.optimization_level, "0 to 5")
      ->check(CLI::Range(0, 5))
      ->group(group);
  // For tests: a builder of the family that starts without a GPU (TensorRT for RTX) calls itself 1.x. Not in the help.
  command.add_option("--assume-major", options.libraries.assume_major)->check(CLI::Range(10, 11))->group("");
  command.add_option("--workspace-mib", options.workspace_mib, "The most that a layer may use")->group(group);
}

void AddKind(CLI::App& app, const char* kind, const char* what, EngineOptions& options) {
  CLI::App* command = app.add_subcommand(kind, what);
  command->add_option("--elements", options.spec.elements, "Elements of each tensor (16)");
  command->add_option("--dtype", options.dtype, "Element type by its protocol name: FP32, INT64, BYTES, ... (FP32)");
  command->add_flag("--batch", options.spec.batch, "A free batch dimension in front");
  command->add_option("-o,--output", options.output, "The file to write: ONNX, or a TensorRT plan if it ends in .plan")
      ->required();
  command->add_option("--config", options.config, "Also write the config.pbtxt that goes with it here");
  command->add_option("--name", options.name, "The model's name in that configuration (the kind)");
  AddTensorRtOptions(*command, options);
}

void AddOnnx(CLI::App& app, EngineOptions& options) {
  CLI::App* command = app.add_subcommand("onnx", "A TensorRT plan from an ONNX model");
  command->add_option("model", options.engine.onnx, "The ONNX file")->required()->check(CLI::ExistingFile);
  command->add_option("-o,--output", options.output, "The plan to write")->required();
  command->add_option("--parser-library", options.libraries.parser, "libnvonnxparser (beside libnvinfer)");
  AddTensorRtOptions(*command, options);
}

absl::Status Write(const EngineOptions& options, const std::string& model, const std::string& config) {
  std::error_code error;  // a folder that cannot be made is a file that cannot be written: said below
  const std::filesystem::path folder = std::filesystem::path(options.output).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  RETURN_IF_ERROR(audit::WriteFileAtomically(options.output, model));
  return options.config.empty() ? absl::OkStatus() : audit::WriteFileAtomically(options.config, config);
}

absl::Status MakePlan(EngineOptions& options, const std::string& kind) {
  EngineSpec& spec = options.engine;
  spec.network = kind == "onnx"     ? EngineSpec::Network::kOnnx
                 : kind == "addsub" ? EngineSpec::Network::kAddSub
                                    : EngineSpec::Network::kIdentity;
  spec.elements = options.spec.elements;
  spec.dtype = options.spec.dtype;
  spec.batch = options.spec.batch;
  if (options.workspace_mib >= 0) spec.workspace_bytes = static_cast<std::int64_t>(options.workspace_mib * 1024 * 1024);
  for (const std::string& text : options.shapes) {
    ASSIGN_OR_RETURN(ProfileShape shape, ParseProfileShape(text));
    spec.shapes.push_back(std::move(shape));
  }
  const std::unique_ptr<Platform> platform = CreateLinuxPlatform();
  Ledger ledger;
  Scope scope(ledger, *platform, "engine");
  ASSIGN_OR_RETURN(const std::string plan, BuildEngine(scope, spec, options.libraries));
  return Write(options, plan, EngineConfig(spec, options.name.empty() ? kind : options.name));
}

absl::Status Make(EngineOptions& options, const std::string& kind) {
  options.spec.dtype = DataTypeFromProtocolName(options.dtype);
  if (options.spec.dtype == DataType::kInvalid) {
    return absl::InvalidArgumentError(
        fmt::format("--dtype: unknown data type '{}'; expected FP32, INT64, BYTES, ...", options.dtype));
  }
  if (options.output.ends_with(".plan")) return MakePlan(options, kind);
  if (kind == "onnx") {
    return absl::InvalidArgumentError(
        fmt::format("--output '{}': a plan's name ends in .plan, as a model repository wants it", options.output));
  }
  if (kind == "addsub") options.spec.kind = audit::OnnxModelSpec::Kind::kAddSub;
  ASSIGN_OR_RETURN(const std::string model, audit::MakeOnnxModel(options.spec));
  return Write(options, model, audit::MakeOnnxConfig(options.spec, options.name.empty() ? kind : options.name));
}

}  // namespace

int EngineMain(std::span<char* const> args) {
  EngineOptions options;
  CLI::App app("Makes a model for a test: ONNX, or a TensorRT plan", "tidemark engine");
  app.require_subcommand(1);
  AddKind(app, "identity", "OUTPUT0 = INPUT0", options);
  AddKind(app, "addsub", "OUTPUT0 = INPUT0 + INPUT1, OUTPUT1 = INPUT0 - INPUT1", options);
  AddOnnx(app, options);
  std::vector<std::string> words(args.rbegin(), args.rend());  // CLI11 takes them from the back
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;
  }
  const absl::Status status = Make(options, app.get_subcommands().front()->get_name());
  if (status.ok()) return 0;
  fmt::print(stderr, "tidemark engine: {}\n", MessageOf(status));
  return 1;
}

}  // namespace tidemark
