#include "backends/onnxruntime/onnx_probe.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "base/status.h"

namespace tidemark {
namespace {

constexpr int kMaxDepth = 64;

// One field of a protobuf message: where it lies and what it holds.
struct Field {
  std::uint32_t number = 0;
  std::uint32_t wire = 0;
  std::size_t begin = 0;  // of the tag
  std::size_t data = 0;   // of the content of a length-delimited field
  std::size_t end = 0;
  std::uint64_t varint = 0;
};

// Walks the fields of one message. Offsets are those of the whole file.
class Reader {
 public:
  Reader(std::span<const std::byte> file, std::size_t begin, std::size_t end) : file_(file), at_(begin), end_(end) {}

  // False at the end of the message or when it is broken: see broken().
  bool Next(Field* field) {
    if (at_ >= end_ || broken_) return false;
    field->begin = at_;
    std::uint64_t tag = 0;
    if (!Varint(&tag) || (tag >> 3) == 0 || (tag >> 3) > UINT32_MAX) return Break();
    field->number = static_cast<std::uint32_t>(tag >> 3);
    field->wire = static_cast<std::uint32_t>(tag & 7);
    field->varint = 0;
    field->data = at_;
    std::uint64_t size = 0;
    switch (field->wire) {
      case 0:
        if (!Varint(&field->varint)) return Break();
        break;
      case 1:
        size = 8;
        break;
      case 2:
        if (!Varint(&size)) return Break();
        field->data = at_;
        break;
      case 5:
        size = 4;
        break;
      default:
        return Break();
    }
    if (size > end_ - at_) return Break();
    at_ += size;
    field->end = at_;
    return true;
  }

  bool broken() const { return broken_; }
  std::size_t at() const { return at_; }

 private:
  bool Break() {
    broken_ = true;
    return false;
  }
  bool Varint(std::uint64_t* value) {
    *value = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
      if (at_ >= end_) return false;
      const auto byte = static_cast<std::uint8_t>(file_[at_++]);
      if (shift < 64) *value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return true;
    }
    return false;
  }

  std::span<const std::byte> file_;
  std::size_t at_;
  const std::size_t end_;
  bool broken_ = false;
};

class Probe {
 public:
  Probe(std::span<const std::byte> file, OnnxFacts* facts) : file_(file), facts_(facts) {}

  // True when the whole model could be read.
  bool Run() {
    bool graph = false;
    const bool good = Each(0, file_.size(), [&](const Field& field) {
      if (field.number == 1 && field.wire == 0) ir_version_ = field.varint;
      if (field.number != 7 || field.wire != 2) return true;
      if (graph) return false;
      graph = true;
      facts_->graph_field = field.begin;
      facts_->graph_begin = field.data;
      facts_->graph_end = field.end;
      return Graph(field.data, field.end);
    });
    if (!good || !graph) return false;
    Sort();
    return true;
  }

  std::size_t broken_at() const { return broken_at_; }

 private:
  // Calls `visit` for each field; false when the message is broken or a visit says so.
  template <typename Visit>
  bool Each(std::size_t begin, std::size_t end, Visit visit) {
    Reader reader(file_, begin, end);
    Field field;
    while (reader.Next(&field)) {
      if (!visit(field)) return false;
    }
    if (reader.broken()) broken_at_ = reader.at();
    return !reader.broken();
  }

  std::string Text(const Field& field) const {
    return {reinterpret_cast<const char*>(file_.data()) + field.data, field.end - field.data};
  }

  bool Graph(std::size_t begin, std::size_t end) {
    return Each(begin, end, [&](const Field& field) {
      if (field.wire != 2) return true;
      switch (field.number) {
        case 1:
          return Node(field, 0);
        case 5:
          return Weights(field, /*nested=*/false, 0);
        case 11:
          return Value(field, &declared_);
        case 12:
          return Value(field, &facts_->outputs);
        case 15:  // sparse weights: the values tensor carries the name
          return Each(field.data, field.end, [&](const Field& part) {
            return part.number != 1 || part.wire != 2 || Weights(part, /*nested=*/true, 0);
          });
        default:
          return true;
      }
    });
  }

  bool Node(const Field& node, int depth) {
    if (depth > kMaxDepth) return false;
    return Each(node.data, node.end, [&](const Field& field) {
      if (field.number != 5 || field.wire != 2) return true;
      return Each(field.data, field.end, [&](const Field& part) {
        if (part.wire != 2) return true;
        if (part.number == 5 || part.number == 10) return Weights(part, /*nested=*/true, depth + 1);
        if (part.number == 6 || part.number == 11) return SubGraph(part, depth + 1);
        return true;
      });
    });
  }

  bool SubGraph(const Field& graph, int depth) {
    return Each(graph.data, graph.end, [&](const Field& field) {
      if (field.wire != 2) return true;
      if (field.number == 1) return Node(field, depth);
      if (field.number == 5) return Weights(field, /*nested=*/true, depth);
      return true;
    });
  }

  bool Weights(const Field& tensor, bool nested, int depth) {
    std::string name;
    std::string location;
    bool external = false;
    std::uint64_t type = 0;
    OnnxInlineWeights weights;
    const bool good = Each(tensor.data, tensor.end, [&](const Field& field) {
      if (field.number == 2 && field.wire == 0) type = field.varint;
      if (field.number == 8 && field.wire == 2) name = Text(field);
      if (field.number == 14 && field.wire == 0) external = field.varint == 1;
      if (field.number == 13 && field.wire == 2) return ExternalEntry(field, &location);
      if (field.number == 9 && field.wire == 2) {
        weights = {tensor.begin, tensor.data, tensor.end, field.begin, field.data, field.end};
      }
      return true;
    });
    if (!good) return false;
    if (depth == 0) weight_names_.insert(name);
    if (external) {
      if (nested) facts_->nested_external = true;
      auto& files = facts_->external_files;
      if (std::find(files.begin(), files.end(), location) == files.end()) files.push_back(location);
    } else if (!nested && type != 8 && weights.data_end - weights.data_begin >= kLargeWeights) {
      facts_->inline_weights.push_back(weights);
    }
    return true;
  }

  bool ExternalEntry(const Field& entry, std::string* location) {
    std::string key;
    std::string value;
    const bool good = Each(entry.data, entry.end, [&](const Field& field) {
      if (field.number == 1 && field.wire == 2) key = Text(field);
      if (field.number == 2 && field.wire == 2) value = Text(field);
      return true;
    });
    if (key == "location") *location = value;
    return good;
  }

  bool Value(const Field& info, std::vector<OnnxValue>* values) {
    OnnxValue value;
    const bool good = Each(info.data, info.end, [&](const Field& field) {
      if (field.number == 1 && field.wire == 2) value.name = Text(field);
      if (field.number == 2 && field.wire == 2) return Type(field, &value);
      return true;
    });
    values->push_back(std::move(value));
    return good;
  }

  bool Type(const Field& type, OnnxValue* value) {
    return Each(type.data, type.end, [&](const Field& field) {
      if (field.wire != 2) return true;
      switch (field.number) {
        case 1:
          value->kind = OnnxKind::kTensor;
          return TensorType(field, value);
        case 4:
          value->kind = OnnxKind::kSequence;
          return true;
        case 5:
          value->kind = OnnxKind::kMap;
          return true;
        case 7:
          value->kind = OnnxKind::kOpaque;
          return true;
        case 8:
          value->kind = OnnxKind::kSparseTensor;
          return true;
        case 9:
          value->kind = OnnxKind::kOptional;
          return true;
        default:
          return true;
      }
    });
  }

  bool TensorType(const Field& tensor, OnnxValue* value) {
    return Each(tensor.data, tensor.end, [&](const Field& field) {
      if (field.number == 1 && field.wire == 0) value->element_type = static_cast<int>(field.varint & 0x7fffffff);
      if (field.number != 2 || field.wire != 2) return true;
      value->has_shape = true;
      return Each(field.data, field.end, [&](const Field& dim) {
        if (dim.number != 1 || dim.wire != 2) return true;
        OnnxDim& added = value->dims.emplace_back();
        return Each(dim.data, dim.end, [&](const Field& part) {
          if (part.number == 1 && part.wire == 0) added.value = static_cast<std::int64_t>(part.varint);
          if (part.number == 2 && part.wire == 2) added.symbol = Text(part);
          return true;
        });
      });
    });
  }

  // Declared inputs with weights of the same name are no inputs; from IR version 4 on they may be given all the same.
  void Sort() {
    for (OnnxValue& value : declared_) {
      if (!weight_names_.contains(value.name)) {
        facts_->inputs.push_back(std::move(value));
      } else if (ir_version_ >= 4) {
        facts_->overridable.push_back(std::move(value));
      }
    }
  }

  std::span<const std::byte> file_;
  OnnxFacts* const facts_;
  std::uint64_t ir_version_ = 0;
  std::vector<OnnxValue> declared_;
  std::set<std::string> weight_names_;
  std::size_t broken_at_ = 0;
};

void AppendVarint(std::string* out, std::uint64_t value) {
  while (value >= 0x80) {
    out->push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

void AppendBytes(std::string* out, std::uint32_t field, std::string_view bytes) {
  AppendVarint(out, field << 3 | 2);
  AppendVarint(out, bytes.size());
  out->append(bytes);
}

std::string ExternalEntry(std::string_view key, std::string_view value) {
  std::string entry;
  AppendBytes(&entry, 1, key);
  AppendBytes(&entry, 2, value);
  return entry;
}

struct ElementType {
  int onnx;
  DataType type;
  std::string_view name;
};
constexpr std::array<ElementType, 25> kElementTypes{{
    {1, DataType::kFp32, "FLOAT"},
    {2, DataType::kUint8, "UINT8"},
    {3, DataType::kInt8, "INT8"},
    {4, DataType::kUint16, "UINT16"},
    {5, DataType::kInt16, "INT16"},
    {6, DataType::kInt32, "INT32"},
    {7, DataType::kInt64, "INT64"},
    {8, DataType::kBytes, "STRING"},
    {9, DataType::kBool, "BOOL"},
    {10, DataType::kFp16, "FLOAT16"},
    {11, DataType::kFp64, "DOUBLE"},
    {12, DataType::kUint32, "UINT32"},
    {13, DataType::kUint64, "UINT64"},
    {14, DataType::kInvalid, "COMPLEX64"},
    {15, DataType::kInvalid, "COMPLEX128"},
    {16, DataType::kBf16, "BFLOAT16"},
    {17, DataType::kInvalid, "FLOAT8E4M3FN"},
    {18, DataType::kInvalid, "FLOAT8E4M3FNUZ"},
    {19, DataType::kInvalid, "FLOAT8E5M2"},
    {20, DataType::kInvalid, "FLOAT8E5M2FNUZ"},
    {21, DataType::kInvalid, "UINT4"},
    {22, DataType::kInvalid, "INT4"},
    {23, DataType::kInvalid, "FLOAT4E2M1"},
    {24, DataType::kInvalid, "FLOAT8E8M0"},
    {0, DataType::kInvalid, "UNDEFINED"},
}};

}  // namespace

std::string_view OnnxKindName(OnnxKind kind) {
  switch (kind) {
    case OnnxKind::kTensor:
      return "ONNX_TYPE_TENSOR";
    case OnnxKind::kSequence:
      return "ONNX_TYPE_SEQUENCE";
    case OnnxKind::kMap:
      return "ONNX_TYPE_MAP";
    case OnnxKind::kOpaque:
      return "ONNX_TYPE_OPAQUE";
    case OnnxKind::kSparseTensor:
      return "ONNX_TYPE_SPARSETENSOR";
    case OnnxKind::kOptional:
      return "ONNX_TYPE_OPTIONAL";
    case OnnxKind::kUnknown:
      break;
  }
  return "ONNX_TYPE_UNKNOWN";
}

Shape OnnxValue::DeclaredShape() const {
  Shape shape;
  for (const OnnxDim& dim : dims) shape.push_back(dim.value);
  return shape;
}

DataType DataTypeOfOnnx(int element_type) {
  for (const ElementType& entry : kElementTypes) {
    if (entry.onnx == element_type) return entry.type;
  }
  return DataType::kInvalid;
}

int OnnxOfDataType(DataType type) {
  if (type == DataType::kInvalid) return 0;
  for (const ElementType& entry : kElementTypes) {
    if (entry.type == type) return entry.onnx;
  }
  return 0;
}

std::string OnnxElementTypeName(int element_type) {
  for (const ElementType& entry : kElementTypes) {
    if (entry.onnx == element_type) return std::string(entry.name);
  }
  return fmt::format("<{}>", element_type);
}

absl::StatusOr<OnnxFacts> ProbeOnnx(std::span<const std::byte> bytes, std::string_view file) {
  OnnxFacts facts;
  Probe probe(bytes, &facts);
  if (!probe.Run()) {
    return absl::InternalError(fmt::format("'{}' is no complete ONNX model: {} bytes long, not understood at byte {}{}",
                                           file, bytes.size(), probe.broken_at(),
                                           bytes.empty() ? " (the file is empty)" : ""));
  }
  return facts;
}

std::string MoveWeightsOut(std::span<const std::byte> bytes, const OnnxFacts& facts, std::string_view location) {
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  std::string graph;
  std::size_t at = facts.graph_begin;
  for (const OnnxInlineWeights& weights : facts.inline_weights) {
    graph.append(text + at, weights.entry_begin - at);
    std::string tensor(text + weights.tensor_begin, weights.field_begin - weights.tensor_begin);
    tensor.append(text + weights.data_end, weights.tensor_end - weights.data_end);
    AppendBytes(&tensor, 13, ExternalEntry("location", location));
    AppendBytes(&tensor, 13, ExternalEntry("offset", std::to_string(weights.data_begin)));
    AppendBytes(&tensor, 13, ExternalEntry("length", std::to_string(weights.data_end - weights.data_begin)));
    AppendVarint(&tensor, 14 << 3);
    AppendVarint(&tensor, 1);
    AppendBytes(&graph, 5, tensor);
    at = weights.tensor_end;
  }
  graph.append(text + at, facts.graph_end - at);
  std::string model(text, facts.graph_field);
  AppendBytes(&model, 7, graph);
  model.append(text + facts.graph_end, bytes.size() - facts.graph_end);
  return model;
}

}  // namespace tidemark
