#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/data_type.h"
#include "proto/model_config.pb.h"

namespace tidemark {

// A model with `sequence_batching` has tensors that its clients never see: controls and states. To the engine they are
// ordinary: it is given a configuration in which `input` ends with the controls and the states' inputs, in the order of
// the configuration, and `output` with the states' outputs that are not declared outputs.

// The data type of a control, from whichever list of values it has, or from `data_type`.
DataType ControlType(const inference::ModelSequenceBatching::Control& control);

// Is it a control or a state's input?
bool IsSequenceInput(const inference::ModelConfig& config, std::string_view name);

// The configuration for the engine. The same one without `sequence_batching`. INVALID_ARGUMENT when `input` or `output`
// is empty (an engine could not tell them from controls), or when one of the names is taken.
absl::StatusOr<inference::ModelConfig> EngineConfig(const inference::ModelConfig& config);

// What the engine completed, without the tensors that EngineConfig added to `given`.
inference::ModelConfig ClientConfig(const inference::ModelConfig& engine, const inference::ModelConfig& given);

}  // namespace tidemark
