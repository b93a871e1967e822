// A stand-in for libnvinfer: the binary interface of TensorRT 11 (11.2) or, with FAKE_TRT_MAJOR 10, of TensorRT 10.6,
// derived from the published tables independently of the product's own declarations. Virtual functions stand in the
// tables' order; one that the product has no business calling ends the process with its name.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "builder.h"
#include "engine.h"
#include "interfaces.h"

namespace {

using namespace fake_trt;  // NOLINT: a shell over that namespace
using fake_gpu::Meet;

#if FAKE_TRT_MAJOR == 11
constexpr int kVersion[4] = {11, 2, 1, 2};
using Logger = Logger11;
#else
constexpr int kVersion[4] = {10, 6, 0, 26};
using Logger = Logger10;
#endif

class RuntimeTable;
class EngineTable;
class ContextTable;
class MemoryTable;
class InspectorTable;
class RuntimeConfigTable;
using IRuntime = Shell<RuntimeTable>;
using ICudaEngine = Shell<EngineTable>;
using IExecutionContext = Shell<ContextTable>;
using IHostMemory = Shell<MemoryTable>;
using IEngineInspector = Shell<InspectorTable>;
using IRuntimeConfig = Shell<RuntimeConfigTable>;

class MemoryTable {
 public:
  MemoryTable(IHostMemory*, std::string bytes) : bytes_(std::move(bytes)) { fake_gpu::AddLive("host_memories", 1); }
  virtual ~MemoryTable() noexcept { fake_gpu::AddLive("host_memories", -1); }
  virtual void* data() const noexcept { return const_cast<char*>(bytes_.data()); }
  virtual std::size_t size() const noexcept { return bytes_.size(); }
  virtual std::int32_t type() const noexcept { return 2; }

 private:
  std::string bytes_;
};

// --- context -------------------------------------------------------------------------------------------------------

class ContextTable {
 public:
  ContextTable(IExecutionContext* shell, ICudaEngine* engine, std::unique_ptr<Context> context)
      : shell_(shell), engine_(engine), c_(std::move(context)) {}
  virtual ~ContextTable() noexcept { fake_gpu::Count("~IExecutionContext"); }
  virtual IExecutionContext* getPImpl() noexcept { return shell_; }
  virtual void setDebugSync(bool) noexcept {}
  virtual bool getDebugSync() const noexcept { return false; }
  UNUSED(setProfiler)
  UNUSED(getProfiler)
  virtual const ICudaEngine& getEngine() const noexcept { return *engine_; }
  virtual void setName(const char* name) noexcept { c_->name = name; }
  virtual const char* getName() const noexcept { return c_->name.c_str(); }
  UNUSED(setDeviceMemory)
  virtual std::int32_t getOptimizationProfile() const noexcept { return c_->profile; }
  virtual bool allInputDimensionsSpecified() const noexcept { return c_->AllShapesGiven(); }
#if FAKE_TRT_MAJOR == 10
  virtual bool allInputShapesSpecified() const noexcept { return c_->AllShapesGiven(); }
#endif
  virtual void setErrorRecorder(ErrorRecorder* recorder) noexcept { c_->reporter.SetRecorder(recorder); }
  virtual ErrorRecorder* getErrorRecorder() const noexcept { return c_->reporter.recorder(); }
  UNUSED(executeV2)
  virtual bool setOptimizationProfileAsync(std::int32_t index, void*) noexcept {
    return !Fails("setOptimizationProfileAsync") && c_->SetProfile(index);
  }
  UNUSED(setEnqueueEmitsProfile)
  UNUSED(getEnqueueEmitsProfile)
  UNUSED(reportToProfiler)
  virtual bool setInputShape(const char* name, const Dims& dims) noexcept {
    return !Fails("setInputShape") && c_->SetInputShape(name, dims);
  }
  virtual Dims getTensorShape(const char* name) const noexcept { return c_->TensorShape(name); }
  UNUSED(getTensorStrides)
  virtual bool setTensorAddress(const char* name, void* address) noexcept {
    return !Fails("setTensorAddress") && c_->SetAddress(name, address, false, false);
  }
  virtual const void* getTensorAddress(const char* name) const noexcept { return c_->Address(name); }
  virtual bool setInputTensorAddress(const char* name, const void* address) noexcept {
    return !Fails("setTensorAddress") && c_->SetAddress(name, const_cast<void*>(address), true, false);
  }
  virtual bool setOutputTensorAddress(const char* name, void* address) noexcept {
    return !Fails("setTensorAddress") && c_->SetAddress(name, address, false, true);
  }
  virtual std::int32_t inferShapes(std::int32_t room, const char** names) noexcept {
    return Fails("inferShapes") ? -1 : c_->InferShapes(room, names);
  }
  virtual bool setInputConsumedEvent(void* event) noexcept {
    if (Fails("setInputConsumedEvent")) return false;
    c_->consumed_event = event;
    return true;
  }
  virtual void* getInputConsumedEvent() const noexcept { return c_->consumed_event; }
  virtual void* getOutputTensorAddress(const char* name) const noexcept { return c_->Address(name); }
  virtual bool setOutputAllocator(const char* name, OutputAllocator* allocator) noexcept {
    return !Fails("setOutputAllocator") && c_->SetOutputAllocator(name, allocator);
  }
  virtual OutputAllocator* getOutputAllocator(const char* name) noexcept { return c_->GetOutputAllocator(name); }
  virtual std::int64_t getMaxOutputSize(const char* name) const noexcept { return c_->MaxOutputSize(name); }
  virtual bool setTemporaryStorageAllocator(GpuAllocator* allocator) noexcept {
    if (Fails("setTemporaryStorageAllocator")) return false;
    c_->temporary = allocator;
    return true;
  }
  virtual GpuAllocator* getTemporaryStorageAllocator() const noexcept { return c_->temporary; }
  virtual bool enqueueV3(void* stream) noexcept { return !Fails("enqueueV3") && c_->Enqueue(stream); }
  virtual void setPersistentCacheLimit(std::size_t) noexcept {}
  virtual std::size_t getPersistentCacheLimit() const noexcept { return 0; }
  virtual bool setNvtxVerbosity(std::int32_t) noexcept { return true; }
  virtual std::int32_t getNvtxVerbosity() const noexcept { return 0; }
  virtual void setAuxStreams(void** streams, std::int32_t count) noexcept {
    for (std::int32_t i = 0; i < count; ++i) fake_gpu::FindStream(streams[i]);
  }
  virtual bool setDebugListener(void*) noexcept { return true; }
  virtual void* getDebugListener() noexcept { return nullptr; }
  UNUSED(setTensorDebugState)
  UNUSED(getDebugState)
  UNUSED(setAllTensorsDebugState)
  // As plans that were not built for it answer.
  virtual std::size_t updateDeviceMemorySizeForShapes() noexcept { return 0; }
  virtual void setDeviceMemoryV2(void* block, std::int64_t bytes) noexcept { c_->SetDeviceMemory(block, bytes); }
#if FAKE_TRT_MAJOR == 11
  UNUSED(getRuntimeConfig)
  UNUSED(setUnfusedTensorsDebugState)
  UNUSED(getUnfusedTensorsDebugState)
  UNUSED(setCommunicator)
#endif

 private:
  bool Fails(const char* entry) {
    int error = 0;
    if (!Meet(entry, &error)) return false;
    c_->reporter.Report(kFailedExecution, std::string("injected failure of ") + entry);
    return true;
  }

  IExecutionContext* shell_;
  ICudaEngine* engine_;
  std::unique_ptr<Context> c_;
};

// --- engine --------------------------------------------------------------------------------------------------------

class InspectorTable {
 public:
  InspectorTable(IEngineInspector* shell, std::string text) : shell_(shell), text_(std::move(text)) {
    fake_gpu::AddLive("inspectors", 1);
  }
  virtual ~InspectorTable() noexcept { fake_gpu::AddLive("inspectors", -1); }
  virtual IEngineInspector* getPImpl() noexcept { return shell_; }
  virtual bool setExecutionContext(const IExecutionContext*) noexcept { return true; }
  UNUSED(getExecutionContext)
  virtual const char* getLayerInformation(std::int32_t, std::int32_t) const noexcept { return text_.c_str(); }
  virtual const char* getEngineInformation(std::int32_t) const noexcept { return text_.c_str(); }
  virtual void setErrorRecorder(ErrorRecorder*) noexcept {}
  virtual ErrorRecorder* getErrorRecorder() const noexcept { return nullptr; }

 private:
  IEngineInspector* shell_;
  std::string text_;
};

class RuntimeConfigTable {
 public:
  explicit RuntimeConfigTable(IRuntimeConfig* shell) : shell_(shell) { fake_gpu::AddLive("runtime_configs", 1); }
  virtual ~RuntimeConfigTable() noexcept { fake_gpu::AddLive("runtime_configs", -1); }
  virtual IRuntimeConfig* getPImpl() noexcept { return shell_; }
  virtual void setExecutionContextAllocationStrategy(std::int32_t strategy) noexcept { strategy_ = strategy; }
  virtual std::int32_t getExecutionContextAllocationStrategy() const noexcept { return strategy_; }

 private:
  IRuntimeConfig* shell_;
  std::int32_t strategy_ = 0;
};

class EngineTable {
 public:
  EngineTable(ICudaEngine* shell, std::unique_ptr<Engine> engine, std::string blob)
      : shell_(shell), e_(std::move(engine)), blob_(std::move(blob)) {}
  virtual ~EngineTable() noexcept { fake_gpu::Count("~ICudaEngine"); }
  virtual ICudaEngine* getPImpl() noexcept { return shell_; }
  virtual std::int32_t getNbLayers() const noexcept { return 1; }
  virtual IHostMemory* serialize() const noexcept { return new IHostMemory(blob_); }
  virtual IExecutionContext* createExecutionContext(std::int32_t strategy) noexcept { return MakeContext(strategy); }
#if FAKE_TRT_MAJOR == 10
  UNUSED(createExecutionContextWithoutDeviceMemory)
  virtual std::size_t getDeviceMemorySize() const noexcept { return e_->ScratchBytes(); }
#endif
  virtual bool isRefittable() const noexcept { return false; }
  virtual const char* getName() const noexcept { return "fake network"; }
  virtual std::int32_t getNbOptimizationProfiles() const noexcept {
    return static_cast<std::int32_t>(e_->plan.profiles.size());
  }
#if FAKE_TRT_MAJOR == 10
  virtual const std::int32_t* getProfileTensorValues(const char* name, std::int32_t profile,
                                                     std::int32_t selector) const noexcept {
    const auto* values = Values(name, profile, selector, &Profile::narrow);
    return values == nullptr ? nullptr : values->data();
  }
#endif
  virtual std::int32_t getEngineCapability() const noexcept { return 0; }
  virtual void setErrorRecorder(ErrorRecorder* recorder) noexcept { e_->reporter.SetRecorder(recorder); }
  virtual ErrorRecorder* getErrorRecorder() const noexcept { return e_->reporter.recorder(); }
#if FAKE_TRT_MAJOR == 10
  virtual bool hasImplicitBatchDimension() const noexcept { return false; }
#endif
  virtual std::uint32_t getTacticSources() const noexcept { return 0; }
  virtual std::int32_t getProfilingVerbosity() const noexcept { return 0; }
  virtual IEngineInspector* createEngineInspector() const noexcept {
    int error = 0;
    return Meet("createEngineInspector", &error) ? nullptr : new IEngineInspector("{\"Layers\": [\"fake\"]}");
  }
  virtual Dims getTensorShape(const char* name) const noexcept {
    const Tensor* tensor = e_->plan.Find(name);
    if (tensor != nullptr) return ToDims(tensor->dims);
    Dims none;
    none.count = -1;
    return none;
  }
  virtual std::int32_t getTensorDataType(const char* name) const noexcept { return Of(name).type; }
  virtual std::int32_t getTensorLocation(const char* name) const noexcept { return Of(name).host ? 1 : 0; }
  virtual bool isShapeInferenceIO(const char* name) const noexcept { return Of(name).host; }
  virtual std::int32_t getTensorIOMode(const char* name) const noexcept {
    const Tensor* tensor = e_->plan.Find(name);
    return tensor == nullptr ? 0 : tensor->input ? 1 : 2;
  }
  virtual std::int32_t getTensorBytesPerComponent(const char* name) const noexcept { return Of(name).format.bytes; }
  virtual std::int32_t getTensorComponentsPerElement(const char* name) const noexcept {
    return Of(name).format.components;
  }
  virtual std::int32_t getTensorFormat(const char* name) const noexcept { return Of(name).format.format; }
  virtual const char* getTensorFormatDesc(const char* name) const noexcept {
    return Of(name).format.format == 0 ? "Row major linear" : "Vectorized";
  }
  virtual std::int32_t getTensorVectorizedDim(const char* name) const noexcept { return Of(name).format.vector_dim; }
  virtual Dims getProfileShape(const char* name, std::int32_t profile, std::int32_t selector) const noexcept {
    return e_->ProfileShape(name, profile, selector);
  }
  virtual std::int32_t getNbIOTensors() const noexcept { return static_cast<std::int32_t>(e_->plan.tensors.size()); }
  virtual const char* getIOTensorName(std::int32_t index) const noexcept {
    const auto at = static_cast<std::size_t>(index);
    return index < 0 || at >= e_->plan.tensors.size() ? nullptr : e_->plan.tensors[at].name.c_str();
  }
  virtual std::int32_t getHardwareCompatibilityLevel() const noexcept { return 0; }
  virtual std::int32_t getNbAuxStreams() const noexcept { return e_->plan.aux; }
  virtual std::int32_t getTensorBytesPerComponentV2(const char* name, std::int32_t) const noexcept {
    return Of(name).format.bytes;
  }
  virtual std::int32_t getTensorComponentsPerElementV2(const char* name, std::int32_t) const noexcept {
    return Of(name).format.components;
  }
  virtual std::int32_t getTensorFormatV2(const char* name, std::int32_t) const noexcept {
    return Of(name).format.format;
  }
  virtual const char* getTensorFormatDescV2(const char* name, std::int32_t) const noexcept {
    return getTensorFormatDesc(name);
  }
  virtual std::int32_t getTensorVectorizedDimV2(const char* name, std::int32_t) const noexcept {
    return Of(name).format.vector_dim;
  }
  UNUSED(createSerializationConfig)
  UNUSED(serializeWithConfig)
#if FAKE_TRT_MAJOR == 10
  virtual std::size_t getDeviceMemorySizeForProfile(std::int32_t) const noexcept { return e_->ScratchBytes(); }
#endif
  UNUSED(createRefitter)
#if FAKE_TRT_MAJOR == 10
  UNUSED(setWeightStreamingBudget)
  UNUSED(getWeightStreamingBudget)
  UNUSED(getMinimumWeightStreamingBudget)
#endif
  virtual std::int64_t getStreamableWeightsSize() const noexcept { return static_cast<std::int64_t>(e_->plan.weights); }
  virtual bool isDebugTensor(const char*) const noexcept { return false; }
  UNUSED(setWeightStreamingBudgetV2)
  virtual std::int64_t getWeightStreamingBudgetV2() const noexcept { return 0; }
  virtual std::int64_t getWeightStreamingAutomaticBudget() const noexcept { return 0; }
  virtual std::int64_t getWeightStreamingScratchMemorySize() const noexcept { return 0; }
  virtual std::int64_t getDeviceMemorySizeV2() const noexcept { return static_cast<std::int64_t>(e_->ScratchBytes()); }
  virtual std::int64_t getDeviceMemorySizeForProfileV2(std::int32_t) const noexcept {
    return static_cast<std::int64_t>(e_->ScratchBytes());
  }
#if FAKE_TRT_MAJOR == 11
  virtual const std::int64_t* getProfileTensorValuesV2(const char* name, std::int32_t profile,
                                                       std::int32_t selector) const noexcept {
    const auto* values = Values(name, profile, selector, &Profile::values);
    if (values == nullptr) e_->reporter.Report(kInvalidArgument, "getProfileTensorValuesV2: not a shape tensor");
    return values == nullptr ? nullptr : values->data();
  }
  virtual IExecutionContext* createExecutionContextWithRuntimeConfig(IRuntimeConfig* config) noexcept {
    return MakeContext(config->table()->getExecutionContextAllocationStrategy());
  }
  virtual IRuntimeConfig* createRuntimeConfig() noexcept { return new IRuntimeConfig(); }
  virtual std::int64_t getEngineStat(std::int32_t stat) const noexcept {
    return stat == 0 ? static_cast<std::int64_t>(e_->plan.weights) : -1;
  }
  virtual const char* getAliasedInputTensor(const char*) const noexcept { return nullptr; }
#endif

 private:
  IExecutionContext* MakeContext(std::int32_t strategy) {
    int error = 0;
    if (Meet("createExecutionContext", &error)) {
      e_->reporter.Report(kFailedInitialization, "injected failure of createExecutionContext");
      return nullptr;
    }
    auto context = Context::Create(*e_, strategy);
    return context == nullptr ? nullptr : new IExecutionContext(shell_, std::move(context));
  }

  const Tensor& Of(const char* name) const {
    static const Tensor none;
    const Tensor* tensor = e_->plan.Find(name);
    return tensor == nullptr ? none : *tensor;
  }

  template <typename Map>
  const typename Map::mapped_type* Values(const char* name, std::int32_t profile, std::int32_t selector,
                                          Map (Profile::*member)[3]) const {
    if (profile < 0 || static_cast<std::size_t>(profile) >= e_->plan.profiles.size()) return nullptr;
    const Map& of = (e_->plan.profiles[static_cast<std::size_t>(profile)].*member)[selector];
    const auto at = of.find(name);
    return at == of.end() ? nullptr : &at->second;
  }

  ICudaEngine* shell_;
  std::unique_ptr<Engine> e_;
  std::string blob_;
};

// --- plugin registry -----------------------------------------------------------------------------------------------

class Registry {
 public:
#if FAKE_TRT_MAJOR == 10
  UNUSED(registerCreatorV1)
  UNUSED(getPluginCreatorList)
  UNUSED(getPluginCreator)
#endif
  virtual ~Registry() = default;
  virtual void setErrorRecorder(ErrorRecorder*) noexcept {}
  virtual ErrorRecorder* getErrorRecorder() const noexcept { return nullptr; }
#if FAKE_TRT_MAJOR == 10
  UNUSED(deregisterCreatorV1)
#endif
  virtual bool isParentSearchEnabled() const { return true; }
  virtual void setParentSearchEnabled(bool) {}
  virtual void* loadLibrary(const char* path) noexcept {
    int error = 0;
    if (Meet("loadLibrary", &error)) return nullptr;
    std::FILE* file = std::fopen(path, "rb");
    if (file == nullptr) return nullptr;
    std::fclose(file);
    fake_gpu::AddLive("plugin_libraries", 1);
    return this;
  }
  virtual void deregisterLibrary(void*) noexcept { fake_gpu::AddLive("plugin_libraries", -1); }
  UNUSED(registerCreator)
  virtual void* const* getAllCreators(std::int32_t* count) const noexcept {
    *count = 0;
    return nullptr;
  }
  virtual void* getCreator(const char*, const char*, const char*) noexcept { return nullptr; }
};

Registry registry;

// --- runtime -------------------------------------------------------------------------------------------------------

class RuntimeTable {
 public:
  RuntimeTable(IRuntime* shell, Logger* logger)
      : shell_(shell),
        logger_(logger),
        r_([logger](int severity, const char* text) { logger->log(severity, text); }, kVersion) {}
  virtual ~RuntimeTable() noexcept { fake_gpu::Count("~IRuntime"); }
  virtual IRuntime* getPImpl() noexcept { return shell_; }
  virtual ICudaEngine* deserializeCudaEngine(const void* data, std::size_t bytes) noexcept {
    return Deserialize(static_cast<const char*>(data), bytes);
  }
#if FAKE_TRT_MAJOR == 10
  UNUSED(deserializeCudaEngineFromReader)
#endif
  virtual void setDLACore(std::int32_t) noexcept {}
  virtual std::int32_t getDLACore() const noexcept { return 0; }
  virtual std::int32_t getNbDLACores() const noexcept { return 0; }
  virtual void setGpuAllocator(GpuAllocator* allocator) noexcept { r_.allocator = allocator; }
  virtual void setErrorRecorder(ErrorRecorder* recorder) noexcept { r_.reporter.SetRecorder(recorder); }
  virtual ErrorRecorder* getErrorRecorder() const noexcept { return r_.reporter.recorder(); }
  virtual Logger* getLogger() const noexcept { return logger_; }
  virtual bool setMaxThreads(std::int32_t count) noexcept {
    r_.max_threads = count;
    return count > 0;
  }
  virtual std::int32_t getMaxThreads() const noexcept { return r_.max_threads; }
  virtual void setTemporaryDirectory(const char* path) noexcept { r_.temporary_directory = path; }
  virtual const char* getTemporaryDirectory() const noexcept { return r_.temporary_directory.c_str(); }
  virtual void setTempfileControlFlags(std::uint32_t flags) noexcept { r_.tempfile_flags = flags; }
  virtual std::uint32_t getTempfileControlFlags() const noexcept { return r_.tempfile_flags; }
  virtual Registry& getPluginRegistry() noexcept { return registry; }
  UNUSED(setPluginRegistryParent)
  virtual IRuntime* loadRuntime(const char* path) noexcept {
    r_.reporter.Report(kInvalidArgument, std::string("the fake cannot load the runtime ") + path);
    return nullptr;
  }
  virtual void setEngineHostCodeAllowed(bool allowed) noexcept { r_.host_code = allowed; }
  virtual bool getEngineHostCodeAllowed() const noexcept { return r_.host_code; }
#if FAKE_TRT_MAJOR == 11
  virtual ICudaEngine* deserializeCudaEngineV2(StreamReaderV2& reader) noexcept {
    std::string whole;
    char piece[4096];
    reader.seek(0, 0);
    for (std::int64_t got = 0; (got = reader.read(piece, sizeof piece, nullptr)) != 0;) {
      if (got < 0) {
        r_.reporter.Report(1, "the stream reader failed");
        return nullptr;
      }
      whole.append(piece, static_cast<std::size_t>(got));
    }
    return Deserialize(whole.data(), whole.size());
  }
#endif

 private:
  ICudaEngine* Deserialize(const char* data, std::size_t bytes) {
    int error = 0;
    if (Meet("deserializeCudaEngine", &error)) {
      r_.reporter.Report(kFailedInitialization, "injected failure of deserializeCudaEngine");
      return nullptr;
    }
    Plan plan = Parse(data, bytes, kVersion, r_.reporter);
    if (plan.op.empty()) return nullptr;
    auto engine = Engine::Create(r_, std::move(plan));
    return engine == nullptr ? nullptr : new ICudaEngine(std::move(engine), std::string(data, bytes));
  }

  IRuntime* shell_;
  Logger* logger_;
  Runtime r_;
};

// --- builder -------------------------------------------------------------------------------------------------------

class BuilderTable {
 public:
  BuilderTable(Shell<BuilderTable>*, Logger* /*none*/) { fake_gpu::AddLive("builders", 1); }
  virtual ~BuilderTable() noexcept { fake_gpu::AddLive("builders", -1); }
#if FAKE_TRT_MAJOR == 10
  UNUSED(platformHasFastFp16)
  UNUSED(platformHasFastInt8)
#endif
  U(2) U(3) U(4) virtual IConfig* createBuilderConfig() noexcept { return new IConfig(); }
  virtual INetwork* createNetworkV2(std::uint32_t) noexcept { return new INetwork(); }
  virtual IProfile* createOptimizationProfile() noexcept {
    profiles_.push_back(std::make_unique<IProfile>());
    return profiles_.back().get();
  }
  virtual void setErrorRecorder(ErrorRecorder* recorder) noexcept { recorder_ = recorder; }
  U(9)
  U(10)
#if FAKE_TRT_MAJOR == 10
  UNUSED(platformHasTf32)
#endif
  virtual IHostMemory* buildSerializedNetwork(INetwork& network, IConfig& config) noexcept {
    int error = 0;
    if (!Meet("buildSerializedNetwork", &error))
      return new IHostMemory(BuildPlan(*network.table(), *config.table(), kVersion));
    if (recorder_ != nullptr) recorder_->reportError(10, "Could not find any implementation for node fake");
    return nullptr;
  }

 private:
  ErrorRecorder* recorder_ = nullptr;
  std::vector<std::unique_ptr<IProfile>> profiles_;
};

static_assert(sizeof(IRuntime) == 16);

}  // namespace

extern "C" {

void* createInferRuntime_INTERNAL(void* logger, std::int32_t) noexcept {
  auto* to = static_cast<Logger*>(logger);
  if (fake_gpu::DeviceCount() == 0) {
    to->log(kError, "CUDA initialization failure with error: 35. Please check your CUDA installation");
    return reinterpret_cast<void*>(0x228);  // what the real library answers without a driver
  }
  int error = 0;
  if (Meet("createInferRuntime", &error)) {
    to->log(kError, "injected failure of createInferRuntime");
    return nullptr;
  }
  fake_gpu::TouchDevice(fake_gpu::CurrentDevice());
  return new IRuntime(to);
}

void* createInferBuilder_INTERNAL(void* logger, std::int32_t) noexcept {
  int error = 0;
  if (!Meet("createInferBuilder", &error)) return new Shell<BuilderTable>(static_cast<Logger*>(logger));
  static_cast<Logger*>(logger)->log(
      kError,
      "[libLoader.cpp] Error Code 6: API Usage Error (Unable to load library: libnvinfer_builder_resource_sm90.so.11.2.1: cannot open shared object file)");
  return nullptr;
}

bool setInternalLibraryPath(const char*) noexcept { return true; }

std::int32_t getInferLibVersion() noexcept { return kVersion[0] * 10000 + kVersion[1] * 100 + kVersion[2]; }
std::int32_t getInferLibMajorVersion() noexcept { return kVersion[0]; }
std::int32_t getInferLibMinorVersion() noexcept { return kVersion[1]; }
std::int32_t getInferLibPatchVersion() noexcept { return kVersion[2]; }
std::int32_t getInferLibBuildVersion() noexcept { return kVersion[3]; }
void* getPluginRegistry() noexcept { return &registry; }
void* getLogger() noexcept { return nullptr; }

}  // extern "C"
