#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/data_type.h"
#include "resource/scope.h"

namespace tidemark {

// What one input may be in one optimization profile.
struct ProfileShape {
  std::string input;
  Shape min, opt, max;
};

// "INPUT:1x16/8x16/64x16" (or one shape for all three). INVALID_ARGUMENT naming what is wrong.
absl::StatusOr<ProfileShape> ParseProfileShape(const std::string& text);

// A plan to build.
struct EngineSpec {
  enum class Network { kIdentity, kAddSub, kOnnx };
  enum class Precision { kDefault, kFp32, kTf32, kFp16, kBf16 };
  enum class Hardware { kThisGpu, kSameComputeCapability, kAmperePlus };

  Network network = Network::kIdentity;
  std::int64_t elements = 16;        // of each tensor, of the networks made here
  DataType dtype = DataType::kFp32;  // of those
  bool batch = false;                // a free batch dimension in front, 1 to 64
  std::filesystem::path onnx;        // the file of kOnnx
  std::vector<ProfileShape> shapes;  // one profile; a second entry for an input begins the next one
  Precision precision = Precision::kDefault;
  bool version_compatible = false;    // runs on other versions' lean runtimes; that runtime is left out of the plan
  bool include_lean_runtime = false;  // ... or put into it (host code in a model file)
  Hardware hardware = Hardware::kThisGpu;
  int optimization_level = -1;        // 0 to 5; -1: TensorRT's own choice
  std::int64_t workspace_bytes = -1;  // the most that a layer may use; -1: no limit
};

// Where TensorRT is.
struct EngineLibraries {
  std::filesystem::path builder = "libnvinfer.so.11";
  std::filesystem::path parser;  // empty: libnvonnxparser of the same major, beside the builder
  int assume_major = 0;  // 10 or 11: take that major's tables, whatever the library calls itself (TensorRT for RTX)
  std::filesystem::path resources;  // folder of libnvinfer_builder_resource_*; empty: the loader's own search
};

// Builds the plan with the real builder and returns its bytes. Takes hundreds of MiB of host memory and the GPU, much of
// which stays with the process: a command of its own calls this, never the server. Everything opened is on `scope`.
//
// INVALID_ARGUMENT for a spec or a model that TensorRT refuses, with its text; NOT_FOUND for a library that is missing;
// FAILED_PRECONDITION naming the resource library that the builder misses for this GPU, and where it is to be had.
absl::StatusOr<std::string> BuildEngine(Scope& scope, const EngineSpec& spec, const EngineLibraries& libraries);

// config.pbtxt for the networks made here.
std::string EngineConfig(const EngineSpec& spec, const std::string& name);

}  // namespace tidemark
