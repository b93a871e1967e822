#pragma once

#include "repository/config_validate.h"

// Shared by the config_validate*.cc files only.

namespace tidemark {

// The static rules of ensemble_scheduling; nothing when it is absent.
void CheckEnsemble(const inference::ModelConfig& config, Findings* out);

// The rules of sequence_batching; nothing when it is absent.
void CheckSequenceBatching(const inference::ModelConfig& config, Findings* out);

// Preferred batch sizes of the dynamic or the oldest-sequence batcher, which stand at `field`. `what` and `size` are words
// of Triton's texts.
void CheckPreferredSizes(const google::protobuf::RepeatedField<std::int32_t>& sizes,
                         const inference::ModelConfig& config, std::string_view field, std::string_view what,
                         std::string_view size, Findings* out);

}  // namespace tidemark
