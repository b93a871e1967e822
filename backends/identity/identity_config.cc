#include "backends/identity/identity_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <vector>

#include "base/data_type.h"
#include "base/status.h"
#include "repository/config_finding.h"

namespace tidemark {
namespace {

constexpr double kMaxDelaySeconds = 24 * 3600;

// A parameter as a number from 0 to `limit`; 0 when it is absent.
absl::StatusOr<double> ReadNumber(const inference::ModelConfig& config, const char* key, double limit) {
  const auto it = config.parameters().find(key);
  if (it == config.parameters().end()) return 0.0;
  const std::string& text = it->second.string_value();
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string where = fmt::format("parameters[{}].string_value", key);
  const std::string expected = fmt::format("a number from 0 to {}", limit);
  Findings out;
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    out.Add(where, "model '{}': failed to convert '{}' to a number, in parameter '{}'", config.name(), text, key)
        .Says(QuotedText(text), expected);
  } else if (value < 0 || value > limit) {
    out.Add(where, "model '{}': parameter '{}' is {}, but must be from 0 to {}", config.name(), key, text, limit)
        .Says(text, expected);
  }
  RETURN_IF_ERROR(StatusOf(out.list()));
  return value;
}

// The shape that the backend sees.
template <typename Tensor>
Shape EffectiveShape(const Tensor& tensor) {
  if (tensor.has_reshape()) return Shape(tensor.reshape().shape().begin(), tensor.reshape().shape().end());
  return Shape(tensor.dims().begin(), tensor.dims().end());
}

bool Agree(const Shape& a, const Shape& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](std::int64_t x, std::int64_t y) { return x == y || x < 0 || y < 0; });
}

void CheckPair(const inference::ModelConfig& config, int index, Findings* out) {
  const inference::ModelInput& input = config.input(index);
  const inference::ModelOutput& output = config.output(index);
  const auto input_type = static_cast<DataType>(input.data_type());
  const auto output_type = static_cast<DataType>(output.data_type());
  if (input_type != output_type) {
    out->Add(
           fmt::format("output[{}].data_type", index),
           "unable to load model '{}': output '{}' is a copy of input '{}', so its datatype must be {}, but the model "
           "configuration specifies datatype {}",
           config.name(), output.name(), input.name(), ConfigName(input_type), ConfigName(output_type))
        .Says(output_type == DataType::kInvalid ? std::string() : std::string(ConfigName(output_type)),
              fmt::format("{}, as input '{}' has", ConfigName(input_type), input.name()))
        .SetTo(std::string(ConfigName(input_type)));
  }
  const Shape input_shape = EffectiveShape(input);
  const Shape output_shape = EffectiveShape(output);
  if (!Agree(input_shape, output_shape)) {
    Finding& finding = out->Add(
        fmt::format("output[{}].{}", index, output.has_reshape() ? "reshape.shape" : "dims"),
        "unable to load model '{}': output '{}' is a copy of input '{}', so its shape must be {}, but the model "
        "configuration specifies shape {}",
        config.name(), output.name(), input.name(), ShapeText(AsSpan(input_shape)), ShapeText(AsSpan(output_shape)));
    finding.Says(ShapeText(AsSpan(output_shape)),
                 fmt::format("{}, as input '{}' has", ShapeText(AsSpan(input_shape)), input.name()));
    if (!input_shape.empty()) finding.SetTo(fmt::format("[ {} ]", fmt::join(input_shape, ", ")));
  }
}

}  // namespace

std::int64_t IdentityDelays::ExecuteNanos(std::int64_t index) const {
  const double factor = std::max(1.0, static_cast<double>(index) * static_cast<double>(multiplier));
  const double nanos = static_cast<double>(execute_nanos) * factor;
  return static_cast<std::int64_t>(std::min(nanos, kMaxDelaySeconds * 1e9));
}

absl::StatusOr<IdentityDelays> ReadIdentityDelays(const inference::ModelConfig& config) {
  IdentityDelays delays;
  ASSIGN_OR_RETURN(const double creation, ReadNumber(config, "creation_delay_sec", kMaxDelaySeconds));
  ASSIGN_OR_RETURN(const double execute, ReadNumber(config, "execute_delay_ms", kMaxDelaySeconds * 1e3));
  ASSIGN_OR_RETURN(const double multiplier, ReadNumber(config, "instance_wise_delay_multiplier", 1e6));
  delays.creation_nanos = static_cast<std::int64_t>(creation * 1e9);
  delays.execute_nanos = static_cast<std::int64_t>(execute * 1e6);
  delays.multiplier = static_cast<std::int64_t>(multiplier);
  return delays;
}

absl::Status CheckIdentityPairs(const inference::ModelConfig& config) {
  Findings out;
  if (config.input_size() != config.output_size()) {
    out.Add(
           config.input_size() > config.output_size() ? "output" : "input",
           "unable to load model '{}': backend 'identity' copies each input to the output at the same position, but the "
           "model configuration specifies {} inputs and {} outputs",
           config.name(), config.input_size(), config.output_size())
        .Says(fmt::format("{} inputs and {} outputs", config.input_size(), config.output_size()), "as many of either");
  }
  for (int i = 0; i < std::min(config.input_size(), config.output_size()); ++i) CheckPair(config, i, &out);
  return StatusOf(out.list());
}

std::int64_t InstanceIndex(std::string_view name) {
  const std::size_t underscore = name.rfind('_');
  if (underscore == std::string_view::npos) return 0;
  const std::string_view digits = name.substr(underscore + 1);
  std::int64_t index = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  return error == std::errc() && end == digits.data() + digits.size() && index >= 0 ? index : 0;
}

}  // namespace tidemark
