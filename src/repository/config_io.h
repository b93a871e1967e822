#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/data_type.h"
#include "proto/model_config.pb.h"

// Small readers of inference.ModelConfig in the vocabulary of base/. Pure and thread-safe.

namespace tidemark {

// Exact: the two enums have the same numbers. An open-enum value out of range becomes kInvalid.
DataType FromProto(inference::DataType type);
inference::DataType ToProto(DataType type);

DataType TypeOf(const inference::ModelInput& input);
DataType TypeOf(const inference::ModelOutput& output);

// The declared shape, without the batch dimension.
Shape DimsOf(const inference::ModelInput& input);
Shape DimsOf(const inference::ModelOutput& output);

// The shape that the backend sees, without the batch dimension: `reshape` if present (it may be empty), else
// dims.
Shape BackendDimsOf(const inference::ModelInput& input);
Shape BackendDimsOf(const inference::ModelOutput& output);

// `dims` with -1 in front when the model batches (max_batch_size > 0).
Shape WithBatch(const inference::ModelConfig& config, const Shape& dims);

// The input or output of that name; nullptr when there is none. Points into `config`.
const inference::ModelInput* FindInput(const inference::ModelConfig& config, std::string_view name);
const inference::ModelOutput* FindOutput(const inference::ModelConfig& config, std::string_view name);

// parameters[key].string_value; nullopt when the key is absent.
std::optional<std::string> ParameterOf(const inference::ModelConfig& config, std::string_view key);

bool HasLabels(const inference::ModelOutput& output);
bool IsDecoupled(const inference::ModelConfig& config);
bool IsEnsemble(const inference::ModelConfig& config);

// What model metadata calls the platform: `platform`, or `backend` when that is empty.
const std::string& PlatformOf(const inference::ModelConfig& config);

// Do the two configurations differ in instance_group and version_policy at most? (Then a loaded version can
// be updated in place.)
bool OnlyInstancesOrPolicyDiffer(const inference::ModelConfig& before, const inference::ModelConfig& after);

}  // namespace tidemark
