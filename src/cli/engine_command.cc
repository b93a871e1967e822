#include "cli/engine_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "audit/model_files.h"
#include "audit/onnx_model.h"
#include "base/status.h"

namespace tidemark {
namespace {

struct EngineOptions {
  audit::OnnxModelSpec spec;
  std::string dtype = "FP32";
  std::string output;
  std::string config;
  std::string name;
};

void AddKind(CLI::App& app, const char* kind, const char* what, EngineOptions& options) {
  CLI::App* command = app.add_subcommand(kind, what);
  command->add_option("--elements", options.spec.elements, "Elements of each tensor (16)");
  command->add_option("--dtype", options.dtype, "Element type by its protocol name: FP32, INT64, BYTES, ... (FP32)");
  command->add_flag("--batch", options.spec.batch, "A free batch dimension in front");
  command->add_option("-o,--output", options.output, "The ONNX file to write")->required();
  command->add_option("--config", options.config, "Also write the config.pbtxt that goes with it here");
  command->add_option("--name", options.name, "The model's name in that configuration (the kind)");
}

absl::Status Make(EngineOptions& options, const std::string& kind) {
  options.spec.dtype = DataTypeFromProtocolName(options.dtype);
  if (options.spec.dtype == DataType::kInvalid) {
    return absl::InvalidArgumentError(
        fmt::format("--dtype: unknown data type '{}'; expected FP32, INT64, BYTES, ...", options.dtype));
  }
  if (kind == "addsub") options.spec.kind = audit::OnnxModelSpec::Kind::kAddSub;
  ASSIGN_OR_RETURN(const std::string model, audit::MakeOnnxModel(options.spec));
  std::error_code error;  // a folder that cannot be made is a file that cannot be written: said below
  const std::filesystem::path folder = std::filesystem::path(options.output).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  RETURN_IF_ERROR(audit::WriteFileAtomically(options.output, model));
  if (options.config.empty()) return absl::OkStatus();
  return audit::WriteFileAtomically(options.config,
                                    audit::MakeOnnxConfig(options.spec, options.name.empty() ? kind : options.name));
}

}  // namespace

int EngineMain(std::span<char* const> args) {
  EngineOptions options;
  CLI::App app("Makes a model for a test", "tidemark engine");
  app.require_subcommand(1);
  AddKind(app, "identity", "OUTPUT0 = INPUT0", options);
  AddKind(app, "addsub", "OUTPUT0 = INPUT0 + INPUT1, OUTPUT1 = INPUT0 - INPUT1", options);
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
