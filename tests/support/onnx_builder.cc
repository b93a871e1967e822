#include "tests/support/onnx_builder.h"

namespace tidemark::testing {
namespace {

void Varint(std::string* out, std::uint64_t value) {
  while (value >= 0x80) {
    out->push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

void Bytes(std::string* out, std::uint32_t field, std::string_view bytes) {
  Varint(out, field << 3 | 2);
  Varint(out, bytes.size());
  out->append(bytes);
}

void Number(std::string* out, std::uint32_t field, std::uint64_t value) {
  Varint(out, field << 3);
  Varint(out, value);
}

std::string TensorType(int type, const OnnxTestShape& shape) {
  std::string shape_proto;
  for (const OnnxTestDim& dim : shape) {
    std::string dim_proto;
    if (dim.value >= 0) Number(&dim_proto, 1, static_cast<std::uint64_t>(dim.value));
    if (dim.value < 0 && !dim.symbol.empty()) Bytes(&dim_proto, 2, dim.symbol);
    Bytes(&shape_proto, 1, dim_proto);
  }
  std::string tensor;
  Number(&tensor, 1, static_cast<std::uint64_t>(type));
  Bytes(&tensor, 2, shape_proto);
  return tensor;
}

std::string ValueInfo(std::string_view name, std::string_view type_proto) {
  std::string value;
  Bytes(&value, 1, name);
  Bytes(&value, 2, type_proto);
  return value;
}

std::string TensorValue(std::string_view name, int type, const OnnxTestShape& shape) {
  std::string type_proto;
  Bytes(&type_proto, 1, TensorType(type, shape));
  return ValueInfo(name, type_proto);
}

std::string WeightsHead(std::string_view name, int type, const std::vector<std::int64_t>& dims) {
  std::string tensor;
  for (const std::int64_t dim : dims) Number(&tensor, 1, static_cast<std::uint64_t>(dim));
  Number(&tensor, 2, static_cast<std::uint64_t>(type));
  Bytes(&tensor, 8, name);
  return tensor;
}

std::string Entry(std::string_view key, std::string_view value) {
  std::string entry;
  Bytes(&entry, 1, key);
  Bytes(&entry, 2, value);
  return entry;
}

}  // namespace

OnnxBuilder& OnnxBuilder::Input(std::string_view name, int type, const OnnxTestShape& shape) {
  Bytes(&graph_, 11, TensorValue(name, type, shape));
  return *this;
}

OnnxBuilder& OnnxBuilder::Output(std::string_view name, int type, const OnnxTestShape& shape) {
  Bytes(&graph_, 12, TensorValue(name, type, shape));
  return *this;
}

OnnxBuilder& OnnxBuilder::SequenceOutput(std::string_view name, int type) {
  std::string element;
  std::string tensor;
  Number(&tensor, 1, static_cast<std::uint64_t>(type));
  Bytes(&element, 1, tensor);
  std::string sequence;
  Bytes(&sequence, 1, element);
  std::string type_proto;
  Bytes(&type_proto, 4, sequence);
  Bytes(&graph_, 12, ValueInfo(name, type_proto));
  return *this;
}

OnnxBuilder& OnnxBuilder::Node(std::string_view op, const std::vector<std::string>& inputs,
                               const std::vector<std::string>& outputs, std::string_view domain) {
  std::string node;
  for (const std::string& input : inputs) Bytes(&node, 1, input);
  for (const std::string& output : outputs) Bytes(&node, 2, output);
  Bytes(&node, 4, op);
  if (!domain.empty()) Bytes(&node, 7, domain);
  Bytes(&graph_, 1, node);
  return *this;
}

OnnxBuilder& OnnxBuilder::Weights(std::string_view name, int type, const std::vector<std::int64_t>& dims,
                                  std::string_view raw) {
  std::string tensor = WeightsHead(name, type, dims);
  Bytes(&tensor, 9, raw);
  Bytes(&graph_, 5, tensor);
  return *this;
}

OnnxBuilder& OnnxBuilder::ExternalWeights(std::string_view name, int type, const std::vector<std::int64_t>& dims,
                                          std::string_view location, std::uint64_t offset, std::uint64_t length) {
  std::string tensor = WeightsHead(name, type, dims);
  Bytes(&tensor, 13, Entry("location", location));
  Bytes(&tensor, 13, Entry("offset", std::to_string(offset)));
  Bytes(&tensor, 13, Entry("length", std::to_string(length)));
  Number(&tensor, 14, 1);
  Bytes(&graph_, 5, tensor);
  return *this;
}

std::string OnnxBuilder::Build() const {
  std::string graph = graph_;
  Bytes(&graph, 2, "tidemark_test");
  std::string opset;
  Number(&opset, 2, 17);
  std::string model;
  Number(&model, 1, 8);
  Bytes(&model, 8, opset);
  Bytes(&model, 7, graph);
  return model;
}

std::string OnnxIdentity(int type, const OnnxTestShape& shape, std::string_view input, std::string_view output) {
  return OnnxBuilder()
      .Input(input, type, shape)
      .Node("Identity", {std::string(input)}, {std::string(output)})
      .Output(output, type, shape)
      .Build();
}

std::string OnnxAddSub(int type, const OnnxTestShape& shape) {
  return OnnxBuilder()
      .Input("INPUT0", type, shape)
      .Input("INPUT1", type, shape)
      .Node("Add", {"INPUT0", "INPUT1"}, {"OUTPUT0"})
      .Node("Sub", {"INPUT0", "INPUT1"}, {"OUTPUT1"})
      .Output("OUTPUT0", type, shape)
      .Output("OUTPUT1", type, shape)
      .Build();
}

std::string OnnxMatMulChain(std::int64_t width, int layers, std::string_view location, std::string* external) {
  OnnxBuilder builder;
  builder.Input("X", kOnnxFloat, {"batch", width});
  std::string value = "X";
  for (int layer = 0; layer < layers; ++layer) {
    std::vector<float> weights(static_cast<std::size_t>(width * width));
    std::uint32_t state = static_cast<std::uint32_t>(layer) + 1;
    for (float& weight : weights) {
      state = state * 1664525U + 1013904223U;
      weight = (static_cast<float>(state >> 8) / 16777216.0F - 0.5F) / static_cast<float>(width);
    }
    const std::string_view raw(reinterpret_cast<const char*>(weights.data()), weights.size() * sizeof(float));
    const std::string name = "W" + std::to_string(layer);
    if (external != nullptr) {
      builder.ExternalWeights(name, kOnnxFloat, {width, width}, location, external->size(), raw.size());
      external->append(raw);
    } else {
      builder.Weights(name, kOnnxFloat, {width, width}, raw);
    }
    const std::string next = layer + 1 == layers ? "Y" : "H" + std::to_string(layer);
    builder.Node("MatMul", {value, name}, {next});
    value = next;
  }
  return builder.Output("Y", kOnnxFloat, {"batch", width}).Build();
}

}  // namespace tidemark::testing
