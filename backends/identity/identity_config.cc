#include "backends/identity/identity_config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <vector>

#include "base/data_type.h"
#include "base/status.h"

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
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return absl::InvalidArgumentError(
        fmt::format("model '{}': failed to convert '{}' to a number, in parameter '{}'", config.name(), text, key));
  }
  if (value < 0 || value > limit) {
    return absl::InvalidArgumentError(
        fmt::format("model '{}': parameter '{}' is {}, but must be from 0 to {}", config.name(), key, text, limit));
  }
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

void CheckPair(const inference::ModelConfig& config, const inference::ModelInput& input,
               const inference::ModelOutput& output, std::vector<std::string>* findings) {
  const auto input_type = static_cast<DataType>(input.data_type());
  const auto output_type = static_cast<DataType>(output.data_type());
  if (input_type != output_type) {
    findings->push_back(fmt::format(
        "unable to load model '{}': output '{}' is a copy of input '{}', so its datatype must be {}, but the model "
        "configuration specifies datatype {}",
        config.name(), output.name(), input.name(), ConfigName(input_type), ConfigName(output_type)));
  }
  const Shape input_shape = EffectiveShape(input);
  const Shape output_shape = EffectiveShape(output);
  if (!Agree(input_shape, output_shape)) {
    findings->push_back(fmt::format(
        "unable to load model '{}': output '{}' is a copy of input '{}', so its shape must be {}, but the "
        "model configuration specifies shape {}",
        config.name(), output.name(), input.name(), ShapeText(AsSpan(input_shape)), ShapeText(AsSpan(output_shape))));
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
  std::vector<std::string> findings;
  if (config.input_size() != config.output_size()) {
    findings.push_back(fmt::format(
        "unable to load model '{}': backend 'identity' copies each input to the output at the same position, but the "
        "model configuration specifies {} inputs and {} outputs",
        config.name(), config.input_size(), config.output_size()));
  }
  for (int i = 0; i < std::min(config.input_size(), config.output_size()); ++i) {
    CheckPair(config, config.input(i), config.output(i), &findings);
  }
  if (findings.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("{}", fmt::join(findings, "; also: ")));
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
