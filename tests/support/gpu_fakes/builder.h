#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "fake_plan.h"
#include "interfaces.h"
#include "state.h"

// The builder's side of the fake libnvinfer, and what its ONNX parser needs of it: tables in the published order for
// FAKE_TRT_MAJOR 11 or 10. It builds plans that the fake runs: one identity layer, or a sum and a difference.
namespace fake_trt {

[[noreturn]] inline void Unused(const char* method) {
  std::fprintf(stderr, "fake libnvinfer: %s is not called by anybody\n", method);
  std::abort();
}
#define UNUSED(method) \
  virtual void method() { fake_trt::Unused(#method); }
#define U(number) \
  virtual void Slot##number() { fake_trt::Unused("slot " #number " of a builder's table"); }

// What the user holds: its own destructor, and a pointer to the table with everything else.
template <typename Table>
class Shell {
 public:
  template <typename... Arguments>
  explicit Shell(Arguments&&... arguments) : table_(new Table(this, std::forward<Arguments>(arguments)...)) {
    fake_gpu::Hold(this);
  }
  virtual ~Shell() {
    fake_gpu::LetGo(this);
    delete table_;
  }
  Table* table() const { return table_; }

 private:
  Table* table_;
};

class TensorTable;
class LayerTable;
class NetworkTable;
class ProfileTable;
class ConfigTable;
using ITensor = Shell<TensorTable>;
using ILayer = Shell<LayerTable>;
using INetwork = Shell<NetworkTable>;
using IProfile = Shell<ProfileTable>;
using IConfig = Shell<ConfigTable>;

inline std::string DimsText(const Dims& dims) {
  std::string text;
  for (std::int32_t i = 0; i < dims.count; ++i) text += (i == 0 ? "" : ",") + std::to_string(dims.d[i]);
  return text;
}

class TensorTable {
 public:
  TensorTable(ITensor*, std::string its_name, std::int32_t its_type, Dims its_dims)
      : name(std::move(its_name)), type(its_type), dims(its_dims) {}
  virtual ~TensorTable() noexcept = default;
  virtual void setName(const char* to) noexcept { name = to; }
  virtual const char* getName() const noexcept { return name.c_str(); }
  UNUSED(setDimensions)
  virtual Dims getDimensions() const noexcept { return dims; }

  std::string name;
  std::int32_t type;
  Dims dims;
};

class LayerTable {
 public:
  LayerTable(ILayer*, ITensor* output) : output_(output) {}
  virtual ~LayerTable() noexcept = default;
  U(2) U(3) U(4) U(5) U(6) U(7) virtual ITensor* getOutput(std::int32_t) const noexcept { return output_; }

 private:
  ITensor* output_;
};

class NetworkTable {
 public:
  explicit NetworkTable(INetwork*) { fake_gpu::AddLive("networks", 1); }
  virtual ~NetworkTable() noexcept { fake_gpu::AddLive("networks", -1); }
  virtual ITensor* addInput(const char* name, std::int32_t type, const Dims& dims) noexcept {
    inputs.push_back(std::make_unique<ITensor>(name, type, dims));
    return inputs.back().get();
  }
  virtual void markOutput(ITensor& tensor) noexcept { outputs.push_back(&tensor); }
  U(4) U(5) U(6) U(7) U(8) virtual ILayer* addElementWise(ITensor& a, ITensor&, std::int32_t operation) noexcept {
    op = operation == 0 || operation == 4 ? "addsub" : "unknown";
    return Add(a);
  }
  U(10) U(11) U(12) U(13) virtual std::int32_t getNbInputs() const noexcept {
    return static_cast<std::int32_t>(inputs.size());
  }
  virtual ITensor* getInput(std::int32_t index) const noexcept {
    return inputs.at(static_cast<std::size_t>(index)).get();
  }
  virtual std::int32_t getNbOutputs() const noexcept { return static_cast<std::int32_t>(outputs.size()); }
  virtual ITensor* getOutput(std::int32_t index) const noexcept { return outputs.at(static_cast<std::size_t>(index)); }
  U(18) U(19) U(20) U(21) U(22) U(23) virtual ILayer* addIdentity(ITensor& input) noexcept { return Add(input); }

  std::string op = "identity";
  std::vector<std::unique_ptr<ITensor>> inputs;
  std::vector<ITensor*> outputs;

 private:
  ILayer* Add(ITensor& like) {
    tensors_.push_back(std::make_unique<ITensor>("unnamed", like.table()->type, like.table()->dims));
    layers_.push_back(std::make_unique<ILayer>(tensors_.back().get()));
    return layers_.back().get();
  }
  std::vector<std::unique_ptr<ITensor>> tensors_;
  std::vector<std::unique_ptr<ILayer>> layers_;
};

class ProfileTable {
 public:
  explicit ProfileTable(IProfile*) {}
  virtual ~ProfileTable() noexcept = default;
  virtual bool setDimensions(const char* name, std::int32_t selector, const Dims& to) noexcept {
    for (auto& [known, parts] : dims) {
      if (known == name) return parts[selector] = DimsText(to), true;
    }
    dims.emplace_back(name, std::vector<std::string>(3));
    dims.back().second[static_cast<std::size_t>(selector)] = DimsText(to);
    return true;
  }

  std::vector<std::pair<std::string, std::vector<std::string>>> dims;
};

// clang-format off: it breaks lines of slots anew at each run
class ConfigTable {
 public:
  explicit ConfigTable(IConfig*) { fake_gpu::AddLive("builder_configs", 1); }
  virtual ~ConfigTable() noexcept { fake_gpu::AddLive("builder_configs", -1); }
  U(2)
  U(3)
  U(4)
  U(5)
#if FAKE_TRT_MAJOR == 10
  UNUSED(setInt8Calibrator)
  UNUSED(getInt8Calibrator)
#endif
  U(6) U(7) virtual void clearFlag(std::int32_t flag) noexcept { flags &= ~(1U << flag); }
  virtual void setFlag(std::int32_t flag) noexcept { flags |= 1U << flag; }
  U(10)
  U(11)
  U(12)
  U(13)
  U(14)
  U(15)
  U(16)
  U(17) U(18) U(19) U(20) U(21) U(22) virtual std::int32_t addOptimizationProfile(const IProfile* profile) noexcept {
    profiles.push_back(profile);
    return static_cast<std::int32_t>(profiles.size()) - 1;
  }
  U(24)
  U(25)
  U(26)
#if FAKE_TRT_MAJOR == 10
  U(129)
  U(130)
  U(131)
  U(132)
  U(133)
  U(134)
  U(135)
  U(136)
  U(137)
#endif
  U(27) U(28) U(29) U(30) U(31) virtual void setMemoryPoolLimit(std::int32_t, std::size_t) noexcept {}
  U(33) U(34) U(35) virtual void setBuilderOptimizationLevel(std::int32_t) noexcept {}
  U(37)
  virtual void setHardwareCompatibilityLevel(std::int32_t to) noexcept { hardware = to; }

  std::uint32_t flags = 1U << 6;
  std::int32_t hardware = 0;
  std::vector<const IProfile*> profiles;
};
// clang-format on

// The plan of a network and its configuration.
inline std::string BuildPlan(const NetworkTable& network, const ConfigTable& config, const int version[4]) {
  using tidemark::testing::FakePlan;
  FakePlan plan(network.op);
  for (const auto& input : network.inputs) {
    plan.Input(input->table()->name, input->table()->type, DimsText(input->table()->dims));
  }
  for (const ITensor* output : network.outputs) {
    plan.Output(output->table()->name, output->table()->type, DimsText(output->table()->dims));
  }
  for (std::size_t i = 0; i < config.profiles.size(); ++i) {
    for (const auto& [name, parts] : config.profiles[i]->table()->dims) {
      plan.Profile(static_cast<int>(i), name, parts[0], parts[1], parts[2]);
    }
  }
  plan.Bytes("flags", config.flags);
  plan.Bytes("hardware", static_cast<std::size_t>(config.hardware));
  return plan.Version(version[0], version[1], version[2], version[3]).Build();
}

}  // namespace fake_trt
