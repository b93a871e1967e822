#include "backends/openvino/adapter.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <openvino/core/model.hpp>
#include <openvino/frontend/manager.hpp>
#include <openvino/op/constant.hpp>
#include <openvino/openvino.hpp>
#include <openvino/runtime/exception.hpp>
#include <utility>

namespace tidemark {
namespace {

using Code = OpenVinoOutcome::Code;

// OpenVINO's texts go over several lines; ours travel on one.
std::string OneLine(const char* text) {
  std::string line;
  for (const char* c = text; *c != '\0'; ++c) {
    if (*c == '\n' || *c == '\r' || *c == '\t') {
      if (!line.empty() && line.back() != ' ') line += ' ';
    } else {
      line += *c;
    }
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

OpenVinoOutcome Failed(Code code, const char* text) noexcept {
  try {
    return {code, OneLine(text)};
  } catch (...) {
    return {Code::kOutOfMemory, {}};
  }
}

// Runs `body`; whatever it throws becomes an Outcome.
template <typename Body>
OpenVinoOutcome Guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (const ov::Cancelled& error) {
    return Failed(Code::kCancelled, error.what());
  } catch (const std::bad_alloc& error) {
    return Failed(Code::kOutOfMemory, error.what());
  } catch (const std::exception& error) {
    return Failed(Code::kFailed, error.what());
  } catch (...) {
    return Failed(Code::kFailed, "an exception of an unknown type");
  }
}

DataType FromElement(const ov::element::Type& type) {
  switch (static_cast<ov::element::Type_t>(type)) {
    case ov::element::Type_t::boolean:
      return DataType::kBool;
    case ov::element::Type_t::u8:
      return DataType::kUint8;
    case ov::element::Type_t::u16:
      return DataType::kUint16;
    case ov::element::Type_t::u32:
      return DataType::kUint32;
    case ov::element::Type_t::u64:
      return DataType::kUint64;
    case ov::element::Type_t::i8:
      return DataType::kInt8;
    case ov::element::Type_t::i16:
      return DataType::kInt16;
    case ov::element::Type_t::i32:
      return DataType::kInt32;
    case ov::element::Type_t::i64:
      return DataType::kInt64;
    case ov::element::Type_t::f16:
      return DataType::kFp16;
    case ov::element::Type_t::f32:
      return DataType::kFp32;
    case ov::element::Type_t::f64:
      return DataType::kFp64;
    case ov::element::Type_t::bf16:
      return DataType::kBf16;
    case ov::element::Type_t::string:
      return DataType::kBytes;
    default:
      return DataType::kInvalid;
  }
}

// A name that the caller can use: the tensor's own names first, else that of the node that makes it.
std::vector<std::string> NamesOf(const ov::Output<const ov::Node>& port, bool is_output) {
  const auto& set = port.get_names();
  std::vector<std::string> names(set.begin(), set.end());
  std::sort(names.begin(), names.end());
  const std::string friendly = is_output ? port.get_node()->input_value(0).get_node()->get_friendly_name()
                                         : port.get_node()->get_friendly_name();
  if (const auto found = std::find(names.begin(), names.end(), friendly); found != names.end()) {
    std::rotate(names.begin(), found, found + 1);
  }
  if (names.empty()) names.push_back(friendly);
  return names;
}

OpenVinoPort PortOf(const ov::Output<const ov::Node>& port, bool is_output) {
  OpenVinoPort result;
  result.names = NamesOf(port, is_output);
  result.data_type = FromElement(port.get_element_type());
  result.type_name = port.get_element_type().get_type_name();
  const ov::PartialShape& shape = port.get_partial_shape();
  result.known_rank = shape.rank().is_static();
  if (result.known_rank) {
    for (const ov::Dimension& dim : shape) result.dims.push_back(dim.is_static() ? dim.get_length() : -1);
  }
  return result;
}

std::vector<std::int64_t> ToDims(const ov::Shape& shape) { return {shape.begin(), shape.end()}; }

class Request final : public OpenVinoRequest {
 public:
  explicit Request(ov::CompiledModel& compiled)
      : request_(compiled.create_infer_request()),
        inputs_(compiled.inputs()),
        outputs_(compiled.outputs()),
        borrowed_(outputs_.size(), false) {}

  OpenVinoOutcome SetInput(std::size_t port, std::span<const std::int64_t> shape, const void* data,
                           std::size_t bytes) noexcept override {
    return Guarded([&]() -> OpenVinoOutcome {
      const auto& input = inputs_.at(port);
      const ov::Shape dims(shape.begin(), shape.end());
      if (!input.get_partial_shape().compatible(ov::PartialShape(dims))) {
        return {Code::kFailed, "the input's shape is " + input.get_partial_shape().to_string() + ", got " +
                                   ov::PartialShape(dims).to_string()};
      }
      const ov::element::Type type = input.get_element_type();
      const std::size_t need = (ov::shape_size(dims) * type.bitwidth() + 7) / 8;
      if (need != bytes) {
        return {Code::kFailed, "the input takes " + std::to_string(need) + " bytes, got " + std::to_string(bytes)};
      }
      // An empty tensor may have no memory, which the engine refuses. It never writes to an input.
      const void* memory = data != nullptr ? data : static_cast<const void*>(&kNothing);
      request_.set_input_tensor(port, ov::Tensor(type, dims, const_cast<void*>(memory)));
      return {};
    });
  }

  OpenVinoOutcome SetOutput(std::size_t port, void* data, std::size_t bytes) noexcept override {
    return Guarded([&]() -> OpenVinoOutcome {
      const auto& output = outputs_.at(port);
      if (output.get_partial_shape().is_dynamic()) {
        return {Code::kFailed, "memory was given for an output whose shape is only known after the inference"};
      }
      const ov::Shape dims = output.get_shape();
      const ov::element::Type type = output.get_element_type();
      const std::size_t need = (ov::shape_size(dims) * type.bitwidth() + 7) / 8;
      if (need != bytes || data == nullptr) {
        return {Code::kFailed, "the output takes " + std::to_string(need) + " bytes, got " + std::to_string(bytes)};
      }
      request_.set_output_tensor(port, ov::Tensor(type, dims, data));
      borrowed_[port] = true;
      return {};
    });
  }

  OpenVinoOutcome ClearOutput(std::size_t port) noexcept override {
    return Guarded([&]() -> OpenVinoOutcome {
      if (!borrowed_.at(port)) return {};
      const auto& output = outputs_[port];
      request_.set_output_tensor(port, ov::Tensor(output.get_element_type(), output.get_shape()));
      borrowed_[port] = false;
      return {};
    });
  }

  OpenVinoOutcome Start() noexcept override {
    return Guarded([&]() -> OpenVinoOutcome {
      request_.start_async();
      return {};
    });
  }

  OpenVinoOutcome WaitFor(std::int64_t nanos, bool* finished) noexcept override {
    *finished = true;
    return Guarded([&]() -> OpenVinoOutcome {
      const auto time = std::chrono::ceil<std::chrono::milliseconds>(std::chrono::nanoseconds(nanos));
      *finished = request_.wait_for(time);
      return {};
    });
  }

  OpenVinoOutcome Finish() noexcept override {
    return Guarded([&]() -> OpenVinoOutcome {
      request_.wait();
      return {};
    });
  }

  void Cancel() noexcept override {
    Guarded([&]() -> OpenVinoOutcome {
      request_.cancel();
      return {};
    });
  }

  OpenVinoOutcome GetOutput(std::size_t port, Output* output) noexcept override {
    return Guarded([&]() -> OpenVinoOutcome {
      const ov::Tensor tensor = request_.get_output_tensor(port);
      output->shape = ToDims(tensor.get_shape());
      output->bytes = tensor.get_byte_size();
      output->data = output->bytes == 0 ? nullptr : tensor.data();
      return {};
    });
  }

 private:
  static constexpr char kNothing = 0;

  ov::InferRequest request_;
  const std::vector<ov::Output<const ov::Node>> inputs_;
  const std::vector<ov::Output<const ov::Node>> outputs_;
  std::vector<bool> borrowed_;  // outputs that lie in a caller's memory
};

class Compiled final : public OpenVinoCompiled {
 public:
  explicit Compiled(ov::CompiledModel compiled) : compiled_(std::move(compiled)) {}

  OpenVinoOutcome CreateRequest(std::unique_ptr<OpenVinoRequest>* request) noexcept override {
    return Guarded([&]() -> OpenVinoOutcome {
      *request = std::make_unique<Request>(compiled_);
      return {};
    });
  }

  OpenVinoOutcome Property(const std::string& name, std::string* value) noexcept override {
    return Guarded([&]() -> OpenVinoOutcome {
      *value = compiled_.get_property(name).as<std::string>();
      return {};
    });
  }

 private:
  ov::CompiledModel compiled_;
};

class Network final : public OpenVinoNetwork {
 public:
  explicit Network(std::shared_ptr<ov::Model> model) : model_(std::move(model)) {
    const ov::Model& read_only = *model_;
    for (const auto& port : read_only.inputs()) inputs_.push_back(PortOf(port, false));
    for (const auto& port : read_only.outputs()) outputs_.push_back(PortOf(port, true));
    for (const auto& node : model_->get_ops()) {
      if (const auto constant = std::dynamic_pointer_cast<const ov::op::v0::Constant>(node)) {
        constant_bytes_ += constant->get_byte_size();
      }
    }
  }

  const std::vector<OpenVinoPort>& inputs() const noexcept override { return inputs_; }
  const std::vector<OpenVinoPort>& outputs() const noexcept override { return outputs_; }
  std::uint64_t constant_bytes() const noexcept override { return constant_bytes_; }
  const std::shared_ptr<ov::Model>& model() const noexcept { return model_; }

 private:
  const std::shared_ptr<ov::Model> model_;  // OpenVINO shares it; here is its last owner once compiling has ended
  std::vector<OpenVinoPort> inputs_;
  std::vector<OpenVinoPort> outputs_;
  std::uint64_t constant_bytes_ = 0;
};

class Core final : public OpenVinoCore {
 public:
  OpenVinoOutcome Read(const std::string& path, std::unique_ptr<OpenVinoNetwork>* network) noexcept override {
    return Guarded([&]() -> OpenVinoOutcome {
      // Asked first, or the engine lets all its other front ends try the file, which write to standard error.
      const bool ir = path.ends_with(".xml");
      const auto front_end = front_ends_.load_by_framework(ir ? "ir" : "onnx");
      if (front_end == nullptr || !front_end->supported(path)) {
        return {Code::kFailed, ir ? "the file is no OpenVINO IR" : "the file is no ONNX model"};
      }
      *network = std::make_unique<Network>(core_.read_model(path));
      return {};
    });
  }

  OpenVinoOutcome ReadText(const std::string& model, std::unique_ptr<OpenVinoNetwork>* network) noexcept override {
    return Guarded([&]() -> OpenVinoOutcome {
      *network = std::make_unique<Network>(core_.read_model(model, ov::Tensor()));
      return {};
    });
  }

  OpenVinoOutcome Compile(const OpenVinoNetwork& network, const OpenVinoSettings& settings,
                          std::unique_ptr<OpenVinoCompiled>* compiled) noexcept override {
    return Guarded([&]() -> OpenVinoOutcome {
      // cache_dir stays unset: no files, no cache thread.
      const ov::AnyMap properties = {
          ov::hint::inference_precision(ov::element::Type(settings.inference_precision)),
          ov::inference_num_threads(settings.inference_threads),
          ov::num_streams(ov::streams::Num(settings.streams)),
          ov::hint::enable_cpu_pinning(false),
      };
      const auto& model = static_cast<const Network&>(network).model();
      *compiled = std::make_unique<Compiled>(core_.compile_model(model, "CPU", properties));
      return {};
    });
  }

 private:
  ov::frontend::FrontEndManager front_ends_;
  ov::Core core_;
};

class Adapter final : public OpenVinoAdapter {
 public:
  Adapter() : version_(ov::get_openvino_version().buildNumber) {}
  const std::string& engine_version() const noexcept override { return version_; }
  OpenVinoOutcome CreateCore(std::unique_ptr<OpenVinoCore>* core) noexcept override {
    return Guarded([&]() -> OpenVinoOutcome {
      *core = std::make_unique<Core>();
      return {};
    });
  }

 private:
  const std::string version_;
};

}  // namespace
}  // namespace tidemark

extern "C" __attribute__((visibility("default"))) tidemark::OpenVinoAdapter* TidemarkCreateOpenVinoAdapter(
    std::uint32_t version) {
  if (version != tidemark::kOpenVinoAdapterVersion) return nullptr;
  try {
    return std::make_unique<tidemark::Adapter>().release();
  } catch (...) {
    return nullptr;
  }
}
