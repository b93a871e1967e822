#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>
#include <variant>

#include "base/status.h"
#include "protocol/grpc_infer.h"
#include "protocol/infer_checks.h"
#include "protocol/protobuf_wire.h"

namespace tidemark {
namespace {

template <typename... Args>
absl::Status Invalid(fmt::format_string<Args...> text, Args&&... args) {
  return absl::InvalidArgumentError(fmt::format(text, std::forward<Args>(args)...));
}

absl::Status Malformed(std::string_view what) {
  return Invalid("the request is no ModelInferRequest: {} is malformed", what);
}

// The value of an InferParameter. monostate: none was set.
using Value = std::variant<std::monostate, bool, std::int64_t, std::string_view, double, std::uint64_t>;

bool ReadValue(std::span<const std::byte> bytes, Value& value) {
  WireReader reader(bytes);
  while (reader.Next()) {  // the last member of the oneof counts
    if (reader.IsNumber(1)) {
      value = reader.number() != 0;
    } else if (reader.IsNumber(2)) {
      value = static_cast<std::int64_t>(reader.number());
    } else if (reader.IsText(3)) {
      value = reader.text();
      if (!IsUtf8(reader.text())) return false;
    } else if (reader.field() == 4 && reader.type() == WireType::kFixed64) {
      value = std::bit_cast<double>(reader.number());
    } else if (reader.IsNumber(5)) {
      value = reader.number();
    }
  }
  return reader.ok();
}

// One entry of a map<string, InferParameter>.
bool ReadEntry(std::span<const std::byte> bytes, std::string_view& key, Value& value) {
  key = {};
  value = std::monostate();
  WireReader reader(bytes);
  while (reader.Next()) {
    if (reader.IsText(1)) {
      key = reader.text();
    } else if (reader.IsText(2) && !ReadValue(reader.bytes(), value)) {
      return false;
    }
  }
  return reader.ok() && IsUtf8(key);
}

absl::Status WrongKind(std::string_view key, std::string_view expected) {
  return Invalid("invalid value type for '{}' parameter, expected {}.", key, expected);
}

// Where a tensor's bytes come from or go to, and what else its parameters say.
struct TensorParameters {
  bool has_region = false;
  std::string_view region;
  std::optional<std::int64_t> offset;
  std::optional<std::int64_t> byte_size;
  std::uint32_t classification = 0;
};

using Entries = absl::InlinedVector<std::span<const std::byte>, 4>;

// The value that a map with these entries has for `wanted`: that of the last one. False when an entry is malformed.
bool FindParameter(const Entries& entries, std::string_view wanted, std::optional<Value>& found) {
  found.reset();
  for (const std::span<const std::byte> entry : entries) {
    std::string_view key;
    Value value;
    if (!ReadEntry(entry, key, value)) return false;
    if (key == wanted) found = value;
  }
  return true;
}

absl::Status ReadNumber(const std::optional<Value>& value, std::string_view key, bool has_region,
                        std::string_view tensor, std::optional<std::int64_t>& number) {
  if (!value) return absl::OkStatus();
  if (!has_region) {
    return Invalid("'{}' can not be specified without 'shared_memory_region' parameter for tensor '{}'", key, tensor);
  }
  if (!std::holds_alternative<std::int64_t>(*value)) {
    return Invalid("invalid value type for '{}' parameter for tensor '{}', expected int64_param.", key, tensor);
  }
  number = std::get<std::int64_t>(*value);
  return absl::OkStatus();
}

absl::Status ReadRegion(const Entries& entries, std::string_view tensor, TensorParameters& out) {
  std::optional<Value> region, offset, size;
  if (!FindParameter(entries, "shared_memory_region", region) ||
      !FindParameter(entries, "shared_memory_offset", offset) ||
      !FindParameter(entries, "shared_memory_byte_size", size)) {
    return Malformed("a tensor parameter");
  }
  if (region) {
    if (!std::holds_alternative<std::string_view>(*region)) {
      return Invalid("invalid value type for 'shared_memory_region' parameter for tensor '{}', expected string_param.",
                     tensor);
    }
    out.has_region = true;
    out.region = std::get<std::string_view>(*region);
  }
  RETURN_IF_ERROR(ReadNumber(offset, "shared_memory_offset", out.has_region, tensor, out.offset));
  RETURN_IF_ERROR(ReadNumber(size, "shared_memory_byte_size", out.has_region, tensor, out.byte_size));
  if (out.has_region && !out.byte_size) {
    return Invalid(
        "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter for tensor '{}'",
        tensor);
  }
  return absl::OkStatus();
}

// The arrays of InferTensorContents, by field number.
struct TypedArray {
  DataType type;           // that the array is for; narrower integers travel in the 32-bit ones
  std::size_t wire_bytes;  // of a packed element; 0: varint
};
constexpr TypedArray kArrays[] = {{DataType::kInvalid, 0}, {DataType::kBool, 0},   {DataType::kInt32, 0},
                                  {DataType::kInt64, 0},   {DataType::kUint32, 0}, {DataType::kUint64, 0},
                                  {DataType::kFp32, 4},    {DataType::kFp64, 8},   {DataType::kBytes, 0}};
constexpr std::uint32_t kBytesArray = 8;

// The type of the array that a tensor of `type` travels in.
DataType ArrayType(DataType type) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kInt16:
      return DataType::kInt32;
    case DataType::kUint8:
    case DataType::kUint16:
      return DataType::kUint32;
    default:
      return type;
  }
}

// A bool of protobuf is any varint, an int32 or uint32 the low bits of one.
template <typename T>
bool StoreInteger(std::uint64_t number, std::byte* to) {
  const T value = static_cast<T>(number);
  std::memcpy(to, &value, sizeof(value));
  return true;
}
template <typename T, typename Wide>
bool StoreNarrow(std::uint64_t number, std::byte* to) {
  const Wide wide = static_cast<Wide>(number);
  if (wide < std::numeric_limits<T>::min() || wide > std::numeric_limits<T>::max()) return false;
  return StoreInteger<T>(number, to);
}

// Writes one varint element as `type`. False when it does not fit.
bool StoreVarint(DataType type, std::uint64_t number, std::byte* to) {
  switch (type) {
    case DataType::kBool:
      *to = number != 0 ? std::byte{1} : std::byte{0};
      return true;
    case DataType::kInt8:
      return StoreNarrow<std::int8_t, std::int32_t>(number, to);
    case DataType::kInt16:
      return StoreNarrow<std::int16_t, std::int32_t>(number, to);
    case DataType::kInt32:
      return StoreInteger<std::int32_t>(number, to);
    case DataType::kUint8:
      return StoreNarrow<std::uint8_t, std::uint32_t>(number, to);
    case DataType::kUint16:
      return StoreNarrow<std::uint16_t, std::uint32_t>(number, to);
    case DataType::kUint32:
      return StoreInteger<std::uint32_t>(number, to);
    default:
      return StoreInteger<std::uint64_t>(number, to);
  }
}

class Decoder {
 public:
  Decoder(const InferEnvelope& envelope, std::span<Buffer> raw, SharedMemoryFinder* regions, BufferPool& pool,
          InferenceRequest& request, GrpcInferFlags& flags)
      : envelope_(envelope), raw_(raw), regions_(regions), pool_(pool), request_(request), flags_(flags) {}

  absl::Status Decode() {
    request_.id.assign(envelope_.id);
    RETURN_IF_ERROR(ReadParameters());
    for (const std::span<const std::byte> input : envelope_.inputs) RETURN_IF_ERROR(ReadInput(input));
    RETURN_IF_ERROR(CheckNamesOnce(request_, request_.inputs, "input"));
    for (const std::span<const std::byte> output : envelope_.outputs) RETURN_IF_ERROR(ReadOutput(output));
    return CheckNamesOnce(request_, request_.outputs, "output");
  }

 private:
  absl::Status ReadParameters() {
    if (envelope_.parameters.size() > kMaxParameters) {
      return Invalid("too many request parameters, at most {} are allowed", kMaxParameters);
    }
    for (const std::span<const std::byte> entry : envelope_.parameters) {
      std::string_view key;
      Value value;
      if (!ReadEntry(entry, key, value)) return Malformed("a parameter");
      RETURN_IF_ERROR(ReadParameter(key, value));
    }
    return absl::OkStatus();
  }

  absl::Status ReadFlag(std::string_view key, const Value& value, bool& flag) {
    if (!std::holds_alternative<bool>(value)) return WrongKind(key, "bool_param");
    flag = std::get<bool>(value);
    return absl::OkStatus();
  }

  absl::Status ReadParameter(std::string_view key, const Value& value) {
    if (key == "sequence_id") {
      if (const auto* number = std::get_if<std::int64_t>(&value)) {
        request_.sequence_id = static_cast<std::uint64_t>(*number);
      } else if (const auto* text = std::get_if<std::string_view>(&value)) {
        request_.sequence_id = std::string(*text);
      } else {
        return WrongKind(key, "int64_param or string_param");
      }
      return absl::OkStatus();
    }
    if (key == "sequence_start") return ReadFlag(key, value, request_.sequence_start);
    if (key == "sequence_end") return ReadFlag(key, value, request_.sequence_end);
    if (key == "priority") return ReadPriority(value);
    if (key == "timeout") {
      const auto* number = std::get_if<std::int64_t>(&value);
      if (number == nullptr) return WrongKind(key, "int64_param");
      request_.timeout_us = static_cast<std::uint64_t>(*number);
      return absl::OkStatus();
    }
    if (key == "triton_enable_empty_final_response") return ReadFlag(key, value, flags_.empty_final_response);
    if (key.starts_with("triton_")) {
      return Invalid(
          "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys starting with "
          "'triton_' are allowed: triton_enable_empty_final_response");
    }
    return AddCustom(key, value);
  }

  absl::Status ReadPriority(const Value& value) {
    if (const auto* number = std::get_if<std::int64_t>(&value)) {
      if (*number < 0) return Invalid("invalid value for 'priority', expected value >= 0.");
      request_.priority = static_cast<std::uint64_t>(*number);
    } else if (const auto* whole = std::get_if<std::uint64_t>(&value)) {
      request_.priority = *whole;
    } else {
      return WrongKind("priority", "int64_param or uint64_param");
    }
    return absl::OkStatus();
  }

  absl::Status AddCustom(std::string_view key, const Value& value) {
    Parameter custom;
    if (const auto* flag = std::get_if<bool>(&value)) {
      custom = *flag;
    } else if (const auto* number = std::get_if<std::int64_t>(&value)) {
      custom = *number;
    } else if (const auto* text = std::get_if<std::string_view>(&value)) {
      custom = std::string(*text);
    } else if (const auto* real = std::get_if<double>(&value)) {
      custom = *real;
    } else {
      return Invalid("invalid value type for '{}' parameter, expected int64_param, bool_param, or string_param.", key);
    }
    const auto same = std::find_if(request_.parameters.begin(), request_.parameters.end(),
                                   [&](const auto& entry) { return entry.first == key; });
    if (same != request_.parameters.end()) {
      same->second = std::move(custom);
    } else {
      request_.parameters.emplace_back(std::string(key), std::move(custom));
    }
    return absl::OkStatus();
  }

  absl::Status AddDim(Shape& shape, std::uint64_t dim) {
    if (shape.size() == kMaxRank) return Invalid("a tensor has at most {} dimensions", kMaxRank);
    shape.push_back(static_cast<std::int64_t>(dim));
    return absl::OkStatus();
  }

  absl::Status ReadShape(const WireReader& reader, Shape& shape) {
    if (reader.type() == WireType::kVarint) return AddDim(shape, reader.number());
    std::span<const std::byte> packed = reader.bytes();
    while (!packed.empty()) {
      std::uint64_t dim = 0;
      if (!WireReader::TakeVarint(packed, dim)) return Malformed("a shape");
      RETURN_IF_ERROR(AddDim(shape, dim));
    }
    return absl::OkStatus();
  }

  absl::Status ReadInput(std::span<const std::byte> bytes) {
    RequestInput& input = request_.inputs.emplace_back();
    Entries parameters;
    std::optional<std::span<const std::byte>> contents;
    std::string_view name;
    WireReader reader(bytes);
    while (reader.Next()) {
      if (reader.IsText(1)) {
        name = reader.text();
      } else if (reader.IsText(2)) {
        input.data_type = DataTypeFromProtocolName(reader.text());
      } else if (reader.field() == 3 && (reader.type() == WireType::kVarint || reader.type() == WireType::kLength)) {
        RETURN_IF_ERROR(ReadShape(reader, input.shape));
      } else if (reader.IsText(4)) {
        parameters.push_back(reader.bytes());
      } else if (reader.IsText(5)) {
        if (contents) return Malformed("an input with two contents");
        contents = reader.bytes();
      }
    }
    if (!reader.ok() || !IsUtf8(name)) return Malformed("an input");
    input.name.assign(name);
    TensorParameters tensor;
    RETURN_IF_ERROR(ReadRegion(parameters, name, tensor));
    return FindData(input, tensor, contents);
  }

  absl::Status FindData(RequestInput& input, const TensorParameters& tensor,
                        const std::optional<std::span<const std::byte>>& contents) {
    if (tensor.has_region) {
      if (contents) {
        return Invalid("unexpected 'content' provided when using shared memory for input tensor '{}' for model '{}'",
                       input.name, envelope_.model_name);
      }
      ASSIGN_OR_RETURN(SharedMemoryLease lease, FindRegion(tensor));
      return LendInput(std::move(lease), pool_, request_, input);
    }
    if (contents) {
      if (!raw_.empty()) {
        return Invalid("contents field must not be specified when using raw_input_contents for '{}' for model '{}'",
                       input.name, envelope_.model_name);
      }
      return ReadContents(*contents, input);
    }
    if (next_raw_ == raw_.size()) {
      return Invalid("unable to find data for input tensor '{}' for model '{}' in request.", input.name,
                     envelope_.model_name);
    }
    input.owned = std::move(raw_[next_raw_++]);
    input.data = input.owned.bytes();
    return absl::OkStatus();
  }

  // Elements of the array in all the pieces that it came in; protobuf packs it, but need not.
  absl::Status MeasureContents(std::span<const std::byte> contents, std::uint32_t array, std::size_t& elements,
                               std::size_t& string_bytes) {
    WireReader reader(contents);
    while (reader.Next()) {
      if (reader.field() != array) continue;
      if (array == kBytesArray) {
        if (reader.type() != WireType::kLength) return Malformed("a tensor");
        ++elements;
        string_bytes += reader.bytes().size();
      } else if (reader.type() != WireType::kLength) {
        ++elements;
      } else if (const std::size_t size = kArrays[array].wire_bytes; size != 0) {
        if (reader.bytes().size() % size != 0) return Malformed("a tensor");
        elements += reader.bytes().size() / size;
      } else {
        for (const std::byte byte : reader.bytes()) elements += (byte & std::byte{0x80}) == std::byte{0} ? 1 : 0;
      }
    }
    return reader.ok() ? absl::OkStatus() : Malformed("a tensor");
  }

  // The one array that has elements, checked against the input's datatype in the order of their numbers.
  absl::StatusOr<std::uint32_t> ChooseArray(std::span<const std::byte> contents, const RequestInput& input) {
    bool present[std::size(kArrays)] = {};
    WireReader reader(contents);
    while (reader.Next()) {
      if (reader.field() >= std::size(kArrays)) continue;
      const bool empty = reader.field() != kBytesArray && reader.type() == WireType::kLength && reader.bytes().empty();
      present[reader.field()] |= !empty;
    }
    if (!reader.ok()) return Malformed("a tensor");
    std::uint32_t chosen = 0;
    for (std::uint32_t array = 1; array < std::size(kArrays); ++array) {
      if (!present[array]) continue;
      if (chosen != 0) {
        return Invalid(
            "unexpected explicit tensor data for input tensor '{}' for model '{}', binary data was already supplied.",
            input.name, envelope_.model_name);
      }
      if (kArrays[array].type != ArrayType(input.data_type)) {
        return Invalid(
            "unexpected explicit tensor data for input tensor '{}' for model '{}' of type '{}', expected datatype '{}'",
            input.name, envelope_.model_name, ProtocolName(kArrays[array].type), ProtocolName(input.data_type));
      }
      chosen = array;
    }
    return chosen;
  }

  absl::Status ReadContents(std::span<const std::byte> contents, RequestInput& input) {
    ASSIGN_OR_RETURN(const std::uint32_t array, ChooseArray(contents, input));
    std::size_t elements = 0;
    std::size_t string_bytes = 0;
    if (array != 0) RETURN_IF_ERROR(MeasureContents(contents, array, elements, string_bytes));
    const std::size_t element = array == kBytesArray ? sizeof(std::uint32_t) : ElementByteSize(input.data_type);
    ASSIGN_OR_RETURN(input.owned, pool_.Allocate(elements * element + string_bytes));
    input.data = input.owned.bytes();
    std::byte* to = input.owned.data();
    WireReader reader(contents);
    while (array != 0 && reader.Next()) {
      if (reader.field() == array) RETURN_IF_ERROR(StoreField(reader, array, element, input, to));
    }
    return to == input.owned.data() + input.owned.size() ? absl::OkStatus() : Malformed("a tensor");
  }

  absl::Status StoreField(const WireReader& reader, std::uint32_t array, std::size_t element, const RequestInput& input,
                          std::byte*& to) {
    if (array == kBytesArray) {
      const auto length = static_cast<std::uint32_t>(reader.bytes().size());
      std::memcpy(to, &length, sizeof(length));
      if (length != 0) std::memcpy(to + sizeof(length), reader.bytes().data(), length);
      to += sizeof(length) + length;
      return absl::OkStatus();
    }
    if (kArrays[array].wire_bytes != 0) {
      if (reader.type() == WireType::kLength) {
        if (!reader.bytes().empty()) std::memcpy(to, reader.bytes().data(), reader.bytes().size());
        to += reader.bytes().size();
        return absl::OkStatus();
      }
      if (reader.type() != (element == 4 ? WireType::kFixed32 : WireType::kFixed64)) return Malformed("a tensor");
      const std::uint64_t bits = reader.number();  // little-endian, as everything here
      std::memcpy(to, &bits, element);
      to += element;
      return absl::OkStatus();
    }
    if (reader.type() == WireType::kVarint) return StoreOne(reader.number(), element, input, to);
    if (reader.type() != WireType::kLength) return Malformed("a tensor");
    std::span<const std::byte> packed = reader.bytes();
    while (!packed.empty()) {
      std::uint64_t number = 0;
      if (!WireReader::TakeVarint(packed, number)) return Malformed("a tensor");
      RETURN_IF_ERROR(StoreOne(number, element, input, to));
    }
    return absl::OkStatus();
  }

  absl::Status StoreOne(std::uint64_t number, std::size_t element, const RequestInput& input, std::byte*& to) {
    if (!StoreVarint(input.data_type, number, to)) {
      const auto value = ArrayType(input.data_type) == DataType::kInt32
                             ? static_cast<std::int64_t>(static_cast<std::int32_t>(number))
                             : static_cast<std::int64_t>(static_cast<std::uint32_t>(number));
      return Invalid("value {} of input '{}' is out of range for datatype {}", value, input.name,
                     ProtocolName(input.data_type));
    }
    to += element;
    return absl::OkStatus();
  }

  absl::Status ReadOutput(std::span<const std::byte> bytes) {
    RequestedOutput& output = request_.outputs.emplace_back();
    Entries parameters;
    std::string_view name;
    WireReader reader(bytes);
    while (reader.Next()) {
      if (reader.IsText(1)) {
        name = reader.text();
      } else if (reader.IsText(2)) {
        parameters.push_back(reader.bytes());
      }
    }
    if (!reader.ok() || !IsUtf8(name)) return Malformed("an output");
    output.name.assign(name);
    output.binary = true;
    TensorParameters tensor;
    RETURN_IF_ERROR(ReadRegion(parameters, name, tensor));
    std::optional<Value> classification;
    if (!FindParameter(parameters, "classification", classification)) return Malformed("a tensor parameter");
    if (classification) {
      const auto* number = std::get_if<std::int64_t>(&*classification);
      if (number == nullptr) {
        return Invalid("invalid value type for 'classification' parameter, expected int64_param");
      }
      if (*number <= 0) return Invalid("invalid value for 'classification' parameter, expected >= 0");
      if (tensor.has_region) return Invalid("output can't set both 'shared_memory_region' and 'classification'");
      output.classification =
          static_cast<std::uint32_t>(std::min<std::int64_t>(*number, std::numeric_limits<std::uint32_t>::max()));
    }
    if (tensor.has_region) {
      ASSIGN_OR_RETURN(output.destination, FindRegion(tensor));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<SharedMemoryLease> FindRegion(const TensorParameters& tensor) {
    if (regions_ == nullptr) return NoSuchRegion(tensor.region);
    return regions_->Find(tensor.region, static_cast<std::uint64_t>(tensor.offset.value_or(0)),
                          static_cast<std::uint64_t>(tensor.byte_size.value_or(0)));
  }

  const InferEnvelope& envelope_;
  const std::span<Buffer> raw_;
  SharedMemoryFinder* const regions_;
  BufferPool& pool_;
  InferenceRequest& request_;
  GrpcInferFlags& flags_;
  std::size_t next_raw_ = 0;
};

}  // namespace

absl::Status DecodeGrpcInfer(const InferEnvelope& envelope, std::span<Buffer> raw, SharedMemoryFinder* regions,
                             BufferPool& pool, InferenceRequest& request, GrpcInferFlags& flags) {
  return Decoder(envelope, raw, regions, pool, request, flags).Decode();
}

}  // namespace tidemark
