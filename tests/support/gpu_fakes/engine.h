#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "interfaces.h"
#include "state.h"

// What the fake libnvinfer does, without its binary interface: tiny plans, engines and contexts over the fake driver.
namespace fake_trt {

enum Severity { kInternalError = 0, kError = 1, kWarning = 2, kInfo = 3, kVerbose = 4 };
enum ErrorCode {
  kInvalidArgument = 3,
  kFailedAllocation = 5,
  kFailedInitialization = 6,
  kFailedExecution = 7,
  kInvalidState = 9
};
enum Strategy { kStatic = 0, kOnProfileChange = 1, kUserManaged = 2 };

struct Format {
  int format = 0;
  int vector_dim = -1;
  int components = -1;
  int bytes = -1;
};

struct Tensor {
  std::string name;
  bool input = false;
  int type = 0;
  std::vector<std::int64_t> dims;
  bool host = false;
  Format format;
};

struct Profile {
  std::map<std::string, std::vector<std::int64_t>> dims[3];    // MIN, OPT, MAX
  std::map<std::string, std::vector<std::int64_t>> values[3];  // of host shape inputs
  std::map<std::string, std::vector<std::int32_t>> narrow[3];  // the same, as TensorRT 10's first table gives them
};

struct Plan {
  std::string op;
  std::vector<Tensor> tensors;
  std::vector<Profile> profiles;
  std::uint64_t weights = 0, persistent = 2048, scratch = 0, temporary = 0;
  int aux = 0;
  bool uncapturable = false;
  unsigned char version[4] = {};

  const Tensor* Find(const char* name) const;
  // The tensor that the n-th output copies.
  const Tensor* InputOf(const Tensor& output) const;
};

// Where a library of this fake says what happens: to the recorder that is nearest, else to the logger.
class Reporter {
 public:
  using Log = std::function<void(int severity, const char* text)>;
  explicit Reporter(Log log) : log_(std::move(log)) {}
  ~Reporter() { SetRecorder(nullptr); }
  Reporter(const Reporter&) = delete;
  Reporter& operator=(const Reporter&) = delete;

  void SetRecorder(ErrorRecorder* recorder);
  ErrorRecorder* recorder() const { return recorder_; }
  void Report(int code, const std::string& text) const;
  const Log& log() const { return log_; }

 private:
  Log log_;
  ErrorRecorder* recorder_ = nullptr;
};

int BitsOf(int type);
std::uint64_t BytesOf(int type, const std::vector<std::int64_t>& dims);
Dims ToDims(const std::vector<std::int64_t>& dims);

// The plan in `data`; an empty op and a report when it is none for this library.
Plan Parse(const char* data, std::size_t bytes, const int version[4], const Reporter& reporter);

class Runtime {
 public:
  Runtime(Reporter::Log log, const int version[4]);
  ~Runtime();

  Reporter reporter;
  GpuAllocator* allocator = nullptr;
  bool host_code = false;
  int max_threads = 1;
  std::uint32_t tempfile_flags = 3;
  std::string temporary_directory;
  int engines = 0;
  int version[4];
};

class Engine {
 public:
  // Null with a report when memory is refused.
  static std::unique_ptr<Engine> Create(Runtime& runtime, Plan plan);
  ~Engine();

  Plan plan;
  Runtime& runtime;
  Reporter reporter;
  GpuAllocator* const allocator;
  const int device;
  int contexts = 0;

  std::uint64_t ScratchBytes() const { return plan.scratch; }
  Dims ProfileShape(const char* name, int profile, int selector) const;

 private:
  Engine(Runtime& of, Plan its_plan);
  void* weights_ = nullptr;
};

class Context {
 public:
  static std::unique_ptr<Context> Create(Engine& engine, int strategy);
  ~Context();

  Engine& engine;
  Reporter reporter;
  const int strategy;
  std::string name;
  GpuAllocator* temporary = nullptr;
  void* consumed_event = nullptr;
  int profile = 0;

  bool SetProfile(int index);
  bool SetInputShape(const char* tensor, const Dims& dims);
  Dims TensorShape(const char* tensor) const;
  bool SetAddress(const char* tensor, void* address, bool must_be_input, bool must_be_output);
  void* Address(const char* tensor) const;
  bool SetOutputAllocator(const char* tensor, OutputAllocator* allocator);
  OutputAllocator* GetOutputAllocator(const char* tensor) const;
  int InferShapes(int room, const char** missing);
  std::int64_t MaxOutputSize(const char* tensor) const;
  void SetDeviceMemory(void* block, std::int64_t bytes);
  bool Enqueue(void* stream);
  bool AllShapesGiven() const;

 private:
  struct Guard;
  Context(Engine& of, int its_strategy);
  bool Fail(int code, const std::string& text) const;
  std::vector<std::int64_t> Resolve(const Tensor& tensor) const;
  bool CheckAddresses();
  bool PrepareOutputs(void* stream);
  std::function<void()> Work();
  void RunNonZero();

  std::map<std::string, std::vector<std::int64_t>> shapes_;
  std::map<std::string, void*> addresses_;
  std::map<std::string, OutputAllocator*> output_allocators_;
  void* persistent_ = nullptr;
  void* scratch_ = nullptr;
  void* user_memory_ = nullptr;
  std::int64_t user_bytes_ = 0;
  mutable std::atomic<bool> in_use_{false};
};

}  // namespace fake_trt
