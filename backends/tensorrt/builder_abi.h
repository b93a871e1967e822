#pragma once

#include <cstdint>

#include "backends/tensorrt/nvinfer_abi.h"

// TensorRT's binary interface as far as `tidemark engine` needs it to build plans: the builder's side, by slot, for
// TensorRT 10 (from 10.1) and 11. See nvinfer_abi.h for the rules. Nothing here is used by the server.
namespace tidemark::nv {

// "createInferBuilder_INTERNAL": (logger, version) -> IBuilder*; null or a small number when it cannot.
using CreateBuilder = void*(void* logger, std::int32_t version);
// "setInternalLibraryPath": the folder of the builder's resource libraries; process-wide.
using SetInternalLibraryPath = bool(const char* path);
// libnvonnxparser.so.N "createNvOnnxParser_INTERNAL": (network, logger, version) -> IParser*.
using CreateParser = void*(void* network, void* logger, int version);

struct BuilderAbi {
  struct {
    int create_config;       // () -> IBuilderConfig*
    int create_network;      // (u32 flags) -> INetworkDefinition*
    int create_profile;      // () -> IOptimizationProfile*, the builder's own
    int set_error_recorder;  // (ErrorRecorder*)
    int build;               // (network&, config&) -> IHostMemory*
  } builder;
  struct {
    int set_flag;                    // (BuilderFlag)
    int clear_flag;                  // (BuilderFlag)
    int add_profile;                 // (profile const*) -> i32
    int set_memory_pool_limit;       // (MemoryPoolType, u64)
    int set_optimization_level;      // (i32)
    int set_hardware_compatibility;  // (HardwareCompatibilityLevel)
  } config;
  struct {
    int add_input;        // (name, DataType, Dims const&) -> ITensor*
    int mark_output;      // (ITensor&)
    int add_elementwise;  // (ITensor&, ITensor&, i32) -> ILayer*
    int inputs;           // () -> i32
    int input;            // (i32) -> ITensor*
    int outputs;          // () -> i32
    int add_identity;     // (ITensor&) -> ILayer*
  } network;
  struct {
    int set_name;  // (char const*)
    int name;      // () -> char const*
    int dims;      // () -> Dims
  } tensor;
  int layer_output = 0;      // (i32) -> ITensor*
  int profile_set_dims = 0;  // (name, Selector, Dims const&) -> bool
  int memory_data = 0;       // () -> void*
  int memory_size = 0;       // () -> u64
  struct {                   // the parser itself: it is no shell
    int parse;               // (void const*, u64, char const* path) -> bool
    int errors;              // () -> i32
    int error;               // (i32) -> IParserError const*, whose slot 1 is its text
    int deleting_destructor;
  } parser;
  struct {     // BuilderFlag
    int fp16;  // -1: this major takes precisions from the network alone
    int bf16;
    int tf32;
    int version_compatible;
    int exclude_lean_runtime;
  } flags;
};

inline constexpr BuilderAbi kBuilderAbi11 = {
    .builder = {.create_config = 5, .create_network = 6, .create_profile = 7, .set_error_recorder = 8, .build = 11},
    .config = {.set_flag = 9,
               .clear_flag = 8,
               .add_profile = 23,
               .set_memory_pool_limit = 32,
               .set_optimization_level = 36,
               .set_hardware_compatibility = 38},
    .network = {.add_input = 2,
                .mark_output = 3,
                .add_elementwise = 9,
                .inputs = 14,
                .input = 15,
                .outputs = 16,
                .add_identity = 24},
    .tensor = {.set_name = 2, .name = 3, .dims = 5},
    .layer_output = 8,
    .profile_set_dims = 2,
    .memory_data = 2,
    .memory_size = 3,
    .parser = {.parse = 0, .errors = 3, .error = 4, .deleting_destructor = 7},
    .flags = {.fp16 = -1, .bf16 = -1, .tf32 = 6, .version_compatible = 12, .exclude_lean_runtime = 13},
};

inline constexpr BuilderAbi kBuilderAbi10 = {
    .builder = {.create_config = 7, .create_network = 8, .create_profile = 9, .set_error_recorder = 10, .build = 14},
    .config = {.set_flag = 11,
               .clear_flag = 10,
               .add_profile = 25,
               .set_memory_pool_limit = 43,
               .set_optimization_level = 47,
               .set_hardware_compatibility = 49},
    .network = {.add_input = 2,
                .mark_output = 3,
                .add_elementwise = 9,
                .inputs = 14,
                .input = 15,
                .outputs = 16,
                .add_identity = 24},
    .tensor = {.set_name = 2, .name = 3, .dims = 5},
    .layer_output = 8,
    .profile_set_dims = 2,
    .memory_data = 2,
    .memory_size = 3,
    .parser = {.parse = 0, .errors = 5, .error = 6, .deleting_destructor = 9},
    .flags = {.fp16 = 0, .bf16 = 17, .tf32 = 6, .version_compatible = 13, .exclude_lean_runtime = 14},
};

inline constexpr int kElementWiseSum = 0;
inline constexpr int kElementWiseSub = 4;  // kSUM, kPROD, kMAX, kMIN, kSUB
inline constexpr int kWorkspacePool = 0;
inline constexpr int kParserErrorText = 1;  // IParserError: code, desc

}  // namespace tidemark::nv
