#pragma once

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "audit/scenario.h"

namespace tidemark {

// `tidemark audit --engine NAME`: the whole report from nothing.
struct AuditEngine {
  std::string name;             // "tensorrt", "onnxruntime"; empty: the caller brings repository and server
  std::string library;          // of TensorRT; empty: what builder and server find by themselves
  std::string builder_library;  // the full libnvinfer when `library` is a lean one
  std::string plan;  // a ready plan of an FP32 identity INPUT0 -> OUTPUT0 (or the names below) instead of building
  std::string input = "INPUT0";
  std::string output = "OUTPUT0";
  long elements = 16777216;  // 64 MiB a tensor
};

// Makes the engine in a process of its own, which has ended when this returns, and a repository with it below `folder`,
// and fills in what `options` leaves open: repository, model, the command that starts this very program as a server, and
// for TensorRT the probe gpu:0. INVALID_ARGUMENT for an engine that is not known; the builder's own error.
absl::Status PrepareAuditEngine(const AuditEngine& engine, const std::filesystem::path& folder, bool probe_given,
                                audit::Options& options);

}  // namespace tidemark
