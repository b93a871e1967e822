#include "audit/onnx_model.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

namespace tidemark::audit {
namespace {

// A protobuf message under construction.
class Message {
 public:
  Message& Number(int field, std::int64_t value) {
    Varint(static_cast<std::uint64_t>(field) << 3);
    Varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  Message& Text(int field, std::string_view text) {
    Varint(static_cast<std::uint64_t>(field) << 3 | 2);
    Varint(text.size());
    bytes_ += text;
    return *this;
  }
  Message& Nested(int field, const Message& message) { return Text(field, message.bytes_); }

  const std::string& bytes() const { return bytes_; }

 private:
  void Varint(std::uint64_t value) {
    while (value >= 0x80) {
      bytes_ += static_cast<char>((value & 0x7F) | 0x80);
      value >>= 7;
    }
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

// TensorProto.DataType.
int OnnxType(DataType type) {
  switch (type) {
    case DataType::kFp32:
      return 1;
    case DataType::kUint8:
      return 2;
    case DataType::kInt8:
      return 3;
    case DataType::kUint16:
      return 4;
    case DataType::kInt16:
      return 5;
    case DataType::kInt32:
      return 6;
    case DataType::kInt64:
      return 7;
    case DataType::kBytes:
      return 8;
    case DataType::kBool:
      return 9;
    case DataType::kFp16:
      return 10;
    case DataType::kFp64:
      return 11;
    case DataType::kUint32:
      return 12;
    case DataType::kUint64:
      return 13;
    case DataType::kBf16:
      return 16;
    case DataType::kInvalid:
      return 0;
  }
  return 0;
}

// ValueInfoProto { name = 1, type = 2 { tensor_type = 1 { elem_type = 1, shape = 2 { dim = 1 { value = 1, param = 2 }}}}}
Message Tensor(const OnnxModelSpec& spec, std::string_view name) {
  Message shape;
  if (spec.batch) shape.Nested(1, Message().Text(2, "batch"));
  shape.Nested(1, Message().Number(1, spec.elements));
  const Message tensor = Message().Number(1, OnnxType(spec.dtype)).Nested(2, shape);
  return Message().Text(1, name).Nested(2, Message().Nested(1, tensor));
}

// NodeProto { input = 1, output = 2, name = 3, op_type = 4 }
Message Node(std::string_view operation, const std::vector<std::string>& inputs, std::string_view output) {
  Message node;
  for (const std::string& input : inputs) node.Text(1, input);
  return node.Text(2, output).Text(3, operation).Text(4, operation);
}

std::vector<std::string> Names(std::string_view prefix, int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back(fmt::format("{}{}", prefix, i));
  return names;
}

int TensorCount(const OnnxModelSpec& spec) { return spec.kind == OnnxModelSpec::Kind::kAddSub ? 2 : 1; }

}  // namespace

absl::StatusOr<std::string> MakeOnnxModel(const OnnxModelSpec& spec) {
  if (spec.elements < 1)
    return absl::InvalidArgumentError(fmt::format("{} elements; expected 1 or more", spec.elements));
  if (OnnxType(spec.dtype) == 0) return absl::InvalidArgumentError("no data type");
  const bool add = spec.kind == OnnxModelSpec::Kind::kAddSub;
  if (add && (spec.dtype == DataType::kBool || spec.dtype == DataType::kBytes)) {
    return absl::InvalidArgumentError(fmt::format("{} cannot be added", ProtocolName(spec.dtype)));
  }
  Message graph;  // GraphProto { node = 1, name = 2, input = 11, output = 12 }
  if (add) {
    graph.Nested(1, Node("Add", {"INPUT0", "INPUT1"}, "OUTPUT0"));
    graph.Nested(1, Node("Sub", {"INPUT0", "INPUT1"}, "OUTPUT1"));
  } else {
    graph.Nested(1, Node("Identity", {"INPUT0"}, "OUTPUT0"));
  }
  graph.Text(2, add ? "addsub" : "identity");
  for (const std::string& name : Names("INPUT", TensorCount(spec))) graph.Nested(11, Tensor(spec, name));
  for (const std::string& name : Names("OUTPUT", TensorCount(spec))) graph.Nested(12, Tensor(spec, name));
  // ModelProto { ir_version = 1, producer_name = 2, graph = 7, opset_import = 8 { domain = 1, version = 2 } }
  return Message()
      .Number(1, 7)
      .Text(2, "tidemark")
      .Nested(7, graph)
      .Nested(8, Message().Text(1, "").Number(2, 14))
      .bytes();
}

std::string MakeOnnxConfig(const OnnxModelSpec& spec, const std::string& name) {
  std::string text =
      fmt::format("name: \"{}\"\nbackend: \"onnxruntime\"\nmax_batch_size: {}\n", name, spec.batch ? 8 : 0);
  for (const char* direction : {"input", "output"}) {
    const std::string_view prefix = direction[0] == 'i' ? "INPUT" : "OUTPUT";
    for (const std::string& tensor : Names(prefix, TensorCount(spec))) {
      text += fmt::format("{} [ {{ name: \"{}\" data_type: {} dims: [ {} ] }} ]\n", direction, tensor,
                          ConfigName(spec.dtype), spec.elements);
    }
  }
  text += "instance_group [ { kind: KIND_CPU count: 1 } ]\n";
  return text;
}

}  // namespace tidemark::audit
