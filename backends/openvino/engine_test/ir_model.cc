#include "backends/openvino/engine_test/ir_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <utility>

namespace tidemark::testing {
namespace {

// "f32" -> "FP32", the spelling of a port's precision.
std::string Precision(std::string_view type) {
  if (type == "boolean") return "BOOL";
  if (type == "string") return "STRING";
  std::string upper(type);
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return upper[0] == 'F' ? "FP" + upper.substr(1) : upper;
}

std::string DimsXml(const IrModel::Dims& dims) {
  std::string xml;
  for (const auto dim : dims) xml += fmt::format("<dim>{}</dim>", dim);
  return xml;
}

std::string ShapeAttribute(const IrModel::Dims& dims) {
  std::vector<std::string> parts;
  for (const auto dim : dims) parts.push_back(dim < 0 ? "?" : std::to_string(dim));
  return fmt::format("{}", fmt::join(parts, ","));
}

}  // namespace

int IrModel::Add(Layer layer) {
  layers_.push_back(std::move(layer));
  return static_cast<int>(layers_.size()) - 1;
}

int IrModel::Parameter(std::string_view name, std::string_view type, Dims dims) {
  Layer layer;
  layer.xml_head = fmt::format(R"(name="{}" type="Parameter" version="opset1"><data shape="{}" element_type="{}"/>)",
                               name, ShapeAttribute(dims), type);
  layer.name = name;
  layer.type = type;
  layer.dims = std::move(dims);
  return Add(std::move(layer));
}

int IrModel::Constant(std::string_view type, Dims dims, const std::vector<float>& values) {
  Layer layer;
  const std::size_t bytes = values.size() * sizeof(float);
  layer.xml_head = fmt::format(
      R"(name="constant{}" type="Const" version="opset1"><data element_type="{}" shape="{}" offset="{}" size="{}"/>)",
      layers_.size(), type, ShapeAttribute(dims), weights_.size(), bytes);
  weights_.append(reinterpret_cast<const char*>(values.data()), bytes);
  layer.type = type;
  layer.dims = std::move(dims);
  return Add(std::move(layer));
}

int IrModel::Node(std::string_view op, std::string_view attributes, std::vector<int> inputs, std::string_view name,
                  std::string_view type, Dims dims) {
  Layer layer;
  layer.xml_head = fmt::format(R"(name="{}" type="{}" version="opset1"><data {}/>)", name, op, attributes);
  layer.inputs = std::move(inputs);
  layer.name = name;
  layer.type = type;
  layer.dims = std::move(dims);
  return Add(std::move(layer));
}

void IrModel::Result(int from) {
  Layer layer;
  layer.xml_head = fmt::format(R"(name="result{}" type="Result" version="opset1">)", layers_.size());
  layer.inputs = {from};
  layer.has_output = false;
  Add(std::move(layer));
}

std::string IrModel::Xml() const {
  std::string xml = "<?xml version=\"1.0\"?>\n<net name=\"test\" version=\"11\">\n<layers>\n";
  std::string edges;
  for (std::size_t id = 0; id < layers_.size(); ++id) {
    const Layer& layer = layers_[id];
    xml += fmt::format("<layer id=\"{}\" {}", id, layer.xml_head);
    if (!layer.inputs.empty()) xml += "<input>";
    for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
      const Layer& from = layers_[static_cast<std::size_t>(layer.inputs[i])];
      xml += fmt::format("<port id=\"{}\" precision=\"{}\">{}</port>", i, Precision(from.type), DimsXml(from.dims));
      edges += fmt::format("<edge from-layer=\"{}\" from-port=\"{}\" to-layer=\"{}\" to-port=\"{}\"/>\n",
                           layer.inputs[i], from.inputs.size(), id, i);
    }
    if (!layer.inputs.empty()) xml += "</input>";
    if (layer.has_output) {
      const std::string names = layer.name.empty() ? "" : fmt::format(" names=\"{}\"", layer.name);
      xml += fmt::format("<output><port id=\"{}\" precision=\"{}\"{}>{}</port></output>", layer.inputs.size(),
                         Precision(layer.type), names, DimsXml(layer.dims));
    }
    xml += "</layer>\n";
  }
  return xml + "</layers>\n<edges>\n" + edges + "</edges>\n</net>\n";
}

void IrModel::Write(const std::filesystem::path& directory) const {
  std::filesystem::create_directories(directory);
  std::ofstream(directory / "model.xml") << Xml();
  std::ofstream(directory / "model.bin", std::ios::binary) << weights_;
}

}  // namespace tidemark::testing
