#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/data_type.h"

// The only way from the server to OpenVINO: interfaces that a module of its own (libtidemark_openvino_adapter.so, made
// from adapter/) implements with OpenVINO's C++ API. The module is opened at run time, so the server starts without
// OpenVINO. Both sides are built together; this is no public interface.
//
// No exception crosses: every call answers an Outcome. Objects die before the one that made them. Nothing here is
// thread-safe except OpenVinoRequest::Cancel and OpenVinoCompiled::CreateRequest.

namespace tidemark {

// How a call ended; `text` is the engine's, on one line, empty when it went well.
struct OpenVinoOutcome {
  enum class Code { kOk, kFailed, kCancelled, kOutOfMemory };
  Code code = Code::kOk;
  std::string text;
  bool ok() const { return code == Code::kOk; }
};

// One input or output of a model.
struct OpenVinoPort {
  std::vector<std::string> names;           // all names of the tensor, the one to show first; never empty
  DataType data_type = DataType::kInvalid;  // kInvalid: the protocol has no such type
  std::string type_name;                    // the engine's name of the type: "f32", "f8e4m3"
  bool known_rank = false;
  std::vector<std::int64_t> dims;  // -1 = dynamic; empty for a scalar or an unknown rank
};

// How to compile. Everything is said explicitly, nothing is left to the engine's guess.
struct OpenVinoSettings {
  std::string inference_precision = "f32";  // as ov::element::Type names it; "dynamic" = the engine's choice
  int inference_threads = 1;
  int streams = 1;
};

// One inference at a time. All tensors that were handed in must stay until Finish has returned.
class OpenVinoRequest {
 public:
  virtual ~OpenVinoRequest() = default;

  // The engine reads `data` in place. `shape` and `bytes` are checked against the port before the engine sees them.
  virtual OpenVinoOutcome SetInput(std::size_t port, std::span<const std::int64_t> shape, const void* data,
                                   std::size_t bytes) noexcept = 0;

  // Memory for an output. Refused unless the output's shape is static and has exactly `bytes`: given memory of another
  // size the engine reports success, writes nothing, and crashes at the next inference.
  virtual OpenVinoOutcome SetOutput(std::size_t port, void* data, std::size_t bytes) noexcept = 0;
  // The engine's own memory (again) for an output.
  virtual OpenVinoOutcome ClearOutput(std::size_t port) noexcept = 0;

  // Starts the inference and returns (a synchronous one cannot be cancelled).
  virtual OpenVinoOutcome Start() noexcept = 0;
  // Waits at most so long; `finished` says whether the inference has ended, however it ended.
  virtual OpenVinoOutcome WaitFor(std::int64_t nanos, bool* finished) noexcept = 0;
  // Waits for the end. kCancelled after Cancel.
  virtual OpenVinoOutcome Finish() noexcept = 0;
  // From any thread, between Start and the end of Finish.
  virtual void Cancel() noexcept = 0;

  // What the engine made, good until the next Start.
  struct Output {
    const void* data = nullptr;
    std::size_t bytes = 0;
    std::vector<std::int64_t> shape;
  };
  virtual OpenVinoOutcome GetOutput(std::size_t port, Output* output) noexcept = 0;
};

class OpenVinoCompiled {
 public:
  virtual ~OpenVinoCompiled() = default;
  virtual OpenVinoOutcome CreateRequest(std::unique_ptr<OpenVinoRequest>* request) noexcept = 0;
  // A property as the engine reports it after compiling ("INFERENCE_PRECISION_HINT" -> "f32").
  virtual OpenVinoOutcome Property(const std::string& name, std::string* value) noexcept = 0;
};

// A model that was read, not compiled.
class OpenVinoNetwork {
 public:
  virtual ~OpenVinoNetwork() = default;
  virtual const std::vector<OpenVinoPort>& inputs() const noexcept = 0;
  virtual const std::vector<OpenVinoPort>& outputs() const noexcept = 0;
  // Bytes of all its constants: the least that the compiled model holds.
  virtual std::uint64_t constant_bytes() const noexcept = 0;
};

// One engine of its own: ov::Core with its plugin. Its threads go with it.
class OpenVinoCore {
 public:
  virtual ~OpenVinoCore() = default;
  // From a file: an IR .xml with its .bin beside it, or ONNX.
  virtual OpenVinoOutcome Read(const std::string& path, std::unique_ptr<OpenVinoNetwork>* network) noexcept = 0;
  // From memory: IR text or the bytes of an ONNX model, both without weights.
  virtual OpenVinoOutcome ReadText(const std::string& model, std::unique_ptr<OpenVinoNetwork>* network) noexcept = 0;
  // For the CPU. `network` may die afterwards.
  virtual OpenVinoOutcome Compile(const OpenVinoNetwork& network, const OpenVinoSettings& settings,
                                  std::unique_ptr<OpenVinoCompiled>* compiled) noexcept = 0;
};

class OpenVinoAdapter {
 public:
  virtual ~OpenVinoAdapter() = default;
  // "2026.4.1-…", of the library that was found at run time.
  virtual const std::string& engine_version() const noexcept = 0;
  virtual OpenVinoOutcome CreateCore(std::unique_ptr<OpenVinoCore>* core) noexcept = 0;
};

// The module's one symbol. Null when `version` is not the one it was built with, or without memory; else an object to
// delete.
inline constexpr std::uint32_t kOpenVinoAdapterVersion = 1;
inline constexpr char kOpenVinoAdapterSymbol[] = "TidemarkCreateOpenVinoAdapter";
using OpenVinoAdapterFactory = OpenVinoAdapter* (*)(std::uint32_t version);

}  // namespace tidemark
