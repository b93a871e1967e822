#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "protocol/http_infer.h"
#include "protocol/infer_checks.h"
#include "protocol/json_cursor.h"
#include "protocol/json_reader.h"

namespace tidemark {
namespace {

constexpr char kNotString[] = "attempt to access JSON non-string as string";
constexpr char kNotBool[] = "attempt to access JSON non-boolean as boolean";
constexpr char kNotUnsigned[] = "attempt to access JSON non-unsigned-integer as unsigned-integer";
constexpr char kNotArray[] = "attempt to access JSON non-array as array";
constexpr char kNotObject[] = "attempt to get members for non-object";

template <typename... Args>
absl::Status Invalid(fmt::format_string<Args...> text, Args&&... args) {
  return absl::InvalidArgumentError(fmt::format(text, std::forward<Args>(args)...));
}

absl::Status NoMember(std::string_view name) {
  return Invalid("Unable to parse '{}': attempt to access non-existing object member '{}'", name, name);
}

absl::Status NotParsed(std::string_view name, std::string_view why) {
  return Invalid("Unable to parse '{}': {}", name, why);
}

// Where a value's error goes: the text in front of the reason.
struct Field {
  std::string_view name;
  std::string_view verb = "parse";
};

// Reads the JSON part. Members may come in any order, the first of a name counts. Each part keeps its own status, so that
// malformed JSON wins over everything and else the errors come in Triton's order, whatever the order of the members.
class InferReader {
 public:
  InferReader(std::span<const std::byte> body, std::size_t json_bytes, const ModelInfo& model, const JsonLimits& limits,
              BufferPool& pool, InferenceRequest& request, SharedMemoryFinder* regions)
      : cursor_({reinterpret_cast<const char*>(body.data()), json_bytes}),
        tail_(body.subspan(json_bytes)),
        model_(model),
        limits_(limits),
        pool_(pool),
        request_(request),
        regions_(regions) {}

  absl::Status Read() {
    if (cursor_.Peek() != JsonKind::kObject) {
      if (!cursor_.SkipValue() || !cursor_.Finish()) return cursor_.Error();
      return NoMember("inputs");
    }
    absl::Status id, parameters, inputs, outputs;
    bool has_id = false, has_parameters = false, has_inputs = false, has_outputs = false;
    cursor_.EnterObject();
    std::string_view key;
    while (cursor_.NextMember(key)) {
      if (key == "id" && !std::exchange(has_id, true)) {
        id = ReadString({"id"}, request_.id);
      } else if (key == "parameters" && !std::exchange(has_parameters, true)) {
        parameters = ReadParameters();
      } else if (key == "inputs" && !std::exchange(has_inputs, true)) {
        inputs = ReadInputs();
      } else if (key == "outputs" && !std::exchange(has_outputs, true)) {
        outputs = ReadOutputs();
      } else {
        cursor_.SkipValue();
      }
    }
    if (!cursor_.Finish()) return cursor_.Error();
    RETURN_IF_ERROR(id);
    RETURN_IF_ERROR(parameters);
    if (!has_inputs) return NoMember("inputs");
    RETURN_IF_ERROR(inputs);
    RETURN_IF_ERROR(TakeBinary());
    RETURN_IF_ERROR(CheckNamesOnce(request_, request_.inputs, "input"));
    RETURN_IF_ERROR(outputs);
    return CheckNamesOnce(request_, request_.outputs, "output");
  }

 private:
  // Reads a value of one kind; a value of another kind is skipped and gives "Unable to <verb> '<name>': <why>".
  absl::Status WrongKind(const Field& field, std::string_view why) {
    cursor_.SkipValue();
    return Invalid("Unable to {} '{}': {}", field.verb, field.name, why);
  }

  absl::Status ReadString(const Field& field, std::string& value) {
    if (cursor_.Peek() != JsonKind::kString) return WrongKind(field, kNotString);
    std::string_view text;
    if (cursor_.ReadString(text)) value.assign(text);
    return absl::OkStatus();
  }

  absl::Status ReadBool(const Field& field, bool& value) {
    const JsonKind kind = cursor_.Peek();
    if (kind != JsonKind::kTrue && kind != JsonKind::kFalse) return WrongKind(field, kNotBool);
    cursor_.ReadBool(value);
    return absl::OkStatus();
  }

  absl::Status ReadUnsigned(const Field& field, std::uint64_t& value) {
    if (cursor_.Peek() != JsonKind::kNumber) return WrongKind(field, kNotUnsigned);
    JsonNumber number;
    if (!cursor_.ReadNumber(number)) return absl::OkStatus();
    const std::optional<std::uint64_t> whole = number.AsUint64();
    if (!whole) return Invalid("Unable to {} '{}': {}", field.verb, field.name, kNotUnsigned);
    value = *whole;
    return absl::OkStatus();
  }

  absl::Status ReadSequenceId() {
    if (cursor_.Peek() == JsonKind::kNumber) {
      JsonNumber number;
      if (!cursor_.ReadNumber(number)) return absl::OkStatus();
      const std::optional<std::uint64_t> whole = number.AsUint64();
      if (!whole) return NotParsed("sequence_id", kNotString);
      request_.sequence_id = *whole;
      return absl::OkStatus();
    }
    std::string text;
    RETURN_IF_ERROR(ReadString({"sequence_id"}, text));
    request_.sequence_id = std::move(text);
    return absl::OkStatus();
  }

  absl::Status ReadCustom(std::string key) {
    Parameter value;
    switch (cursor_.Peek()) {
      case JsonKind::kString: {
        std::string_view text;
        if (!cursor_.ReadString(text)) return absl::OkStatus();
        value = std::string(text);
        break;
      }
      case JsonKind::kTrue:
      case JsonKind::kFalse: {
        bool flag = false;
        cursor_.ReadBool(flag);
        value = flag;
        break;
      }
      case JsonKind::kNumber: {
        JsonNumber number;
        if (!cursor_.ReadNumber(number)) return absl::OkStatus();
        if (const std::optional<std::int64_t> whole = number.AsInt64(); whole) {
          value = *whole;
        } else {
          value = number.AsDouble();
        }
        break;
      }
      default:
        cursor_.SkipValue();
        return Invalid("parameter '{}' has invalid type. It should be either 'int', 'bool', or 'string'.", key);
    }
    const auto same = [&](const auto& entry) { return entry.first == key; };
    if (std::none_of(request_.parameters.begin(), request_.parameters.end(), same)) {
      request_.parameters.emplace_back(std::move(key), std::move(value));
    }
    return absl::OkStatus();
  }

  absl::Status ReadParameter(std::string_view key) {
    if (key == "sequence_id") return ReadSequenceId();
    if (key == "sequence_start") return ReadBool({"sequence_start"}, request_.sequence_start);
    if (key == "sequence_end") return ReadBool({"sequence_end"}, request_.sequence_end);
    if (key == "priority") return ReadUnsigned({"priority"}, request_.priority);
    if (key == "timeout") return ReadUnsigned({"timeout"}, request_.timeout_us);
    if (key == "binary_data_output") return ReadBool({"binary_data_output"}, request_.binary_data_output);
    if (key.starts_with("triton_")) {
      cursor_.SkipValue();
      return Invalid(
          "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.");
    }
    return ReadCustom(std::string(key));
  }

  absl::Status ReadParameters() {
    absl::Status first;
    if (cursor_.Peek() != JsonKind::kObject) {
      cursor_.SkipValue();
      return Invalid("failed to get request params.: {}", kNotObject);
    }
    cursor_.EnterObject();
    std::string_view key;
    while (cursor_.NextMember(key)) {
      if (request_.parameters.size() >= kMaxParameters) {
        cursor_.SkipValue();
        if (first.ok()) first = Invalid("too many request parameters, at most {} are allowed", kMaxParameters);
      } else {
        first.Update(ReadParameter(key));
      }
    }
    return first;
  }

  // What an input's or output's object says besides its name.
  struct TensorParameters {
    absl::Status status;
    bool has_binary_size = false;
    bool has_region = false;
    bool has_binary = false;
    bool has_classification = false;
    bool binary = false;
    std::uint64_t binary_size = 0;
    std::uint64_t classification = 0;
    std::string region;
    std::uint64_t region_offset = 0;
    std::uint64_t region_bytes = 0;
  };

  absl::StatusOr<SharedMemoryLease> FindRegion(const TensorParameters& parameters) {
    if (regions_ != nullptr) {
      return regions_->Find(parameters.region, parameters.region_offset, parameters.region_bytes);
    }
    return absl::NotFoundError(fmt::format("Unable to find shared memory region: '{}'", parameters.region));
  }

  void ReadTensorParameters(bool output, TensorParameters& out) {
    if (cursor_.Peek() != JsonKind::kObject) {
      cursor_.SkipValue();
      out.status = NotParsed("parameters", "attempt to access JSON non-object as object");
      return;
    }
    cursor_.EnterObject();
    std::string_view key;
    while (cursor_.NextMember(key)) {
      if (!output && key == "binary_data_size" && !std::exchange(out.has_binary_size, true)) {
        out.status.Update(ReadUnsigned({"binary_data_size"}, out.binary_size));
      } else if (key == "shared_memory_region" && !std::exchange(out.has_region, true)) {
        out.status.Update(ReadString({"shared_memory_region"}, out.region));
      } else if (key == "shared_memory_offset") {
        out.status.Update(ReadUnsigned({"shared_memory_offset"}, out.region_offset));
      } else if (key == "shared_memory_byte_size") {
        out.status.Update(ReadUnsigned({"shared_memory_byte_size"}, out.region_bytes));
      } else if (output && key == "binary_data" && !std::exchange(out.has_binary, true)) {
        out.status.Update(ReadBool({"binary_data"}, out.binary));
      } else if (output && key == "classification" && !std::exchange(out.has_classification, true)) {
        out.status.Update(ReadUnsigned({"classification", "set"}, out.classification));
      } else {
        cursor_.SkipValue();
      }
    }
  }

  absl::Status ReadShape(Shape& shape) {
    if (cursor_.Peek() != JsonKind::kArray) return WrongKind({"shape"}, kNotArray);
    absl::Status first;
    cursor_.EnterArray();
    while (cursor_.NextElement()) {
      std::uint64_t dim = 0;
      first.Update(ReadUnsigned({"shape"}, dim));
      // What is beyond int64 is kept as -1, which no model takes and InputCount refuses.
      shape.push_back(dim > std::numeric_limits<std::int64_t>::max() ? -1 : static_cast<std::int64_t>(dim));
      if (shape.size() > kMaxRank) {
        shape.pop_back();
        first.Update(Invalid("Unable to parse 'shape': a tensor has at most {} dimensions", kMaxRank));
      }
    }
    return first;
  }

  // Elements that the declared shape holds.
  static absl::StatusOr<std::int64_t> InputCount(const RequestInput& input) {
    const std::span<const std::int64_t> shape = AsSpan(input.shape);
    if (std::any_of(shape.begin(), shape.end(), [](std::int64_t dim) { return dim < 0; })) {
      return Invalid("invalid shape for input '{}': shape {} contains one or more invalid dimensions", input.name,
                     ShapeText(shape));
    }
    const std::optional<std::int64_t> count = ElementCount(shape);
    if (!count) {
      return Invalid("invalid shape for input '{}': shape {} causes total element count to exceed maximum size of {}",
                     input.name, ShapeText(shape), std::numeric_limits<std::int64_t>::max());
    }
    const std::size_t element = ElementByteSize(input.data_type);
    if (element != 0 && !TensorByteSize(input.data_type, shape)) {
      return Invalid(
          "byte size overflow for input '{}': element count ({}) * data type size ({}) exceeds maximum allowed "
          "size ({})",
          input.name, *count, element, std::numeric_limits<std::int64_t>::max());
    }
    return *count;
  }

  struct InputFacts {
    absl::Status name, datatype, shape, data;
    bool has_name = false, has_datatype = false, has_shape = false, has_data = false, has_parameters = false;
    const char* data_later = nullptr;  // the value, when it came before datatype and shape
    TensorParameters parameters;
  };

  absl::Status ReadData(RequestInput& input) {
    if (input.data_type == DataType::kInvalid) {
      cursor_.SkipValue();
      return Invalid("invalid datatype for input {}", input.name);
    }
    absl::StatusOr<std::int64_t> count = InputCount(input);
    if (!count.ok()) {
      cursor_.SkipValue();
      return count.status();
    }
    RETURN_IF_ERROR(ReadJsonTensor(cursor_, input.data_type, input.name, *count, limits_, pool_, input.owned));
    input.data = input.owned.bytes();
    return absl::OkStatus();
  }

  static absl::Status CheckSource(const InputFacts& facts) {
    const int sources =
        (facts.has_data ? 1 : 0) + (facts.parameters.has_binary_size ? 1 : 0) + (facts.parameters.has_region ? 1 : 0);
    if (sources == 1) return absl::OkStatus();
    constexpr std::string_view kRule =
        "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
        "'shared_memory_region' in 'parameters'. But ";
    if (sources == 0) return Invalid("{}no field is set", kRule);
    return Invalid("{}set{}{}{}", kRule, facts.has_data ? " 'data'" : "",
                   facts.parameters.has_binary_size ? " 'binary_data_size'" : "",
                   facts.parameters.has_region ? " 'shared_memory_region'" : "");
  }

  // Members that can be read where they stand are; `data` waits when the type and shape come after it.
  void ReadInputMembers(RequestInput& input, InputFacts& facts) {
    cursor_.EnterObject();
    std::string_view key;
    while (cursor_.NextMember(key)) {
      if (key == "name" && !std::exchange(facts.has_name, true)) {
        facts.name = ReadString({"name"}, input.name);
      } else if (key == "datatype" && !std::exchange(facts.has_datatype, true)) {
        std::string_view text;
        if (cursor_.Peek() != JsonKind::kString) {
          facts.datatype = WrongKind({"datatype"}, kNotString);
        } else if (cursor_.ReadString(text)) {
          input.data_type = DataTypeFromProtocolName(text);
        }
      } else if (key == "shape" && !std::exchange(facts.has_shape, true)) {
        facts.shape = ReadShape(input.shape);
      } else if (key == "data" && !std::exchange(facts.has_data, true)) {
        if (facts.has_name && facts.has_datatype && facts.has_shape && facts.name.ok() && facts.datatype.ok() &&
            facts.shape.ok()) {
          facts.data = ReadData(input);
        } else {
          cursor_.Peek();
          facts.data_later = cursor_.position();
          cursor_.SkipValue();
        }
      } else if (key == "parameters" && !std::exchange(facts.has_parameters, true)) {
        ReadTensorParameters(false, facts.parameters);
      } else {
        cursor_.SkipValue();
      }
    }
  }

  absl::Status ReadInput() {
    if (cursor_.Peek() != JsonKind::kObject) {
      cursor_.SkipValue();
      return NoMember("name");
    }
    RequestInput& input = request_.inputs.emplace_back();
    std::optional<std::uint64_t>& binary = binary_sizes_.emplace_back();
    InputFacts facts;
    ReadInputMembers(input, facts);
    if (cursor_.failed()) return absl::OkStatus();
    if (!facts.has_name) return NoMember("name");
    RETURN_IF_ERROR(facts.name);
    if (!facts.has_datatype) return NoMember("datatype");
    RETURN_IF_ERROR(facts.datatype);
    if (!facts.has_shape) return NoMember("shape");
    RETURN_IF_ERROR(facts.shape);
    RETURN_IF_ERROR(facts.parameters.status);
    RETURN_IF_ERROR(CheckSource(facts));
    if (facts.parameters.has_region) {
      ASSIGN_OR_RETURN(SharedMemoryLease lease, FindRegion(facts.parameters));
      return LendInput(std::move(lease), pool_, request_, input);
    }
    if (facts.data_later != nullptr) {
      const char* const behind = cursor_.position();
      cursor_.Seek(facts.data_later);
      facts.data = ReadData(input);
      cursor_.Seek(behind);
    }
    RETURN_IF_ERROR(facts.data);
    if (facts.parameters.has_binary_size) {
      RETURN_IF_ERROR(InputCount(input).status());
      binary = facts.parameters.binary_size;
    }
    return absl::OkStatus();
  }

  absl::Status ReadInputs() {
    if (cursor_.Peek() != JsonKind::kArray) return WrongKind({"inputs"}, kNotArray);
    absl::Status first;
    cursor_.EnterArray();
    while (cursor_.NextElement()) {
      if (first.ok()) {
        first = ReadInput();
      } else {
        cursor_.SkipValue();
      }
    }
    return first;
  }

  // Hands the bytes behind the JSON to the inputs that announced some, in order.
  absl::Status TakeBinary() {
    std::span<const std::byte> rest = tail_;
    for (std::size_t i = 0; i < request_.inputs.size(); ++i) {
      if (!binary_sizes_[i]) continue;
      const std::uint64_t size = *binary_sizes_[i];
      RequestInput& input = request_.inputs[i];
      if (size > rest.size()) {
        return Invalid("unexpected size for input '{}', expecting {} additional bytes for model '{}'", input.name,
                       size - rest.size(), model_.name());
      }
      input.data = rest.first(size);
      rest = rest.subspan(size);
    }
    if (!rest.empty()) return Invalid("unexpected additional input data for model '{}'", model_.name());
    return absl::OkStatus();
  }

  absl::Status ReadOutput() {
    if (cursor_.Peek() != JsonKind::kObject) {
      cursor_.SkipValue();
      return NoMember("name");
    }
    RequestedOutput& output = request_.outputs.emplace_back();
    absl::Status name;
    bool has_name = false, has_parameters = false;
    TensorParameters parameters;
    cursor_.EnterObject();
    std::string_view key;
    while (cursor_.NextMember(key)) {
      if (key == "name" && !std::exchange(has_name, true)) {
        name = ReadString({"name"}, output.name);
      } else if (key == "parameters" && !std::exchange(has_parameters, true)) {
        ReadTensorParameters(true, parameters);
      } else {
        cursor_.SkipValue();
      }
    }
    if (cursor_.failed()) return absl::OkStatus();
    if (!has_name) return NoMember("name");
    RETURN_IF_ERROR(name);
    RETURN_IF_ERROR(parameters.status);
    if (parameters.has_region) {
      if (parameters.classification != 0) {
        return Invalid("Output can't set both 'shared_memory_region' and 'classification'");
      }
      if (parameters.binary) return Invalid("Output can't set both 'shared_memory_region' and 'binary_data'");
      ASSIGN_OR_RETURN(output.destination, FindRegion(parameters));
    }
    output.binary = parameters.binary;
    output.classification = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(parameters.classification, std::numeric_limits<std::uint32_t>::max()));
    return absl::OkStatus();
  }

  absl::Status ReadOutputs() {
    if (cursor_.Peek() != JsonKind::kArray) return WrongKind({"outputs"}, kNotArray);
    absl::Status first;
    cursor_.EnterArray();
    while (cursor_.NextElement()) {
      if (first.ok()) {
        first = ReadOutput();
      } else {
        cursor_.SkipValue();
      }
    }
    return first;
  }

  JsonCursor cursor_;
  const std::span<const std::byte> tail_;
  const ModelInfo& model_;
  const JsonLimits& limits_;
  BufferPool& pool_;
  InferenceRequest& request_;
  SharedMemoryFinder* const regions_;
  absl::InlinedVector<std::optional<std::uint64_t>, 8> binary_sizes_;  // of each input, where announced
};

absl::Status DecodeRaw(std::span<const std::byte> body, const ModelInfo& model, std::size_t max_input_bytes,
                       BufferPool& pool, InferenceRequest& request) {
  if (body.size() > max_input_bytes) {
    return Invalid(
        "Raw input has a byte_size ({} bytes) that exceeds the maximum allowed value of {} bytes. Use "
        "--http-max-input-size to increase the limit.",
        body.size(), max_input_bytes);
  }
  request.raw = true;
  RequestInput& input = request.inputs.emplace_back();
  input.data = body;
  if (model.inputs().size() != 1 || model.inputs()[0].data_type != DataType::kBytes) return absl::OkStatus();
  // The body is one string; the wire form wants its length in front.
  const auto length = static_cast<std::uint32_t>(body.size());
  if (length != body.size()) return Invalid("Raw input of {} bytes is too long for a string", body.size());
  ASSIGN_OR_RETURN(input.owned, pool.Allocate(sizeof(length) + body.size()));
  std::memcpy(input.owned.data(), &length, sizeof(length));
  if (!body.empty()) std::memcpy(input.owned.data() + sizeof(length), body.data(), body.size());
  input.data = input.owned.bytes();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::size_t> InferJsonBytes(std::optional<std::string_view> header_length, std::size_t body_bytes) {
  if (!header_length) return body_bytes;
  std::int64_t value = 0;
  const char* const end = header_length->data() + header_length->size();
  const auto [stop, error] = std::from_chars(header_length->data(), end, value);
  if (stop != end || error == std::errc::invalid_argument) {
    return Invalid("Unable to parse Inference-Header-Content-Length, got: {}", *header_length);
  }
  constexpr std::int64_t kMin = std::numeric_limits<std::int32_t>::min();
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
  if (error != std::errc() || value < kMin || value > kMax) {
    return Invalid("Unable to parse Inference-Header-Content-Length, value is out of range [ {}, {} ], got: {}", kMin,
                   kMax, *header_length);
  }
  if (value < 0 || static_cast<std::uint64_t>(value) > body_bytes) {
    return Invalid("inference header size should be in range (0, {}), got: {}", body_bytes, value);
  }
  return static_cast<std::size_t>(value);
}

absl::Status DecodeInfer(std::span<const std::byte> body, std::size_t json_bytes, const ModelInfo& model,
                         const JsonLimits& limits, BufferPool& pool, InferenceRequest& request,
                         SharedMemoryFinder* regions) {
  if (json_bytes == 0) return DecodeRaw(body, model, limits.bytes, pool, request);
  if (json_bytes > limits.bytes) {
    return Invalid(
        "request JSON size of {} bytes exceeds the maximum allowed input size of {} bytes. Use "
        "--http-max-input-size to increase the limit.",
        json_bytes, limits.bytes);
  }
  return InferReader(body, json_bytes, model, limits, pool, request, regions).Read();
}

}  // namespace tidemark
