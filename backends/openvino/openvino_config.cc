#include "backends/openvino/openvino_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <optional>
#include <string>

#include "base/data_type.h"
#include "base/log.h"
#include "base/status.h"
#include "repository/config_finding.h"

namespace tidemark {
namespace {

using Ports = std::vector<OpenVinoPort>;

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return lower;
}

// The first of `keys` that the configuration or, failing that, the backend's settings have.
std::optional<std::string> Lookup(const inference::ModelConfig& config, const BackendSettings& settings,
                                  std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    if (const auto found = config.parameters().find(std::string(key)); found != config.parameters().end()) {
      return found->second.string_value();
    }
  }
  for (const std::string_view key : keys) {
    if (const auto found = settings.find(std::string(key)); found != settings.end()) return found->second;
  }
  return std::nullopt;
}

absl::StatusOr<bool> ReadYes(std::string_view key, std::string_view value) {
  const std::string lower = Lower(value);
  if (lower == "yes" || lower == "true" || lower == "1" || lower == "on") return true;
  if (lower == "no" || lower == "false" || lower == "0" || lower == "off") return false;
  return absl::InvalidArgumentError(fmt::format("failed to convert '{}' to boolean (parameter '{}')", value, key));
}

absl::Status ReadCount(const inference::ModelConfig& config, const BackendSettings& settings,
                       std::initializer_list<std::string_view> keys, int* count) {
  const std::optional<std::string> value = Lookup(config, settings, keys);
  if (!value) return absl::OkStatus();
  int number = 0;
  const char* const end = value->data() + value->size();
  const auto [stop, error] = std::from_chars(value->data(), end, number);
  if (error != std::errc() || stop != end) {
    return absl::InvalidArgumentError(
        fmt::format("failed to convert '{}' to integral number (parameter '{}')", *value, *keys.begin()));
  }
  constexpr int kMost = 1024;
  if (number < 1 || number > kMost) {
    return absl::InvalidArgumentError(
        fmt::format("parameter '{}' must be from 1 to {}, got {}", *keys.begin(), kMost, number));
  }
  *count = number;
  return absl::OkStatus();
}

absl::Status ReadPrecision(const inference::ModelConfig& config, const BackendSettings& settings,
                           std::string* precision) {
  if (const auto value = Lookup(config, settings, {"INFERENCE_PRECISION_HINT"})) {
    *precision = Lower(*value);
    if (*precision != "f32" && *precision != "f16" && *precision != "bf16" && *precision != "dynamic") {
      return absl::InvalidArgumentError(
          fmt::format("parameter 'INFERENCE_PRECISION_HINT' must be f32, f16, bf16 or dynamic, got '{}'", *value));
    }
    return absl::OkStatus();
  }
  for (const std::string_view key : {"HINT_BF16", "ENFORCE_BF16"}) {
    if (const auto value = Lookup(config, settings, {key})) {
      ASSIGN_OR_RETURN(const bool yes, ReadYes(key, *value));
      if (yes) *precision = "bf16";
    }
  }
  return absl::OkStatus();
}

// Parameters of Triton's backend that this one does not have.
absl::Status RefuseParameters(const inference::ModelConfig& config) {
  for (const auto& [key, parameter] : config.parameters()) {
    const std::string value = Lower(parameter.string_value());
    const bool device = key == "TARGET_DEVICE" && value != "cpu";
    const bool switched_on = (key == "RESHAPE_IO_LAYOUTS" || key == "ENABLE_BATCH_PADDING") && value == "yes";
    if (device || switched_on || key == "CPU_EXTENSION_PATH") {
      return absl::UnimplementedError(
          fmt::format("parameter '{}' = '{}' is not supported by the openvino backend", key, parameter.string_value()));
    }
    if (key == "SKIP_OV_DYNAMIC_BATCHSIZE" || key == "SKIP_DYNAMIC_BATCHSIZE" || key == "CPU_BIND_THREAD" ||
        key == "COMPILATION_NUM_THREADS") {
      LOG_WARNING("model '{}': parameter '{}' has no effect in the openvino backend", config.name(), key);
    }
  }
  return absl::OkStatus();
}

Shape ShapeOf(const OpenVinoPort& port) { return Shape(port.dims.begin(), port.dims.end()); }

bool CanBatch(const OpenVinoPort& port) { return port.known_rank && !port.dims.empty() && port.dims[0] < 0; }

// What the configuration of one tensor takes from the model. `Tensor` is ModelInput or ModelOutput.
template <typename Tensor>
absl::Status FillTensor(const OpenVinoPort& port, std::string_view direction, bool batching, Tensor* tensor) {
  tensor->set_name(port.names.front());
  if (port.data_type == DataType::kInvalid) {
    return absl::UnimplementedError(
        fmt::format("Unsupported OpenVINO type '{}' for {} '{}'", port.type_name, direction, port.names.front()));
  }
  if (!port.known_rank) {
    return absl::InvalidArgumentError(
        fmt::format("the number of dimensions of {} '{}' is not known from the model; its configuration must give them",
                    direction, port.names.front()));
  }
  tensor->set_data_type(static_cast<inference::DataType>(port.data_type));
  for (std::size_t i = batching ? 1 : 0; i < port.dims.size(); ++i) tensor->add_dims(port.dims[i]);
  if (tensor->dims_size() == 0) {
    tensor->add_dims(1);
    if (batching) tensor->mutable_reshape();
  }
  return absl::OkStatus();
}

std::vector<const OpenVinoPort*> ByName(const Ports& ports) {
  std::vector<const OpenVinoPort*> sorted;
  for (const OpenVinoPort& port : ports) sorted.push_back(&port);
  std::sort(sorted.begin(), sorted.end(),
            [](const auto* a, const auto* b) { return a->names.front() < b->names.front(); });
  return sorted;
}

std::optional<std::size_t> Find(const Ports& ports, const std::string& name) {
  for (std::size_t i = 0; i < ports.size(); ++i) {
    const auto& names = ports[i].names;
    if (std::find(names.begin(), names.end(), name) != names.end()) return i;
  }
  return std::nullopt;
}

// Things of the configuration that this backend has no answer to.
void RefuseFeatures(const inference::ModelConfig& config, Findings& out) {
  const auto refuse = [&](bool present, const std::string& field, const std::string& what) {
    if (!present) return;
    out.AddWithCode(absl::StatusCode::kUnimplemented, field,
                    "unable to load model '{}', the openvino backend does not support {}", config.name(), what)
        .Says("'" + field + "'", "nothing of the kind with backend \"openvino\"");
  };
  refuse(config.has_sequence_batching(), "sequence_batching", "sequence batching");
  refuse(config.batch_input_size() > 0, "batch_input", "batch inputs");
  refuse(config.batch_output_size() > 0, "batch_output", "batch outputs");
  for (int i = 0; i < config.input_size(); ++i) {
    const auto& input = config.input(i);
    refuse(input.allow_ragged_batch(), fmt::format("input[{}].allow_ragged_batch", i),
           fmt::format("ragged batches (input '{}')", input.name()));
    if (!input.optional()) continue;
    out.Add(fmt::format("input[{}].optional", i),
            "'optional' is set to true for input '{}' while the backend model doesn't support optional input",
            input.name())
        .Says("true", "false with backend \"openvino\"")
        .SetTo("false");
  }
}

// The engine's CPU plugin aborts the process on string tensors, wherever they are.
void RefuseStrings(const Ports& ports, std::string_view direction, std::string_view model, Findings& out) {
  for (const OpenVinoPort& port : ports) {
    if (port.data_type != DataType::kBytes) continue;
    out.AddWithCode(absl::StatusCode::kUnimplemented, "backend",
                    "unable to load model '{}', {} '{}' has datatype TYPE_STRING, which the openvino backend refuses "
                    "because the engine aborts the process on strings; serve it with backend \"onnxruntime\"",
                    model, direction, port.names.front())
        .Says("\"openvino\"", "another engine for tensors of strings")
        .Advise("backend: \"onnxruntime\"");
  }
}

std::string DimsText(const Shape& dims) { return fmt::format("[ {} ]", fmt::join(dims, ", ")); }

// Model and configuration, as one complete shape each. `path` is the tensor's.
template <typename Tensor>
void CheckShape(const OpenVinoPort& port, const Tensor& tensor, bool exact, const inference::ModelConfig& config,
                const std::string& path, Findings& out) {
  const bool batching = config.max_batch_size() > 0;
  if (!port.known_rank) return;
  const Shape model = ShapeOf(port);
  if (batching && (model.empty() || model[0] != -1)) {
    out.Add("max_batch_size",
            "model '{}', tensor '{}': for the model to support batching the shape should have at least 1 dimension and "
            "the first dimension must be -1; but shape expected by the model is {}",
            config.name(), tensor.name(), ShapeText(AsSpan(model)))
        .Says(fmt::format("{}", config.max_batch_size()),
              fmt::format("0, as '{}' has no batch dimension", tensor.name()))
        .SetTo("0");
    return;
  }
  const auto& declared = tensor.has_reshape() ? tensor.reshape().shape() : tensor.dims();
  const Shape written(declared.begin(), declared.end());
  const std::string field = path + (tensor.has_reshape() ? ".reshape.shape" : ".dims");
  Shape full;
  if (batching) full.push_back(-1);
  full.insert(full.end(), declared.begin(), declared.end());
  if (model.empty() && !batching && !tensor.has_reshape()) {
    if (full.size() == 1 && full[0] == 1) return;
    out.Add(field,
            "unable to load model '{}', scalar tensor '{}', should only provide 1 in the model configuration when the "
            "model doesn't support batching. Model configuration provided: {}.",
            config.name(), tensor.name(), ShapeText(AsSpan(full)))
        .Says(DimsText(written), "[ 1 ] for a scalar")
        .SetTo("[ 1 ]");
    return;
  }
  bool fits = full.size() == model.size();
  for (std::size_t i = 0; fits && i < model.size(); ++i) fits = model[i] == full[i] || (!exact && model[i] == -1);
  if (fits) return;
  Shape fitting(model.begin() + (batching ? 1 : 0), model.end());
  if (fitting.empty()) fitting.push_back(1);
  out.Add(
         field,
         "model '{}', tensor '{}': the model expects {} dimensions (shape {}) but the model configuration specifies {} "
         "dimensions ({}shape {})",
         config.name(), tensor.name(), model.size(), ShapeText(AsSpan(model)), full.size(),
         batching ? "an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, "
                    "making complete "
                  : "",
         ShapeText(AsSpan(full)))
      .Says(DimsText(written),
            fmt::format("{}, as the model has{}", DimsText(fitting), batching ? " behind the batch dimension" : ""))
      .SetTo(DimsText(fitting));
}

bool Declares(const inference::ModelConfig& config, std::string_view name) {
  const auto has = [&](const auto& tensors) {
    return std::any_of(tensors.begin(), tensors.end(), [&](const auto& tensor) { return tensor.name() == name; });
  };
  return has(config.input()) || has(config.output());
}

// The port that a tensor of the configuration means; nothing when there is none. Says what does not fit.
template <typename Tensor>
std::optional<std::size_t> BindTensor(const Ports& ports, const Tensor& tensor, std::string_view direction, int number,
                                      const inference::ModelConfig& config, Findings& out) {
  const std::string path = fmt::format("{}[{}]", direction, number);
  const std::optional<std::size_t> index = Find(ports, tensor.name());
  if (!index) {
    std::vector<std::string_view> allowed;
    for (const OpenVinoPort* port : ByName(ports)) allowed.push_back(port->names.front());
    const std::string list = fmt::format("{}", fmt::join(allowed, ", "));
    Finding& finding = out.Add(path + ".name", "unexpected inference {} '{}', allowed {}s are: {}", direction,
                               tensor.name(), direction, list)
                           .Says(fmt::format("'{}'", tensor.name()), "one of the model's: " + list);
    std::erase_if(allowed, [&](std::string_view name) { return Declares(config, name); });
    const std::string_view nearest = allowed.size() == 1 ? allowed.front() : NearestName(tensor.name(), allowed);
    if (!nearest.empty()) finding.SetTo(QuotedText(nearest));
    return std::nullopt;
  }
  const OpenVinoPort& port = ports[*index];
  if (port.data_type == DataType::kInvalid) {
    out.AddWithCode(absl::StatusCode::kUnimplemented, path + ".data_type", "Unsupported OpenVINO type '{}' for {} '{}'",
                    port.type_name, direction, tensor.name());
    return index;
  }
  const auto declared = static_cast<DataType>(tensor.data_type());
  if (declared != port.data_type) {
    out.Add(path + ".data_type",
            "unable to load model '{}', configuration expects datatype {} for {} '{}', model provides {}",
            config.name(), ConfigName(declared), direction, tensor.name(), ConfigName(port.data_type))
        .Says(declared == DataType::kInvalid ? std::string() : std::string(ConfigName(declared)),
              fmt::format("{}, as the model has", ConfigName(port.data_type)))
        .SetTo(std::string(ConfigName(port.data_type)));
    return index;
  }
  CheckShape(port, tensor, direction == "output", config, path, out);
  return index;
}

bool CalculatedNarrow(DataType type) {
  return type == DataType::kInt64 || type == DataType::kUint64 || type == DataType::kFp64;
}

}  // namespace

absl::StatusOr<OpenVinoOptions> ReadOpenVinoOptions(const inference::ModelConfig& config,
                                                    const BackendSettings& backend_settings) {
  RETURN_IF_ERROR(RefuseParameters(config));
  OpenVinoOptions options;
  OpenVinoSettings& settings = options.settings;
  RETURN_IF_ERROR(ReadPrecision(config, backend_settings, &settings.inference_precision));
  RETURN_IF_ERROR(
      ReadCount(config, backend_settings, {"INFERENCE_NUM_THREADS", "CPU_THREADS_NUM"}, &settings.inference_threads));
  RETURN_IF_ERROR(ReadCount(config, backend_settings, {"NUM_STREAMS", "CPU_THROUGHPUT_STREAMS"}, &settings.streams));
  // One thread for each stream is the least that the engine can work with.
  settings.inference_threads = std::max(settings.inference_threads, settings.streams);
  if (const auto value = Lookup(config, {}, {"allow_narrow_integers"})) {
    ASSIGN_OR_RETURN(options.allow_narrow_integers, ReadYes("allow_narrow_integers", *value));
  }
  return options;
}

absl::Status CompleteOpenVinoConfig(const Ports& inputs, const Ports& outputs, int default_max_batch_size,
                                    inference::ModelConfig* config) {
  if (config->input_size() > 0 && config->output_size() > 0) return absl::OkStatus();
  const bool batching = !inputs.empty() && std::all_of(inputs.begin(), inputs.end(), CanBatch) &&
                        std::all_of(outputs.begin(), outputs.end(), CanBatch);
  if (!batching && config->max_batch_size() != 0) {
    Findings out;
    out.Add(
           "max_batch_size",
           "autofill failed for model '{}': model does not support batching while non-zero max_batch_size is specified",
           config->name())
        .Says(fmt::format("{}", config->max_batch_size()), "0, as the model has no batch dimension")
        .SetTo("0");
    return StatusOf(out.list());
  }
  if (batching && config->max_batch_size() == 0) {
    config->set_max_batch_size(default_max_batch_size);
    LOG_WARNING(
        "autofilled max_batch_size to {} for model '{}' since batching is supported but no max_batch_size is specified "
        "in model configuration. Must specify max_batch_size to utilize autofill with a larger max batch size",
        default_max_batch_size, config->name());
  }
  if (config->max_batch_size() > 1 && !config->has_dynamic_batching() && !config->has_sequence_batching()) {
    config->mutable_dynamic_batching();
  }
  const bool drop_first = config->max_batch_size() > 0;
  if (config->input_size() == 0) {
    for (const OpenVinoPort* port : ByName(inputs)) {
      RETURN_IF_ERROR(FillTensor(*port, "input", drop_first, config->add_input()));
    }
  }
  if (config->output_size() == 0) {
    for (const OpenVinoPort* port : ByName(outputs)) {
      RETURN_IF_ERROR(FillTensor(*port, "output", drop_first, config->add_output()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<OpenVinoBinding> BindOpenVinoConfig(const Ports& inputs, const Ports& outputs,
                                                   bool allow_narrow_integers, const inference::ModelConfig& config) {
  Findings out;
  RefuseFeatures(config, out);
  RefuseStrings(inputs, "input", config.name(), out);
  RefuseStrings(outputs, "output", config.name(), out);
  if (static_cast<std::size_t>(config.input_size()) != inputs.size()) {
    std::vector<std::string_view> names;
    for (const OpenVinoPort* port : ByName(inputs)) names.push_back(port->names.front());
    out.Add(fmt::format("input[{}]", config.input_size()),
            "unable to load model '{}', configuration expects {} inputs, model provides {}", config.name(),
            config.input_size(), inputs.size())
        .Says(fmt::format("{} inputs", config.input_size()),
              fmt::format("{}: {}", inputs.size(), fmt::join(names, ", ")));
  }
  OpenVinoBinding binding;
  for (int i = 0; i < config.input_size(); ++i) {
    const auto& input = config.input(i);
    const std::optional<std::size_t> port = BindTensor(inputs, input, "input", i, config, out);
    if (!port) continue;
    const auto twin = std::find(binding.inputs.begin(), binding.inputs.end(), *port);
    if (twin != binding.inputs.end()) {
      out.Add(fmt::format("input[{}].name", i),
              "unable to load model '{}', inputs '{}' and '{}' are names of the same tensor", config.name(),
              config.input(static_cast<int>(twin - binding.inputs.begin())).name(), input.name());
    }
    binding.inputs.push_back(*port);
  }
  for (int i = 0; i < config.output_size(); ++i) {
    const auto& output = config.output(i);
    const std::optional<std::size_t> port = BindTensor(outputs, output, "output", i, config, out);
    if (!port) continue;
    if (CalculatedNarrow(outputs[*port].data_type) && !allow_narrow_integers) {
      out.AddWithCode(
             absl::StatusCode::kUnimplemented, fmt::format("output[{}].data_type", i),
             "unable to load model '{}', output '{}' has datatype {}, which the openvino engine calculates with 32 bits and "
             "so answers wrongly for large values; serve it with backend \"onnxruntime\", or set parameter "
             "'allow_narrow_integers' to \"true\" to accept that",
             config.name(), output.name(), ConfigName(outputs[*port].data_type))
          .Advise("parameters { key: \"allow_narrow_integers\" value { string_value: \"true\" } }");
    }
    binding.outputs.push_back(*port);
  }
  RETURN_IF_ERROR(StatusOf(out.list()));
  return binding;
}

}  // namespace tidemark
