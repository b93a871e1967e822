#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "proto/model_config.pb.h"

// Fills in what a configuration leaves out. Pure and thread-safe.

namespace tidemark {

// Names inside the directory that is looked at to guess the backend: the first sub-directory of the model's
// directory in byte order. Both empty when there is none.
struct VersionListing {
  std::set<std::string, std::less<>> files;
  std::set<std::string, std::less<>> directories;
};

// The core's own completion, which runs with auto-completion off, too: `name` from the directory, then
// backend, platform and default_model_filename from each other and from the listing. INVALID_ARGUMENT when
// nothing tells the backend.
absl::Status CompleteBackendFields(std::string_view directory_name, const VersionListing& listing,
                                   inference::ModelConfig* config);

// Defaults that do not depend on the machine: version policy, preferred batch sizes, sequence idle time,
// pinned memory flags. Runs before and again after a backend completed the configuration; running it twice
// changes nothing.
void NormalizeConfig(inference::ModelConfig* config);

// What the machine and the backend give to instance groups.
struct InstanceDefaults {
  std::vector<std::int32_t> gpus;                        // ids of the GPUs that may be used, ascending
  std::vector<inference::ModelInstanceGroup> preferred;  // the backend's preferences, best first
};

// Gives every group a name (`N` for a group that was not declared, else `N_<index>`), a kind other than
// KIND_AUTO (KIND_CPU without GPUs), a count of at least 1 (preference, else 2 for KIND_CPU with onnxruntime
// or tensorflow, else 1) and, for KIND_GPU, its devices. Adds one group when there is none. Does nothing for
// an ensemble.
void NormalizeInstanceGroups(const InstanceDefaults& defaults, inference::ModelConfig* config);

// Names of the instances of one normalised group, in order of creation, for one device: "<group>_0",
// "<group>_1", …
std::vector<std::string> InstanceNames(const inference::ModelInstanceGroup& group);

}  // namespace tidemark
