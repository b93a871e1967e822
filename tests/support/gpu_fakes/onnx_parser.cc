// A stand-in for libnvonnxparser: "ONNX" of the fake is text, "identity NAME DIMS" of FP32, on one line; a file that is
// real ONNX (its first byte is the field of the IR version) becomes an identity of INPUT0 [4].

#include <cstring>
#include <sstream>

#include "builder.h"

namespace {

using namespace fake_trt;  // NOLINT: a shell over that namespace

class ParserError {
 public:
  virtual std::int32_t code() const { return 7; }
  virtual const char* desc() const { return "the fake parser takes identity networks only"; }
};

class Parser {
 public:
  explicit Parser(INetwork* network) : network_(network) { fake_gpu::AddLive("parsers", 1); }
  virtual bool parse(const void* data, std::size_t bytes, const char*) noexcept {
    std::istringstream words(std::string(static_cast<const char*>(data), bytes));
    std::string kind, name = "INPUT0", dims = "4";
    words >> kind;
    if (!kind.empty() && kind[0] == 8)
      kind = "identity";
    else
      words >> name >> dims;
    if (kind != "identity") return ++errors_, false;
    Dims shape;
    std::istringstream list(dims);
    for (std::string item; std::getline(list, item, ',');) shape.d[shape.count++] = std::stoll(item);
    ITensor* input = network_->table()->addInput(name.c_str(), 0, shape);
    ITensor* output = network_->table()->addIdentity(*input)->table()->getOutput(0);
    output->table()->setName("OUTPUT0");
    network_->table()->markOutput(*output);
    return true;
  }
  UNUSED(parseFromFile)
#if FAKE_TRT_MAJOR == 10
  UNUSED(supportsModel)
  UNUSED(parseWithWeightDescriptors)
#endif
  UNUSED(supportsOperator)
  virtual std::int32_t getNbErrors() const noexcept { return errors_; }
  virtual const ParserError* getError(std::int32_t) const noexcept { return &error_; }
  UNUSED(clearErrors)
  virtual ~Parser() { fake_gpu::AddLive("parsers", -1); }

 private:
  INetwork* network_;
  std::int32_t errors_ = 0;
  ParserError error_;
};

}  // namespace

extern "C" void* createNvOnnxParser_INTERNAL(void* network, void*, int) noexcept {
  int error = 0;
  if (fake_gpu::Meet("createNvOnnxParser", &error)) return nullptr;
  return new Parser(static_cast<INetwork*>(network));
}

extern "C" int getNvOnnxParserVersion() noexcept { return 100; }
