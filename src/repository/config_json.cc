#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "repository/config_text.h"

namespace tidemark {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// The 64-bit fields that Triton forgets to turn from protobuf's strings into numbers, by full name. Its
// TensorRT backend reads the dims of a graph specification as strings.
bool StaysString(const FieldDescriptor& field) {
  const std::string& name = field.full_name();
  return name == "inference.ModelOptimizationPolicy.Cuda.GraphSpec.Shape.dim" ||
         name == "inference.ModelInstanceGroup.SecondaryDevice.device_id" ||
         name == "inference.ModelSequenceBatching.InitialState.dims";
}

class Printer {
 public:
  std::string Print(const Message& message) {
    PrintMessage(message);
    return std::move(out_);
  }

 private:
  void PrintString(std::string_view text) {
    out_ += nlohmann::json(std::string(text)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }

  template <typename Integer>
  void PrintWide(const FieldDescriptor& field, Integer value) {
    if (StaysString(field)) {
      out_ += fmt::format("\"{}\"", value);
    } else {
      out_ += fmt::format("{}", value);
    }
  }

  template <typename Float>
  void PrintFloat(Float value) {
    if (std::isnan(value)) {
      out_ += "\"NaN\"";
    } else if (std::isinf(value)) {
      out_ += value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
    } else {
      out_ += fmt::format("{}", value);
    }
  }

  void PrintEnum(const FieldDescriptor& field, int number) {
    const auto* value = field.enum_type()->FindValueByNumber(number);
    if (value != nullptr) {
      PrintString(value->name());
    } else {
      out_ += fmt::format("{}", number);
    }
  }

  // The value of a singular field, or the index-th one of a repeated field when index >= 0.
  void PrintValue(const Message& message, const FieldDescriptor& field, int index) {
    const Reflection& reflection = *message.GetReflection();
    const auto get = [&](auto singular, auto repeated) {
      return index < 0 ? (reflection.*singular)(message, &field) : (reflection.*repeated)(message, &field, index);
    };
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        out_ += fmt::format("{}", get(&Reflection::GetInt32, &Reflection::GetRepeatedInt32));
        return;
      case FieldDescriptor::CPPTYPE_UINT32:
        out_ += fmt::format("{}", get(&Reflection::GetUInt32, &Reflection::GetRepeatedUInt32));
        return;
      case FieldDescriptor::CPPTYPE_INT64:
        PrintWide(field, get(&Reflection::GetInt64, &Reflection::GetRepeatedInt64));
        return;
      case FieldDescriptor::CPPTYPE_UINT64:
        PrintWide(field, get(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64));
        return;
      case FieldDescriptor::CPPTYPE_FLOAT:
        PrintFloat(get(&Reflection::GetFloat, &Reflection::GetRepeatedFloat));
        return;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        PrintFloat(get(&Reflection::GetDouble, &Reflection::GetRepeatedDouble));
        return;
      case FieldDescriptor::CPPTYPE_BOOL:
        out_ += get(&Reflection::GetBool, &Reflection::GetRepeatedBool) ? "true" : "false";
        return;
      case FieldDescriptor::CPPTYPE_ENUM:
        PrintEnum(field, get(&Reflection::GetEnumValue, &Reflection::GetRepeatedEnumValue));
        return;
      case FieldDescriptor::CPPTYPE_STRING:
        PrintString(get(&Reflection::GetString, &Reflection::GetRepeatedString));
        return;
      case FieldDescriptor::CPPTYPE_MESSAGE:
        PrintMessage(index < 0 ? reflection.GetMessage(message, &field)
                               : reflection.GetRepeatedMessage(message, &field, index));
        return;
    }
  }

  void PrintMap(const Message& message, const FieldDescriptor& field) {
    const Reflection& reflection = *message.GetReflection();
    const FieldDescriptor& key = *field.message_type()->map_key();
    const FieldDescriptor& value = *field.message_type()->map_value();
    std::vector<std::pair<std::string, int>> order;
    const bool numeric = key.cpp_type() == FieldDescriptor::CPPTYPE_UINT64;
    const int count = reflection.FieldSize(message, &field);
    for (int i = 0; i < count; ++i) {
      const Message& entry = reflection.GetRepeatedMessage(message, &field, i);
      // Padded, so that numbers sort by value.
      order.emplace_back(numeric ? fmt::format("{:020}", entry.GetReflection()->GetUInt64(entry, &key))
                                 : entry.GetReflection()->GetString(entry, &key),
                         i);
    }
    std::sort(order.begin(), order.end());
    out_ += '{';
    bool first = true;
    for (const auto& [text, index] : order) {
      if (!std::exchange(first, false)) out_ += ',';
      const Message& entry = reflection.GetRepeatedMessage(message, &field, index);
      PrintString(numeric ? fmt::format("{}", entry.GetReflection()->GetUInt64(entry, &key)) : text);
      out_ += ':';
      PrintValue(entry, value, -1);
    }
    out_ += '}';
  }

  void PrintMessage(const Message& message) {
    const Descriptor& type = *message.GetDescriptor();
    const Reflection& reflection = *message.GetReflection();
    out_ += '{';
    bool first = true;
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      if (!field.is_repeated() && field.has_presence() && !reflection.HasField(message, &field)) continue;
      if (!std::exchange(first, false)) out_ += ',';
      out_ += fmt::format("\"{}\":", field.name());
      if (field.is_map()) {
        PrintMap(message, field);
      } else if (field.is_repeated()) {
        out_ += '[';
        const int count = reflection.FieldSize(message, &field);
        for (int k = 0; k < count; ++k) {
          if (k > 0) out_ += ',';
          PrintValue(message, field, k);
        }
        out_ += ']';
      } else {
        PrintValue(message, field, -1);
      }
    }
    out_ += '}';
  }

  std::string out_;
};

}  // namespace

std::string ConfigJson(const inference::ModelConfig& config) {
  if (config.ByteSizeLong() == 0) return {};
  return Printer().Print(config);
}

}  // namespace tidemark
