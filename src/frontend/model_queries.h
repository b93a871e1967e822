#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "inference/registry.h"
#include "lifecycle/lifecycle.h"

// What clients ask of models, whatever the protocol; errors have Triton's texts. Thread-safe.

namespace tidemark {

// UNAVAILABLE "Server exiting" while it does.
absl::Status CheckNotExiting(const Lifecycle& lifecycle);
// UNAVAILABLE "Server not ready" unless the server serves.
absl::Status CheckServing(const Lifecycle& lifecycle);

// A version as clients write it; -1 when there is none. Read as Triton does with stol: blanks in front and what follows the
// number do not matter. INVALID_ARGUMENT when it is no int64, or negative.
absl::StatusOr<std::int64_t> ParseModelVersion(std::string_view text);

// A version to work with, for as long as the handle lives.
absl::StatusOr<ModelHandle> FindModel(const Registry& registry, const Lifecycle& lifecycle, std::string_view name,
                                      std::string_view version);

// Is that version READY and well? An error when there is no such model or version.
absl::StatusOr<bool> IsModelReady(const Registry& registry, const Lifecycle& lifecycle, std::string_view name,
                                  std::string_view version);

// The versions that metadata lists: the one asked for, or all that are READY.
std::vector<std::int64_t> ListedVersions(const Registry& registry, const ModelInfo& model, std::string_view version);

// Calls `visit` for each READY version of that name, or of all models for an empty one, by name, then version; the model
// stays for the call. INVALID_ARGUMENT when a model was named and there is none.
absl::Status VisitStatistics(const Registry& registry, const Lifecycle& lifecycle, std::string_view name,
                             std::string_view version,
                             absl::FunctionRef<void(std::string_view name, std::int64_t version, Model& model)> visit);

}  // namespace tidemark
