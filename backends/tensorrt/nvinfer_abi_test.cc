// Our declarations of TensorRT against the SDK's headers, slot by slot, where these headers are (see CMakeLists.txt);
// against themselves everywhere.
#include "backends/tensorrt/nvinfer_abi.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#ifdef TIDEMARK_TENSORRT_SDK
#include <NvInferRuntime.h>
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // deprecated methods have slots, too
#endif

namespace tidemark {
namespace {

#ifdef TIDEMARK_TENSORRT_SDK

constexpr const nv::Abi& kAbi = NV_TENSORRT_MAJOR >= 11 ? nv::kAbi11 : nv::kAbi10;
constexpr int kVersion = NV_TENSORRT_MAJOR * 10000 + NV_TENSORRT_MINOR * 100 + NV_TENSORRT_PATCH;

// The slot of a virtual method, as the Itanium ABI has it in a pointer to member (x86-64: 8 · slot + 1).
template <typename Method>
int SlotOf(Method method) {
  std::intptr_t words[2] = {};
  static_assert(sizeof method == sizeof words);
  std::memcpy(words, &method, sizeof words);
  return static_cast<int>((words[0] - 1) / 8);
}

#define EXPECT_SLOT(slot, method) EXPECT_EQ((slot).index, SlotOf(method)) << #method

using namespace nvinfer1;  // NOLINT: the names compared
using apiv::VCudaEngine;
using apiv::VExecutionContext;
using apiv::VRuntime;

TEST(NvinferAbiTest, RuntimeSlotsAreTheSdks) {
  using Deserialize = ICudaEngine* (VRuntime::*)(void const*, std::size_t) noexcept;
  const nv::RuntimeSlots& s = kAbi.runtime;
  EXPECT_SLOT(s.deserialize, static_cast<Deserialize>(&VRuntime::deserializeCudaEngine));
  EXPECT_SLOT(s.set_dla_core, &VRuntime::setDLACore);
  EXPECT_SLOT(s.dla_cores, &VRuntime::getNbDLACores);
  EXPECT_SLOT(s.set_gpu_allocator, &VRuntime::setGpuAllocator);
  EXPECT_SLOT(s.set_error_recorder, &VRuntime::setErrorRecorder);
  EXPECT_SLOT(s.error_recorder, &VRuntime::getErrorRecorder);
  EXPECT_SLOT(s.logger, &VRuntime::getLogger);
  EXPECT_SLOT(s.set_max_threads, &VRuntime::setMaxThreads);
  EXPECT_SLOT(s.max_threads, &VRuntime::getMaxThreads);
  EXPECT_SLOT(s.set_tempfile_flags, &VRuntime::setTempfileControlFlags);
  EXPECT_SLOT(s.plugin_registry, &VRuntime::getPluginRegistry);
  EXPECT_SLOT(s.set_host_code_allowed, &VRuntime::setEngineHostCodeAllowed);
  EXPECT_SLOT(s.host_code_allowed, &VRuntime::getEngineHostCodeAllowed);
  using LoadLibrary = IPluginRegistry::PluginLibraryHandle (IPluginRegistry::*)(AsciiChar const*) noexcept;
  EXPECT_SLOT(kAbi.plugins.load_library, static_cast<LoadLibrary>(&IPluginRegistry::loadLibrary));
}

TEST(NvinferAbiTest, EngineSlotsAreTheSdks) {
  using Create = IExecutionContext* (VCudaEngine::*)(ExecutionContextAllocationStrategy) noexcept;
  const nv::EngineSlots& s = kAbi.engine;
  EXPECT_SLOT(s.create_context, static_cast<Create>(&VCudaEngine::createExecutionContext));
  EXPECT_SLOT(s.name, &VCudaEngine::getName);
  EXPECT_SLOT(s.profiles, &VCudaEngine::getNbOptimizationProfiles);
  EXPECT_SLOT(s.set_error_recorder, &VCudaEngine::setErrorRecorder);
  EXPECT_SLOT(s.tensor_shape, &VCudaEngine::getTensorShape);
  EXPECT_SLOT(s.tensor_type, &VCudaEngine::getTensorDataType);
  EXPECT_SLOT(s.tensor_location, &VCudaEngine::getTensorLocation);
  EXPECT_SLOT(s.is_shape_io, &VCudaEngine::isShapeInferenceIO);
  EXPECT_SLOT(s.tensor_mode, &VCudaEngine::getTensorIOMode);
  EXPECT_SLOT(s.profile_shape, &VCudaEngine::getProfileShape);
  EXPECT_SLOT(s.tensors, &VCudaEngine::getNbIOTensors);
  EXPECT_SLOT(s.tensor_name, &VCudaEngine::getIOTensorName);
  EXPECT_SLOT(s.aux_streams, &VCudaEngine::getNbAuxStreams);
  EXPECT_SLOT(s.bytes_per_component, &VCudaEngine::getTensorBytesPerComponentV2);
  EXPECT_SLOT(s.components_per_element, &VCudaEngine::getTensorComponentsPerElementV2);
  EXPECT_SLOT(s.tensor_format, &VCudaEngine::getTensorFormatV2);
  EXPECT_SLOT(s.format_text, &VCudaEngine::getTensorFormatDescV2);
  EXPECT_SLOT(s.vectorized_dim, &VCudaEngine::getTensorVectorizedDimV2);
  EXPECT_SLOT(s.device_memory, &VCudaEngine::getDeviceMemorySizeV2);
  EXPECT_SLOT(s.device_memory_of, &VCudaEngine::getDeviceMemorySizeForProfileV2);
#if NV_TENSORRT_MAJOR >= 11
  EXPECT_SLOT(s.profile_values, &VCudaEngine::getProfileTensorValuesV2);
  EXPECT_SLOT(s.stat, &VCudaEngine::getEngineStat);
  EXPECT_SLOT(s.aliased_input, &VCudaEngine::getAliasedInputTensor);
#else
  EXPECT_SLOT(s.profile_values_32, &VCudaEngine::getProfileTensorValues);
#endif
}

TEST(NvinferAbiTest, ContextSlotsAreTheSdks) {
  const nv::ContextSlots& s = kAbi.context;
  EXPECT_SLOT(s.engine, &VExecutionContext::getEngine);
  EXPECT_SLOT(s.set_name, &VExecutionContext::setName);
  EXPECT_SLOT(s.set_error_recorder, &VExecutionContext::setErrorRecorder);
  EXPECT_SLOT(s.set_profile, &VExecutionContext::setOptimizationProfileAsync);
  EXPECT_SLOT(s.set_input_shape, &VExecutionContext::setInputShape);
  EXPECT_SLOT(s.tensor_shape, &VExecutionContext::getTensorShape);
  EXPECT_SLOT(s.set_address, &VExecutionContext::setTensorAddress);
  EXPECT_SLOT(s.infer_shapes, &VExecutionContext::inferShapes);
  EXPECT_SLOT(s.set_output_allocator, &VExecutionContext::setOutputAllocator);
  EXPECT_SLOT(s.max_output_bytes, &VExecutionContext::getMaxOutputSize);
  EXPECT_SLOT(s.set_temporary_allocator, &VExecutionContext::setTemporaryStorageAllocator);
  EXPECT_SLOT(s.enqueue, &VExecutionContext::enqueueV3);
  EXPECT_SLOT(s.set_device_memory, &VExecutionContext::setDeviceMemoryV2);
}

TEST(NvinferAbiTest, InterfacesThatWeImplementHaveTheSdksSlots) {
#if NV_TENSORRT_MAJOR >= 11
  EXPECT_EQ(SlotOf(&nv::Logger11::log), SlotOf(&ILogger::log));
#else
  EXPECT_EQ(SlotOf(&nv::Logger10::log), SlotOf(&ILogger::log));
#endif
  EXPECT_EQ(SlotOf(&nv::VersionedInterface::getInterfaceInfo), SlotOf(&IVersionedInterface::getInterfaceInfo));
  EXPECT_EQ(SlotOf(&nv::ErrorRecorder::getNbErrors), SlotOf(&IErrorRecorder::getNbErrors));
  EXPECT_EQ(SlotOf(&nv::ErrorRecorder::getErrorCode), SlotOf(&IErrorRecorder::getErrorCode));
  EXPECT_EQ(SlotOf(&nv::ErrorRecorder::getErrorDesc), SlotOf(&IErrorRecorder::getErrorDesc));
  EXPECT_EQ(SlotOf(&nv::ErrorRecorder::hasOverflowed), SlotOf(&IErrorRecorder::hasOverflowed));
  EXPECT_EQ(SlotOf(&nv::ErrorRecorder::clear), SlotOf(&IErrorRecorder::clear));
  EXPECT_EQ(SlotOf(&nv::ErrorRecorder::reportError), SlotOf(&IErrorRecorder::reportError));
  EXPECT_EQ(SlotOf(&nv::ErrorRecorder::incRefCount), SlotOf(&IErrorRecorder::incRefCount));
  EXPECT_EQ(SlotOf(&nv::ErrorRecorder::decRefCount), SlotOf(&IErrorRecorder::decRefCount));
  EXPECT_EQ(SlotOf(&nv::GpuAllocator::allocate), SlotOf(&IGpuAllocator::allocate));
  EXPECT_EQ(SlotOf(&nv::GpuAllocator::reallocate), SlotOf(&IGpuAllocator::reallocate));
  EXPECT_EQ(SlotOf(&nv::GpuAllocator::deallocate), SlotOf(&IGpuAllocator::deallocate));
  EXPECT_EQ(SlotOf(&nv::GpuAllocator::allocateAsync), SlotOf(&IGpuAllocator::allocateAsync));
  EXPECT_EQ(SlotOf(&nv::GpuAllocator::deallocateAsync), SlotOf(&IGpuAllocator::deallocateAsync));
  EXPECT_EQ(SlotOf(&nv::OutputAllocator::reallocateOutput), SlotOf(&IOutputAllocator::reallocateOutput));
  EXPECT_EQ(SlotOf(&nv::OutputAllocator::reallocateOutputAsync), SlotOf(&IOutputAllocator::reallocateOutputAsync));
  EXPECT_EQ(SlotOf(&nv::OutputAllocator::notifyShape), SlotOf(&IOutputAllocator::notifyShape));
}

TEST(NvinferAbiTest, ValuesAreTheSdks) {
  EXPECT_EQ(sizeof(nv::Dims), sizeof(Dims));
  EXPECT_EQ(sizeof(nv::InterfaceInfo), sizeof(InterfaceInfo));
  EXPECT_EQ(static_cast<int>(nv::DataType::kInt4), static_cast<int>(DataType::kINT4));
  EXPECT_EQ(static_cast<int>(nv::DataType::kBf16), static_cast<int>(DataType::kBF16));
  EXPECT_EQ(static_cast<int>(nv::DataType::kFp8), static_cast<int>(DataType::kFP8));
  EXPECT_EQ(static_cast<int>(nv::Location::kHost), static_cast<int>(TensorLocation::kHOST));
  EXPECT_EQ(static_cast<int>(nv::IoMode::kOutput), static_cast<int>(TensorIOMode::kOUTPUT));
  EXPECT_EQ(static_cast<int>(nv::Strategy::kUserManaged),
            static_cast<int>(ExecutionContextAllocationStrategy::kUSER_MANAGED));
  EXPECT_EQ(static_cast<int>(nv::ErrorCode::kFailedAllocation), static_cast<int>(ErrorCode::kFAILED_ALLOCATION));
  EXPECT_EQ(static_cast<int>(nv::Severity::kVerbose), static_cast<int>(ILogger::Severity::kVERBOSE));
  EXPECT_GE(kVersion, kAbi.oldest);
}

#else

TEST(NvinferAbiTest, SlotsAreTheSdks) {
  GTEST_SKIP() << "TensorRT's headers are not here: give them by -DTIDEMARK_TENSORRT_INCLUDE=<folder>";
}

#endif

// A slot that is written twice, or lies behind the end of its table, is a slip of the pen.
template <typename Slots>
std::vector<int> IndicesOf(const Slots& slots) {
  std::vector<int> indices;
  constexpr std::size_t kCount = (sizeof(Slots) - sizeof(int)) / sizeof(nv::Slot);
  for (std::size_t i = 0; i < kCount; ++i) {
    nv::Slot slot;
    std::memcpy(&slot, reinterpret_cast<const char*>(&slots) + i * sizeof(nv::Slot), sizeof slot);
    if (slot.index >= 0) indices.push_back(slot.index);
  }
  return indices;
}

template <typename Slots>
void ExpectSound(const Slots& slots, const std::string& what) {
  std::vector<int> indices = IndicesOf(slots);
  EXPECT_GE(indices.size(), 12u) << what;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    EXPECT_GE(indices[i], 2) << what << ": the destructors are before";
    for (std::size_t k = i + 1; k < indices.size(); ++k) EXPECT_NE(indices[i], indices[k]) << what;
  }
}

TEST(NvinferAbiTest, NoSlotIsUsedTwice) {
  for (const nv::Abi* abi : {&nv::kAbi10, &nv::kAbi11}) {
    const std::string version = "TensorRT " + std::to_string(abi->major);
    ExpectSound(abi->runtime, version + " runtime");
    ExpectSound(abi->engine, version + " engine");
    ExpectSound(abi->context, version + " context");
  }
}

}  // namespace
}  // namespace tidemark
