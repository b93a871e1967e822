#include "backends/openvino/built_in_model.h"

#include <string_view>
#include <vector>

namespace tidemark {
namespace {

constexpr std::string_view kIr = R"(<?xml version="1.0"?>
<net name="built_in" version="11">
  <layers>
    <layer id="0" name="A" type="Parameter" version="opset1"><data shape="?,?" element_type="f32"/>
      <output><port id="0" precision="FP32" names="A"><dim>-1</dim><dim>-1</dim></port></output></layer>
    <layer id="1" name="B" type="Parameter" version="opset1"><data shape="?,?" element_type="f32"/>
      <output><port id="0" precision="FP32" names="B"><dim>-1</dim><dim>-1</dim></port></output></layer>
    <layer id="2" name="AB" type="MatMul" version="opset1"><data transpose_a="false" transpose_b="false"/>
      <input><port id="0"><dim>-1</dim><dim>-1</dim></port><port id="1"><dim>-1</dim><dim>-1</dim></port></input>
      <output><port id="2" precision="FP32"><dim>-1</dim><dim>-1</dim></port></output></layer>
    <layer id="3" name="Y" type="Add" version="opset1"><data auto_broadcast="numpy"/>
      <input><port id="0"><dim>-1</dim><dim>-1</dim></port><port id="1"><dim>-1</dim><dim>-1</dim></port></input>
      <output><port id="2" precision="FP32" names="Y"><dim>-1</dim><dim>-1</dim></port></output></layer>
    <layer id="4" name="result" type="Result" version="opset1">
      <input><port id="0"><dim>-1</dim><dim>-1</dim></port></input></layer>
  </layers>
  <edges>
    <edge from-layer="0" from-port="0" to-layer="2" to-port="0"/>
    <edge from-layer="1" from-port="0" to-layer="2" to-port="1"/>
    <edge from-layer="2" from-port="2" to-layer="3" to-port="0"/>
    <edge from-layer="0" from-port="0" to-layer="3" to-port="1"/>
    <edge from-layer="3" from-port="2" to-layer="4" to-port="0"/>
  </edges>
</net>
)";

// Protobuf, by hand: a field of length-delimited bytes and a field of a small number. All lengths here are below 128.
std::string Bytes(int field, std::string_view content) {
  std::string out;
  out += static_cast<char>(field << 3 | 2);
  out += static_cast<char>(content.size());
  out += content;
  return out;
}

std::string Number(int field, int value) { return {static_cast<char>(field << 3), static_cast<char>(value)}; }

// onnx.ValueInfoProto of an FP32 tensor [n,n].
std::string Value(std::string_view name) {
  const std::string dim = Bytes(1, Bytes(2, "n"));                // shape.dim.dim_param
  const std::string tensor = Number(1, 1) + Bytes(2, dim + dim);  // elem_type FLOAT, shape
  return Bytes(1, name) + Bytes(2, Bytes(1, tensor));
}

// onnx.NodeProto.
std::string Node(std::string_view op, std::string_view a, std::string_view b, std::string_view y) {
  return Bytes(1, Bytes(1, a) + Bytes(1, b) + Bytes(2, y) + Bytes(4, op));
}

}  // namespace

std::string BuiltInIr() { return std::string(kIr); }

std::string BuiltInOnnx() {
  const std::string graph = Node("MatMul", "A", "B", "C") + Node("Add", "C", "A", "Y") + Bytes(2, "g") +
                            Bytes(11, Value("A")) + Bytes(11, Value("B")) + Bytes(12, Value("Y"));
  return Number(1, 8) + Bytes(7, graph) + Bytes(8, Number(2, 13));  // ir_version, graph, opset_import
}

}  // namespace tidemark
